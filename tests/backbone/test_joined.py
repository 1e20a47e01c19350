import pytest
import torch
import torch.nn.functional as F

from bacon_gcd.backbone import joined
from bacon_gcd.backbone.catalogue import LITE, OFFLINE, find, parts_of
from bacon_gcd.backbone.fetch import get
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.config import UserError
from bacon_gcd.discovery.inputs import better_backbone, pick_backbone
from tests.small_backbone import use_small_backbone

RESNET = "resnet18.pypi_in1k"
BOTH = f"{LITE}+{RESNET}"


@pytest.fixture
def both(tmp_path, monkeypatch):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    return [use_small_backbone(monkeypatch, name) for name in (LITE, RESNET)]


def images(n=5):
    return torch.randn(n, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def test_the_features_of_all_networks_stand_side_by_side(both):
    backbone = load_backbone(BOTH)
    parts = [load_backbone(name, tuned="vectors") for name in both]
    alone = [F.normalize(part.trunk(images())) for part in parts]
    found = backbone.new_tail()(backbone.trunk(images()))
    assert backbone.feature_dim == sum(part.feature_dim for part in parts)
    torch.testing.assert_close(F.normalize(found), torch.cat(alone, dim=1) / 2**0.5)


def test_every_network_sees_its_own_mean_and_deviation(both, monkeypatch):
    first, second = (load_backbone(name, tuned="vectors") for name in both)
    second.mean, second.std = (0.5, 0.4, 0.3), (0.2, 0.1, 0.3)
    pixels = torch.rand(4, 3, 64, 64)

    def seen(part):
        mean, std = (torch.tensor(color)[:, None, None] for color in (part.mean, part.std))
        return (pixels - mean) / std

    colors = [(part.mean, part.std) for part in (first, second)]
    changed = joined.renormalized(seen(first), *colors)
    torch.testing.assert_close(changed, seen(second))
    found = joined.join_backbones("both", [first, second]).trunk(seen(first))
    own = F.normalize(second.trunk(seen(second)))
    torch.testing.assert_close(F.normalize(found[:, first.feature_dim :]), own)


def test_the_default_is_the_best_one_alone_and_says_what_would_be_better(both):
    assert pick_backbone("auto") == LITE
    assert pick_backbone(RESNET) == RESNET
    assert better_backbone(LITE) == OFFLINE
    assert better_backbone(OFFLINE).startswith("vit_base")
    find(LITE).path.unlink()
    assert pick_backbone("auto") == RESNET
    assert better_backbone(RESNET) == OFFLINE


def test_facts_are_those_of_all():
    entry = find(BOTH)
    assert (entry.name, entry.supervised, entry.image_size) == (BOTH, True, 224)
    assert entry.license == "Apache-2.0; MIT"
    assert entry.trained_on == "ImageNet-1k with labels"
    assert find(f"{RESNET}+{LITE}").quick_part == "block"


def test_a_plus_in_the_name_of_a_folder_is_part_of_it():
    assert parts_of("hf:models/c++/dino") == ["hf:models/c++/dino"]
    assert parts_of("hf:a+hf:b") == ["hf:a", "hf:b"]


@pytest.mark.parametrize("name", [f"{RESNET}+resnet19", f"{RESNET}+"])
def test_an_unknown_name_among_several_is_refused(name):
    with pytest.raises(UserError, match="backbone"):
        load_backbone(name)


def test_weights_are_got_one_by_one():
    with pytest.raises(UserError, match="name one of"):
        get(BOTH)


def test_no_part_of_several_is_trained(both):
    with pytest.raises(UserError, match="tuned 'conv'"):
        load_backbone(BOTH, tuned="conv")
