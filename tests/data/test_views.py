from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bacon_gcd.config import UserError
from bacon_gcd.data import augment, views
from bacon_gcd.data.views import ViewSettings, render_views, strong_settings, training_view
from tests.reference import views as reference

SIZE = 14  # resized to 16: nine places for the crop of a square image


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def pixels_of(image, view_settings, *, view=1, seed=0):
    return render_views(image, [(view_settings, view)], seed=seed, image_key="a")[0]


SHAPES = [
    (32, 32),
    (31, 33),
    (33, 31),
    (50, 20),
    (20, 51),
    (300, 200),
    (1, 1),
    (3, 7),
    (16, 16),
    (14, 90),
]


@pytest.mark.parametrize(("width", "height"), SHAPES)
@pytest.mark.parametrize("size", [14, 32])
def test_the_test_view_equals_the_reference_pixel_for_pixel(width, height, size):
    image = noise(width, height)
    expected = reference.test_view_by_hand(image, size)
    np.testing.assert_array_equal(views.test_view(image, size).numpy(), expected)


@pytest.mark.parametrize(("width", "height"), [(28, 28), (30, 12), (7, 20)])
@pytest.mark.parametrize("kind", ["test", "weak"])
def test_without_a_crop_a_view_shows_the_whole_image(width, height, kind):
    framed = np.zeros((height, width, 3), dtype=np.uint8)
    framed[[0, -1]] = framed[:, [0, -1]] = 255  # which a center crop cuts off
    image = Image.fromarray(framed)
    uncropped = ViewSettings(kind, SIZE, crop="none", flip=False)
    found = pixels_of(image, uncropped)
    expected = np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(found, expected)
    edges = np.concatenate([found[[0, -1]].ravel(), found[:, [0, -1]].ravel()])
    assert edges.min() > 60


def test_the_test_view_of_an_uncropped_backbone_has_the_size_of_the_others():
    weak = ViewSettings("weak", SIZE)
    assert weak.for_test(uncropped=True) == ViewSettings("test", SIZE, crop="none")
    assert weak.for_test() == ViewSettings("test", SIZE)


@pytest.mark.parametrize(("width", "height"), [(32, 32), (9, 9), (33, 30)])
def test_training_views_are_the_reference_views_all_equally_likely(width, height):
    image = noise(width, height)
    possible = [v.tobytes() for v in reference.every_training_view_by_hand(image, SIZE)]
    draws = [
        training_view(image, ViewSettings("weak", SIZE), seed=0, image_key=key, view=1)
        for key in range(60 * len(possible))
    ]
    seen = Counter(draw.numpy().tobytes() for draw in draws)
    assert set(seen) == set(possible)
    # Each count is binomial with mean 60 and deviation below 8.
    assert min(seen.values()) > 60 - 5 * 8
    assert max(seen.values()) < 60 + 5 * 8
    mirrored = sum(seen[view] for view in possible[1::2])
    assert abs(mirrored / len(draws) - 0.5) < 4 * 0.5 / len(draws) ** 0.5


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(1, 60),
    height=st.integers(1, 60),
    seed=st.integers(0, 2**63),
    key=st.one_of(st.text(), st.integers()),
    view=st.integers(0, 10**9),
    kind=st.sampled_from(["weak", "strong", "resized", "jitter", "test"]),
)
def test_a_view_has_its_shape_and_range_and_never_changes(width, height, seed, key, view, kind):
    options = {
        "weak": ViewSettings("weak", SIZE),
        "strong": strong_settings(SIZE),
        "resized": ViewSettings("weak", SIZE, crop="resized_crop"),
        "jitter": ViewSettings("weak", SIZE, jitter=(0.4, 0.4, 0.4, 0.1), gray_probability=0.2),
        "test": ViewSettings("test", SIZE),
    }[kind]
    image = noise(width, height)
    first = training_view(image, options, seed=seed, image_key=key, view=view)
    again = training_view(image, options, seed=seed, image_key=key, view=view)
    assert first.shape == (3, SIZE, SIZE)
    assert first.dtype == torch.float32
    assert torch.equal(first, again)
    assert -2.2 < first.min() <= first.max() < 2.7
    assert np.array_equal(np.asarray(image), np.asarray(noise(width, height)))  # left untouched


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_seed_image_view_and_kind_each_change_the_random_numbers(seed, view):
    def draw(seed=seed, key="a", kind="weak", view=view):
        return views.view_generator(seed, key, kind, view).integers(2**62)

    draws = [draw(), draw(seed=seed + 1), draw(key="b"), draw(kind="strong"), draw(view=view + 1)]
    assert len(set(draws)) == 5


def test_random_numbers_are_the_same_on_every_machine():
    assert views.view_generator(0, "a", "weak", 1).integers(1000, size=4).tolist() == [
        382,
        24,
        64,
        224,
    ]


def test_views_made_together_equal_views_made_alone():
    image = noise(40, 30)
    wanted = [
        (ViewSettings("test", SIZE), 0),
        (ViewSettings("weak", SIZE), 1),
        (ViewSettings("weak", SIZE, crop="resized_crop"), 1),
        (ViewSettings("weak", SIZE, resize_share=0.5), 1),
        (strong_settings(SIZE), 1),
    ]
    together = render_views(image, wanted, seed=3, image_key="a")
    alone = [render_views(image, [one], seed=3, image_key="a")[0] for one in wanted]
    np.testing.assert_array_equal(together, np.stack(alone))


def test_an_image_without_color_becomes_rgb():
    gray = noise(20, 20).convert("L")
    expected = reference.test_view_by_hand(gray.convert("RGB"), SIZE)
    np.testing.assert_array_equal(views.test_view(gray, SIZE).numpy(), expected)


@pytest.mark.parametrize("size", [(20000, 2), (2, 20000)])
def test_an_extremely_long_image_keeps_its_middle(size):
    image = Image.new("RGB", size, (255, 0, 0))
    middle = tuple(length // 2 for length in size)
    image.paste((0, 255, 0), (middle[0] - 30, middle[1] - 30, middle[0] + 30, middle[1] + 30))
    seen = pixels_of(image, ViewSettings("weak", SIZE))
    assert (seen == (0, 255, 0)).all()


def test_cutout_paints_a_square_of_the_asked_size_somewhere_in_every_view():
    blank = Image.new("RGB", (16, 16), (0, 0, 0))
    only_cutout = ViewSettings("strong", 16, resize_share=1.0, cutout=0.5)
    painted = [
        (pixels_of(blank, only_cutout, view=view) == augment.FILL).all(axis=2)
        for view in range(300)
    ]
    areas = [int(mask.sum()) for mask in painted]
    assert max(areas) == 64  # 8 x 8 where all of it is inside
    assert min(areas) >= 16  # its center is inside, so at least a quarter is
    assert np.mean(painted, axis=0).min() > 0  # no place is safe


def test_stronger_randaugment_changes_more():
    smooth = Image.linear_gradient("L").convert("RGB").resize((64, 64))
    plain = ViewSettings("strong", 64, resize_share=1.0, flip=False)

    def change(magnitude):
        augmented = ViewSettings(
            "strong", 64, resize_share=1.0, flip=False, randaugment=(2, magnitude)
        )
        differences = [
            np.abs(
                pixels_of(smooth, augmented, view=view).astype(int)
                - pixels_of(smooth, plain, view=view).astype(int)
            ).mean()
            for view in range(60)
        ]
        return np.mean(differences)

    assert change(0) < change(4) < change(10)


@pytest.mark.parametrize("operation", augment.OPERATIONS)
@pytest.mark.parametrize("direction", [-1, 1])
def test_every_operation_keeps_size_and_mode(operation, direction):
    for amount in (0.0, 0.4, 1.0):
        changed = operation(noise(20, 24), amount, direction)
        assert (changed.size, changed.mode) == ((20, 24), "RGB")


def test_directions_of_an_operation_are_opposite():
    image = Image.new("RGB", (20, 20), (255, 255, 255))
    to_left = np.asarray(augment._translate_x(image, 1.0, 1))
    to_right = np.asarray(augment._translate_x(image, 1.0, -1))
    np.testing.assert_array_equal(to_left, to_right[:, ::-1])
    assert (to_left[:, 14:] == augment.FILL).all()
    assert (to_left[:, :13] == 255).all()


def test_jitter_of_zero_strength_is_no_jitter():
    image = noise(20, 20)
    weak = ViewSettings("weak", SIZE)
    zero = ViewSettings("weak", SIZE, jitter=(0.0, 0.0, 0.0, 0.0), jitter_probability=1.0)
    np.testing.assert_array_equal(pixels_of(image, weak), pixels_of(image, zero))


def test_hue_turned_once_around_is_where_it_was():
    red = Image.new("RGB", (4, 4), (255, 0, 0))
    third = np.asarray(augment._shift_hue(red, 1 / 3))[0, 0]
    assert third[1] == 255  # a third of the wheel from red is green
    assert third[0] <= 3
    assert np.asarray(augment._shift_hue(red, 256 / 255))[0, 0].tolist() == [255, 0, 0]


def test_brightness_jitter_stays_within_its_strength():
    gray = Image.new("RGB", (16, 16), (100, 100, 100))
    options = ViewSettings("weak", 16, jitter=(0.4, 0.0, 0.0, 0.0), jitter_probability=1.0)
    levels = [int(pixels_of(gray, options, view=view)[0, 0, 0]) for view in range(200)]
    assert 60 <= min(levels) < 70
    assert 130 < max(levels) <= 140


def test_gray_views_have_equal_channels():
    options = ViewSettings("weak", SIZE, gray_probability=1.0)
    seen = pixels_of(noise(20, 20), options)
    assert (seen == seen[:, :, :1]).all()


def test_resized_crops_show_the_asked_share_of_the_area():
    # A horizontal ramp: the range of levels in the view is the width of what was cropped.
    ramp = np.tile(np.arange(256, dtype=np.uint8)[None, :, None], (256, 1, 3))
    options = ViewSettings("weak", 32, crop="resized_crop", crop_scale=(0.25, 0.25), flip=False)
    widths = [
        np.ptp(pixels_of(Image.fromarray(ramp), options, view=view)[:, :, 0].astype(int))
        for view in range(100)
    ]
    assert 128 * np.sqrt(3 / 4) - 10 <= min(widths) < 120
    assert 136 < max(widths) <= 128 * np.sqrt(4 / 3) + 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "week"},
        {"crop": "centre"},
        {"image_size": 0},
        {"resize_share": 0.0},
        {"resize_share": 1.5},
        {"crop_scale": (0.5, 0.2)},
        {"randaugment": (2, 11)},
    ],
)
def test_wrong_settings_are_one_line_that_names_the_value(wrong):
    with pytest.raises(UserError) as refused:
        ViewSettings(**wrong)
    value = next(iter(wrong.values()))
    assert str(value) in str(refused.value)
    assert "\n" not in str(refused.value)
