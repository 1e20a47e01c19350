import pytest
from PIL import Image

from bacon_gcd.data.images import read_images
from bacon_gcd.discovery.image_size import fitting_size, seen_whole

RESNET = "resnet18.pypi_in1k"


def table_of(folder, *sides):
    for number, side in enumerate(sides):
        Image.new("RGB", (side + 20, side), (number, 9, 9)).save(folder / f"{number}.png")
    return read_images(folder, None)


@pytest.mark.parametrize(
    ("sides", "expected"), [((64, 64, 300), 128), ((64, 300, 300), 224), ((160,) * 4, 224)]
)
def test_a_resnet_sees_photographs_larger(sides, expected, tmp_path):
    assert fitting_size(RESNET, table_of(tmp_path, *sides)) == expected


@pytest.mark.parametrize("name", ["vit_small_patch16_224.dino", "resnet50.tv2_in1k"])
def test_other_backbones_keep_their_size(name, tmp_path):
    assert fitting_size(name, table_of(tmp_path, 600, 600)) == 224


@pytest.mark.parametrize(
    ("sides", "expected"), [((64, 64, 300), True), ((64, 300, 300), False), ((159,) * 4, True)]
)
def test_small_images_are_seen_whole_and_photographs_in_their_center(sides, expected, tmp_path):
    assert seen_whole(table_of(tmp_path, *sides)) is expected
