"""Primitives of verbose lines as values: their attributes, problems and dims."""

from __future__ import annotations

from typing import Any

import pytest

from memdesc import RUNTIME
from reorder.logs import (
    PostOp,
    Problem,
    QuantizationParameter,
    VerboseAttributes,
    VerbosePrimitive,
)


def _primitive(
    kind: str, problem: str, names: str = "", attributes: str = "", **aux: str
) -> VerbosePrimitive:
    descriptors = " ".join(f"{name}:f32::blocked:a::f0" for name in names.split())
    aux_text = " ".join(f"{name}:{value}" for name, value in aux.items())
    return VerbosePrimitive(
        "cpu", kind, "jit:uni", "undef", descriptors, attributes, aux_text, problem
    )


def _read(attributes: str) -> VerboseAttributes:
    return _primitive("matmul", "", attributes=attributes).attributes


def _dims(kind: str, problem: str, names: str, **aux: str) -> dict[str, tuple[int, ...]]:
    tensors = _primitive(kind, problem, names, **aux).tensors
    return {name: tensor.dims for name, tensor in tensors.items() if tensor.dims}


@pytest.mark.parametrize(
    ("kind", "problem", "dims"),
    [
        (
            "convolution",
            "mb2_ic16oc32_ih8oh4kh3sh2dh0ph1_iw9ow5kw3sw2dw0pw1",
            {"src": (2, 16, 8, 9), "wei": (32, 16, 3, 3), "bia": (32,), "dst": (2, 32, 4, 5)},
        ),
        (
            "convolution",
            "g4mb1_ic8oc16_iw8ow8kw3sw1dw0pw1",
            {"src": (1, 8, 8), "wei": (4, 4, 2, 3), "bia": (16,), "dst": (1, 16, 8)},
        ),
        (
            "deconvolution",
            "mb1_ic16oc8_id2od4kd2sd2dd0pd0_ih4oh8kh2sh2dh0ph0_iw4ow8kw2sw2dw0pw0",
            {"src": (1, 16, 2, 4, 4), "wei": (8, 16, 2, 2, 2), "dst": (1, 8, 4, 8, 8)},
        ),
        (
            "inner_product",
            "mb2ic16ih4iw5oc10",
            {"src": (2, 16, 4, 5), "wei": (10, 16, 4, 5), "dst": (2, 10)},
        ),
        (
            "pooling_v2",
            "mb2ic17_ih8oh4kh2sh2dh0ph0_iw8ow4kw2sw2dw0pw0",
            {"src": (2, 17, 8, 8), "dst": (2, 17, 4, 4), "ws": (2, 17, 4, 4)},
        ),
        ("lrn", "mb2ic16ih8iw8ls5beta0.75", {"data": (2, 16, 8, 8), "diff": (2, 16, 8, 8)}),
        ("lrn", "mb2ic16ih8iw8ls5beta1e-05", {"data": (2, 16, 8, 8)}),
        ("group_normalization", "g4mb2ic16ih8iw8", {"src": (2, 16, 8, 8)}),
        ("convolution", "g0mb1_ic8oc16_iw8ow8kw3sw1dw0pw1", {"wei": (0, 16, 8, 3)}),
        # runtime sizes
        ("resampling", "mb*ic16_iw8ow16", {"src": (RUNTIME, 16, 8), "dst": (RUNTIME, 16, 16)}),
        # dims in lists
        ("matmul", "3x7x16:1x16x5", {"src": (3, 7, 16), "wei": (1, 16, 5), "dst": (3, 7, 5)}),
        ("matmul", "7x16:16x5:7x5", {"dst": (7, 5)}),
        ("matmul", "*x16:16x5", {"src": (RUNTIME, 16), "dst": (RUNTIME, 5)}),
        ("binary", "2x16x8:1x16x1", {"src0": (2, 16, 8), "src1": (1, 16, 1), "dst": (2, 16, 8)}),
        ("reduction", "2x16x8:2x1x1", {"src": (2, 16, 8), "dst": (2, 1, 1)}),
        ("prelu", "2x16:1x16", {"data": (2, 16), "wei": (1, 16), "diff": (2, 16)}),
        ("layer_normalization", "2x5x16", {"src": (2, 5, 16), "stats": (2, 5), "shift": (16,)}),
        ("softmax_v2", "7x10", {"src": (7, 10), "diff_dst": (7, 10)}),
        ("eltwise", "6", {"data": (6,), "diff": (6,)}),
        (
            "sdpa",
            "1x32x1x64:1x8x64x385:1x8x385x80",
            {
                "query": (1, 32, 1, 64),
                "key": (1, 8, 64, 385),
                "val": (1, 8, 385, 80),
                "dst": (1, 32, 1, 80),
            },
        ),
        # oneDNN 2.0 to 2.2
        ("matmul", "m10n20k2", {"src": (10, 2), "wei": (2, 20), "dst": (10, 20)}),
        ("matmul", "b3m10n20k2", {"src": (3, 10, 2), "wei": (3, 2, 20), "dst": (3, 10, 20)}),
        ("concat", "2x3:2x5 2x8", {"src0": (2, 3), "src1": (2, 5), "dst": (2, 8)}),
        ("binary", "2x16:1x16 2x16", {"src0": (2, 16), "src1": (1, 16), "dst": (2, 16)}),
        ("resampling", "2x3x8 2x3x16", {"src": (2, 3, 8), "dst": (2, 3, 16)}),
    ],
)
def test_sizes_by_letters_and_lists_are_the_dims_of_tensors(
    kind: str, problem: str, dims: dict[str, tuple[int, ...]]
) -> None:
    assert _dims(kind, problem, " ".join(dims)) == dims


def test_a_gradient_has_the_dims_of_its_tensor() -> None:
    found = _dims("inner_product", "mb2ic16oc10", "diff_src diff_wei diff_bia diff_dst other")
    assert found == {
        "diff_src": (2, 16),
        "diff_wei": (10, 16),
        "diff_bia": (10,),
        "diff_dst": (2, 10),
    }


@pytest.mark.parametrize(
    ("cell", "gates", "biases"),
    [("vanilla_lstm", 4, 4), ("vanilla_gru", 3, 3), ("lbr_augru", 3, 4), ("vanilla_rnn", 1, 1)],
)
def test_weights_of_an_rnn_have_a_dim_of_gates(cell: str, gates: int, biases: int) -> None:
    found = _dims(
        *("rnn", "l2t5mb3sic8slc12dhc8dic6"),
        "src_layer src_iter wei_layer wei_iter wei_proj bias dst_layer dst_iter_c",
        alg=cell,
        direction="bidirectional_concat",
    )
    assert found == {
        "src_layer": (5, 3, 12),
        "src_iter": (2, 2, 3, 8),
        "wei_layer": (2, 2, 12, gates, 8),
        "wei_iter": (2, 2, 8, gates, 8),
        "wei_proj": (2, 2, 8, 6),
        "bias": (2, 2, biases, 8),
        "dst_layer": (5, 3, 12),
        "dst_iter_c": (2, 2, 3, 8),
    }


def test_a_concatenation_adds_up_one_dim() -> None:
    names = "src0 src1 dst"
    found = _dims("concat", "2x16x8:2x4x8", names, axis="1")
    assert found == {"src0": (2, 16, 8), "src1": (2, 4, 8), "dst": (2, 20, 8)}
    for axis in ("", "3", "-1"):
        assert "dst" not in _dims("concat", "2x16x8:2x4x8", names, axis=axis)
    assert "dst" not in _dims("concat", "2x16x8:2x4", names, axis="1")
    assert "dst" not in _dims("concat", "2x*x8:2x4x8", names, axis="1")


@pytest.mark.parametrize("text", ["", "nothing", "2x", "x", "mb2ic", "2x3:", "m1;k2"])
def test_other_strings_give_no_dims(text: str) -> None:
    assert _primitive("convolution", text).sizes == Problem({}, ())
    assert not _dims("convolution", text, "src wei dst")


def test_a_primitive_without_rules_has_no_dims() -> None:
    assert not _dims("sdpa", "mb2ic16", "src dst")
    assert not _dims("gated_mlp", "2x3:3x4:4x3", "src wei dst data")


@pytest.mark.parametrize(
    ("kind", "problem", "names"),
    [
        ("sdpa", "1x32x1x64:1x8x64x385:1x8x385x64", "msk"),
        ("sdpa", "1x32x1x64", "key val dst"),
        ("layer_normalization", "2x5x16", "scaleshift mean"),
        ("softmax", "7x10", "ws wei"),
        ("convolution", "mb2_ic16_iw8ow5kw3", "wei dst"),
        ("rnn", "l2t5mb3sic8slc12", "dst_layer dst_iter wei_layer bias"),
    ],
)
def test_a_tensor_whose_dims_do_not_follow_from_the_problem_has_none(
    kind: str, problem: str, names: str
) -> None:
    assert not _dims(kind, problem, names)


def test_an_rnn_of_older_versions_has_its_output_channels_instead_of_its_projection() -> None:
    found = _dims(
        *("rnn", "l1t5mb3sic8slc12dhc8dlc16", "src_layer dst_layer dst_iter wei_iter"),
        alg="vanilla_gru",
        direction="bidirectional_concat",
    )
    assert found == {
        "src_layer": (5, 3, 12),
        "dst_layer": (5, 3, 16),
        "dst_iter": (1, 2, 3, 8),
        "wei_iter": (1, 2, 8, 3, 8),
    }


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


def test_attributes_of_the_oldest_versions_are_read() -> None:
    """As oneDNN 2.0 to 2.2 print them: `attr2str` in `verbose.cpp`."""
    assert _read("oscale:0:0.5;post_ops:'sum:0.5;';") == VerboseAttributes(
        scales=(_parameter("", 0, value=0.5),), post_ops=(PostOp("sum", ("0.5",)),)
    )
    assert _read("oscale:2;") == VerboseAttributes(scales=(_parameter("", 2),))
    assert _read("oscale:0:nan;").scales == (_parameter("", 0),)  # known at execution
    found = _read(
        "scratchpad_mode:user;scales:'src:0:2_src:1';zero_points:'src:0:-2_wei:0:*_dst:2';"
        "post_ops:'eltwise_relu:0.5:1e-05;sum;binary_add:f32:2;';rnn_data_qparams:2:3;"
    )
    assert found == VerboseAttributes(
        (_parameter("src", 0, value=2.0), _parameter("src", 1)),
        (_parameter("src", 0, value=-2.0), _parameter("wei", 0), _parameter("dst", 2)),
        (
            PostOp("eltwise_relu", ("0.5", "1e-05")),
            PostOp("sum"),
            PostOp("binary_add", ("f32", "2")),
        ),
        (("scratchpad", "user"), ("rnn_data_qparams", "2:3")),
    )
    assert found.not_understood == ("rnn_data_qparams:2:3",)
    assert len(_read("oscale:0:0.5;scales:'src:0:2';").scales) == 2


@pytest.mark.parametrize(
    "text",
    [
        "#'sum:0.5;';",  # attributes that were longer than the buffer
        "oscale:0:0.5;post_ops:'sum:0.5;",
        "oscale:0:0,5;",
        "oscale:common:0.5;",
        "zero_points:'src:0:1_x';",
        "post_ops:'';",
        "attr-dropout",
        "attr-rounding-mode:dst:stochastic",
        "attr-something-new:1",
        "attr-scales:wei:1:f32:2::undef:512x4",
    ],
)
def test_what_is_not_understood_is_said(text: str) -> None:
    assert _read(text).not_understood
    assert _read(f"attr-fpmath:bf16:true {text}").not_understood


@pytest.mark.parametrize(
    "text",
    ["attr-scratchpad:user", "attr-fpmath:bf16:true", "attr-acc-mode:any", "attr-deterministic:1"],
)
def test_some_attributes_do_not_change_a_reorder(text: str) -> None:
    assert not _read(text).not_understood


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


def test_attributes_of_another_form_are_kept_as_text() -> None:
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
