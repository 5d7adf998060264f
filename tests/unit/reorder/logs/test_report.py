"""Reports about logs: those of real programs in `tests/data/verbose`, and lines by hand."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memdesc import MemdescError
from memdesc.verbose import from_verbose
from reorder.bench.measure import measure
from reorder.logs import LogReport, read_verbose, report
from reorder.logs.replay import logged_case
from tests.benchmarks.cases import parse_cases

_LOGS = Path(__file__).parents[3] / "data" / "verbose"
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
}
_ATTENTION = (
    "sdpa,ref:any,undef,query:f32::blocked:abcd::f0 val:f32::blocked:abcd::f0 "
    "dst:f32::blocked:abcd::f0 key:f32::blocked:abdc::f0,,alg:softmax,"
    "1x32x1x64:1x8x64x385:1x8x385x64"
)


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


def _report(words: str, runs: int | None = None, *, steady: bool = False) -> LogReport:
    lines = (f"onednn_verbose,exec,cpu,{line},{time}" for line, time in _primitives(words))
    return report(read_verbose(lines), steady=steady, runs=runs)


def test_reorders_by_reference_kernels_are_counted() -> None:
    kinds = {each.kind: each for each in report(read_verbose(_LOGS / "onednn-2.4.log")).kinds}
    found = [kinds[kind].by_reference for kind in ("rnn", "binary", "reorder")]
    assert found == [2, 1, 0]


def test_a_reorder_is_a_no_op_or_a_copy() -> None:
    old = "f32::blocked:abcd:f0>f32::blocked:abcd:f0"
    for word, relation in (
        ("abcd>abcd", "no-op"),
        ("abcd>acdb", "copy"),
        ("abcd>abcd/attr-scales:src0:0:f32", "copy"),
        ("abcd>abcd/attr-post-ops:sum", "copy"),
        (f"{old}/oscale:0:0.5;", "copy"),
        (f"{old}/post_ops:'sum:0.5;';", "copy"),
        ("abcd>abcd/attr-new:1", "unknown"),
        ("abcd>abcd/#'sum;';", "unknown"),
        ("*>abcd", "unknown"),
        ("f32::opaque:::f0>abcd", "unknown"),
    ):
        (found,) = _report(word).reorders
        assert (found.relation, bool(found.why)) == (relation, True)
        assert (found.nbytes is None) == (relation == "unknown" and "/" not in word)


def test_a_way_back_makes_a_round_trip() -> None:
    found = _report("aBcd16b>abcd relu abcd>aBcd16b relu aBcd16b>abcd relu abcd>aBcd16b")
    (trip,) = found.round_trips
    assert (trip.times.executions, trip.times.cost, trip.between) == (2, 4, ("eltwise",))
    assert trip.there.tensors["src"].text == _desc("aBcd16b")
    # other dims, far away, other values, or the same layout
    for words in (
        "aBcd16b>abcd abcd>aBcd16b@1x16x4x4",
        f"aBcd16b>abcd {8 * 'relu '} abcd>aBcd16b",
        "aBcd16b>abcd abcd>aBcd16b/attr-post-ops:sum",
        "aBcd16b>abcd abcd>aBcd16b/attr-new:1",
        "aBcd16b>abcd abcd>aBcd16b/attr-scales:wei:1:f32:2::undef:512x4",
        "abcd>abcd abcd>abcd",
        "abcd>aBcd16b conv aBcd16b>abcd",
    ):
        assert not _report(words).round_trips, words


def test_round_trips_do_not_take_longer_than_all_reorders() -> None:
    there, back = "aBcd16b>abcd", "abcd>aBcd16b"
    found = _report(f"{there}=1 {back}=9 {there}=1 {back}=1 {there}=9 {back}=1", 1)
    (trip,) = found.round_trips
    assert trip.times.cost == found.milliseconds == 6


def test_a_round_trip_is_between_convolutions() -> None:
    (trip,) = _report(f"abcd>aBcd16b {2 * 'conv aBcd16b>abcd abcd>aBcd16b '}").round_trips
    assert (trip.there.tensors["src"].text, trip.times.executions) == (_desc("aBcd16b"), 2)
    convolution = "convolution 2x16x4x4 by 16x16x1x1 (jit:x)"
    assert (str(trip.made_by[0]), str(trip.used_as[0])) == (
        f"dst of {convolution}",
        f"src of {convolution}",
    )


def test_tensors_belong_to_the_nearest_primitives_with_their_layouts_and_dims() -> None:
    back, weights = "aBcd16b>abcd", "abcd>ABcd16b16a@16x16x1x1"
    convolution = "convolution 2x16x4x4 by 16x16x1x1 (jit:{})"
    for words, made_by, used_as in (
        (f"pool sum {back}", ["dst of pooling 2x16x8x8 (jit:uni)"], []),
        (
            f"conv {back} conv/jit:y {back} conv/jit:z {back} conv {back}",
            [f"dst of {convolution.format(name)}" for name in "xyz"],
            [],
        ),
        # weights that were reordered long before they are used
        (f"{weights} {20 * 'relu '} conv", [], [f"wei of {convolution.format('x')}"]),
    ):
        found = _report(words).reorders[0]
        assert [*map(str, found.made_by)] == made_by
        assert [*map(str, found.used_as)] == used_as
        assert found.is_of_weights == words.startswith(weights)


def test_a_key_belongs_to_the_attention_that_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its dims are not those of the query."""
    monkeypatch.setitem(_OTHERS, "attention", _ATTENTION)
    found = _report("abcd>abdc@1x8x64x385 attention").reorders[0]
    assert [each.tensor for each in found.used_as] == ["key"]


def test_reorders_are_ranked_by_medians_and_skewed_ones_are_named() -> None:
    one, two = "abcd>acdb", "abcd>bacd"
    found = _report(f"{one}=1 {two}=2 {one}=500 {two}=3 {one}=2 {two}=40")
    assert [each.times for each in found.reorders] == [(3, 3, 2, 40, 45), (3, 2, 1, 500, 503)]
    assert found.milliseconds == 3 * 3 + 3 * 2
    assert [times.total for _, times in found.skewed] == [503, 45]


@pytest.mark.parametrize(
    ("words", "is_skewed"),
    [
        # a mean of three times the median is not above it
        ("ab>ba=1 ab>ba=1 ab>ba=7", False),
        ("ab>ba=1 ab>ba=1 ab>ba=7.1", True),
        # a median far above the minimum is named if it matters
        ("ab>ba=1 ab>ba=3 ab>ba=3", False),
        ("ab>ba=1 ab>ba=3.1 ab>ba=3.1", True),
        ("ab>ba=0.001 ab>ba=0.004 ab>ba=0.004 conv=9", False),
    ],
)
def test_times_are_skewed_beyond_three_times(words: str, is_skewed: bool) -> None:
    assert bool(_report(words).skewed) == is_skewed


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


def _layers(*channels: int) -> str:
    """Return convolutions as eager torch runs them, from some channels to others."""
    return " ".join(
        f"abcd>aBcd16b@2x{i}x4x4 abcd>ABcd16b16a@{o}x{i}x1x1 conv@{i}x{o} aBcd16b>abcd@2x{o}x4x4 "
        for i, o in pairwise(channels)
    )


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("stem", [0, 1])
def test_equal_layers_are_not_taken_for_runs(stem: int, times: int) -> None:
    words = (_layers(16, 64) * stem + _layers(*[64] * 9)) * times
    found = _report(words)
    if stem and times > 1:  # the output is larger than the input
        assert found.repetition == (0, 36, times)
        return
    assert found.repetition is None
    assert found.undecided is not None
    assert found.undecided[1:] == (4, 8 * times)
    assert {each.in_each_run for each in found.reorders} == {0}
    with pytest.raises(MemdescError, match=r"equal runs of the model, or equal layers; say how"):
        _report(words, steady=True)
    assert _report(words, times).repetition == ((0, 32, 3) if times > 1 else None)


def test_equal_layers_of_a_larger_model_are_not_taken_for_runs() -> None:
    # of 4 equal layers, each is followed by one that is not in the log
    found = _report(4 * _layers(16, 32) + _layers(32, 48, 64, 80, 96))
    assert (found.repetition, found.undecided) == (None, None)


def test_the_number_of_runs_must_fit_the_log() -> None:
    words = _layers(16, 64, 32)
    assert _report(words * 6).repetition == (0, 8, 6)
    assert _report(words * 6, 3).repetition == (0, 16, 3)
    given: Any
    for given, steady, says in (
        (5, False, r"do not hold 5 equal runs; 8 executions .* 6 times"),
        *((each, False, "give how many times the model ran") for each in (0, -1, "3")),
        (1, True, "one run has no steady state"),
    ):
        with pytest.raises(MemdescError, match=says):
            _report(words * 6, given, steady=steady)


def test_a_round_trip_lies_within_a_run() -> None:
    words = _layers(16, 64, 16).removesuffix("aBcd16b>abcd@2x16x4x4 ") + "aBcd16b>abcd "
    found = _report(3 * words, 3)
    (trip,) = found.round_trips
    assert (trip.there.problem, trip.times.executions) == ("2x64x4x4", 3)
    (last,) = (
        each for each in found.reorders if each.primitive.problem == "2x16x4x4" and each.made_by
    )
    assert last.used_as == ()


def test_reasons_that_left_a_primitive_to_plain_loops_come_first() -> None:
    slow, fast = ("dispatch,reorder,too many dims,a.cpp:1", "dispatch,reorder,bad flags,a.cpp:2")
    first, second = (f"cache_miss,cpu,{line},1" for line, _ in _primitives("ab>ba@2x3 ab>ba@2x4"))
    plain = first.replace("jit:uni", "ref:any")
    lines = [fast, first, fast, second, slow, slow, plain, slow, fast]
    found = report(read_verbose(f"onednn_verbose,v1,primitive,create:{line}" for line in lines))
    assert found.reasons == (
        ("reorder", "", "too many dims", 2, 1),
        ("reorder", "", "bad flags", 3, 0),
    )


# Reorders of a log, measured here.


def _case(word: str) -> Any:
    (logged,) = _report(word).reorders
    return logged_case(logged.primitive)


def test_a_logged_reorder_is_measured_as_it_was_logged() -> None:
    for src, dst in (
        ("abcd", "s8:a:blocked:aBcd16b::f0"),
        ("f32::blocked:abcd:512x16x4x1:f0", "abcd"),
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
        ("oscale:2;post_ops:'sum:0.5;';", "--src-scale=mask:2 --beta=0.5"),
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
