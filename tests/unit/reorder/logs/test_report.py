"""Reports about logs: those of real programs in `tests/data/verbose`, and lines by hand."""

from pathlib import Path
from typing import Any

import pytest

from memdesc import MemdescError
from memdesc.verbose import from_verbose
from reorder.bench.cases import Case
from reorder.bench.measure import measure
from reorder.logs import LogReport, VerbosePrimitive, read_verbose, report
from reorder.logs.replay import logged_case
from tests.benchmarks.cases import parse_cases

_LOGS = Path(__file__).parents[3] / "data" / "verbose"
_BLOCKED, _PLAIN = "f32::blocked:aBcd16b::f0", "f32::blocked:abcd::f0"


def _reorder(src: str, dst: str, problem: str = "2x16x4x4", attributes: str = "") -> str:
    return f"reorder,jit:uni,undef,src:{src} dst:{dst},{attributes},,{problem}"


def _log(*primitives: str) -> LogReport:
    return report(read_verbose(f"onednn_verbose,exec,cpu,{each},1.5" for each in primitives))


def _case(src: str, dst: str, attributes: str = "", problem: str = "2x16x4x4") -> Case:
    descriptors = f"src:{src} dst:{dst}"
    return logged_case(
        VerbosePrimitive("cpu", "reorder", "jit:uni", "undef", descriptors, attributes, "", problem)
    )


def test_reorders_by_reference_kernels_are_counted() -> None:
    kinds = {each.kind: each for each in report(read_verbose(_LOGS / "onednn-2.4.log")).kinds}
    assert (kinds["rnn"].by_reference, kinds["binary"].by_reference) == (2, 1)
    assert kinds["reorder"].by_reference == 0


def test_a_reorder_is_a_no_op_or_a_copy() -> None:
    abcd, old = _PLAIN, "f32::blocked:abcd:f0"
    for src, dst, attributes, relation in (
        (abcd, abcd, "", "no-op"),
        (abcd, "f32::blocked:acdb::f0", "", "copy"),
        (abcd, abcd, "attr-scales:src0:0:f32", "copy"),
        (abcd, abcd, "attr-post-ops:sum", "copy"),
        (old, old, "oscale:0:0.5;", "copy"),
        (old, old, "post_ops:'sum:0.5;';", "copy"),
        (abcd, abcd, "attr-new:1", "unknown"),
        (abcd, abcd, "#'sum;';", "unknown"),
        ("f32::blocked:*::f0", abcd, "", "unknown"),
        ("f32::opaque:::f0", abcd, "", "unknown"),
    ):
        (found,) = _log(_reorder(src, dst, attributes=attributes)).reorders
        assert found.relation == relation
        assert found.why
        assert (found.nbytes is None) == (relation == "unknown" and not attributes)


def test_a_way_back_makes_a_round_trip() -> None:
    relu = f"eltwise,jit:uni,undef,data:{_PLAIN},,alg:eltwise_relu,2x16x4x4"
    there, back = _reorder(_BLOCKED, _PLAIN), _reorder(_PLAIN, _BLOCKED)
    (trip,) = _log(there, relu, back, relu, there, relu, back).round_trips
    assert (trip.times.executions, trip.times.cost, trip.between) == (2, 6.0, ("eltwise",))
    assert trip.there.tensors["src"].text == _BLOCKED
    # other dims, far away, or other values
    assert not _log(there, _reorder(_PLAIN, _BLOCKED, "1x16x4x4")).round_trips
    assert not _log(there, *[relu] * 8, back).round_trips
    for attributes in ("attr-post-ops:sum", "attr-new:1", "attr-scales:wei:1:f32:2::undef:512x4"):
        assert not _log(there, _reorder(_PLAIN, _BLOCKED, attributes=attributes)).round_trips
    assert not _log(_reorder(_PLAIN, _PLAIN), _reorder(_PLAIN, _PLAIN)).round_trips


def test_round_trips_do_not_take_longer_than_all_reorders() -> None:
    there, back = (
        _reorder(f"f32::blocked:{src}::f0", f"f32::blocked:{dst}::f0")
        for src, dst in (("aBcd16b", "abcd"), ("abcd", "aBcd16b"))
    )
    lines = [f"{there},1", f"{back},9", f"{there},1", f"{back},1", f"{there},9", f"{back},1"]
    found = report(read_verbose(f"onednn_verbose,exec,cpu,{each}" for each in lines), runs=1)
    (trip,) = found.round_trips
    assert trip.times.cost == found.milliseconds == 6


def test_a_tensor_belongs_to_the_nearest_primitive_with_its_layout_and_dims() -> None:
    pool = (
        f"pooling,jit:uni,undef,src:{_BLOCKED} dst:f32:a:blocked:aBcd16b::f0,,alg:pooling_max,"
        "mb2ic16_ih8oh4kh2sh2dh0ph0_iw8ow4kw2sw2dw0pw0"
    )
    (found,) = _log(
        pool, "sum,x,undef,dst:f32::blocked:abcd::f0,,,2x3", _reorder(_BLOCKED, _PLAIN)
    ).reorders
    assert [str(each) for each in found.made_by] == ["dst of pooling 2x16x8x8 (jit:uni)"]
    assert found.used_as == ()


def test_all_primitives_that_made_and_used_a_tensor_are_named() -> None:
    back = _reorder(_BLOCKED, _PLAIN)
    other, more = (_CONVOLUTION.replace("jit:x", f"jit:{name}") for name in "yz")
    found = _log(_CONVOLUTION, back, other, back, more, back, _CONVOLUTION, back).reorders[0]
    assert [str(each).rpartition(" ")[2] for each in found.made_by] == [
        "(jit:x)",
        "(jit:y)",
        "(jit:z)",
    ]


_CONVOLUTION = (
    "convolution,jit:x,undef,src:f32::blocked:aBcd16b::f0 wei:f32::blocked:ABcd16b16a::f0 "
    "bia:undef::undef::: dst:f32::blocked:aBcd16b::f0,,alg:convolution_direct,"
    "mb2_ic16oc16_ih4oh4kh1sh1dh0ph0_iw4ow4kw1sw1dw0pw0"
)


def test_a_round_trip_is_between_convolutions_and_not_around_one() -> None:
    to_blocked, to_plain = _reorder(_PLAIN, _BLOCKED), _reorder(_BLOCKED, _PLAIN)
    assert not _log(to_blocked, _CONVOLUTION, to_plain).round_trips
    (trip,) = _log(to_blocked, *[_CONVOLUTION, to_plain, to_blocked] * 2).round_trips
    assert trip.there.tensors["src"].text == _BLOCKED
    assert trip.times.executions == 2
    assert str(trip.made_by[0]) == "dst of convolution 2x16x4x4 by 16x16x1x1 (jit:x)"
    assert str(trip.used_as[0]) == "src of convolution 2x16x4x4 by 16x16x1x1 (jit:x)"


def test_a_key_belongs_to_the_attention_that_reads_it() -> None:
    """Its dims are not those of the query."""
    key = "f32::blocked:abdc::f0"
    names = ("query", "val", "dst")
    tensors = " ".join(f"{name}:f32::blocked:abcd::f0" for name in names)
    found = _log(
        _reorder(_PLAIN, key, problem="1x8x64x385"),
        f"sdpa,ref:any,undef,{tensors} key:{key},,alg:softmax,1x32x1x64:1x8x64x385:1x8x385x64",
    )
    assert [each.tensor for each in found.reorders[0].used_as] == ["key"]


def test_weights_that_were_reordered_long_before_have_a_consumer() -> None:
    weights = _reorder(_PLAIN, "f32::blocked:ABcd16b16a::f0", "16x16x1x1")
    relu = "eltwise,jit:uni,undef,data:f32::blocked:ab::f0,,alg:eltwise_relu,2x3"
    (found,) = _log(weights, *[relu] * 20, _CONVOLUTION).reorders
    assert found.is_of_weights
    assert str(found.used_as[0]) == "wei of convolution 2x16x4x4 by 16x16x1x1 (jit:x)"


def _timed(*milliseconds: float) -> LogReport:
    line = _reorder(_PLAIN, "f32::blocked:acdb::f0")
    return report(read_verbose(f"onednn_verbose,exec,cpu,{line},{each}" for each in milliseconds))


def test_reorders_are_ranked_by_medians_and_skewed_ones_are_named() -> None:
    one, two = (_reorder(_PLAIN, f"f32::blocked:{tag}::f0") for tag in ("acdb", "bacd"))
    lines = [(one, 1), (two, 2), (one, 500), (two, 3), (one, 2), (two, 4)]
    log = read_verbose(f"onednn_verbose,exec,cpu,{each},{time}" for each, time in lines)
    found = report(log)
    assert [each.times for each in found.reorders] == [(3, 3, 2, 4, 9), (3, 2, 1, 500, 503)]
    assert found.milliseconds == 3 * 3 + 3 * 2
    assert [times.total for _, times in found.skewed] == [503]
    # a mean of three times the median is not above it
    assert not _timed(1, 1, 7).skewed
    assert _timed(1, 1, 7.1).skewed


def test_a_median_far_above_the_minimum_is_named_if_it_matters() -> None:
    assert not _timed(1, 3, 3).skewed
    assert [times.median for _, times in _timed(1, 3.1, 3.1).skewed] == [3.1]
    short = _reorder("f32::blocked:ab::f0", "f32::blocked:ba::f0", "2x3")
    lines = [f"{short},{each}" for each in (0.001, 0.004, 0.004)] + [f"{_CONVOLUTION},9"]
    assert not report(read_verbose(f"onednn_verbose,exec,cpu,{each}" for each in lines)).skewed


def test_the_steady_state_is_one_run_without_set_up() -> None:
    once = _reorder("f32::blocked:ab::f0", "f32::blocked:ba::f0", "2x3")
    each = _reorder(_PLAIN, "f32::blocked:acdb::f0")
    lines = [f"exec,cpu,{once},9", *[f"exec,cpu,{each},1", f"exec,cpu,{_CONVOLUTION},5"] * 3]
    lines.insert(0, f"create:cache_miss,cpu,{once},4")
    log = read_verbose(f"onednn_verbose,{line}" for line in lines)
    found = report(log, steady=True, runs=3)
    assert (found.repetition, found.before_runs) == ((1, 2, 3), (1, 9.0))
    assert [(kind.kind, kind.executions, kind.milliseconds) for kind in found.kinds] == [
        ("convolution", 1, 5.0),
        ("reorder", 1, 1.0),
    ]
    assert found.created == (1, 4.0)
    assert [reorder.times for reorder in found.reorders] == [(1, 1, 1, 1, 1)]
    assert report(log).milliseconds == 9 + 3 * 6


def _layer(inputs: int, outputs: int) -> list[str]:
    """Return a convolution as eager torch runs it."""
    convolution = (
        _CONVOLUTION.replace("ic16oc16", f"ic{inputs}oc{outputs}"),
        _reorder(_PLAIN, "f32::blocked:ABcd16b16a::f0", f"{outputs}x{inputs}x1x1"),
        _reorder(_PLAIN, _BLOCKED, f"2x{inputs}x4x4"),
        _reorder(_BLOCKED, _PLAIN, f"2x{outputs}x4x4"),
    )
    return [convolution[at] for at in (2, 1, 0, 3)]


def _executions(primitives: list[str], runs: int | None = None, *, steady: bool = False) -> Any:
    lines = [f"onednn_verbose,exec,cpu,{each},1" for each in primitives]
    return report(read_verbose(lines), steady=steady, runs=runs)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("stem", [0, 1])
def test_equal_layers_are_not_taken_for_runs(stem: int, times: int) -> None:
    model = [*_layer(16, 64) * stem, *_layer(64, 64) * 8]
    found = _executions(model * times)
    if stem and times > 1:  # the output is larger than the input
        assert found.repetition == (0, len(model), times)
        return
    assert found.repetition is None
    assert found.undecided[1:] == (4, 8 * times)
    assert {each.in_each_run for each in found.reorders} == {0}
    with pytest.raises(MemdescError, match=r"equal runs of the model, or equal layers; say how"):
        _executions(model * times, steady=True)
    assert _executions(model * times, times).repetition == ((0, 32, 3) if times > 1 else None)


def test_equal_layers_of_a_larger_model_are_not_taken_for_runs() -> None:
    # of 4 equal layers, each is followed by one that is not in the log
    layers = [*_layer(16, 32) * 4, *_layer(32, 48), *_layer(48, 64), *_layer(64, 80)]
    found = _executions([*layers, *_layer(80, 96)])
    assert (found.repetition, found.undecided) == (None, None)


def test_the_number_of_runs_must_fit_the_log() -> None:
    model = [*_layer(16, 64), *_layer(64, 32)]
    assert _executions(model * 6).repetition == (0, 8, 6)
    assert _executions(model * 6, 3).repetition == (0, 16, 3)
    with pytest.raises(MemdescError, match=r"do not hold 5 equal runs; 8 executions .* 6 times"):
        _executions(model * 6, 5)
    for given in (0, -1, "3"):
        with pytest.raises(MemdescError, match="give how many times the model ran"):
            _executions(model, given)  # type: ignore[arg-type] # callers without types
    with pytest.raises(MemdescError, match="one run has no steady state"):
        _executions(model, 1, steady=True)


def test_a_round_trip_lies_within_a_run() -> None:
    model = [*_layer(16, 64), *_layer(64, 16)]
    there, back = _BLOCKED, _PLAIN
    model[-1] = _reorder(there, back, "2x16x4x4")
    (trip,) = _executions(model * 3, 3).round_trips
    assert (trip.there.problem, trip.times.executions) == ("2x64x4x4", 3)
    (last,) = (
        each
        for each in _executions(model * 3, 3).reorders
        if each.primitive.problem == "2x16x4x4" and each.made_by
    )
    assert last.used_as == ()


def test_reasons_that_left_a_primitive_to_plain_loops_come_first() -> None:
    start = "onednn_verbose,v1,primitive,create:"
    slow, fast = ("dispatch,reorder,too many dims,a.cpp:1", "dispatch,reorder,bad flags,a.cpp:2")
    created = "cache_miss,cpu," + _reorder("f32::blocked:ab::f0", "f32::blocked:ba::f0", "2x3")
    lines = [
        *(fast, created),
        *(fast, created.replace("2x3", "2x4")),
        *(slow, slow, created.replace("jit:uni", "ref:any")),
        *(slow, fast),
    ]
    lines = [line if "dispatch" in line else f"{line},1" for line in lines]
    assert report(read_verbose(start + line for line in lines)).reasons == (
        ("reorder", "", "too many dims", 2, 1),
        ("reorder", "", "bad flags", 3, 0),
    )


def test_a_logged_reorder_is_measured_as_it_was_logged() -> None:
    for src, dst in (
        (_PLAIN, "s8:a:blocked:aBcd16b::f0"),
        ("f32::blocked:abcd:512x16x4x1:f0", _PLAIN),
        ("f32::blocked:aBcd4b:512x64x16x4:f0", _PLAIN),
        (_PLAIN, "s8:p:blocked:ABcd4b16a4b::f1:s8m1"),
    ):
        case = _case(src, dst)
        assert case.src == from_verbose(src, (2, 16, 4, 4))
        assert case.dst == from_verbose(dst, (2, 16, 4, 4))
        assert case.attr is None
        assert measure(case, 1, (), 0.001).seconds > 0


def test_a_logged_reorder_has_made_up_values_of_its_masks() -> None:
    for attributes, words in (
        (
            "attr-scales:src0:1:f32+dst:0:f32 attr-zero-points:dst:0:s32 attr-post-ops:sum:0.5",
            "--src-scale=mask:1 --scale=0.5 --zero-point=1 --beta=0.5",
        ),
        ("attr-oscale:2 attr-post-ops:sum", "--src-scale=mask:2 --beta=1"),
        ("oscale:2;post_ops:'sum:0.5;';", "--src-scale=mask:2 --beta=0.5"),
        ("attr-scales:src:3:f32:1x8", "--src-scale=mask:3:1x8"),
    ):
        case = _case("f32::blocked:ab::f0", "s8::blocked:ab::f0", attributes, "2x16")
        (same,) = parse_cases(f"--sdt=f32 --ddt=s8 --stag=ab --dtag=ab {words} 2x16".split())
        assert case.attr == same.attr
        assert measure(case, 1, (), 0.001).seconds > 0


def test_what_cannot_be_measured_is_refused_with_the_reason() -> None:
    ab, s8 = "f32::blocked:ab::f0", "s8::blocked:ab::f0"
    for src, dst, attributes, why in (
        ("f32::opaque:::f0", ab, "", "only oneDNN knows its layout"),
        ("f32::blocked:*::f0", ab, "", "known only at execution"),
        (ab, s8, "attr-scales:wei:0:f32", "of 'wei'"),
        (ab, s8, "attr-post-ops:eltwise_relu", "eltwise_relu"),
        (ab, s8, "attr-new:1", "not understood"),
    ):
        with pytest.raises(MemdescError, match=why):
            _case(src, dst, attributes, "2x16")
