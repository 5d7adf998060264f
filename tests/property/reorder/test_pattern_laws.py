"""Regular expressions of names that somebody else wrote match as `re` does, and never take long."""

import re

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from memdesc import MemdescError
from reorder.checkpoints.config import matches_pattern
from tests.work import hangs_fail

_PARTS = ["a", "b", ".", r"\.", "[ab]", "[^a]", "[])|(*]", r"[\d.]", r"\d", r"\)", "$", "^", r"\b"]
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
        found = matches_pattern(text, name)
    except MemdescError:
        reject()
    assert found == (re.match(text, name) is not None)


@pytest.mark.parametrize(
    "text",
    [
        r".*self_attn.*",
        r"^(?!.*vision).*layers\.(?:0|1|2|10)\..*(?:gate|up|down)_proj$",
        r".*\.layers\.\d+\.mlp\.experts\.\d+\.(w1|w2|w3)",
        r"(?:model\.)?language_model\.[^.]+\.weight",
    ],
)
def test_patterns_of_models_are_read(text: str) -> None:
    name = "model.language_model.layers.10.mlp.experts.127.down_proj"
    assert matches_pattern(f"re:{text}", name) == (re.match(text, name) is not None)


@pytest.mark.parametrize(
    "text",
    [
        "(a*)*b",
        "(a+a+)+b",
        "(a|a)*b",
        "(?:a|aa){2,}b",
        ".*" * 200 + "b",
        "a?" * 300 + "b",
        "(a|aa)" * 60 + "b",
        "[^]](?:a?){300}b",
        "(?!(?:a|aa)*b)(?:a|aa)*b",
        "(?x)(a*) *b",
        "(a*)(?#x)*b",
    ],
)
def test_hostile_patterns_are_refused(text: str) -> None:
    with hangs_fail(), pytest.raises(MemdescError, match=r"repeats a group|could take .* steps"):
        matches_pattern(text, "a" * 300)


def test_what_is_not_a_pattern_is_refused() -> None:
    with pytest.raises(MemdescError, match=r"'\(' is not a regular expression: missing \)"):
        matches_pattern("(", "a")
