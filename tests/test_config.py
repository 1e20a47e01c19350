import tomllib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bacon_gcd.config import UserError, choose, read_toml, settings_from, to_toml
from bacon_gcd.discovery.settings import DiscoverSettings


@dataclass(frozen=True)
class Small:
    width: int = 1
    names: tuple[str, ...] = ()


def test_an_unknown_key_lists_the_choices():
    with pytest.raises(UserError, match=r"run.toml: 'widht' is not a setting; choose from width"):
        settings_from(Small, {"widht": 3}, where="run.toml")


def test_lists_become_tuples_and_defaults_stay():
    assert settings_from(Small, {"names": ["a"]}, where="x") == Small(1, ("a",))


def test_choose_names_the_value_and_the_choices():
    assert choose("color", "red", ["red", "blue"]) == "red"
    with pytest.raises(UserError, match="color 'green' is not known; choose from red, blue"):
        choose("color", "green", ["red", "blue"])


plain = st.one_of(
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8")),
    st.lists(st.integers(-5, 5), max_size=3),
)
keys = st.text(st.characters(codec="utf-8"), max_size=9)


@given(st.dictionaries(keys, plain | st.dictionaries(keys, plain, max_size=3), max_size=5))
def test_what_goes_out_as_toml_comes_back(values):
    assert tomllib.loads(to_toml(values)) == values


def test_toml_errors_name_the_file(tmp_path):
    with pytest.raises(UserError, match=r"none.toml: no such file"):
        read_toml(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("a = = 1")
    with pytest.raises(UserError, match=r"bad.toml: not valid TOML"):
        read_toml(bad)


@pytest.mark.parametrize("path", ["/photos/\U000f0000", "/photos/\U0001f600", "/a\x7f\x00\u2028b"])
def test_every_character_of_unicode_can_be_written(path):
    assert tomllib.loads(to_toml({"source": path})) == {"source": path}


@pytest.mark.parametrize(
    "values", [{"source": "/a/\udcff"}, {"added": {"b": {"source": "\ud800"}}}]
)
def test_text_outside_utf8_is_refused_by_name(values):
    with pytest.raises(UserError, match=r"source '.*': not UTF-8, so no file can record it"):
        to_toml(values)


def test_a_value_without_a_place_in_toml_is_a_bug_and_not_turned_into_text():
    with pytest.raises(TypeError, match="width: a complex"):
        to_toml({"width": 1j})


@pytest.mark.parametrize(
    "text",
    ["a = = 1", "a = \udcff", "a = " + "[" * 100_000, "a = " + "9" * 5000, "\x00"],
    ids=["syntax", "bytes", "nesting", "digits", "zero"],
)
def test_damaged_toml_is_one_line(tmp_path, text):
    path = tmp_path / "config.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"config.toml: not valid TOML") as caught:
        read_toml(path)
    assert "\n" not in str(caught.value)


def test_a_folder_in_place_of_a_toml_file_is_one_line(tmp_path):
    with pytest.raises(UserError, match="Is a directory"):
        read_toml(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": "3"}, r"run.toml: Expected `int`, got `str` - at `\$.width`"),
        ({"width": True}, "got `bool`"),
        ({"names": [1]}, r"Expected `str`, got `int`"),
        ([], "a list where a table of settings is expected"),
    ],
)
def test_a_setting_of_a_wrong_type_is_one_line(values, message):
    with pytest.raises(UserError, match=message):
        settings_from(Small, values, where="run.toml")


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "x", True, None])
def test_a_seed_that_not_every_library_takes_is_refused_by_its_value(seed):
    with pytest.raises(UserError, match=f"seed {seed!r}: give a whole number from 0 to 4294967295"):
        DiscoverSettings("photos", seed=seed)
    assert DiscoverSettings("photos", seed=2**32 - 1).seed == 2**32 - 1
