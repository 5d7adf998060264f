"""Rules of conversions: their mistakes, what stars match and stand for, and how long that takes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from memdesc import MemdescError
from reorder.checkpoints.convert.rules import Rule, parse_rule
from tests.work import hangs_fail

# Patterns with stars.


_LETTERS = "abA.*?[]"
# what matches each part of a pattern
_MATCHED = {
    "*": st.text(_LETTERS, max_size=3),
    **{letter: st.just(letter) for letter in "abA.?[]"},
}


@st.composite
def _patterns_and_names(draw: DrawFn) -> tuple[str, str]:
    parts = draw(st.lists(st.sampled_from([*_MATCHED]), max_size=7))
    matched = "".join(draw(_MATCHED[part]) for part in parts)
    return "".join(parts), draw(st.just(matched) | st.text(_LETTERS, max_size=9))


@given(_patterns_and_names())
def test_first_stars_stand_for_as_much_as_they_can(pattern_and_name: tuple[str, str]) -> None:
    import re  # the oracle's alone

    pattern, name = pattern_and_name
    tokens = re.findall(r"\*+|.", pattern)
    greedy = "".join("(.*)" if "*" in token else re.escape(token) for token in tokens)
    found = re.fullmatch(greedy, name)
    stars = [token for token in tokens if "*" in token]
    rule = Rule("", pattern, rename="/".join("*" * len(stars)))
    assert rule.matching([name]) == [name] * (found is not None)
    if found and stars:
        assert rule.renamed(name) == "/".join(found.groups())


def test_many_stars_and_long_names_take_no_time() -> None:
    name = "a" * 65_000
    with hangs_fail():
        assert not Rule("", "*a" * 200 + "*b").matching([name])
        assert Rule("", "*a" * 200 + "*").matching([name])
        assert Rule("", "a]b[*").matching(["a]b[c"])
        assert not Rule("", "a]b[*").matching(["aba"])
        assert not Rule("", "*" + "a" * 1000 + "b*").matching([name])
        with pytest.raises(MemdescError, match="no tensor and no record is called"):
            Rule("", "ab" * 2000).fail_unmatched(["ba" * 30_000] * 3)


@pytest.mark.parametrize("piece", ["=", "a=", "a(", ",", ", ", "*", "[", "(=", "->", " ", "\t"])
def test_long_rules_take_linear_time_or_are_refused(piece: str) -> None:
    many = piece * (4000 // len(piece))  # rules have at most 4096 characters
    with hangs_fail():
        for text in (f"*: awq({many}", many):
            with suppress(MemdescError):
                parse_rule(text).matching(["model.layers.0.weight"])
