"""Bad image files, dozens of kinds: counted, set aside with a reason, and the run goes on."""

import random
import resource

import numpy as np
import pytest

from bacon_gcd.data.images import read_folder
from tests.planted_photos import bacon, plant, vectors_of
from tests.reliability.damage import damaged
from tests.reliability.hostile_images import bad_images, corpus, sound_images
from tests.soaking import rounds, seed

KINDS = 60
MEMORY = 600_000  # kB that reading the corpus may take at most


@pytest.fixture(scope="module")
def files():
    return corpus()


@pytest.fixture(scope="module")
def folder(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    for name, (data, _) in files.items():
        (folder / name).write_bytes(data)
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_every_bad_file_is_set_aside_and_every_odd_one_is_an_image(files, folder, recwarn):
    assert len(bad_images()) >= KINDS
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    table = read_folder(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + MEMORY
    aside = {each.id: each.reason for each in table.quarantine}
    assert set(table.ids) == {name for name, (_, sound) in files.items() if sound}
    assert set(aside) == {name for name, (_, sound) in files.items() if not sound}
    assert all(
        reason and "\n" not in reason and str(folder) not in reason for reason in aside.values()
    )
    assert len(table) + len(aside) + sum(table.ignored.values()) == len(files) + 1
    assert not recwarn.list


def test_every_image_of_the_table_can_be_opened(folder):
    table = read_folder(folder)
    for row in range(len(table)):
        image = table.checked_image(row)
        assert (image.mode, len(image.getbands())) == ("RGB", 3)


def test_a_run_among_bad_files_tells_of_all_of_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plant(tmp_path / "photos")
    for name, data in bad_images().items():
        (tmp_path / "photos/red" / name).write_bytes(data)
    names = [path.name for path in sorted((tmp_path / "photos").rglob("*-*.png"))]
    ids = read_folder("photos").ids
    assert sorted(name.split("/")[-1] for name in ids) == sorted(names)
    np.save("vectors.npy", vectors_of(ids))
    done = bacon("discover", "photos", "--features", "vectors.npy", "-o", "run")
    assert done.exit_code == 0, done.exception
    assert f"{len(ids)} images" in done.output
    assert f"{len(bad_images())} unreadable" in done.output
    assert len((tmp_path / "run/quarantine.csv").read_text().splitlines()) == 1 + len(bad_images())


def test_damaged_files_are_counted_too(tmp_path):
    whole = {name: data for name, data in sound_images().items() if len(data) < 20_000}
    for number in rounds("damaged images, 40 each", short=3, share=0.05):
        rng = random.Random(seed(number))
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "good.png").write_bytes(whole["plain.png"])
        for copy in range(40):
            name = rng.choice(list(whole))
            (folder / f"{copy} {name}").write_bytes(damaged(whole[name], rng))
        table = read_folder(folder)
        assert len(table) + len(table.quarantine) == 41, number
        for row in range(len(table)):
            table.checked_image(row)
