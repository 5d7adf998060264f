"""Formats of matrices in several tensors, and of interleaved rows.

The layouts are those of the vocabulary of weights. Sources of the rules: AutoGPTQ and GPTQModel
(version 1 of `qzeros` stores zero points minus 1), AutoAWQ, PyTorch 2.13
(`_weight_int4pack_mm_for_cpu`), vLLM (`marlin_utils.py`), OCP's MX 1.0, cuBLAS 12.9 (block-scaled
products), llama.cpp (`ggml-cpu/repack.cpp`), ik_llama.cpp (`iqk_quantize.cpp`, as in files; on some
processors it changes the codes again in memory), DeepSeek-V3 (`inference/kernel.py`,
`weight_dequant`), transformers 5 (`quantizers/quantizer_finegrained_fp8.py`),
compressed-tensors 0.20 (`quantization/lifecycle/forward.py`, `dequantize`;
`compressors/pack_quantized/helpers.py`, `pack_to_int32`, for 4 and 8 bits;
`compressors/naive_quantized/base.py`), MLX 0.32 (`mx.quantize`, `mx.dequantize`), bitsandbytes 0.50
(`backends/cpu/ops.py`, `functional.py`), and hqq 0.2.8 (`core/bitpack.py`, `core/quantize.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from math import gcd, prod
from types import MappingProxyType
from typing import Any, NamedTuple

from memdesc.desc import memory_desc
from memdesc.dtypes import data_type
from memdesc.errors import MemdescError, short_repr
from memdesc.int64 import checked_flag, checked_int
from memdesc.layout import Block, Layout, dim_name, layout_by_strides, single_axes
from memdesc.record.desc import Constant, Field, Number, Rule
from memdesc.record.gguf import GGUF_TYPES

# fields, the rule, and constants if there are any
_Made = tuple[tuple[Field, ...], Rule] | tuple[tuple[Field, ...], Rule, tuple[Constant, ...]]

# the types of scales that need no conversion
_HALF_TYPES = ("f16", "bf16")
_FLOAT_SCALES = (*_HALF_TYPES, "f32")
# what MLX has kernels for
_MLX_BITS = (1, 2, 3, 4, 5, 6, 8)
_MLX_GROUPS = (32, 64, 128)
# what HQQ stores with its codes; it pads 3-bit codes to whole words over all rows, so they have no
# record
_HQQ_BITS = (1, 2, 4, 8)
_HQQ_FLAGS = {
    "view_as_float": False,
    "quant_scale": False,
    "quant_zero": False,
    "offload_meta": False,
    "encoded_state_dict": True,
    "stores_quant_config": True,
    "channel_wise": True,
    "optimize": True,
}
# the numbers of bitsandbytes's codes, and the types that weights have before it quantises them
# fmt: off
_BNB_FP4 = (
    0.0, 0.0052083334885537624, 0.6666666865348816, 1.0, 0.3333333432674408, 0.5,
    0.1666666716337204, 0.25,
)
_BNB_TABLES = {
    "bnb_nf4": (
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
        0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
        0.7229568362236023, 1.0,
    ),
    "bnb_fp4": (*_BNB_FP4, 0.0, *(-value for value in _BNB_FP4[1:])),
}
# fmt: on
_BNB_TYPES = ("bfloat16", "float16", "float32")
# the types of the dims beside packed codes: compressed-tensors writes the first, Kimi-K2 the second
_SHAPES = ("s64", "s32")
# the codes of FP8, and the types of their scales
_CODES_OF_FP8 = ("f8_e4m3", "f8_e5m2")
_SCALES_OF_FP8 = ("f32", "bf16", "f16", "e8m0")


def _number(name: str, minus: int = 0) -> Number:
    return Number(((name, 0),), minus)


def _by_tag(
    name: str, kind: str, tag: str, dims: tuple[int, ...], groups: tuple[int, ...]
) -> Field:
    """Return a field that is a tensor of its own, with an element for each group of the dims."""
    sizes = tuple(-(-size // group) for size, group in zip(dims, groups, strict=True))
    return Field(name, kind, memory_desc(sizes, kind, tag).layout, groups, name)


def _gptq(dims: tuple[int, ...], *, zeros: Any, bits: Any, g_idx: Any, **options: Any) -> _Made:
    group, scales = options["group"], options["scales"]
    groups = _groups("gptq", dims, 0, group)
    kind = _integers("gptq", bits)
    if zeros not in ("v1", "v2"):
        msg = (
            f"gptq: zeros must be 'v1' (stored minus 1) or 'v2' (as they are), not "
            f"{short_repr(zeros)}"
        )
        raise MemdescError(msg)
    word = 32 // bits
    _check_multiples("gptq", dims, (1, word))
    fields = (
        _by_tag("qweight", kind, "gptq", dims, (1, 1)),
        _by_tag("qzeros", kind, "ab", dims, groups),
        _by_tag("scales", _float_scales("gptq", scales), "ab", dims, groups),
    )
    zero = _number("qzeros", minus=-1 if zeros == "v1" else 0)
    rule = Rule(_number("qweight"), (_number("scales"),), zero)
    if not checked_flag("gptq: g_idx", g_idx):
        return fields, rule
    # the group of each input, with which readers of AutoGPTQ's format index scales
    order = tuple(k // groups[0] for k in range(dims[0]))
    return fields, rule, (Constant("g_idx", "s32", order),)


def _awq(dims: tuple[int, ...], *, group: Any, scales: Any) -> _Made:
    groups = _groups("awq", dims, 0, group)
    fields = (
        _by_tag("qweight", "u4", "awq", dims, (1, 1)),
        _by_tag("qzeros", "u4", "awq", dims, groups),
        _by_tag("scales", _float_scales("awq", scales), "ab", dims, groups),
    )
    return fields, Rule(_number("qweight"), (_number("scales"),), _number("qzeros"))


def _marlin(dims: tuple[int, ...], *, group: Any, zeros: Any, bits: Any, scales: Any) -> _Made:
    groups = _groups("marlin", dims, 0, group)
    kind = _integers("marlin", bits)
    order = "marlin_scales" if groups[0] < dims[0] else "marlin_scales_channelwise"
    fields = (
        _by_tag("qweight", kind, "marlin", dims, (1, 1)),
        _by_tag("scales", _float_scales("marlin", scales, _HALF_TYPES), order, dims, groups),
    )
    scale = (_number("scales"),)
    if not checked_flag("marlin: zeros", zeros):
        return fields, Rule(_number("qweight", minus=1 << bits - 1), scale)
    points = _by_tag("qzeros", kind, "marlin_zeros", dims, groups)
    return (*fields, points), Rule(_number("qweight"), scale, _number("qzeros"))


def _torch_int4(dims: tuple[int, ...], *, name: str, group: Any, scales: Any) -> _Made:
    groups = _groups(name, dims, 1, group)
    sizes = dims[0], -(-dims[1] // groups[1])
    kind = _float_scales(name, scales)
    # row-major over groups, outputs, and the pair of scale and offset
    strides, pair = (2, 2 * sizes[0]), "scales_and_zeros"
    fields = (
        _by_tag("weight", "u4", name, dims, (1, 1)),
        Field("scales", kind, layout_by_strides(sizes, strides), groups, pair),
        Field("zeros", kind, layout_by_strides(sizes, strides, offset0=1), groups, pair),
    )
    rule = Rule(_number("weight", minus=8), (_number("scales"),), offset=(_number("zeros"),))
    return fields, rule


class _Blocks(NamedTuple):
    """Floats of 8 or 4 bits, and how many along the last dim share a scale."""

    codes: str
    scales: str
    group: int
    # the tensors of codes and of scales; a third one has a scale for a whole matrix
    names: tuple[str, ...]
    # whether the scales are divided by that third one
    divides: bool = False
    # whether stacked matrices are (in, out), with one scale for all of them
    is_turned: bool = False
    # the library that uses it, if no test compares with that library
    unjudged: str = ""


def _block_scaled(
    dims: tuple[int, ...], *, name: str, blocks: _Blocks, swizzled: Any = False
) -> _Made:
    """Return floats with a scale for each group along the last dim."""
    lead = (1,) * (len(dims) - 2)
    is_turned = blocks.is_turned and bool(lead)
    groups = (*lead, blocks.group, 1) if is_turned else (*lead, 1, blocks.group)
    _check_multiples(name, dims, groups)
    is_swizzled = checked_flag(f"{name}: swizzled", swizzled)
    order = "nvfp4_scales" + "_experts" * len(lead) if is_swizzled else "plain"
    codes, scales, *whole = blocks.names
    fields = [
        _by_tag(codes, blocks.codes, "aBc2b" if is_turned else "plain", dims, (1,) * len(dims)),
        _by_tag(scales, blocks.scales, order, dims, groups),
    ]
    scale = [_number(scales)]
    for each in whole:
        sizes = tuple(max(size, 1) for size in dims)
        matrix = sizes if is_turned else (*lead, *sizes[-2:])
        fields.append(_by_tag(each, "f32", "plain", dims, matrix))
        scale.append(_number(each)._replace(divides=blocks.divides))
    return tuple(fields), Rule(_number(codes), tuple(scale))


def _fp8(
    dims: tuple[int, ...], *, name: str, codes: Any, scales: Any, scale_inv: Any, block: Any = 1
) -> _Made:
    """Return 8-bit floats with one scale for the matrix, for each output, or for each block."""
    lead = (1,) * (len(dims) - 2)
    wanted = (*lead, *(_FP8_GROUPS.get(name) or block_sizes(name, block)))
    groups = tuple(min(group, max(size, 1)) for group, size in zip(wanted, dims, strict=True))
    # both names hold the factor that codes are multiplied by
    scale = "weight_scale_inv" if checked_flag(f"{name}: scale_inv", scale_inv) else "weight_scale"
    hint = "give codes= if the words hold one of these"
    kind = _checked_type(f"{name}: codes", codes, _CODES_OF_FP8, hint)
    fields = (
        _by_tag("weight", kind, "plain", dims, (*lead, 1, 1)),
        _by_tag(scale, _float_scales(name, scales, _SCALES_OF_FP8), "plain", dims, groups),
    )
    return fields, Rule(_number("weight"), (_number(scale),))


def block_sizes(name: str, block: Any) -> tuple[int, int]:
    """Return the rows and columns of a block: a number for both, or a string such as 128x64."""
    words = block.split("x") if isinstance(block, str) else ()
    if len(words) == 2 and all(word.isdecimal() and int(word) > 0 for word in words):  # noqa: PLR2004 - rows, columns
        return int(words[0]), int(words[1])
    if isinstance(block, str | bool) or checked_int(f"{name}: block", block) < 1:
        msg = (
            f"{name}: block must be an integer of 1 or more, or two such as '128x64', not "
            f"{short_repr(block)}"
        )
        raise MemdescError(msg)
    return int(block), int(block)


def _mlx(dims: tuple[int, ...], *, group: Any, bits: Any, scales: Any) -> _Made:
    """Return codes packed along each row, with a scale and an offset for each group."""
    _check_choice("mlx: bits", bits, _MLX_BITS)
    lead = (1,) * (len(dims) - 2)
    groups, kind = (*lead, *_groups("mlx", dims[-2:], 1, group)), _float_scales("mlx", scales)
    if dims[-1]:
        _check_choice("mlx: group", groups[-1], _MLX_GROUPS)
    # codes of 3, 5 and 6 bits cross bytes: they are planes of 1 or 2 bits
    width = gcd(bits, 8)
    count = bits // width
    planes = [
        Field(
            f"weight_{plane * width}" if count > 1 else "weight",
            f"u{width}",
            layout_by_strides(
                dims, tuple(prod(dims[k:]) * count for k in range(1, len(dims) + 1)), offset0=plane
            ),
            (*lead, 1, 1),
            "weight",
        )
        for plane in range(count)
    ]
    parts = (_by_tag(name, kind, "plain", dims, groups) for name in ("scales", "biases"))
    fields = (*planes, *parts)
    code = Number(tuple((plane.name, k * width) for k, plane in enumerate(planes)))
    return fields, Rule(code, (_number("scales"),), offset=(_number("biases"),), kind=kind)


def _bitsandbytes(dims: tuple[int, ...], *, name: str, block: Any, dtype: Any) -> _Made:
    """Return indices into 16 numbers, the high half of a byte first, in blocks along a row."""
    step = checked_int(f"{name}: block", block)
    if step < 1 or dims[1] % step or dims[1] % 2:
        msg = (
            f"{name}: rows of {dims[1]} are not whole bytes and blocks of {step}; bitsandbytes "
            "counts blocks over the whole matrix, so some would cross rows"
        )
        raise MemdescError(msg)
    _check_choice(f"{name}: dtype", dtype, _BNB_TYPES)
    kind, scales = name.removeprefix("bnb_"), _by_tag("absmax", "f32", "ab", dims, (1, step))
    pairs = (Block(0, 1, dims[0], dims[1]), Block(1, 2, dims[1] // 2, 2), Block(1, 1, 2, -1))
    fields = (
        Field("weight", "u4", Layout(dims, single_axes(dims), pairs, 1), (1, 1), "weight"),
        Field("absmax", "f32", scales.layout, scales.groups, "weight.absmax"),
    )
    state = {"quant_type": kind, "blocksize": step, "dtype": dtype, "shape": [*dims]}
    constants = (
        Constant("weight.quant_map", "f32", _BNB_TABLES[name]),
        Constant(f"weight.quant_state.bitsandbytes__{kind}", "u8", (*json.dumps(state).encode(),)),
    )
    code = Number((("weight", 0),), table=_BNB_TABLES[name])
    return fields, Rule(code, (_number("absmax"),)), constants


def _hqq(dims: tuple[int, ...], *, group: Any, bits: Any, scales: Any) -> _Made:
    """Return bytes whose bits, highest first, hold codes of successive parts of the rows."""
    _check_choice("hqq: bits", bits, _HQQ_BITS)
    parts = 8 // bits
    _check_multiples("hqq", dims, (parts, 1))
    groups, kind = _groups("hqq", dims, 1, group), _float_scales("hqq", scales)
    rows = (Block(0, dims[0] // parts, parts, -1), Block(0, 1, dims[0] // parts, parts * dims[1]))
    blocks = (*rows, Block(1, 1, dims[1], parts)) if parts > 1 and dims[0] else ()
    codes = (
        Layout(dims, single_axes(dims), blocks, parts - 1)
        if blocks
        else layout_by_strides(dims, (dims[1], 1))
    )
    fields = (
        Field("W_q", f"u{bits}", codes, (1, 1), "W_q"),
        _by_tag("scale", kind, "ab", dims, groups),
        _by_tag("zero", kind, "ab", dims, groups),
    )
    state = {
        "shape": ("s64", dims),
        "nbits": ("s32", (bits,)),
        "group_size": ("s32", (groups[1],)),
        "axis": ("s32", (1,)),
        "packing": ("u8", f"{bits}bit_u8".encode()),
        "unpack_view_dtype": ("u8", b"torch.uint8"),
        "compute_dtype": ("u8", f"torch.{data_type(kind).numpy.name}".encode()),
        **{name: ("u8", (int(value),)) for name, value in _HQQ_FLAGS.items()},
        "round_zero": ("u8", (int(bits == 4),)),  # noqa: PLR2004 - HQQ rounds zero points of 4-bit codes
    }
    constants = tuple(Constant(name, kind, tuple(values)) for name, (kind, values) in state.items())
    rule = Rule(_number("W_q"), (_number("scale"),), _number("zero"), kind=kind)
    return fields, rule, constants


def _pack_quantized(
    dims: tuple[int, ...], *, bits: Any, zeros: Any, shape: Any, **options: Any
) -> _Made:
    """Return unsigned codes in words along the inputs; zero points in words along the outputs."""
    name, kind = "pack_quantized", _integers("pack_quantized", bits)
    scales = _by_rows(name, dims, **options)
    word = 32 // bits
    codes = _by_tag("weight_packed", kind, f"aB{word}b", dims, (1, 1))
    _check_choice(f"{name}: shape", shape, _SHAPES)
    held = (Constant("weight_shape", shape, dims),)
    scale = (_number("weight_scale"),)
    if not checked_flag(f"{name}: zeros", zeros):
        return (codes, scales), Rule(_number(codes.name, minus=1 << bits - 1), scale), held
    if scales.groups[0] > 1:
        rows = options["rows"]
        msg = f"{name} with zero points has scales for each row; rows must be 1, not {rows}"
        raise MemdescError(msg)
    # the same number is added to codes and to zero points
    points = _by_tag("weight_zero_point", kind, f"Ab{word}a", dims, scales.groups)
    return (codes, scales, points), Rule(_number(codes.name), scale, _number(points.name)), held


def _int_quantized(dims: tuple[int, ...], *, zeros: Any, **options: Any) -> _Made:
    """Return signed bytes, and as many zero points as scales."""
    scales = _by_rows("int_quantized", dims, **options)
    codes = _by_tag("weight", "s8", "ab", dims, (1, 1))
    scale = (_number("weight_scale"),)
    if not checked_flag("int_quantized: zeros", zeros):
        return (codes, scales), Rule(_number("weight"), scale)
    points = _by_tag("weight_zero_point", "s8", "ab", dims, scales.groups)
    return (codes, scales, points), Rule(_number("weight"), scale, _number(points.name))


def _by_rows(name: str, dims: tuple[int, ...], *, group: Any, rows: Any, scales: Any) -> Field:
    """Return scales for groups of inputs of one row, of several, or of all."""
    inputs = _groups(name, dims, 1, group)[1]
    outputs = checked_int(f"{name}: rows", rows)
    if outputs < 1 and outputs != -1:
        msg = f"{name}: rows must be at least 1, or -1 for all, not {outputs}"
        raise MemdescError(msg)
    outputs = max(dims[0], 1) if outputs == -1 else outputs
    kind = _float_scales(name, scales)
    return _by_tag("weight_scale", kind, "ab", dims, (outputs, inputs))


class _Interleaved(NamedTuple):
    """Blocks of 32 columns and some rows: the scales of the rows, then the codes of all of them."""

    rows: int
    codes: str
    row_stride: int
    """In codes."""
    digits: tuple[tuple[int, int, int], ...]
    """The steps, extents and strides of the digits of a column in its block."""
    code: Number


def _interleaved(dims: tuple[int, ...], *, name: str, blocks: _Interleaved) -> _Made:
    """Return a record with interleaved rows."""
    rows = blocks.rows
    _check_multiples(name, dims, (rows, 32))
    count, columns = dims[0] // rows, dims[1] // 32
    per_scale = 16 // data_type(blocks.codes).bits
    size = rows * (per_scale + 32)
    scales = Layout(
        (dims[0], columns),
        single_axes((dims[0], columns)),
        (
            Block(0, rows, count, size // per_scale * columns),
            Block(0, 1, rows, 1),
            Block(1, 1, columns, size // per_scale),
        ),
    )
    codes = Layout(
        dims,
        single_axes(dims),
        (
            Block(0, rows, count, size * columns),
            Block(0, 1, rows, blocks.row_stride),
            Block(1, 32, columns, size),
            *(Block(1, *digit) for digit in blocks.digits),
        ),
        per_scale * rows,
    )
    fields = (
        Field("d", "f16", scales, (1, 32), "data"),
        Field("qs", blocks.codes, codes, (1, 1), "data"),
    )
    return fields, Rule(blocks.code, (_number("d"),))


def _in_runs(rows: int, run: int, codes: str, minus: int = 0) -> _Interleaved:
    """Return 4-bit codes: `run` bytes of each row in turn, each with the columns j and j + 16."""
    digits = ((16, 2, 1), (run, 16 // run, 2 * run * rows), (1, run, 2))
    return _Interleaved(rows, codes, 2 * run, digits, _number("qs", minus))


# of llama.cpp, whose codes are s4, and of ik_llama.cpp
_INTERLEAVED = {
    "q4_0_4x4": _in_runs(4, 4, "s4"),
    "q4_0_4x8": _in_runs(4, 8, "s4"),
    "q4_0_8x8": _in_runs(8, 8, "s4"),
    "q4_0_r8": _in_runs(8, 4, "u4", minus=8),
    "q8_0_r8": _Interleaved(8, "s8", 4, ((4, 8, 32), (1, 4, 1)), _number("qs")),
    "iq4_nl_r4": _Interleaved(
        4, "u4", 8, ((16, 2, 32), (8, 2, 1), (4, 2, 64), (1, 4, 2)), GGUF_TYPES["iq4_nl"].rule.code
    ),
}

# options with their defaults, which several formats share
_GROUP, _FOUR = ("group", 128), ("bits", 4)
_F16, _BF16 = ("scales", "f16"), ("scales", "bf16")
# rows that share a scale
_ROWS = ("rows", 1)
_SWIZZLE = (("swizzled", True),)
_FP8 = (("codes", "f8_e4m3"), ("scales", "f32"), ("scale_inv", False))
# how many outputs and inputs share a scale; a group this large has all of them
_ALL = 1 << 62
_FP8_GROUPS = {"fp8_tensor": (_ALL, _ALL), "fp8_channel": (1, _ALL)}

# the tensors of codes and of scales: in ModelOpt and in compressed-tensors, then in formats that do
# not name them, and in MLX
_WEIGHT, _PACKED = ("weight", "weight_scale"), ("weight_packed", "weight_scale")
_DATA, _MLX = ("data", "scales"), ("weight", "scales")
# floats with scales for groups along the inputs, and the options of their formats
_BLOCK_SCALED = {
    "ocp_mxfp4": (_Blocks("f4_e2m1", "e8m0", 32, _DATA), _SWIZZLE),
    "ocp_mxfp8": (_Blocks("f8_e4m3", "e8m0", 32, _DATA), _SWIZZLE),
    "ocp_mxfp8_e5m2": (_Blocks("f8_e5m2", "e8m0", 32, _DATA, unjudged="any library"), _SWIZZLE),
    "cublas_nvfp4": (
        _Blocks("f4_e2m1", "f8_e4m3", 16, (*_DATA, "global_scale"), unjudged="cuBLAS"),
        _SWIZZLE,
    ),
    "modelopt_nvfp4": (
        _Blocks("f4_e2m1", "f8_e4m3", 16, (*_WEIGHT, "weight_scale_2"), is_turned=True),
        (),
    ),
    "compressed_nvfp4": (
        _Blocks("f4_e2m1", "f8_e4m3", 16, (*_PACKED, "weight_global_scale"), divides=True),
        (),
    ),
    "modelopt_mxfp4": (_Blocks("f4_e2m1", "e8m0", 32, _WEIGHT), ()),
    "compressed_mxfp4": (_Blocks("f4_e2m1", "e8m0", 32, _PACKED), ()),
    "gpt_oss_mxfp4": (_Blocks("f4_e2m1", "e8m0", 32, ("blocks", "scales")), ()),
    "mxfp8": (_Blocks("f8_e4m3", "e8m0", 32, _WEIGHT), ()),
    "mlx_mxfp4": (_Blocks("f4_e2m1", "e8m0", 32, _MLX), ()),
    "mlx_mxfp8": (_Blocks("f8_e4m3", "e8m0", 32, _MLX), ()),
    "mlx_nvfp4": (_Blocks("f4_e2m1", "f8_e4m3", 16, _MLX), ()),
}

# name -> the function that makes it, names of its dims, options with their defaults, names of the
# dims of stacked matrices, and the library that uses it if no test compares with that library
TENSOR_FORMATS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "gptq": (_gptq, "io", (_GROUP, ("zeros", "v1"), _FOUR, _F16, ("g_idx", False))),
        "awq": (_awq, "io", (_GROUP, _F16)),
        "marlin": (_marlin, "io", (_GROUP, ("zeros", False), _FOUR, _F16), "", "vLLM"),
        **{
            name: (partial(_torch_int4, name=name), "oi", (_GROUP, _BF16))
            for name in ("torch_int4_cpu", "torch_int4_cpu_avx2", "torch_int4_cpu_default")
        },
        **{
            name: (
                partial(_block_scaled, name=name, blocks=blocks),
                "oi",
                options,
                "eio" if blocks.is_turned else "eoi",
                blocks.unjudged,
            )
            for name, (blocks, options) in _BLOCK_SCALED.items()
        },
        **{
            name: (partial(_fp8, name=name), "oi", options, "eoi")
            for name, options in (
                ("fp8_tensor", _FP8),
                ("fp8_channel", _FP8),
                ("fp8_block", (*_FP8, ("block", 128))),
            )
        },
        "mlx": (_mlx, "oi", (("group", 64), _FOUR, _BF16), "eoi"),
        "pack_quantized": (
            _pack_quantized,
            "oi",
            (_GROUP, _ROWS, ("zeros", False), _FOUR, _BF16, ("shape", _SHAPES[0])),
        ),
        "int_quantized": (_int_quantized, "oi", (("group", -1), _ROWS, ("zeros", False), _BF16)),
        "hqq": (_hqq, "oi", (("group", 64), _FOUR, _BF16)),
        **{
            name: (partial(_bitsandbytes, name=name), "oi", (("block", 64), ("dtype", "bfloat16")))
            for name in ("bnb_nf4", "bnb_fp4")
        },
        **{
            name: (
                partial(_interleaved, name=name, blocks=blocks),
                "oi",
                (),
                "",
                "ik_llama.cpp" if "_r" in name else "llama.cpp",
            )
            for name, blocks in _INTERLEAVED.items()
        },
    }
)


def _groups(name: str, dims: tuple[int, ...], dim: int, group: Any) -> tuple[int, ...]:
    """Return the groups of scales: `group` inputs, or all inputs for -1."""
    count = checked_int(f"{name}: group", group)
    if count != -1 and (count < 1 or dims[dim] % count):
        msg = (
            f"{name}: a group of {count} does not divide {dim_name(dim)} of size {dims[dim]}; "
            "group=-1 is one group for all"
        )
        raise MemdescError(msg)
    count = max(dims[dim], 1) if count == -1 else count
    return (count, 1) if dim == 0 else (1, count)


def _check_multiples(name: str, dims: tuple[int, ...], steps: tuple[int, ...]) -> None:
    for dim, (size, step) in enumerate(zip(dims, steps, strict=True)):
        if size % step:
            msg = f"{name} needs a multiple of {step} along {dim_name(dim)}, not {size}"
            raise MemdescError(msg)


def _integers(name: str, bits: Any) -> str:
    _check_choice(f"{name}: bits", bits, (4, 8))
    return f"u{bits}"


def _check_choice(what: str, given: Any, legal: tuple[Any, ...]) -> None:
    """Refuse a value that is none of the legal ones, or equals one of another type, as 4.0 does."""
    if given not in legal or type(given) is not type(legal[0]):
        *most, last = map(str, legal)
        msg = f"{what} must be {', '.join(most)} or {last}, not {short_repr(given)}"
        raise MemdescError(msg)


def _float_scales(name: str, kind: Any, legal: tuple[str, ...] = _FLOAT_SCALES) -> str:
    hint = f"give scales={legal[0]} if it holds them exactly"
    if "e8m0" in legal and data_type(kind).name == "u8":
        hint = "if they are exponents, store them as e8m0: x.view(torch.float8_e8m0fnu)"
    return _checked_type(f"{name}: scales", kind, legal, hint)


def _checked_type(what: str, kind: Any, legal: tuple[str, ...], hint: str) -> str:
    found = data_type(kind).name
    if found not in legal:
        msg = f"{what} are {', '.join(legal)}, not {found}; {hint}"
        raise MemdescError(msg)
    return found
