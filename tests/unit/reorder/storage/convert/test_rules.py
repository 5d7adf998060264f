"""Rules of conversions: what they say, and every mistake in one line."""

from __future__ import annotations

import pytest

from memdesc import MemdescError
from reorder.storage.convert.rules import parse_rule, rules_of_toml


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("*.weight", "does not match PATTERN: "),
        (": ab", "does not match PATTERN: "),
        ("a: ", "does not match PATTERN: "),
        ("a: ab, cd", "'cd' is neither a data type nor KEY=VALUE"),
        ("a: ab, f16, f32", "dtype is given twice"),
        ("a: ab, colour=red", "there is no key 'colour'; the keys are src, dst, dtype, "),
        ("a: ab, scale=big", "scale=big is not a finite number"),
        ("a: ab, zero_point=1.5", "zero_point=1.5 is not an integer"),
        ("a: ab, dims=3by4", "dims=3by4 must be integers joined by x"),
        ("a: ab, scales=xy, s8", "scales=xy must be letters of dims"),
        ("a: ab, scales=a", "scales= needs the data type of the codes"),
        ("a: s8, scales=a, scale=2", "scales= are chosen from the data, scale= and"),
        ("a: ab, groups=1x32", "groups= goes with scales="),
        ("a: ab, rename=", "rename is empty"),
        ("a: ab -> ", "dst is empty"),
        ("a: -> ab", "src is empty; without it, leave the arrow out"),
        ("a: awq -> bf16", "bf16 is a data type, not a layout: '-> plain, bf16' has both"),
        ("a: bf16 -> ab", "bf16 is a data type, not a layout"),
        ("a: rename=*", "has more * than the pattern a"),
        ("a: awq -> gptq(zeros=)", "options are NAME=VALUE, joined by commas"),
        ("a: ab, holds=f5", "holds: "),
    ],
)
def test_mistakes_are_told_with_the_rule(line: str, problem: str) -> None:
    with pytest.raises(MemdescError) as caught:
        parse_rule(line)
    assert f"rule {line!r}" in str(caught.value)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[map]", "the rules are not TOML"),
        ("map = 3", r"tables \[\[map\]\]; this one has map"),
        ("[[rule]]\nmatch = 'a'", r"tables \[\[map\]\]; this one has rule"),
        ("[[map]]\ndst = 'ab'", "needs a string match"),
        ("[[map]]\nmatch = 'a'", "it changes nothing"),
        ("[[map]]\nmatch = 'a'\nto = 'ab'", "there is no key 'to'"),
    ],
)
def test_mistakes_in_files_are_told(text: str, problem: str) -> None:
    with pytest.raises(MemdescError, match=problem):
        rules_of_toml(text)


def test_stars_of_a_new_name_stand_for_those_of_the_pattern() -> None:
    rule = parse_rule("model.layers.*.w*: rename=blk.*.weight*")
    assert rule.renamed("model.layers.3.mlp.w2") == "blk.3.mlp.weight2"
    assert parse_rule("a*b: rename=c").renamed("axb") == "c"
    assert parse_rule("a*: rename=*b").renamed("a*") == "*b"
