"""Names that a model with a text part proposes; nothing without one, and nothing by itself."""

import json

import numpy as np
import pytest
import torch

import bacon_gcd
from bacon_gcd.backbone.text import load_text_model, reads_text
from bacon_gcd.cluster import unit
from bacon_gcd.config import UserError
from bacon_gcd.discovery import summary
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.names import best_words, read_names, read_words, word_shares
from bacon_gcd.review.session import Session
from tests.library_models import save_model, save_tokenizer
from tests.planted_photos import bacon, plant

WORDS = ["a", "photo", "of", "heron", "owl", "red", "wren"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A CLIP with random weights: it proposes something, and what does not matter here."""
    pytest.importorskip("transformers")
    folder = save_model(tmp_path_factory.mktemp("clip") / "model", "clip")
    save_tokenizer(folder, WORDS)
    return folder


def test_the_share_of_a_word_is_its_mean_probability_over_the_images():
    words = torch.eye(3)
    images = [torch.eye(3)[[0, 0, 1]], torch.eye(3)[[2]]]
    found = word_shares(images, words, 100.0)
    torch.testing.assert_close(found, torch.tensor([[2 / 3, 1 / 3, 0], [0, 0, 1]]))
    even = word_shares(images, words, 0.0)
    torch.testing.assert_close(even, torch.full((2, 3), 1 / 3))


def test_names_of_known_classes_are_not_proposed_and_still_compete():
    shares = torch.tensor([[0.6, 0.3, 0.1]])
    found = best_words(shares, ["Red-Fox", "wolf", "dog"], taken={"red fox"})
    assert found == [[("wolf", 0.3), ("dog", 0.1)]]


def test_planted_images_get_the_word_they_were_made_of():
    rng = np.random.default_rng(0)
    words = unit(torch.from_numpy(rng.normal(size=(20, 16))).float())
    images = [
        unit(words[w] + 0.1 * torch.from_numpy(rng.normal(size=(9, 16)))).float() for w in (4, 7)
    ]
    found = best_words(word_shares(images, words, 50.0), [f"w{n}" for n in range(20)], taken=set())
    assert [each[0][0] for each in found] == ["w4", "w7"]
    assert found[0][0][1] > 0.9


@pytest.mark.parametrize(
    ("written", "said"), [(b"\xff\xfe\xff", "not in UTF-8"), (None, "No such file or directory")]
)
def test_a_file_of_names_that_cannot_be_read_is_named_once(tmp_path, written, said):
    path = tmp_path / "words.txt"
    if written is not None:
        path.write_bytes(written)
    with pytest.raises(UserError) as caught:
        read_words(path)
    assert str(caught.value) == f"--names {path}: cannot be read as text: {said}"


def test_words_and_images_are_compared_as_the_model_itself_does(clip):
    model = load_text_model(f"hf:{clip}")
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    tokens = model.tokenizer(
        [f"a photo of a {word}" for word in WORDS[3:]], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        given = {k: tokens[k] for k in ("input_ids", "attention_mask")}
        expected = model.network(pixel_values=pixels, **given).logits_per_image
        pooled = model.network.vision_model(pixel_values=pixels).pooler_output
    ours = model.scale * model.images(unit(pooled)) @ model.words(WORDS[3:]).T
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_only_a_model_with_text_and_tokenizer_reads_text(clip, tmp_path):
    pytest.importorskip("transformers")
    assert reads_text(f"hf:{clip}")
    assert not reads_text(f"hf:{save_model(tmp_path / 'plain', 'clip')}")
    assert not reads_text(f"hf:{save_model(tmp_path / 'dino', 'dinov2')}")
    assert not reads_text("resnet18.pypi_in1k")


def test_a_run_lists_names_for_new_classes_and_applies_none(clip, tmp_path, monkeypatch):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    pages = []
    monkeypatch.setattr(summary, "write_report", lambda data, path: pages.append(data))
    plant(tmp_path / "photos")
    (tmp_path / "words.txt").write_text("heron\n\n owl \nred\nheron\nwren\n")
    bacon_gcd.discover(
        tmp_path / "photos",
        tmp_path / "run",
        backbone=f"hf:{clip}",
        classes=4,
        names=tmp_path / "words.txt",
    )
    run, proposed = DiscoverRun.load(tmp_path / "run"), read_names(tmp_path / "run")
    new = [each for each in run.classes if not each.known]
    assert set(proposed) == {each.id for each in new}
    assert {each.name for each in new} == {"novel_000", "novel_001"}
    for found in proposed.values():
        assert {name for name, _ in found} == {"heron", "owl", "wren"}
        assert all(0 <= sure <= 1 for _, sure in found)
    shown = {each.name: each.suggested_names for each in pages[0].classes}
    assert shown["red"] == ()
    assert [tuple(each) for each in shown["novel_000"]] == [
        tuple(each) for each in proposed[new[0].id]
    ]
    session = Session(tmp_path / "run")
    listed = {each["name"]: each["proposed"] for each in session.state()["classes"]}
    assert (len(listed["novel_000"]), listed["red"]) == (3, [])
    session.edit({"kind": "rename", "class": new[0].id, "to": "gull", "version": session.version})
    listed = {each["name"]: each["proposed"] for each in session.state()["classes"]}
    assert listed["gull"] == []


def test_a_list_that_cannot_be_used_is_one_line(tmp_path):
    (tmp_path / "one.txt").write_text("heron\n")
    plant(tmp_path / "photos")
    with pytest.raises(UserError, match="1 names; give 2 to"):
        read_words(tmp_path / "one.txt")
    with pytest.raises(UserError, match="cannot be read as text"):
        read_words(tmp_path / "none.txt")
    (tmp_path / "words.txt").write_text("heron\nowl\n")
    np.save(tmp_path / "f.npy", np.zeros((32, 4), dtype=np.float32))
    done = bacon(
        *("discover", tmp_path / "photos", "-o", tmp_path / "run"),
        *("--names", tmp_path / "words.txt", "--features", tmp_path / "f.npy"),
    )
    assert "vectors does not read text" in str(done.exception)


def test_damaged_names_are_one_line(tmp_path):
    (tmp_path / "names.json").write_text(json.dumps([{"id": 4, "names": [["heron"]]}]))
    with pytest.raises(UserError, match=r"names\.json"):
        read_names(tmp_path)
    assert read_names(tmp_path / "elsewhere") == {}
