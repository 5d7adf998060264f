"""Regular expressions of names that somebody else wrote match as `re` does, and never take long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from memdesc import MemdescError
from reorder.storage.patterns import NamePattern
from tests.work import hangs_fail

_PARTS = ["a", "b", ".", r"\.", "[ab]", "[^a]", "[^.1-9]", r"[\d.]", r"\d", r"\W", "$", "^", r"\b"]
_REPEATS = ["*", "+", "?", "*?", "{2}", "{2,}", "{1,3}", "{0,2}?"]


def _more(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{}{}".format, parts, parts),
        st.builds("({}|{})".format, parts, parts),
        st.builds("(?:{}){}".format, parts, st.sampled_from(_REPEATS)),
        st.builds("(?={})".format, parts),
        st.builds("(?!{})".format, parts),
    )


@given(st.recursive(st.sampled_from(_PARTS), _more, max_leaves=8), st.text("ab.1\n", max_size=8))
def test_a_pattern_matches_as_re_does(text: str, name: str) -> None:
    try:
        pattern = NamePattern(text)
    except MemdescError:
        reject()
    assert pattern.matches(name) == (re.match(text, name) is not None)


@pytest.mark.parametrize(
    "text",
    [
        "(a*)*b",
        "(a+a+)+b",
        "(a|a)*b",
        "(a|aa)+b",
        ".*" * 200 + "b",
        "a?" * 300 + "b",
        "(?:a?){300}b",
        "(?!(?:a|aa)*b)(?:a|aa)*b",
        "(?:(?!ab).)*b",
    ],
)
def test_hostile_patterns_end(text: str) -> None:
    with hangs_fail():
        assert not NamePattern(text).matches("a" * 300)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(", "'(' is not a regular expression: missing )"),
        (r"(a)\1", "has parts of the kind groupref, which"),
        ("(?<=a)b", "has parts of the kind assert, which"),
        ("(?i)a", "has flags, which"),
        ("(?i:a)", "has flags, which"),
        ("((a*b)*c)*", "has more than 2 repeats or lookaheads in each other"),
        ("(?=(?!(?=a)))", "has more than 2 repeats or lookaheads in each other"),
        ("(?>a)", "has parts of the kind atomic_group"),
        ("a" * 1001, "has more than 1000 letters"),
    ],
)
def test_other_patterns_are_refused(text: str, problem: str) -> None:
    with pytest.raises(MemdescError, match=re.escape(problem)):
        NamePattern(text)


def test_long_names_are_refused() -> None:
    with pytest.raises(MemdescError, match="has more than 300 letters, and is not compared"):
        NamePattern("a").matches("a" * 301)
