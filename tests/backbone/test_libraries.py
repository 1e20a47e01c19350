"""Backbones of transformers and timm: their own size, mean and std, one vector per image."""

import json
import pickle
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from bacon_gcd import CategoryDiscovery
from bacon_gcd.backbone.bank import bank_key
from bacon_gcd.backbone.catalogue import find, own_image_size
from bacon_gcd.backbone.fetch import convert, get, verify
from bacon_gcd.backbone.vectors import VectorTail
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.cli import app
from bacon_gcd.config import UserError
from bacon_gcd.data.images import from_arrays
from bacon_gcd.model import backbone_from, describe_backbone, load_model
from tests.library_models import DIM, MEAN, PATCH, SIZE, STD, network_of, save_model

try:
    import transformers
except ImportError:
    transformers = None
try:
    import timm

    timm_problem = ""
except (ImportError, RuntimeError) as error:
    timm, timm_problem = None, f"timm cannot be imported here: {error}"

needs_transformers = pytest.mark.skipif(
    transformers is None, reason="transformers is not installed: pip install 'bacon-gcd[hf]'"
)
KINDS = ["dinov2", "dinov3", "vit", "clip vision", "clip", "siglip vision", "convnext", "swin"]


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    """Any look at the network fails the test; caches are the test's own."""

    def refuse(*arguments, **options):
        raise AssertionError(f"the network was asked for {arguments}")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))


def images(n=3, size=SIZE):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(0))


def one_line(refused) -> str:
    assert "\n" not in str(refused.value)
    return str(refused.value)


@needs_transformers
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_gives_one_vector_per_image_and_its_own_preprocessing(tmp_path, kind):
    folder = save_model(tmp_path / "model", kind)
    backbone = load_backbone(f"hf:{folder}")
    assert (backbone.image_size, backbone.mean, backbone.std) == (SIZE, tuple(MEAN), tuple(STD))
    assert backbone.token_shape == (backbone.feature_dim,) == (DIM,)
    network = network_of(kind)
    with torch.no_grad():
        output = getattr(network, "vision_model", network)(pixel_values=images())
    tokens = backbone.trunk(images())
    expected = output.last_hidden_state[:, 0] if kind == "vit" else output.pooler_output
    torch.testing.assert_close(tokens, expected)
    tail = backbone.new_tail()
    assert isinstance(tail, VectorTail)
    assert torch.equal(tail(tokens), tokens)
    assert not any(weight.requires_grad for weight in backbone.parameters())
    assert all(weight.requires_grad for weight in tail.parameters())


@needs_transformers
def test_a_classifiers_random_pooler_is_not_used(tmp_path):
    """The file of a ViT classifier has no pooler; transformers would draw one at random."""
    folder = save_model(tmp_path / "model", "vit classifier")
    first, second = (load_backbone(f"hf:{folder}").trunk(images()) for _ in range(2))
    assert torch.equal(first, second)


@needs_transformers
@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, SIZE),
        ({"do_center_crop": False, "size": {"height": 40, "width": 40}}, 40),
        ({"crop_size": 48}, 48),
        ({"crop_size": None, "size": {"shortest_edge": 24}}, 24),
        ({"crop_size": None, "size": {"height": 24, "width": 32}}, SIZE),  # the model's own
    ],
)
def test_the_input_size_is_the_preprocessors_crop_or_size_or_else_the_models(
    tmp_path, changes, size
):
    name = f"hf:{save_model(tmp_path / 'model', **changes)}"
    assert load_backbone(name).image_size == own_image_size(name) == size


@needs_transformers
@pytest.mark.parametrize("kind", ["dinov2", "vit", "clip", "siglip vision"])
def test_another_input_size_can_be_given_if_whole_patches_fit(tmp_path, kind):
    name = f"hf:{save_model(tmp_path / 'model', kind)}"
    larger = load_backbone(name, image_size=SIZE + PATCH)
    assert larger.trunk(images(2, SIZE + PATCH)).shape == (2, DIM)
    assert larger.hash != load_backbone(name).hash
    with pytest.raises(UserError, match=r"image size 36 .* choose 32 or 40") as refused:
        load_backbone(name, image_size=36)
    one_line(refused)


@needs_transformers
def test_the_key_of_a_bank_knows_weights_and_preprocessing_but_not_the_folder(tmp_path):
    def key(folder, kind="dinov2", **changes):
        backbone = load_backbone(f"hf:{save_model(tmp_path / folder, kind, **changes)}")
        return bank_key(from_arrays(np.zeros((2, 8, 8), np.uint8)), np.arange(2), backbone)

    first = key("a")
    assert key("b") == first
    others = [key("c", image_mean=[0.1, 0.2, 0.3]), key("d", image_std=[1, 1, 1]), key("e", "vit")]
    others.append(key("f", do_normalize=False))
    assert len({first, *others}) == 5


@needs_transformers
def test_a_model_checks_the_weights_and_the_preprocessing_of_its_backbone(tmp_path):
    folder = save_model(tmp_path / "model")
    facts = json.loads(json.dumps(describe_backbone(load_backbone(f"hf:{folder}"), tuned="block")))
    assert facts["name"] == f"hf:{folder}"
    assert backbone_from(facts).hash == load_backbone(f"hf:{folder}").hash
    older = {key: value for key, value in facts.items() if key not in ("mean", "std")}
    assert backbone_from(older).hash == backbone_from(facts).hash
    save_model(folder, image_mean=[0.0, 0.0, 0.0])
    with pytest.raises(UserError, match="mean is"):
        backbone_from(facts)
    state = load_file(folder / "model.safetensors")
    save_file({k: v + 1 for k, v in state.items()}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="weights differ") as refused:
        backbone_from(facts)
    one_line(refused)


class Trap:
    def __reduce__(self):
        return (Path("/tmp/bacon-trap").touch, ())


def _break(folder: Path, what: str) -> None:
    weights, config = folder / "model.safetensors", folder / "config.json"
    values = json.loads(config.read_text())
    match what:
        case "only a pickle":
            weights.unlink()
            (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
        case "no config":
            config.unlink()
        case "no preprocessor":
            (folder / "preprocessor_config.json").unlink()
        case "damaged":
            weights.write_bytes(weights.read_bytes()[:100])
        case "weights missing":
            state = load_file(weights)
            state.pop("layernorm.weight")
            save_file(state, weights, {"format": "pt"})
        case "own code":
            auto = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
            config.write_text(json.dumps(values | {"model_type": "evil", "auto_map": auto}))
            (folder / "evil.py").write_text("raise SystemExit('ran')")
        case "not json":
            config.write_text("{")
        case "two colors":
            save_model(folder, image_mean=[0.5, 0.5])
        case "zero std":
            save_model(folder, image_std=[0.5, 0.5, 0.0])
        case "other scale":
            save_model(folder, rescale_factor=1 / 127.5)


@needs_transformers
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("only a pickle", "no .safetensors file"),
        ("no config", "no config.json"),
        ("no preprocessor", "no preprocessor_config.json"),
        ("damaged", "cannot load"),
        ("weights missing", "1 weights are missing, first layernorm.weight"),
        ("own code", "cannot load"),
        ("not json", "config.json: not JSON|cannot load"),
        ("two colors", "image_mean"),
        ("zero std", "image_std"),
        ("other scale", "rescale_factor"),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_line(tmp_path, what, message):
    folder = save_model(tmp_path / "model")
    _break(folder, what)
    with pytest.raises(UserError, match=message) as refused:
        load_backbone(f"hf:{folder}")
    assert str(folder) in one_line(refused)
    assert not Path("/tmp/bacon-trap").exists()


@needs_transformers
def test_a_model_without_a_vision_part_is_refused(tmp_path):
    folder = save_model(tmp_path / "model", "bert")
    with pytest.raises(UserError, match="BertModel does not read images"):
        load_backbone(f"hf:{folder}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:/no/such/folder", "no such folder"),
        ("hf:nobody/nothing", "bacon weights get hf:nobody/nothing"),
        ("hf:", "name a model"),
        ("timm:", "name a model"),
        ("timm:../x", "name a model"),
        ("tf:x", "choose from .*hf:NAME_OR_FOLDER, timm:NAME"),
    ],
)
def test_unknown_names_are_one_line(name, message):
    with pytest.raises(UserError, match=message) as refused:
        load_backbone(name)
    one_line(refused)


def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(sys.modules, "timm", None)
    (tmp_path / "model").mkdir()
    for file in ("config.json", "preprocessor_config.json", "model.safetensors"):
        (tmp_path / "model" / file).write_text("{}")
    with pytest.raises(UserError, match=r"pip install 'bacon-gcd\[hf\]'") as refused:
        load_backbone(f"hf:{tmp_path / 'model'}")
    one_line(refused)
    with pytest.raises(UserError, match=r"pip install 'bacon-gcd\[timm\]'") as refused:
        get("timm:vit_tiny_patch16_224")
    one_line(refused)


@needs_transformers
def test_only_the_whole_network_is_frozen_and_no_block_can_be_tuned(tmp_path):
    folder = save_model(tmp_path / "model")
    with pytest.raises(UserError, match="tuned 'conv'"):
        load_backbone(f"hf:{folder}", tuned="conv")
    assert find(f"hf:{folder}").quick_part == "block"
    with pytest.raises(UserError, match="no such folder"):
        get(f"hf:{tmp_path / 'nothing'}")  # a path: the hub is not asked
    with pytest.raises(UserError, match="are converted"):
        convert(f"hf:{folder}", folder / "model.safetensors")


# ---------------------------------------------------------------------------------------- the hub


@needs_transformers
def test_weights_get_keeps_a_model_of_the_hub_and_a_name_finds_it(tmp_path, monkeypatch):
    source, asked = save_model(tmp_path / "source"), []

    def download(repository, *, local_dir=None, allow_patterns=None, local_files_only=False):
        if local_files_only:
            raise FileNotFoundError
        asked.append((repository, allow_patterns))
        return shutil.copytree(source, local_dir, dirs_exist_ok=True)

    hub = types.SimpleNamespace(
        snapshot_download=download, constants=types.SimpleNamespace(ENDPOINT="https://x")
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setattr("bacon_gcd.backbone.hub._look_up", lambda address: None)
    with pytest.raises(UserError, match="bacon weights get hf:org/tiny"):
        load_backbone("hf:org/tiny")
    assert not asked
    facts = get("hf:org/tiny")
    (repository, patterns), *_ = asked
    assert repository == "org/tiny"
    plain = (".json", ".safetensors", "merges.txt", "spiece.model")  # no code, nothing pickled
    assert all(p.endswith(plain) for p in patterns)
    assert get("hf:org/tiny") == facts
    assert len(asked) == 1
    backbone = load_backbone("hf:org/tiny")
    assert (backbone.name, backbone.weights) == ("hf:org/tiny", facts["sha256"])
    listed = CliRunner().invoke(app, ["weights", "list"]).stdout
    assert "hf:org/tiny" in listed
    save_model(Path(facts["path"]), "vit")
    with pytest.raises(UserError, match="changed since it was fetched"):
        verify("hf:org/tiny")


@needs_transformers
def test_a_model_of_the_hub_that_cannot_be_used_is_not_kept(tmp_path, monkeypatch):
    source = save_model(tmp_path / "source", "bert")

    def download(repository, *, local_dir=None, local_files_only=False, **_):
        if local_files_only:
            raise FileNotFoundError
        return shutil.copytree(source, local_dir, dirs_exist_ok=True)

    hub = types.SimpleNamespace(
        snapshot_download=download, constants=types.SimpleNamespace(ENDPOINT="https://x")
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setattr("bacon_gcd.backbone.hub._look_up", lambda address: None)
    with pytest.raises(UserError, match="does not read images"):
        get("hf:org/bert")
    assert not (tmp_path / "cache" / "weights" / "hf").exists()


# ----------------------------------------------------------------------------------- in commands


def photo_folder(folder: Path, n: int = 12) -> Path:
    rng = np.random.default_rng(0)
    for number in range(n):
        color = [(200, 30, 30), (30, 200, 30), (30, 30, 200)][number % 3]
        pixels = np.clip(color + rng.normal(0, 20, (24, 24, 3)), 0, 255).astype(np.uint8)
        label = ["red", "green", "_unlabeled"][number % 3] if number < n // 2 else "_unlabeled"
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / label / f"{number}.png")
    return folder


def invoke(*command):
    result = CliRunner().invoke(app, [str(part) for part in command])
    assert result.exit_code == 0, (result.output, result.exception)
    return result


@needs_transformers
def test_discover_with_a_folder_of_transformers_leaves_a_model_that_predicts(tmp_path, monkeypatch):
    save_model(tmp_path / "tiny")
    photos, run = photo_folder(tmp_path / "photos"), tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    options = ["--backbone", "hf:tiny", "--effort", "quick", "--classes", "3"]
    told = invoke("discover", photos, "-o", run, *options)
    assert f"at {SIZE} px" in told.output + told.stderr
    monkeypatch.chdir("/")  # the run names the folder by its whole path
    facts = json.loads((run / "model" / "model.json").read_text())["backbone"]
    assert facts["name"] == f"hf:{tmp_path / 'tiny'}"
    assert (facts["image_size"], facts["mean"], facts["std"]) == (SIZE, MEAN, STD)
    invoke("predict", run, photos, "--json")
    assert load_model(run / "model").backbone.feature_dim == DIM
    assert f"image_size = {SIZE}" in (run / "config.toml").read_text()


@needs_transformers
def test_train_and_embed_take_the_models_own_size(tmp_path):
    folder = save_model(tmp_path / "tiny", "clip")
    printed = invoke("embed", photo_folder(tmp_path / "photos"), "--backbone", f"hf:{folder}",
                     "--views", "1", "--json")  # fmt: skip
    values = json.loads(printed.stdout)
    assert (values["image_size"], values["bytes"]) == (SIZE, 12 * 2 * DIM * 2)
    run = tmp_path / "run"
    options = ["--method", "kmeans", "--epochs", "0", "--views", "1"]
    invoke("train", "--dataset", "demo", "--backbone", f"hf:{folder}", *options, "-o", run)
    assert f"image_size = {SIZE}" in (run / "config.toml").read_text()
    assert json.loads((run / "result.json").read_text())["backbone"] == {
        "name": f"hf:{folder}",
        "trained_with_labels": None,
        "image_size": SIZE,
    }


@needs_transformers
def test_the_estimator_takes_a_folder_of_transformers(tmp_path):
    folder = save_model(tmp_path / "tiny", "vit")
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (16, 24, 24, 3), dtype=np.uint8)
    estimator = CategoryDiscovery(n_classes=3, backbone=f"hf:{folder}", epochs=1, views=2)
    estimator.fit(pictures, [0, 0, 0, 0, 1, 1, 1, 1] + [-1] * 8)
    estimator.save(tmp_path / "saved")
    again = CategoryDiscovery.load(tmp_path / "saved")
    assert np.array_equal(again.predict(pictures), estimator.predict(pictures))
    assert again.model_.backbone.image_size == SIZE


# ------------------------------------------------------------------------------------------- timm


@pytest.mark.skipif(timm is None, reason=timm_problem or "timm is here")
@pytest.mark.parametrize(
    ("name", "size"), [("vit_tiny_patch16_224", 64), ("resnet10t.c3_in1k", 96)]
)
def test_a_model_of_timm_gives_the_features_its_classifier_would_see(tmp_path, name, size):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = timm.create_model(name, pretrained=False).eval()
    kept = tmp_path / "cache" / "weights" / "timm" / f"{name}.safetensors"
    kept.parent.mkdir(parents=True)
    save_file(network.state_dict(), kept)
    own = timm.get_pretrained_cfg(name)
    backbone = load_backbone(f"timm:{name}")
    assert backbone.image_size == own.input_size[-1] == own_image_size(f"timm:{name}")
    assert (backbone.mean, backbone.std) == (tuple(own.mean), tuple(own.std))
    pixels = images(2, backbone.image_size)
    with torch.no_grad():
        expected = network.forward_head(network.forward_features(pixels), pre_logits=True)
    torch.testing.assert_close(backbone.trunk(pixels), expected, rtol=1e-4, atol=1e-4)
    smaller = load_backbone(f"timm:{name}", image_size=size)
    assert smaller.trunk(images(2, size)).shape == (2, backbone.feature_dim)
    assert smaller.hash != backbone.hash
    with pytest.raises(UserError, match="knows no such model"):
        get("timm:no_such_model_at_all")
