"""Reports about logs: those of real programs in `tests/data/verbose`, and lines by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memdesc import MemdescError, from_verbose, read_verbose
from memdesc.verbose import VerbosePrimitive
from reorder.bench.cases import Case, parse_cases
from reorder.bench.measure import measure
from reorder.logs import LogReport, report
from reorder.logs.replay import logged_case

_LOGS = Path(__file__).parents[3] / "data" / "verbose"


def _reorder(src: str, dst: str, problem: str = "2x16x4x4", attributes: str = "") -> str:
    return f"reorder,jit:uni,undef,src:{src} dst:{dst},{attributes},,{problem}"


def _log(*primitives: str) -> LogReport:
    return report(read_verbose(f"onednn_verbose,exec,cpu,{each},1.5" for each in primitives))


def _case(src: str, dst: str, attributes: str = "", problem: str = "2x16x4x4") -> Case:
    descriptors = f"src:{src} dst:{dst}"
    return logged_case(
        VerbosePrimitive("cpu", "reorder", "jit:uni", "undef", descriptors, attributes, "", problem)
    )


def test_torch_reorders_the_same_weights_in_each_run() -> None:
    found = report(read_verbose(_LOGS / "torch-2.13.log"))
    assert [(each.kind, each.executions) for each in found.kinds] == [
        ("convolution", 4),
        ("reorder", 12),
    ]
    assert found.repetition == (0, 4, 4)
    assert [(each.primitive.problem, each.made_by, each.used_as) for each in found.reorders] == [
        ("1x32x32x32", "", "convolution src"),
        ("64x32x3x3", "", "convolution wei"),
        ("1x64x16x16", "convolution dst", ""),
    ]
    assert [each.is_of_weights for each in found.reorders] == [False, True, False]
    assert {(each.executions, each.in_each_run, each.relation) for each in found.reorders} == {
        (4, 1, "copy")
    }
    assert found.reorders[0].nbytes == 2 * 4 * 32 * 32 * 32
    assert found.milliseconds == pytest.approx(0.5261227)


def test_openvino_reorders_weights_once() -> None:
    found = report(read_verbose(_LOGS / "openvino-2026.4.log"))
    assert found.repetition == (2, 5, 3)
    weights = [each for each in found.reorders if each.is_of_weights]
    assert [(each.executions, each.in_each_run) for each in weights] == [(1, 0), (1, 0)]
    assert {each.kind for each in found.created} == {
        "convolution",
        "pooling",
        "reorder",
        "softmax",
    }


def test_reorders_by_reference_kernels_are_counted() -> None:
    kinds = {each.kind: each for each in report(read_verbose(_LOGS / "onednn-2.4.log")).kinds}
    assert (kinds["rnn"].by_reference, kinds["binary"].by_reference) == (2, 1)
    assert kinds["reorder"].by_reference == 0


@pytest.mark.parametrize(
    ("src", "dst", "attributes", "relation"),
    [
        ("f32::blocked:abcd::f0", "f32::blocked:abcd::f0", "", "no-op"),
        ("f32::blocked:abcd::f0", "f32::blocked:acdb::f0", "", "copy"),
        ("f32::blocked:abcd::f0", "f32::blocked:abcd::f0", "attr-scales:src0:0:f32", "copy"),
        ("f32::blocked:abcd::f0", "f32::blocked:abcd::f0", "attr-post-ops:sum", "copy"),
        ("f32::blocked:*::f0", "f32::blocked:abcd::f0", "", "unknown"),
        ("f32::opaque:::f0", "f32::blocked:abcd::f0", "", "unknown"),
    ],
)
def test_a_reorder_is_a_no_op_or_a_copy(src: str, dst: str, attributes: str, relation: str) -> None:
    (found,) = _log(_reorder(src, dst, attributes=attributes)).reorders
    assert found.relation == relation
    assert found.why
    assert (found.nbytes is None) == (relation == "unknown")


def test_a_way_back_makes_a_round_trip() -> None:
    blocked, plain = "f32::blocked:aBcd16b::f0", "f32::blocked:abcd::f0"
    relu = f"eltwise,jit:uni,undef,data:{plain},,alg:eltwise_relu,2x16x4x4"
    there, back = _reorder(blocked, plain), _reorder(plain, blocked)
    (trip,) = _log(there, relu, back, relu, there, relu, back).round_trips
    assert (trip.executions, trip.milliseconds, trip.between) == (2, 6.0, ("eltwise",))
    assert trip.there.tensors["src"].text == blocked
    # other dims, far away, or other values
    assert not _log(there, _reorder(plain, blocked, "1x16x4x4")).round_trips
    assert not _log(there, *[relu] * 8, back).round_trips
    assert not _log(there, _reorder(plain, blocked, attributes="attr-post-ops:sum")).round_trips
    assert not _log(_reorder(plain, plain), _reorder(plain, plain)).round_trips


def test_a_tensor_belongs_to_the_nearest_primitive_with_its_layout_and_dims() -> None:
    blocked, plain = "f32::blocked:aBcd16b::f0", "f32::blocked:abcd::f0"
    pool = (
        f"pooling,jit:uni,undef,src:{blocked} dst:f32:a:blocked:aBcd16b::f0,,alg:pooling_max,"
        "mb2ic16_ih8oh4kh2sh2dh0ph0_iw8ow4kw2sw2dw0pw0"
    )
    (found,) = _log(
        pool, "sum,x,undef,dst:f32::blocked:abcd::f0,,,2x3", _reorder(blocked, plain)
    ).reorders
    assert (found.made_by, found.used_as) == ("pooling dst", "")


def test_what_is_no_log_is_refused() -> None:
    given: Any = "torch.log"
    with pytest.raises(MemdescError, match=r"report\(\) takes what read_verbose"):
        report(given)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("f32::blocked:abcd::f0", "s8:a:blocked:aBcd16b::f0"),
        ("f32::blocked:abcd:512x16x4x1:f0", "f32::blocked:abcd::f0"),
        ("f32::blocked:aBcd4b:512x64x16x4:f0", "f32::blocked:abcd::f0"),
        ("f32::blocked:abcd::f0", "s8:p:blocked:ABcd4b16a4b::f1:s8m1"),
    ],
)
def test_a_logged_reorder_is_measured_as_it_was_logged(src: str, dst: str) -> None:
    case = _case(src, dst)
    assert case.src == from_verbose(src, (2, 16, 4, 4))
    assert case.dst == from_verbose(dst, (2, 16, 4, 4))
    assert case.attr is None
    assert measure(case, 1, (), 0.001).seconds > 0


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (
            "attr-scales:src0:1:f32+dst:0:f32 attr-zero-points:dst:0:s32 attr-post-ops:sum:0.5",
            "--src-scale=mask:1 --scale=0.5 --zero-point=1 --beta=0.5",
        ),
        ("attr-oscale:2 attr-post-ops:sum", "--src-scale=mask:2 --beta=1"),
        ("attr-scales:src:3:f32:1x8", "--src-scale=mask:3:1x8"),
    ],
)
def test_a_logged_reorder_has_made_up_values_of_its_masks(attributes: str, words: str) -> None:
    case = _case("f32::blocked:ab::f0", "s8::blocked:ab::f0", attributes, "2x16")
    (same,) = parse_cases(f"--sdt=f32 --ddt=s8 --stag=ab --dtag=ab {words} 2x16".split())
    assert case.attr == same.attr
    assert measure(case, 1, (), 0.001).seconds > 0


@pytest.mark.parametrize(
    ("src", "dst", "attributes", "why"),
    [
        ("f32::opaque:::f0", "f32::blocked:ab::f0", "", "only oneDNN knows its layout"),
        ("f32::blocked:*::f0", "f32::blocked:ab::f0", "", "known only at execution"),
        ("f32::blocked:ab::f0", "s8::blocked:ab::f0", "attr-scales:wei:0:f32", "of 'wei'"),
        ("f32::blocked:ab::f0", "s8::blocked:ab::f0", "attr-post-ops:eltwise_relu", "eltwise_relu"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_reason(
    src: str, dst: str, attributes: str, why: str
) -> None:
    with pytest.raises(MemdescError, match=why):
        _case(src, dst, attributes, "2x16")
