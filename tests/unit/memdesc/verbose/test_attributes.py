"""Attributes of verbose lines as values."""

from __future__ import annotations

from typing import Any

import pytest

from memdesc.verbose import PostOp, QuantizationParameter, VerboseAttributes, VerbosePrimitive


def _read(text: str) -> VerboseAttributes:
    return VerbosePrimitive("cpu", "matmul", "jit:uni", "undef", "", text, "", "").attributes


def _parameter(argument: str, mask: int, **more: Any) -> QuantizationParameter:
    return QuantizationParameter(argument, mask)._replace(**more)


@pytest.mark.parametrize(
    ("text", "scales"),
    [
        # oneDNN 3
        ("attr-scales:src:0", [_parameter("src", 0)]),
        (
            "attr-scales:src0:0:f32+dst:2",
            [_parameter("src0", 0, dtype="f32"), _parameter("dst", 2)],
        ),
        ("attr-scales:wei:3:f16:1x32", [_parameter("wei", 3, dtype="f16", groups=(1, 32))]),
        ("attr-scales:src:0:f32:host_scalar", [_parameter("src", 0, dtype="f32")]),
        # oneDNN 2
        ("attr-oscale:2 ", [_parameter("", 2)]),
        ("attr-oscale:0:0.5*", [_parameter("", 0, value=0.5)]),
        ("attr-oscale:0:*", [_parameter("", 0)]),
        ("attr-scales:src1:0:1e-05", [_parameter("src1", 0, value=1e-5)]),
    ],
)
def test_scales_say_the_argument_and_the_mask(
    text: str, scales: list[QuantizationParameter]
) -> None:
    assert _read(text) == VerboseAttributes(scales=tuple(scales))


def test_zero_points_are_read_likewise() -> None:
    found = _read("attr-zero-points:src0:0:s32+dst:0:3")
    assert found.zero_points == (
        _parameter("src0", 0, dtype="s32"),
        _parameter("dst", 0, value=3.0),
    )


def test_post_ops_keep_their_order_and_numbers() -> None:
    found = _read("attr-post-ops:eltwise_clip:0:1e+06+sum+sum:0.5:3:s8+binary_add:f32:2")
    assert found.post_ops == (
        PostOp("eltwise_clip", ("0", "1e+06")),
        PostOp("sum"),
        PostOp("sum", ("0.5", "3", "s8")),
        PostOp("binary_add", ("f32", "2")),
    )


def test_what_has_another_form_is_kept_as_text() -> None:
    # the second is what OpenVINO's build of oneDNN prints
    others = {
        "attr-scratchpad:user": ("scratchpad", "user"),
        "attr-scales:wei:1:f32:2::undef:512x4": ("scales", "wei:1:f32:2::undef:512x4"),
        "attr-zero-points:dst:x": ("zero-points", "dst:x"),
        "attr-oscale:0:1.2.3": ("oscale", "0:1.2.3"),
        "attr-post-ops": ("post-ops", ""),
        "rnn_data_qparams:2:3;": ("rnn_data_qparams", "2:3;"),
    }
    found = _read(" ".join(others))
    assert found == VerboseAttributes(others=tuple(others.values()))
