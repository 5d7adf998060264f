"""Reports about logs: `reports.txt` has logs in words, each with what is true of its report."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import MemdescError
from memdesc.verbose import from_verbose
from reorder.bench.measure import measure
from reorder.logs import LoggedReorder, LogReport, RoundTrip, read_verbose, report
from reorder.logs.repetition import Repetition, find_runs, find_stretch
from reorder.logs.replay import logged_case
from tests.benchmarks.cases import parse_cases
from tests.refused import sections

_ROWS = sections(Path(__file__).with_name("reports.txt"))
_CONVOLUTION = (
    "convolution,{more},undef,src:f32::blocked:aBcd16b::f0 wei:f32::blocked:ABcd16b16a::f0 "
    "bia:undef::undef::: dst:f32::blocked:aBcd16b::f0,,alg:convolution_direct,"
    "mb2_ic{problem[0]}oc{problem[1]}_ih4oh4kh1sh1dh0ph0_iw4ow4kw1sw1dw0pw0"
)
_OTHERS = {
    "relu": "eltwise,jit:uni,undef,data:f32::blocked:abcd::f0,,alg:eltwise_relu,2x16x4x4",
    "pool": "pooling,jit:uni,undef,src:f32::blocked:aBcd16b::f0 dst:f32:a:blocked:aBcd16b::f0,,"
    "alg:pooling_max,mb2ic16_ih8oh4kh2sh2dh0ph0_iw8ow4kw2sw2dw0pw0",
    "sum": "sum,x,undef,dst:f32::blocked:abcd::f0,,,2x3",
    # the dims of the key are not those of the query
    "attention": "sdpa,ref:any,undef,query:f32::blocked:abcd::f0 val:f32::blocked:abcd::f0 "
    "dst:f32::blocked:abcd::f0 key:f32::blocked:abdc::f0,,alg:softmax,"
    "1x32x1x64:1x8x64x385:1x8x385x64",
}


def _desc(tag: str) -> str:
    return tag if ":" in tag else f"f32::blocked:{tag}::f0"


def _primitives(words: str) -> Iterator[tuple[str, str]]:
    """Yield the fields and the time of each primitive.

    ``ab>ba@2x3/ATTRIBUTES=9`` is a reorder, of these dims, that took 9 ms; ``conv@16x32/jit:x`` a
    convolution of 16 channels into 32.
    """
    for word in words.split():
        text, _, time = word.partition("=")
        text, _, more = text.partition("/")
        text, _, problem = text.partition("@")
        src, is_reorder, dst = text.partition(">")
        if is_reorder:
            tensors = f"src:{_desc(src)} dst:{_desc(dst)}"
            line = f"reorder,jit:uni,undef,{tensors},{more},,{problem or '2x16x4x4'}"
        elif text == "conv":
            sizes = (problem or "16x16").split("x")
            line = _CONVOLUTION.format(more=more or "jit:x", problem=sizes)
        else:
            line = _OTHERS[text]
        yield line, time or "1"


def _layers(*channels: int) -> str:
    """Return convolutions as eager torch runs them, from some channels to others."""
    return " ".join(
        f"abcd>aBcd16b@2x{i}x4x4 abcd>ABcd16b16a@{o}x{i}x1x1 conv@{i}x{o} aBcd16b>abcd@2x{o}x4x4 "
        for i, o in pairwise(channels)
    )


def _report(words: str, runs: int | None = None, *, steady: bool = False) -> LogReport:
    lines = (f"onednn_verbose,exec,cpu,{line},{time}" for line, time in _primitives(words))
    return report(read_verbose(lines), steady=steady, runs=runs)


def _ends(found: LoggedReorder | RoundTrip) -> tuple[list[str], list[str]]:
    return [*map(str, found.made_by)], [*map(str, found.used_as)]


def _trip(found: RoundTrip) -> tuple[str, int, float, tuple[str, ...]]:
    tag = found.there.tensors["src"].text.split(":")[3]
    return tag, found.times.executions, found.times.cost, found.between


_HELPERS = {"ends": _ends, "trip": _trip, "CONV": "convolution 2x16x4x4 by 16x16x1x1"}


@pytest.mark.parametrize("section", _ROWS)
def test_a_report_of_a_log_in_words(section: str) -> None:
    for line in _ROWS[section]:
        words, _, said = line.partition("  # ")
        runs, is_told, words = words.rpartition(" runs: ")
        found = _report(eval(f"f{words!r}", {"layers": _layers}), int(runs) if is_told else None)
        names = {**_HELPERS, **found._asdict(), "milliseconds": found.milliseconds}
        assert eval(said, names), (line, found)
        assert all(each.why for each in found.reorders), line


def test_the_steady_state_is_one_run_without_set_up() -> None:
    words = f"ab>ba@2x3=9 {3 * 'abcd>acdb=1 conv=5 '}"
    lines = [f"exec,cpu,{line},{time}" for line, time in _primitives(words)]
    lines.insert(0, "create:cache_miss" + lines[0].removeprefix("exec"))
    log = read_verbose(f"onednn_verbose,{line}" for line in lines)
    found = report(log, steady=True, runs=3)
    assert (found.repetition, found.before_runs, found.created) == ((1, 2, 3), (1, 9.0), (1, 9.0))
    assert [kind[:3] for kind in found.kinds] == [("convolution", 1, 5.0), ("reorder", 1, 1.0)]
    assert [reorder.times for reorder in found.reorders] == [(1, 1, 1, 1, 1)]
    assert report(log).milliseconds == 9 + 3 * 6


def test_the_number_of_runs_must_fit_the_log() -> None:
    model, equal = _layers(16, 64, 32) * 6, _layers(*[64] * 9)
    given: Any
    for words, given, steady, says in (
        (model, 5, False, r"do not hold 5 equal runs; 8 executions .* 6 times"),
        *((model, each, False, "runs must be an integer of 1 or more") for each in (0, -1, "3")),
        (model, 1, True, "one run has no steady state"),
        (equal, None, True, "equal runs of the model, or equal layers; say how"),
    ):
        with pytest.raises(MemdescError, match=says):
            _report(words, given, steady=steady)


# Reorders of a log, measured here.


def _case(word: str) -> Any:
    (logged,) = _report(word).reorders
    return logged_case(logged.primitive)


def test_a_logged_reorder_is_measured_as_it_was_logged() -> None:
    for src, dst in (
        ("f32::blocked:aBcd4b:512x64x16x4:f0", "abcd"),
        ("abcd", "s8:p:blocked:ABcd4b16a4b::f1:s8m1"),
    ):
        case = _case(f"{src}>{dst}")
        wanted = [from_verbose(_desc(each), (2, 16, 4, 4)) for each in (src, dst)]
        assert ([case.src, case.dst], case.attr) == (wanted, None)
        assert measure(case, 1, (), 0.001).seconds > 0


def test_a_logged_reorder_has_made_up_values_of_its_masks() -> None:
    many = "attr-scales:src0:1:f32+dst:0:f32 attr-zero-points:dst:0:s32 attr-post-ops:sum:0.5"
    for attributes, words in (
        (many, "--src-scale=mask:1 --scale=0.5 --zero-point=1 --beta=0.5"),
        ("attr-oscale:2 attr-post-ops:sum", "--src-scale=mask:2 --beta=1"),
        ("attr-scales:src:3:f32:1x8", "--src-scale=mask:3:1x8"),
    ):
        ((primitive, _),) = _primitives("ab>s8::blocked:ab::f0@2x16/ATTRIBUTES")
        line = primitive.replace("ATTRIBUTES", attributes)
        (entry,) = read_verbose([f"onednn_verbose,exec,cpu,{line},1"]).entries
        case = logged_case(entry.primitive)
        (same,) = parse_cases(f"--sdt=f32 --ddt=s8 --stag=ab --dtag=ab {words} 2x16".split())
        assert case.attr == same.attr
        assert measure(case, 1, (), 0.001).seconds > 0


def test_what_cannot_be_measured_is_refused_with_the_reason() -> None:
    for word, why in (
        ("f32::opaque:::f0>ab", "only oneDNN knows its layout"),
        ("*>ab", "known only at execution"),
        ("ab>s8::blocked:ab::f0/attr-scales:wei:0:f32", "of 'wei'"),
        ("ab>s8::blocked:ab::f0/attr-post-ops:eltwise_relu", "eltwise_relu"),
        ("ab>s8::blocked:ab::f0/attr-new:1", "not understood"),
    ):
        with pytest.raises(MemdescError, match=why):
            _case(f"{word}@2x16" if "/" not in word else word.replace("/", "@2x16/"))


# Where a log repeats itself.


def _shortest_runs(keys: list[int]) -> Repetition | None:
    stretch = find_stretch(keys)
    return stretch and stretch.repetition()


def test_the_repetition_that_covers_most_is_found() -> None:
    for keys, found in (
        ([], None),
        ([1, 2, 3, 1, 2, 4], None),
        ([1, 1], (0, 1, 2)),
        # the first run differs, and the last one is cut short
        ([7, 1, 7, 2, 1, 2, 3, 1, 2, 3, 1, 2], (4, 3, 2)),
        # equal layers in each run, or each twice
        ([1, 1, 2] * 3, (0, 3, 3)),
        ([1, 1, 2, 2] * 3, (0, 4, 3)),
    ):
        assert _shortest_runs(keys) == found, keys


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(1, 4))
def test_every_run_of_a_repetition_equals_the_first(keys: list[int], given: int) -> None:
    for found in filter(None, (_shortest_runs(keys), find_runs(keys, 2 * given))):
        start, length, runs = found
        assert runs > 1
        slices = [keys[start + k * length : start + (k + 1) * length] for k in range(runs)]
        assert all(each == slices[0] and len(each) == length for each in slices)


@given(
    st.lists(st.integers(0, 4), max_size=5),
    st.lists(st.integers(0, 4), min_size=1, max_size=12),
    st.integers(3, 5),
)
def test_runs_after_something_else_are_found(before: list[int], run: list[int], runs: int) -> None:
    found = find_stretch(before + run * runs)
    assert found is not None
    assert found.covered >= len(run) * runs
