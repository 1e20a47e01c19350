import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple

import numpy as np
import pytest
import torch
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from bacon_gcd.backbone import pieces
from bacon_gcd.backbone.bank import (
    LOCK,
    Bank,
    FreshTokens,
    ReadyTokens,
    build_bank,
    n_unfinished,
)
from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.embed import embed
from bacon_gcd.backbone.rendering import PIECE
from bacon_gcd.backbone.sources import occurrences, pick_views
from bacon_gcd.cli import app
from bacon_gcd.config import UserError
from bacon_gcd.data.images import from_arrays, read_images
from bacon_gcd.data.views import ViewSettings, strong_settings, test_view, training_view
from bacon_gcd.system.devices import device_line

test_view.__test__ = False
SIZE = 16
N = 10


class TinyBackbone(Backbone):
    """A fixed random convolution, pooled to (4, 2, 2) tokens; it counts what passes through."""

    def __init__(self, pause: float = 0.0) -> None:
        super().__init__()
        self.name, self.hash = "tiny", "tiny-1"
        self.feature_dim, self.token_shape, self.image_size = 4, (4, 2, 2), SIZE
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("weight", torch.randn(4, 3, 3, 3, generator=generator))
        self.pause, self.n_images = pause, 0

    def trunk(self, images):
        assert images.shape[1:] == (3, SIZE, SIZE)
        self.n_images += len(images)
        time.sleep(self.pause)
        return nn.functional.adaptive_avg_pool2d(nn.functional.conv2d(images, self.weight), 2)

    def new_tail(self):
        return nn.Flatten()


def tiny_table(n_images: int = N, seed: int = 0):
    rng = np.random.default_rng(seed)
    return from_arrays(rng.integers(0, 256, (n_images, 20, 20, 3), dtype=np.uint8))


def build(folder, *, n_images: int = N, backbone: Backbone | None = None, **options) -> Bank:
    options = {"n_views": 3, "chunk": 4} | options
    table = tiny_table(n_images)
    rows = np.arange(n_images)
    return build_bank(table, rows, backbone or TinyBackbone(), folder=folder, **options)


def files_of(bank: Bank) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(bank.folder.glob("*.bin"))}


def one_line(refused) -> str:
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_bank_holds_the_trunk_tokens_of_each_view_in_half_precision(tmp_path):
    table, backbone = tiny_table(), TinyBackbone()
    rows = np.array([7, 2, 5])
    bank = build_bank(
        table, rows, backbone, n_views=2, strong_views=1, seed=9, folder=tmp_path, chunk=2
    )
    weak = ViewSettings("weak", SIZE)
    for position, row in enumerate(rows):
        image = table.image(row)
        expected = [test_view(image, SIZE)] + [
            training_view(image, weak, seed=9, image_key=table.ids[row], view=view)
            for view in (1, 2)
        ]
        for view, pixels in enumerate(expected):
            tokens = backbone.trunk(pixels[None]).half().float()
            torch.testing.assert_close(
                bank.stored_view([position], view), tokens, rtol=1e-3, atol=0
            )
        strong = training_view(
            image, strong_settings(SIZE), seed=9, image_key=table.ids[row], view=1
        )
        torch.testing.assert_close(
            bank.batch([position], ["strong"], seed=0, step=0),
            backbone.trunk(strong[None]).half().float(),
            rtol=1e-3,
            atol=0,
        )
    assert (len(bank), bank.n_views, bank.token_shape) == (3, 2, (4, 2, 2))
    assert bank.n_bytes == 3 * 4 * 16 * 2 == sum(map(len, files_of(bank).values()))


def test_order_of_positions_is_kept_and_positions_may_repeat(tmp_path):
    bank = build(tmp_path)
    whole = bank.test(np.arange(N))
    wanted = np.array([3, 0, 3, 9])
    assert torch.equal(bank.test(wanted), whole[wanted])
    assert bank.test(wanted).dtype == torch.float32
    assert bank.test([]).shape == (0, 4, 2, 2)


@pytest.mark.parametrize("strong_views", [0, 2])
def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path, strong_views):
    banks = [
        build(tmp_path / str(workers), n_images=70, workers=workers, strong_views=strong_views)
        for workers in (0, 2)
    ]
    assert files_of(banks[0]) == files_of(banks[1])


def test_a_complete_bank_is_opened_without_computing_anything(tmp_path):
    first, backbone = build(tmp_path), TinyBackbone()
    again = build(tmp_path, backbone=backbone)
    assert (first.n_computed, again.n_computed, backbone.n_images) == (4 * N, 0, 0)
    assert torch.equal(first.test(np.arange(N)), again.test(np.arange(N)))


def test_a_complete_bank_is_read_while_another_process_holds_its_lock(tmp_path):
    first = build(tmp_path)
    before = sorted(path.name for path in first.folder.iterdir())
    with FileLock(first.folder / LOCK):
        again = build(tmp_path)
    assert torch.equal(again.test([0, 1]), first.test([0, 1]))
    assert sorted(path.name for path in first.folder.iterdir()) == before


def test_more_views_are_added_to_those_that_are_there(tmp_path):
    build(tmp_path / "a", n_views=2)
    backbone = TinyBackbone()
    grown = build(tmp_path / "a", n_views=4, strong_views=1, backbone=backbone)
    assert backbone.n_images == 3 * N
    assert files_of(grown) == files_of(build(tmp_path / "b", n_views=4, strong_views=1))


def test_another_seed_or_other_settings_reuse_only_the_test_view(tmp_path):
    build(tmp_path, n_views=2)
    for options in ({"seed": 1}, {"settings": ViewSettings("weak", SIZE, flip=False)}):
        assert build(tmp_path, n_views=2, **options).n_computed == 2 * N


def test_corrected_labels_keep_the_bank_and_changed_pixels_do_not(tmp_path):
    pixels = np.zeros((3, 20, 20, 3), dtype=np.uint8)

    def computed(images, labels):
        table = from_arrays(images, labels)
        return build_bank(table, [0, 1], TinyBackbone(), n_views=1, folder=tmp_path).n_computed

    assert computed(pixels, [0, 1, -1]) == 4
    assert computed(pixels, [1, 1, 1]) == 0
    other = pixels.copy()
    other[2] = 255
    assert computed(other, [0, 1, -1]) == 0  # the changed image is not in this bank
    other[1] = 255
    assert computed(other, [0, 1, -1]) == 2  # two views of the one that changed


CHILD = """
import sys
from pathlib import Path
from tests.backbone.test_bank import TinyBackbone, build
build(Path(sys.argv[1]), n_images=40, n_views=2, backbone=TinyBackbone(pause=0.02))
"""


ONE_CHUNK = {"n_images": 5 * PIECE, "n_views": 1, "chunk": 8 * PIECE}
CHILD_WITH_ONE_CHUNK = """
import math, sys
from pathlib import Path
from bacon_gcd.backbone import pieces
from tests.backbone.test_bank import ONE_CHUNK, TinyBackbone, build
pieces.EVERY, pieces.SHARE = 0.0, math.inf
build(Path(sys.argv[1]), **ONE_CHUNK, backbone=TinyBackbone(pause=0.1))
"""


def aside(folder):
    return sorted(folder.glob("*/*.piece"))


def finished_chunks(folder) -> int:
    journals = list(folder.glob("*/meta.json"))
    if not journals:
        return 0
    stored = json.loads(journals[0].read_text())["checksums"]
    return sum(checksum is not None for each in stored.values() for checksum in each)


def test_after_kill_9_only_unfinished_chunks_are_computed(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path / "killed")])
    deadline = time.monotonic() + 60
    while finished_chunks(tmp_path / "killed") < 9 and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    finished = finished_chunks(tmp_path / "killed")
    assert 9 <= finished < 30  # ten chunks of three views
    backbone = TinyBackbone()
    resumed = build(tmp_path / "killed", n_images=40, n_views=2, backbone=backbone)
    assert backbone.n_images == 120 - 4 * finished
    assert files_of(resumed) == files_of(build(tmp_path / "whole", n_images=40, n_views=2))


def test_after_kill_9_in_a_chunk_only_unfinished_pieces_are_computed(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", CHILD_WITH_ONE_CHUNK, str(tmp_path / "killed")])
    deadline = time.monotonic() + 60
    while len(aside(tmp_path / "killed")) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    n_aside = len(aside(tmp_path / "killed"))
    assert 2 <= n_aside < 5
    assert finished_chunks(tmp_path / "killed") == 0
    backbone = TinyBackbone()
    resumed = build(tmp_path / "killed", **ONE_CHUNK, backbone=backbone)
    assert backbone.n_images == resumed.n_computed == 2 * PIECE * (5 - n_aside)
    assert files_of(resumed) == files_of(build(tmp_path / "whole", **ONE_CHUNK))
    assert not aside(tmp_path / "killed")


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A bank whose build ended in the third of five pieces, the first two put aside."""
    monkeypatch.setattr(pieces, "EVERY", 0.0)
    monkeypatch.setattr(pieces, "SHARE", math.inf)

    class Stopping(TinyBackbone):
        def trunk(self, images):
            if self.n_images == 4 * PIECE:  # two pieces in two views
                raise KeyboardInterrupt
            return super().trunk(images)

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, **ONE_CHUNK, backbone=Stopping())
    return tmp_path


@pytest.mark.parametrize("what", ["cut off", "changed", "empty", "longer"])
def test_a_damaged_piece_is_computed_again(stopped, what):
    first = aside(stopped)[0]
    data = first.read_bytes()
    changed = bytes([data[0] ^ 1]) + data[1:]
    first.write_bytes(
        {"cut off": data[:-2], "changed": changed, "empty": b"", "longer": data + b".."}[what]
    )
    backbone = TinyBackbone()
    resumed = build(stopped, **ONE_CHUNK, backbone=backbone)
    assert backbone.n_images == 2 * PIECE * 4
    assert files_of(resumed) == files_of(build(stopped / "whole", **ONE_CHUNK))


def test_images_that_are_put_aside_are_not_waited_for(stopped):
    # How long a command takes is told from this number.
    table, backbone = tiny_table(160), TinyBackbone()
    left = n_unfinished(table, backbone, n_views=1, seed=0, folder=stopped)
    assert left == 160 - 2 * PIECE


@pytest.mark.parametrize("kill_at", range(0, 24, 3))
def test_a_kill_at_any_write_leaves_a_bank_that_can_be_finished(tmp_path, monkeypatch, kill_at):
    """Every fsync and rename of the build may be the last one; the final bytes are the same."""
    calls = iter(range(1000))

    def die(real):
        def call(*arguments, **options):
            if next(calls) == kill_at:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", die(os.fsync))
        patch.setattr("pathlib.Path.replace", die(type(tmp_path).replace))
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "killed", n_images=16, n_views=2)
    finished = finished_chunks(tmp_path / "killed")
    backbone = TinyBackbone()
    resumed = build(tmp_path / "killed", n_images=16, n_views=2, backbone=backbone)
    assert backbone.n_images == 48 - 4 * finished
    assert files_of(resumed) == files_of(build(tmp_path / "whole", n_images=16, n_views=2))


def test_two_runs_at_a_time_fill_one_bank_once(tmp_path):
    backbones = [TinyBackbone(pause=0.01), TinyBackbone(pause=0.01)]
    threads = [
        threading.Thread(target=build, args=(tmp_path,), kwargs={"n_images": 40, "backbone": each})
        for each in backbones
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.n_images for each in backbones) == [0, 160]
    build(tmp_path, n_images=40).verify()


def test_a_bank_larger_than_the_free_disk_is_refused_with_its_size(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12, 10**8))
    backbone = TinyBackbone()
    backbone.token_shape = (10**6, 2, 2)
    with pytest.raises(UserError) as refused:
        build(tmp_path, backbone=backbone)
    assert "0.32 GB" in one_line(refused)  # 10 images, 4 views, 4e6 halves
    assert "0.10 GB are free" in str(refused.value)
    assert backbone.n_images == 0
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_is_one_line_and_finished_chunks_are_kept(tmp_path, monkeypatch):
    calls = iter(range(1000))

    def full(handle):
        if next(calls) == 20:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(UserError, match="No space left") as refused:
            build(tmp_path, n_images=40)
    one_line(refused)
    assert finished_chunks(tmp_path) > 0
    build(tmp_path, n_images=40).verify()


def damage(bank: Bank, what: str) -> None:
    path = sorted(bank.folder.glob("weak*.bin"))[1]
    data = bytearray(path.read_bytes())
    if what == "missing":
        path.unlink()
    elif what == "truncated":
        path.write_bytes(data[:-2])
    elif what == "longer":
        path.write_bytes(data + b"..")
    elif what == "changed":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    else:
        meta = bank.folder / "meta.json"
        values = json.loads(meta.read_text())
        changes = {
            "no journal": "{",
            "empty journal": "{}",
            "list journal": "[]",
            "other key": json.dumps(values | {"key": "0"}),
            "other format": json.dumps(values | {"format": 99}),
            "no chunks": json.dumps(values | {"chunk": 0}),
            "other chunks": json.dumps(values | {"chunk": 1}),
        }
        meta.write_text(changes[what])


@pytest.mark.parametrize(
    "what",
    [
        "missing",
        "truncated",
        "longer",
        "changed",
        "no journal",
        "empty journal",
        "list journal",
        "other key",
        "other format",
        "no chunks",
        "other chunks",
    ],
)
def test_a_damaged_bank_is_refused_with_one_line(tmp_path, what):
    bank = build(tmp_path)
    damage(bank, what)
    with pytest.raises(UserError) as refused:
        build(tmp_path)
    assert str(bank.folder) in one_line(refused)
    assert "delete" in str(refused.value)


def test_a_damaged_finished_chunk_is_refused_when_the_work_goes_on(tmp_path):
    bank = build(tmp_path, n_views=1)
    meta = bank.folder / "meta.json"
    values = json.loads(meta.read_text())
    name = next(name for name in values["checksums"] if name.startswith("weak"))
    values["checksums"][name][-1] = None
    del values["modified"][name]
    meta.write_text(json.dumps(values))
    path = bank.folder / f"{name}.bin"
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    with pytest.raises(UserError, match="chunk 0 is not what was written"):
        build(tmp_path, n_views=1)


def test_verify_finds_a_change_that_kept_size_and_date(tmp_path):
    bank = build(tmp_path)
    bank.verify()
    path = sorted(bank.folder.glob("*.bin"))[0]
    state = path.stat()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(UserError, match="is not what was written"):
        build(tmp_path).verify()


def test_an_image_that_becomes_unreadable_is_named_and_finished_chunks_are_kept(tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(6):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(tmp_path / "images" / f"{number}.png")
    table = read_images(tmp_path / "images")
    (tmp_path / "images" / "5.png").write_bytes(b"not an image any more")
    options = {"n_views": 1, "folder": tmp_path / "banks", "chunk": 2}
    with pytest.raises(UserError, match=r"5\.png") as refused:
        build_bank(table, np.arange(6), TinyBackbone(), **options)
    one_line(refused)
    assert finished_chunks(tmp_path / "banks") == 4


def photo_folder(folder, numbers):
    folder.mkdir(exist_ok=True)
    for number in numbers:
        pixels = np.random.default_rng(number).integers(0, 256, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02d}.png")
    return read_images(folder)


def test_an_image_replaced_while_it_is_embedded_is_refused_and_not_stored(tmp_path):
    table = photo_folder(tmp_path / "images", range(4))
    shutil.copy(tmp_path / "images" / "03.png", tmp_path / "images" / "02.png")
    options = {"n_views": 1, "folder": tmp_path / "banks", "chunk": 1}
    with pytest.raises(UserError, match=r"02\.png: changed") as refused:
        build_bank(table, np.arange(4), TinyBackbone(), **options)
    one_line(refused)
    assert finished_chunks(tmp_path / "banks") == 4  # two images in two views
    again = read_images(tmp_path / "images")
    bank = build_bank(again, np.arange(4), TinyBackbone(), **options)
    assert torch.equal(bank.test([2]), bank.test([3]))


def test_an_array_that_is_written_to_while_it_is_embedded_is_refused(tmp_path):
    pixels = np.zeros((3, 20, 20, 3), dtype=np.uint8)
    table = from_arrays(pixels)
    pixels[1] = 7
    with pytest.raises(UserError, match="train/000001: changed"):
        build_bank(table, np.arange(3), TinyBackbone(), n_views=0, folder=tmp_path)


@pytest.mark.parametrize("n_views", [0, 2])
def test_adding_one_image_computes_one_image(tmp_path, n_views):
    options = {"n_views": n_views, "folder": tmp_path / "banks", "chunk": 4}
    table = photo_folder(tmp_path / "images", [1, 2, 3, 5, 6, 7, 8])
    build_bank(table, np.arange(7), TinyBackbone(), **options)
    table, backbone = photo_folder(tmp_path / "images", [4]), TinyBackbone()
    grown = build_bank(table, np.arange(8), backbone, **options)
    assert backbone.n_images == grown.n_computed == 1 + n_views
    grown.verify()
    fresh = build_bank(table, np.arange(8), TinyBackbone(), **options | {"folder": tmp_path / "b"})
    for view in range(n_views + 1):
        copied, computed = (bank.stored_view(np.arange(8), view) for bank in (grown, fresh))
        torch.testing.assert_close(copied, computed, rtol=1e-3, atol=1e-4)


def test_a_subset_and_another_order_compute_nothing_and_a_renamed_image_its_training_views(
    tmp_path,
):
    table, options = photo_folder(tmp_path / "images", range(6)), {"folder": tmp_path / "banks"}
    whole = build_bank(table, np.arange(6), TinyBackbone(), n_views=1, **options)
    rows = np.array([4, 1, 5])
    part = build_bank(table, rows, TinyBackbone(), n_views=1, **options)
    assert part.n_computed == 0
    for view in (0, 1):
        assert torch.equal(part.stored_view([0, 1, 2], view), whole.stored_view(rows, view))
    (tmp_path / "images" / "00.png").rename(tmp_path / "images" / "new.png")
    renamed = read_images(tmp_path / "images")
    # The random numbers of a training view are drawn from the image's name.
    assert build_bank(renamed, np.arange(6), TinyBackbone(), n_views=1, **options).n_computed == 1


def test_two_boxes_of_one_file_are_two_images(tmp_path):
    photo_folder(tmp_path / "images", [1])
    header, left = "file_name,label,x,y,width,height", "01.png,,0,0,10,20"
    (tmp_path / "images" / "boxes.csv").write_text(f"{header}\n{left}\n")
    options = {"n_views": 0, "folder": tmp_path / "banks"}
    build_bank(read_images(tmp_path / "images" / "boxes.csv"), [0], TinyBackbone(), **options)
    (tmp_path / "images" / "boxes.csv").write_text(f"{header}\n{left}\n01.png,,10,0,10,20\n")
    table = read_images(tmp_path / "images" / "boxes.csv")
    bank = build_bank(table, [0, 1], TinyBackbone(), **options)
    assert bank.n_computed == 1
    assert not torch.equal(bank.test([0]), bank.test([1]))


@pytest.mark.parametrize("what", ["missing", "changed", "no journal", "other format", "no rows"])
def test_rows_of_a_damaged_bank_are_computed_again(tmp_path, what):
    bank = build(tmp_path, n_images=9, n_views=2)
    if what == "no rows":
        (bank.folder / "rows.npy").write_bytes(b"nothing")
    else:
        damage(bank, what)
    build(tmp_path, n_images=10, n_views=2).verify()


def test_tokens_of_another_trunk_are_never_copied(tmp_path):
    build(tmp_path, n_images=9)
    other = TinyBackbone()
    other.mean = (0.5, 0.5, 0.5)
    assert build(tmp_path, backbone=other).n_computed == 4 * N


def test_pixels_are_normalized_as_the_backbone_says(tmp_path):
    plain, shifted = TinyBackbone(), TinyBackbone()
    plain.mean, plain.std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    shifted.mean, shifted.std = (0.5, 0.25, 0.0), (0.5, 0.5, 0.25)
    banks = [build(tmp_path, backbone=each, n_views=0) for each in (plain, shifted)]
    assert banks[0].key != banks[1].key
    fresh = FreshTokens(tiny_table(), np.arange(N), shifted, ViewSettings("weak", SIZE))
    torch.testing.assert_close(fresh.test([3]), banks[1].test([3]), rtol=1e-3, atol=1e-3)
    pixels = test_view(tiny_table().image(3), SIZE) * torch.tensor([0.229, 0.224, 0.225]).view(
        3, 1, 1
    ) + torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (shifted.mean, shifted.std))
    expected = shifted.trunk(((pixels - mean) / std)[None])
    torch.testing.assert_close(banks[1].test([3]), expected, rtol=1e-2, atol=1e-2)


def test_sources_hand_out_tokens_on_the_device_they_were_given(tmp_path):
    bank = build(tmp_path, n_views=1, device="meta")
    weak = ViewSettings("weak", SIZE)
    every = [
        bank,
        FreshTokens(tiny_table(), np.arange(N), TinyBackbone(), weak, device="meta"),
        FreshTokens(tiny_table(), np.arange(N), TinyBackbone(), weak, stored=bank),
        ReadyTokens(np.zeros((N, 4, 2, 2)), device="meta"),
    ]
    found = [(s.test([1]).device.type, s.batch([1], ["weak"], seed=0, step=0)) for s in every[:2]]
    assert [(kind, batch.device.type) for kind, batch in found] == [("meta", "meta")] * 2
    assert every[3].test([1]).device.type == "meta"
    assert every[2].device == TinyBackbone().device


def test_views_are_made_while_the_trunk_is_busy(tmp_path, monkeypatch):
    table = tiny_table(3 * PIECE)
    busy, opened, waited = threading.Event(), threading.Event(), []
    real = type(table).checked_image

    def watched(self, row):
        if row >= PIECE and busy.wait(20):
            opened.set()
        return real(self, row)

    class Slow(TinyBackbone):
        def trunk(self, images):
            if not waited:  # the first piece is done when an image of another one is opened
                busy.set()
                waited.append(opened.wait(20))
            return super().trunk(images)

    monkeypatch.setattr(type(table), "checked_image", watched)
    build_bank(table, np.arange(len(table)), Slow(), n_views=1, folder=tmp_path, workers=1)
    assert waited == [True]


def test_tokens_too_large_for_half_precision_are_refused(tmp_path):
    backbone = TinyBackbone()
    backbone.weight *= 1e6
    with pytest.raises(UserError, match=r"tiny.*fp16"):
        build(tmp_path, backbone=backbone)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": ViewSettings("weak", 32)}, "32 pixels.*tiny takes 16"),
        ({"n_views": -1}, "-1"),
    ],
)
def test_wrong_choices_are_one_line(tmp_path, options, message):
    with pytest.raises(UserError, match=message) as refused:
        build(tmp_path, **options)
    one_line(refused)


def test_no_images_and_unknown_views_are_one_line(tmp_path):
    with pytest.raises(UserError, match="no images"):
        build_bank(tiny_table(), [], TinyBackbone(), n_views=1, folder=tmp_path)
    bank = build(tmp_path, n_views=2)
    with pytest.raises(UserError, match=r"strong.*choose from weak"):
        bank.batch([0], ["weak", "strong"], seed=0, step=0)
    with pytest.raises(UserError, match=r"no view 3.*1\.\.2"):
        bank.stored_view([0], 3)


def sources(folder) -> dict[str, Bank | FreshTokens | ReadyTokens]:
    table, rows = tiny_table(), np.arange(N)
    bank = build_bank(table, rows, TinyBackbone(), n_views=3, strong_views=2, folder=folder)
    weak, strong = ViewSettings("weak", SIZE), strong_settings(SIZE)
    views = torch.stack([bank.stored_view(rows, view) for view in range(4)], dim=1)
    return {
        "bank": bank,
        "fresh": FreshTokens(table, rows, TinyBackbone(), weak, strong=strong, n_views=3),
        "fresh over a bank": FreshTokens(
            table, rows, TinyBackbone(), weak, strong=strong, n_views=3, stored=bank
        ),
        "ready": ReadyTokens(views, n_views=3),
    }


def test_every_source_holds_the_same_test_and_stored_views(tmp_path):
    every = sources(tmp_path)
    rows = np.array([4, 1, 1, 8])
    for name, source in every.items():
        assert (len(source), source.n_views, source.token_shape) == (N, 3, (4, 2, 2)), name
        for view in range(4):
            torch.testing.assert_close(
                source.stored_view(rows, view),
                every["bank"].stored_view(rows, view),
                rtol=1e-3,
                atol=1e-4,
            )
        torch.testing.assert_close(
            source.test(rows), source.stored_view(rows, 0), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("name", ["bank", "fresh", "fresh over a bank", "ready"])
def test_a_batch_is_view_major_repeatable_and_changes_with_seed_and_step(tmp_path, name):
    source = sources(tmp_path)[name]
    positions, kinds = np.array([5, 2, 7, 5]), ("weak", "strong", "strong")

    def draw(seed=0, step=0, positions=positions):
        return source.batch(positions, kinds, seed=seed, step=step)

    tokens = draw()
    assert tokens.shape == (12, 4, 2, 2)
    assert tokens.dtype == torch.float32
    assert torch.equal(tokens, draw())
    steps = torch.stack([draw(step=step) for step in range(8)])
    seeds = torch.stack([draw(seed=seed) for seed in range(8)])
    assert steps.std(dim=0).max() > 0
    assert seeds.std(dim=0).max() > 0
    # What an image gets does not depend on the images beside it (tokens may round differently).
    alone = draw(positions=positions[1:2])
    torch.testing.assert_close(alone, tokens[[1, 5, 9]], rtol=1e-4, atol=1e-5)


def test_fresh_views_are_new_at_every_step_and_differ_within_a_batch():
    table = tiny_table()
    # A wide margin for the crop, so that two equal views are rare.
    weak = ViewSettings("weak", SIZE, resize_share=0.2)
    fresh = FreshTokens(table, np.arange(N), TinyBackbone(), weak)
    steps = [fresh.batch([3, 3], ("weak", "weak"), seed=0, step=step) for step in range(5)]
    assert len(torch.unique(torch.cat(steps), dim=0)) == 20


def test_a_batch_takes_stored_views_of_the_right_images_without_repetition(tmp_path):
    # A wide margin for the crop, so that no two stored views are equal by chance.
    bank = build(tmp_path, n_views=3, settings=ViewSettings("weak", SIZE, resize_share=0.2))
    stored = torch.stack([bank.stored_view(np.arange(N), view) for view in (1, 2, 3)])
    positions = np.array([5, 2, 7])
    taken = set()
    for step in range(40):
        batch = bank.batch(positions, ("weak", "weak"), seed=0, step=step).unflatten(0, (2, 3))
        for place, position in enumerate(positions):
            matches = [
                [v for v in range(3) if torch.equal(stored[v, position], batch[slot, place])]
                for slot in range(2)
            ]
            (first,), (second,) = matches
            assert first != second
            taken.add((position, first, second))
    assert len(taken) == 3 * 6  # every ordered pair of every image


@settings(max_examples=50, deadline=None)
@given(
    positions=st.lists(st.integers(0, 30), max_size=40),
    n_stored=st.integers(1, 6),
    n_slots=st.integers(1, 8),
    seed=st.integers(0, 2**31),
)
def test_picked_views_repeat_only_when_all_were_taken(positions, n_stored, n_slots, seed):
    array = np.array(positions, dtype=np.int64)
    stored = {"weak": np.arange(1, n_stored + 1)}
    picked = pick_views(array, ["weak"] * n_slots, stored, seed=seed, step=3)
    assert picked.shape == (n_slots, len(positions))
    for column in picked.T:
        counts = np.bincount(column, minlength=n_stored + 1)[1:]
        assert counts.max() - counts.min() <= 1
        assert counts.sum() == n_slots


def test_picked_views_are_uniform_over_images_steps_and_repetitions():
    stored = {"weak": np.arange(1, 5)}
    positions = np.repeat(np.arange(50), 4)
    picks = [pick_views(positions, ["weak"], stored, seed=1, step=s)[0] for s in range(100)]
    share = np.bincount(np.concatenate(picks), minlength=5)[1:] / 20000
    assert np.abs(share - 0.25).max() < 0.02
    for group in (0, 1, 2, 3):  # the k-th repetition of an image has its own draw
        share = np.bincount(np.stack(picks)[:, group::4].ravel(), minlength=5)[1:] / 5000
        assert np.abs(share - 0.25).max() < 0.04
    together = np.stack(picks).reshape(100, 50, 4)
    assert abs((together[:, :, 0] == together[:, :, 1]).mean() - 0.25) < 0.03


@given(st.lists(st.integers(0, 5), max_size=20))
def test_occurrences_count_the_same_image_before(positions):
    expected = [positions[:place].count(position) for place, position in enumerate(positions)]
    assert occurrences(np.array(positions, dtype=np.int64)).tolist() == expected


def test_one_ready_vector_per_image_is_every_view_of_it():
    vectors = np.random.default_rng(0).standard_normal((5, 8))
    source = ReadyTokens(vectors)
    expected = torch.as_tensor(vectors).float()
    assert (len(source), source.n_views, source.token_shape) == (5, 1, (8,))
    assert torch.equal(source.test(np.arange(5)), expected)
    assert torch.equal(source.stored_view([2], 1), expected[2:3])
    batch = source.batch([4, 0], ("weak", "strong"), seed=0, step=0)
    assert torch.equal(batch, expected[[4, 0, 4, 0]])


def test_noise_and_dropout_disturb_training_views_only_and_by_the_asked_amount():
    vectors = 1 + np.random.default_rng(0).standard_normal((200, 64))
    source = ReadyTokens(vectors, noise=0.1, dropout=0.25)
    rows = np.arange(200)
    assert torch.equal(source.test(rows), torch.as_tensor(vectors).float())
    batch = source.batch(rows, ("weak", "weak"), seed=0, step=0)
    assert torch.equal(batch, source.batch(rows, ("weak", "weak"), seed=0, step=0))
    assert not torch.equal(batch, source.batch(rows, ("weak", "weak"), seed=0, step=1))
    kept = batch != 0
    assert abs(float(kept.float().mean()) - 0.75) < 0.01
    difference = (batch - source.test(np.r_[rows, rows]))[kept]
    assert abs(float(difference.std()) - 0.1 * vectors.std()) < 0.005


@pytest.mark.parametrize(
    ("tokens", "n_views", "message"),
    [(np.zeros((5, 3, 2)), 4, r"\(N, 5, \.\.\.\)"), (np.array([[np.nan]]), 0, "not finite")],
)
def test_ready_tokens_that_do_not_fit_are_one_line(tokens, n_views, message):
    with pytest.raises(UserError, match=message) as refused:
        ReadyTokens(tokens, n_views=n_views)
    one_line(refused)


def test_embed_stores_training_views_and_the_test_view_of_test_images(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "set.npz",
        train_images=rng.integers(0, 256, (6, 20, 20, 3), dtype=np.uint8),
        train_labels=np.array([0, 0, 1, 1, -1, -1]),
        test_images=rng.integers(0, 256, (4, 20, 20, 3), dtype=np.uint8),
        test_labels=np.array([0, 1, 0, 1]),
    )
    options = {"n_views": 2, "strong_views": 1, "cache": tmp_path / "cache"}
    told, tiny = [], TinyBackbone()
    first = embed(
        str(tmp_path / "set.npz"),
        tiny,
        tell=lambda line: told.append((line, tiny.n_images)),
        **options,
    )
    assert told == [(device_line(torch.device("cpu")), 0)]  # before the work
    train, test = first.banks
    assert (len(train), train.n_views, len(test), test.n_views) == (6, 2, 4, 0)
    assert first.n_computed == 6 * 4 + 4
    assert train.folder.parent == tmp_path / "cache" / "banks"
    assert train.key in first.text()
    assert "images/s" in first.text()
    again = embed(str(tmp_path / "set.npz"), TinyBackbone(), **options)
    assert again.values()["computed_views"] == 0
    assert "all stored" in again.text()


def test_the_embed_command_prints_one_json_object(tmp_path, monkeypatch):
    weights = pytest.importorskip("bacon_gcd.backbone.weights")
    monkeypatch.setattr(weights, "load_backbone", lambda *_, **__: TinyBackbone())
    for name in ("cat", "_unlabeled"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (20, 20), (len(name), 0, 0)).save(tmp_path / "images" / name / "1.png")
    (tmp_path / "images" / "cat" / "2.png").write_bytes(b"")
    command = ["embed", str(tmp_path / "images"), "--views", "1", "--image-size", str(SIZE)]
    result = CliRunner().invoke(app, [*command, "--cache", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["banks"][0]["images"] == 2
    assert printed["computed_views"] == 4
    assert printed["unreadable_images"] == 1
    assert printed["bytes"] == 2 * 2 * 16 * 2
