import tomllib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bacon_gcd.config import UserError, choose, read_toml, settings_from, to_toml


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
    st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF)),
    st.lists(st.integers(-5, 5), max_size=3),
)
keys = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


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
