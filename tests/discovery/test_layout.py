"""A folder that was given one level too high is refused with the command that sorts it."""

import shlex

import pytest

import bacon_gcd
from bacon_gcd.config import UserError
from bacon_gcd.discovery.folder import DiscoverRun
from tests.planted_photos import COLORS, bacon, picture, plant
from tests.small_backbone import use_small_backbone


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fill(folder, colors=tuple(COLORS), n=6):
    folder.mkdir(parents=True)
    for number, color in enumerate(colors):
        for i in range(n):
            picture(color, 100 * number + i).save(folder / f"{color}-{i}.png")


def label_table(path, prefix, columns="file_name,label"):
    rows = [f"{prefix}{color}-{i}.png,{color}\n" for color in ("red", "green") for i in range(4)]
    path.write_text(f"{columns}\n{''.join(rows)}")


def refused(*words):
    """What the command says, and the command it proposes."""
    done = bacon("discover", *words)
    assert isinstance(done.exception, UserError), done.output
    said, _, proposed = str(done.exception).partition("sort them with: bacon ")
    return said, shlex.split(proposed)


def test_a_folder_that_holds_one_folder_of_images_is_refused_with_a_command_that_works(small):
    fill(small / "my lay/images")
    said, proposed = refused("my lay", "-o", "runs/x")
    assert said == (
        "my lay: the only class folder is 'images' and holds all 24 images, so nothing would be "
        "left to sort; "
    )
    assert proposed == ["discover", "my lay/images", "-o", "runs/x"]
    assert not (small / "runs").exists()
    assert bacon(*proposed).exit_code == 0
    assert not any(row.labeled for row in DiscoverRun.load("runs/x").rows)


@pytest.mark.parametrize(("prefix", "folder"), [("", "lay/images"), ("images/", "lay")])
def test_the_labels_of_a_table_beside_the_images_are_proposed(small, prefix, folder):
    fill(small / "lay/images")
    label_table(small / "lay/truth.csv", prefix)
    _, proposed = refused("lay", "-o", "run")
    assert proposed == ["discover", folder, "--labels", "lay/truth.csv", "-o", "run"]
    done = bacon(*proposed)
    assert done.exit_code == 0, done.exception
    run = DiscoverRun.load("run")
    assert [each.name for each in run.classes if each.known] == ["green", "red"]


def test_a_table_without_labels_is_told_what_it_needs(small):
    fill(small / "lay/images")
    label_table(small / "lay/truth.csv", "images/", "file_name;class")
    (small / "lay/other.csv").write_text("a,b\n")
    said, proposed = refused("lay", "-o", "run")
    assert said.endswith("--labels lay/truth.csv needs a column label, it has file_name, class; ")
    assert proposed == ["discover", "lay/images", "-o", "run"]


def test_class_folders_one_level_deeper_are_pointed_to(small):
    plant(small / "nest/photos", novel=(), labeled=8)
    plant(small / "deep/a/b", known=("red", "green", "blue"), novel=(), labeled=8)
    assert refused("nest", "-o", "run")[1] == ["discover", "nest/photos", "-o", "run"]
    assert refused("deep", "-o", "run")[1] == ["discover", "deep/a/b", "-o", "run"]


def test_one_class_in_both_splits_is_told_what_to_do(small):
    for split in ("train", "test"):
        fill(small / "data" / split / "red", ["red"])
    with pytest.raises(UserError, match=r"move images without a label to the folder _unlabeled$"):
        bacon_gcd.discover("data", "run")


@pytest.mark.parametrize("loose", ["_unlabeled/blue.png", "blue.png"])
def test_one_class_folder_beside_an_image_without_a_label_is_sorted(small, loose):
    fill(small / "photos/red", ["red"])
    (small / "photos/_unlabeled").mkdir()
    picture("blue", 1).save(small / "photos" / loose)
    assert bacon("discover", "photos", "-o", "run", "--effort", "quick").exit_code == 0


def test_a_table_that_labels_one_class_only_is_sorted(small):
    fill(small / "photos/red", ["red"])
    (small / "l.csv").write_text(
        "file_name,label\n" + "".join(f"red/red-{i}.png,a\n" for i in range(6))
    )
    bacon_gcd.discover("photos", "run", labels="l.csv", effort="quick")
