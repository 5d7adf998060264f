"""The schemes whose weights are several tensors: a row each.

The orders of codes are those of the vocabulary of weights. Sources of the rules: AutoGPTQ and
GPTQModel (version 1 of `qzeros` stores zero points minus 1), AutoAWQ, PyTorch 2.13
(`_weight_int4pack_mm_for_cpu`), OCP's MX 1.0, DeepSeek-V3 (`inference/kernel.py`,
`weight_dequant`), DeepSeek-V4 (`inference/convert.py`, `cast_e2m1fn_to_e4m3fn`),
transformers 5 (`quantizers/quantizer_finegrained_fp8.py`),
compressed-tensors 0.20 (`quantization/lifecycle/forward.py`, `dequantize`;
`compressors/pack_quantized/helpers.py`, `pack_to_int32`, for 4 and 8 bits;
`compressors/naive_quantized/base.py`), MLX 0.32 (`mx.quantize`, `mx.dequantize`), bitsandbytes 0.50
(`backends/cpu/ops.py`, `functional.py`), hqq 0.2.8 (`core/bitpack.py`, `core/quantize.py`), and
llama.cpp (`ggml-opencl`, `kernels/cvt.cl`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import index
from types import MappingProxyType
from typing import Any

from memdesc.dtypes import data_type
from memdesc.errors import MemdescError
from memdesc.layout import Block, Layout, layout_by_strides, single_axes
from memdesc.record.rule import Number, Rule
from memdesc.record.scheme import Option, Options, Part, Scheme

_FLOATS = ("f16", "bf16", "f32")
_F16, _BF16 = Option("scales", "f16", _FLOATS), Option("scales", "bf16", _FLOATS)
_FOUR, _GROUP, _ROWS = Option("bits", 4, (4, 8)), Option("group", 128), Option("rows", 1)
_ZEROS = Option("zeros", usual=False, legal=(False, True))


def _of(name: str, minus: int = 0, *, divides: bool = False) -> Number:
    return Number(((name, 0),), minus, divides=divides)


def _scaled(*scales: str, zero: str = "", minus: int = 0) -> Callable[[Number, Options], Rule]:
    """Return the rule of codes with these scales, and zero points with a number taken off them."""

    def rule(code: Number, _: Options) -> Rule:
        return Rule(code, tuple(map(_of, scales)), _of(zero, minus) if zero else None)

    return rule


def _gptq(code: Number, options: Options) -> Rule:
    zero = _of("qzeros", minus=-1 if options["zeros"] == "v1" else 0)
    return Rule(code, (_of("scales"),), zero)


def _packed(code: Number, options: Options) -> Rule:
    """Return the rule of unsigned codes, with zero points or the middle code as zero."""
    scale = (_of("weight_scale"),)
    if options["zeros"]:
        return Rule(code, scale, _of("weight_zero_point"))
    return Rule(code._replace(minus=1 << options["bits"] - 1), scale)


def _bytes(code: Number, options: Options) -> Rule:
    zero = _of("weight_zero_point") if options["zeros"] else None
    return Rule(code, (_of("weight_scale"),), zero)


def _fp8(code: Number, options: Options) -> Rule:
    # both names hold the factor that codes are multiplied by
    return Rule(code, (_of("weight_scale_inv" if options["scale_inv"] else "weight_scale"),))


def _torch(code: Number, _: Options) -> Rule:
    return Rule(code._replace(minus=8), (_of("scales"),), offset=(_of("zeros"),))


def _mlx(code: Number, options: Options) -> Rule:
    return Rule(code, (_of("scales"),), offset=(_of("biases"),), kind=options["scales"])


def _hqq(code: Number, options: Options) -> Rule:
    return Rule(code, (_of("scale"),), _of("zero"), kind=options["scales"])


def _in_pairs(first: int, sizes: tuple[int, ...], _: Options) -> Layout:
    """Return scales, or offsets, of pairs: over groups, outputs, and the two of a pair."""
    return layout_by_strides(sizes, (2, 2 * sizes[0]), offset0=first)


def _high_first(dims: tuple[int, ...], _: Options) -> Layout:
    """Return codes of 4 bits of which the first of a byte is in its high half."""
    pairs = (Block(0, 1, dims[0], dims[1]), Block(1, 2, dims[1] // 2, 2), Block(1, 1, 2, -1))
    return Layout(dims, single_axes(dims), pairs, 1)


def _in_parts(dims: tuple[int, ...], options: Options) -> Layout:
    """Return bytes whose bits, highest first, hold codes of successive parts of the rows."""
    parts = 8 // options["bits"]
    if parts == 1 or not dims[0]:
        return layout_by_strides(dims, (dims[1], 1))
    rows = (
        Block(0, dims[0] // parts, parts, -1),
        Block(0, 1, dims[0] // parts, parts * dims[1]),
    )
    return Layout(dims, single_axes(dims), (*rows, Block(1, 1, dims[1], parts)), parts - 1)


def _is_dims(dims: tuple[int, ...], _: Options) -> Sequence[int]:
    return dims


def _order(dims: tuple[int, ...], options: Options) -> Sequence[int]:
    """Return the group of each input, with which readers of AutoGPTQ's format index scales."""
    group = options["group"] if options["group"] > 0 else max(dims[0], 1)
    return [k // group for k in range(dims[0])]


# what HQQ stores with its codes; it pads 3-bit codes to whole words over all rows, so they have no
# record
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


def _group_of(dims: tuple[int, ...], options: Options) -> Sequence[int]:
    return (options["group"] if options["group"] > 0 else max(dims[1], 1),)


def _constant(value: int, _: tuple[int, ...], __: Options) -> Sequence[int]:
    return (value,)


def _text(make: Callable[[Options], str], _: tuple[int, ...], options: Options) -> Sequence[int]:
    return tuple(make(options).encode())


_HQQ_STATE = (
    Part("shape", "", "s64", values=_is_dims, shows=("o", "i")),
    Part("nbits", "", "s32", values=lambda _, o: (o["bits"],), shows=("bits",)),
    Part("group_size", "", "s32", values=_group_of, shows=("group",)),
    Part("axis", "", "s32", values=partial(_constant, 1)),
    *(
        Part(name, "", "u8", values=partial(_text, make))
        for name, make in (
            ("packing", lambda o: f"{o['bits']}bit_u8"),
            ("unpack_view_dtype", lambda _: "torch.uint8"),
            ("compute_dtype", lambda o: f"torch.{data_type(o['scales']).numpy.name}"),
        )
    ),
    *(
        Part(name, "", "u8", values=partial(_constant, int(value)))
        for name, value in _HQQ_FLAGS.items()
    ),
    # HQQ rounds the zero points of 4-bit codes
    Part("round_zero", "", "u8", values=lambda _, o: (int(o["bits"] == 4),)),  # noqa: PLR2004
)

# the numbers of bitsandbytes's codes
# fmt: off
_BNB_FP4 = (
    0.0, 0.0052083334885537624, 0.6666666865348816, 1.0, 0.3333333432674408, 0.5,
    0.1666666716337204, 0.25,
)
_BNB_TABLES = {
    "nf4": (
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
        0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
        0.7229568362236023, 1.0,
    ),
    "fp4": (*_BNB_FP4, 0.0, *(-value for value in _BNB_FP4[1:])),
}
# fmt: on


def _bnb_state(kind: str, dims: tuple[int, ...], options: Options) -> Sequence[int]:
    block, dtype = options["block"], options["dtype"]
    state = {"quant_type": kind, "blocksize": block, "dtype": dtype, "shape": [*dims]}
    return tuple(json.dumps(state).encode())


def _read_bnb_state(data: bytes) -> dict[str, Any]:
    """Return what the state says. Fails if it is not bitsandbytes's."""
    try:
        state = json.loads(data)
        outputs, inputs = map(index, state["shape"])
        block = index(state["blocksize"])
        return {"o": outputs, "i": inputs, "block": block, "dtype": state["dtype"]}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise MemdescError(
            f"this is not the JSON of bitsandbytes's quant_state: {error!r}"
        ) from None


def _bitsandbytes(kind: str) -> Scheme:
    table = _BNB_TABLES[kind]
    return Scheme(
        f"bnb_{kind}",
        "oi",
        (
            Part("weight", "i*4/8*o, 1", "u4", "u8", _high_first, is_bare=True),
            Part("absmax", "i/block*o", "f32", within="weight.absmax", is_bare=True),
            Part("weight.quant_map", "", "f32", values=lambda _, __: table),
            Part(
                f"weight.quant_state.bitsandbytes__{kind}",
                "",
                "u8",
                values=partial(_bnb_state, kind),
                shows=_read_bnb_state,
            ),
        ),
        lambda code, _: Rule(code._replace(table=table), (_of("absmax"),)),
        (
            Option("block", 64, has_all=False),
            Option("dtype", "bfloat16", ("bfloat16", "float16", "float32")),
        ),
    )


def _blocks(name: str, codes: Part, scales: Part, *whole: Part, **more: Any) -> Scheme:
    """Return floats with a scale for each group along the inputs; and one for the matrix."""
    more.setdefault("rule", _scaled(scales.name, *(each.name for each in whole)))
    more.setdefault("stacked", "eoi")
    return Scheme(name, "oi", (codes, scales, *whole), **more)


# codes of 4 and 8 bits, and their scales
_E2M1, _E4M3 = ("f4_e2m1", "u8"), ("f8_e4m3", "")
_EXPONENTS = ("e8m0", "u8")
_BY_2, _BY_32 = "o, i*4/8", "o, i/32"
_SWIZZLE = (Option("swizzled", usual=True, legal=(True, False)),)


def _ocp(name: str, codes: tuple[str, str], shape: str) -> Scheme:
    return _blocks(
        name,
        Part("data", shape, *codes),
        Part("scales", "o~128, i/32~4", "e8m0", order="nvfp4_scales", when="swizzled"),
        Part("scales", _BY_32, "e8m0", when="!swizzled"),
        rule=_scaled("scales"),
        options=_SWIZZLE,
    )


def _of_mlx(name: str, kind: str, scales: str, bits: int, group: int) -> Scheme:
    return _blocks(
        name,
        Part("weight", f"o, i*{bits}/32", kind, "u32", is_bare=True),
        Part("scales", f"o, i/{group}", scales, "u8", is_bare=True),
    )


def _fp8_scheme(name: str, scales: str, stacked: str, *more: Option) -> Scheme:
    return Scheme(
        name,
        "oi",
        (
            Part("weight", "o, i", "{codes}"),
            Part("weight_scale_inv", scales, stacked=stacked, when="scale_inv"),
            Part("weight_scale", scales, stacked=stacked, when="!scale_inv"),
        ),
        _fp8,
        (
            Option("codes", "f8_e4m3", ("f8_e4m3", "f8_e5m2")),
            Option("scales", "f32", ("f32", "bf16", "f16", "e8m0")),
            Option("scale_inv", usual=False, legal=(False, True)),
            *more,
        ),
        "eoi",
    )


def _q4_0(name: str, codes: Part, scales: Part, stacked: str = "") -> Scheme:
    """Return codes around 8 with an f16 scale for each 32 inputs."""
    return Scheme(
        name,
        "oi",
        (codes, scales),
        lambda code, _: Rule(code._replace(minus=8), (_of("adreno_d"),)),
        stacked=stacked,
    )


_BLOCK = Option("block", 128, is_block=True)
_ROWS_OF_SCALES = "o/rows, i/group"
_ALL: tuple[Scheme, ...] = (
    Scheme(
        "gptq",
        "io",
        (
            Part("qweight", "i*bits/32, o", "u{bits}", "s32", "Ab{word}a"),
            Part("qzeros", "i/group, o*bits/32", "u{bits}", "s32", by="g_idx"),
            Part("scales", "i/group, o", by="g_idx"),
            Part("g_idx", "i", "s32", when="g_idx", values=_order),
        ),
        _gptq,
        (
            _GROUP,
            Option("zeros", "v1", ("v1", "v2"), ("stored minus 1", "as they are")),
            _FOUR,
            _F16,
            Option("g_idx", usual=False, legal=(False, True)),
        ),
        model="oi",
        data=("g_idx",),
    ),
    Scheme(
        "awq",
        "io",
        (
            Part("qweight", "i, o*4/32", "u4", "s32", "awq"),
            Part("qzeros", "i/group, o*4/32", "u4", "s32", "awq"),
            Part("scales", "i/group, o"),
        ),
        _scaled("scales", zero="qzeros"),
        (_GROUP, _F16),
        model="oi",
    ),
    *(
        Scheme(
            name,
            "oi",
            (
                Part("weight", _BY_2, "u4", "u8", name),
                *(
                    Part(
                        part,
                        "i/group, o, 2",
                        order=partial(_in_pairs, k),
                        within="scales_and_zeros",
                        is_bare=True,
                    )
                    for k, part in enumerate(("scales", "zeros"))
                ),
            ),
            _torch,
            (_GROUP, _BF16),
        )
        for name in ("torch_int4_cpu", "torch_int4_cpu_avx2", "torch_int4_cpu_default")
    ),
    _ocp("ocp_mxfp4", _E2M1, _BY_2),
    _ocp("ocp_mxfp8", _E4M3, "o, i"),
    _blocks(
        "modelopt_nvfp4",
        Part("weight", _BY_2, *_E2M1, stacked="e, i*4/8, o", stacked_order="aBc2b"),
        Part("weight_scale", "o, i/16", "f8_e4m3", stacked="e, i/16, o"),
        Part("weight_scale_2", "1", "f32", stacked="1"),
        stacked="eio",
    ),
    _blocks(
        "compressed_nvfp4",
        Part("weight_packed", _BY_2, *_E2M1),
        Part("weight_scale", "o, i/16", "f8_e4m3"),
        Part("weight_global_scale", "1", "f32", stacked="e, 1, 1"),
        rule=lambda code, _: Rule(
            code, (_of("weight_scale"), _of("weight_global_scale", divides=True))
        ),
    ),
    _blocks(
        "modelopt_mxfp4",
        Part("weight", _BY_2, *_E2M1),
        Part("weight_scale", _BY_32, *_EXPONENTS),
    ),
    _blocks(
        "compressed_mxfp4",
        Part("weight_packed", _BY_2, *_E2M1),
        Part("weight_scale", _BY_32, *_EXPONENTS),
    ),
    _blocks(
        "gpt_oss_mxfp4",
        Part("blocks", "o, i/32, 16", *_E2M1),
        Part("scales", _BY_32, *_EXPONENTS),
        model="eio",
        joint="_",
    ),
    _blocks(
        "mxfp8",
        Part("weight", "o, i", "f8_e4m3"),
        Part("weight_scale", _BY_32, *_EXPONENTS),
    ),
    _of_mlx("mlx_mxfp4", "f4_e2m1", "e8m0", 4, 32),
    _of_mlx("mlx_mxfp8", "f8_e4m3", "e8m0", 8, 32),
    _of_mlx("mlx_nvfp4", "f4_e2m1", "f8_e4m3", 4, 16),
    _fp8_scheme("fp8_tensor", "1", "e, 1, 1"),
    _fp8_scheme("fp8_channel", "o, 1", "e, o, 1"),
    _fp8_scheme("fp8_block", "o^block, i^block", "e, o^block, i^block", _BLOCK),
    # DeepSeek-V4: its dense layers, and its experts
    _blocks(
        "deepseek_fp8",
        Part("weight", "o, i", "f8_e4m3"),
        Part("scale", "o^block, i^block", "e8m0"),
        options=(_BLOCK,),
    ),
    _blocks("deepseek_fp4", Part("weight", _BY_2, "f4_e2m1", "s8"), Part("scale", _BY_32, "e8m0")),
    Scheme(
        "mlx",
        "oi",
        (
            Part("weight", "o, i*bits/32", "u{bits}", "u32", is_bare=True),
            Part("scales", "o, i/group"),
            Part("biases", "o, i/group"),
        ),
        _mlx,
        # what MLX has kernels for
        (
            Option("group", 64, (32, 64, 128)),
            Option("bits", 4, (1, 2, 3, 4, 5, 6, 8)),
            _BF16,
        ),
        "eoi",
    ),
    Scheme(
        "pack_quantized",
        "oi",
        (
            Part("weight_packed", "o, i*bits^32", "u{bits}", "s32", "aB{word}b"),
            Part("weight_scale", _ROWS_OF_SCALES),
            # the same number is added to codes and to zero points
            Part(
                "weight_zero_point",
                "o*bits^32, i/group",
                "u{bits}",
                "s32",
                "Ab{word}a",
                when="zeros",
            ),
            Part("weight_shape", "", "{shape}", values=_is_dims, shows=("o", "i")),
        ),
        _packed,
        # compressed-tensors writes the first type of dims, Kimi-K2 the second
        (_GROUP, _ROWS, _ZEROS, _FOUR, _BF16, Option("shape", "s64", ("s64", "s32"))),
    ),
    Scheme(
        "int_quantized",
        "oi",
        (
            Part("weight", "o, i", "s8"),
            Part("weight_scale", _ROWS_OF_SCALES),
            Part("weight_zero_point", _ROWS_OF_SCALES, "s8", when="zeros"),
        ),
        _bytes,
        (Option("group", -1), _ROWS, _ZEROS, _BF16),
    ),
    Scheme(
        "hqq",
        "oi",
        (
            Part("W_q", "o*bits/8*i/group, group", "u{bits}", "u8", _in_parts, is_bare=True),
            Part("scale", "i/group*o, 1", is_bare=True),
            Part("zero", "i/group*o, 1", is_bare=True),
            *_HQQ_STATE,
        ),
        _hqq,
        (Option("group", 64), Option("bits", 4, (1, 2, 4, 8)), _BF16),
    ),
    # GGUF's q4_0 as llama.cpp keeps it in the memory of an Adreno GPU
    _q4_0(
        "ggml_soa",
        Part("adreno_q", "o, i*4/8", "u4", "u8", "ggml_soa"),
        Part("adreno_d", "o, i/32", "f16"),
    ),
    _q4_0(
        "adreno_noshuffle",
        Part("adreno_q", "i*4/16, o", "u4", "u16", "adreno_noshuffle"),
        Part("adreno_d", "i/32, o", "f16", order="adreno_scales"),
    ),
    _q4_0(
        "adreno_trans4_ns",
        Part("adreno_q", "i*4/32, o", "u4", "u32", "Ba8b", stacked_order="adreno_trans4_ns"),
        Part("adreno_d", "i/32, o", "f16", order="ba", stacked_order="acb"),
        "eoi",
    ),
    _bitsandbytes("nf4"),
    _bitsandbytes("fp4"),
)
SCHEMES: Mapping[str, Scheme] = MappingProxyType({each.name: each for each in _ALL})
