"""The schemes whose weights are several tensors: a row each.

A tensor is a line of its role in the rule (codes come first; scales multiply, a divisor divides,
zero points are subtracted and offsets added), its name, the type of its elements (in words of
another type), its shape, and other fields of a `Part`.

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
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import index
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memdesc.dtypes import data_type
from memdesc.errors import MemdescError
from memdesc.layout import Block, Layout, layout_by_strides, single_axes
from memdesc.record.scheme import Option, Options, Part, Scheme

if TYPE_CHECKING:
    from memdesc.record.rule import Rule

_FLOATS = ("f16", "bf16", "f32")
_F16, _BF16 = Option("scales", "f16", _FLOATS), Option("scales", "bf16", _FLOATS)
_FOUR, _GROUP, _ROWS = Option("bits", 4, (4, 8)), Option("group", 128), Option("rows", 1)
_ZEROS = Option("zeros", usual=False, legal=(False, True))
_BLOCK = Option("block", 128, is_block=True)
_SWIZZLED = Option("swizzled", usual=True, legal=(True, False))
_FP8 = (
    Option("codes", "f8_e4m3", ("f8_e4m3", "f8_e5m2")),
    Option("scales", "f32", ("f32", "bf16", "f16", "e8m0")),
    Option("scale_inv", usual=False, legal=(False, True)),
)


def _from_one(rule: Rule, options: Options) -> Rule:
    """Return the rule of zero points that version 1 stores minus 1."""
    minus = -1 if options["zeros"] == "v1" else 0
    return rule if rule.zero is None else rule._replace(zero=rule.zero._replace(minus=minus))


def _from_middle(rule: Rule, options: Options) -> Rule:
    """Return the rule of codes around the middle one, unless there are zero points."""
    minus = 0 if rule.zero else 1 << options.get("bits", 4) - 1
    return rule._replace(code=rule.code._replace(minus=minus))


def _in_scales(rule: Rule, options: Options) -> Rule:
    """Return a rule that is computed in the type of the scales."""
    return rule._replace(kind=options["scales"])


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


# orders of elements that are not those of a tag
_ORDERS = {
    "high_first": _high_first,
    "in_parts": _in_parts,
    "pairs_first": partial(_in_pairs, 0),
    "pairs_second": partial(_in_pairs, 1),
}


def _parts(*lines: str) -> tuple[Part, ...]:
    """Read tensors, a line each."""
    parts = []
    for line in lines:
        role, name, kind, shape, *more = re.split(r"\s{2,}", line)
        kind, _, words = kind.partition(" in ")
        given: dict[str, Any] = dict(each.split("=") for each in more)
        given["order"] = _ORDERS.get(given.get("order", "plain"), given.get("order", "plain"))
        given["is_bare"] = "is_bare" in given
        parts.append(Part(name, shape, kind, words, role=role, **given))
    return tuple(parts)


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
    state = Part(
        f"weight.quant_state.bitsandbytes__{kind}",
        "",
        "u8",
        values=partial(_bnb_state, kind),
        shows=_read_bnb_state,
    )
    return Scheme(
        f"bnb_{kind}",
        "oi",
        (
            *_parts(
                "code   weight  u4 in u8  i*4/8*o, 1  order=high_first  is_bare=yes",
                "scale  absmax  f32  i/block*o  within=weight.absmax  is_bare=yes",
            ),
            Part("weight.quant_map", "", "f32", values=lambda _, __: table),
            state,
        ),
        (
            Option("block", 64, has_all=False),
            Option("dtype", "bfloat16", ("bfloat16", "float16", "float32")),
        ),
        lambda rule, _: rule._replace(code=rule.code._replace(table=table)),
    )


def _blocks(name: str, *lines: str, **more: Any) -> Scheme:
    """Return floats with a scale for each group along the inputs, and perhaps one for all."""
    return Scheme(name, "oi", _parts(*lines), stacked=more.pop("stacked", "eoi"), **more)


_ALL: tuple[Scheme, ...] = (
    Scheme(
        "gptq",
        "io",
        (
            *_parts(
                "code   qweight  u{bits} in s32  i*bits/32, o        order=Ab{word}a",
                "zero   qzeros   u{bits} in s32  i/group, o*bits/32  by=g_idx",
                "scale  scales   {scales}        i/group, o          by=g_idx",
            ),
            Part("g_idx", "i", "s32", when="g_idx", values=_order),
        ),
        (
            _GROUP,
            Option("zeros", "v1", ("v1", "v2"), ("stored minus 1", "as they are")),
            _FOUR,
            _F16,
            Option("g_idx", usual=False, legal=(False, True)),
        ),
        _from_one,
        model="oi",
        data=("g_idx",),
    ),
    Scheme(
        "awq",
        "io",
        _parts(
            "code   qweight  u4 in s32  i, o*4/32        order=awq",
            "zero   qzeros   u4 in s32  i/group, o*4/32  order=awq",
            "scale  scales   {scales}   i/group, o",
        ),
        (_GROUP, _F16),
        model="oi",
    ),
    *(
        Scheme(
            name,
            "oi",
            _parts(
                f"code    weight  u4 in u8  o, i*4/8       order={name}",
                "scale   scales  {scales}  i/group, o, 2  order=pairs_first  "
                "within=scales_and_zeros  is_bare=yes",
                "offset  zeros   {scales}  i/group, o, 2  order=pairs_second  "
                "within=scales_and_zeros  is_bare=yes",
            ),
            (_GROUP, _BF16),
            _from_middle,
        )
        for name in ("torch_int4_cpu", "torch_int4_cpu_avx2", "torch_int4_cpu_default")
    ),
    *(
        _blocks(
            name,
            f"code   data    {codes}",
            "scale  scales  e8m0  o~128, i/32~4  order=nvfp4_scales  when=swizzled",
            "scale  scales  e8m0  o, i/32        when=!swizzled",
            options=(_SWIZZLED,),
        )
        for name, codes in (
            ("ocp_mxfp4", "f4_e2m1 in u8  o, i*4/8"),
            ("ocp_mxfp8", "f8_e4m3  o, i"),
        )
    ),
    _blocks(
        "modelopt_nvfp4",
        "code   weight          f4_e2m1 in u8  o, i*4/8  stacked=e, i*4/8, o  stacked_order=aBc2b",
        "scale  weight_scale    f8_e4m3        o, i/16   stacked=e, i/16, o",
        "scale  weight_scale_2  f32            1         stacked=1",
        stacked="eio",
    ),
    _blocks(
        "compressed_nvfp4",
        "code     weight_packed        f4_e2m1 in u8  o, i*4/8",
        "scale    weight_scale         f8_e4m3        o, i/16",
        "divisor  weight_global_scale  f32            1        stacked=e, 1, 1",
    ),
    _blocks(
        "modelopt_mxfp4",
        "code   weight        f4_e2m1 in u8  o, i*4/8",
        "scale  weight_scale  e8m0 in u8     o, i/32",
    ),
    _blocks(
        "compressed_mxfp4",
        "code   weight_packed  f4_e2m1 in u8  o, i*4/8",
        "scale  weight_scale   e8m0 in u8     o, i/32",
    ),
    _blocks(
        "gpt_oss_mxfp4",
        "code   blocks  f4_e2m1 in u8  o, i/32, 16",
        "scale  scales  e8m0 in u8     o, i/32",
        model="eio",
        joint="_",
    ),
    _blocks(
        "mxfp8",
        "code   weight        f8_e4m3     o, i",
        "scale  weight_scale  e8m0 in u8  o, i/32",
    ),
    *(
        _blocks(
            name,
            f"code   weight  {codes} in u32  o, i*{bits}/32  is_bare=yes",
            f"scale  scales  {scales} in u8  o, i/{group}    is_bare=yes",
        )
        for name, codes, bits, scales, group in (
            ("mlx_mxfp4", "f4_e2m1", 4, "e8m0", 32),
            ("mlx_mxfp8", "f8_e4m3", 8, "e8m0", 32),
            ("mlx_nvfp4", "f4_e2m1", 4, "f8_e4m3", 16),
        )
    ),
    *(
        # both names hold the factor that codes are multiplied by
        _blocks(
            name,
            "code   weight            {codes}   o, i",
            f"scale  weight_scale_inv  {{scales}}  {scales}  stacked={stacked}  when=scale_inv",
            f"scale  weight_scale      {{scales}}  {scales}  stacked={stacked}  when=!scale_inv",
            options=(*_FP8, *more),
        )
        for name, scales, stacked, more in (
            ("fp8_tensor", "1", "e, 1, 1", ()),
            ("fp8_channel", "o, 1", "e, o, 1", ()),
            ("fp8_block", "o^block, i^block", "e, o^block, i^block", (_BLOCK,)),
        )
    ),
    # DeepSeek-V4: its dense layers, and its experts
    _blocks(
        "deepseek_fp8",
        "code   weight  f8_e4m3  o, i",
        "scale  scale   e8m0     o^block, i^block",
        options=(_BLOCK,),
    ),
    _blocks(
        "deepseek_fp4",
        "code   weight  f4_e2m1 in s8  o, i*4/8",
        "scale  scale   e8m0           o, i/32",
    ),
    _blocks(
        "mlx",
        "code    weight  u{bits} in u32  o, i*bits/32  is_bare=yes",
        "scale   scales  {scales}        o, i/group",
        "offset  biases  {scales}        o, i/group",
        # what MLX has kernels for
        options=(
            Option("group", 64, (32, 64, 128)),
            Option("bits", 4, (1, 2, 3, 4, 5, 6, 8)),
            _BF16,
        ),
        rule=_in_scales,
    ),
    Scheme(
        "pack_quantized",
        "oi",
        (
            # the same number is added to codes and to zero points
            *_parts(
                "code   weight_packed      u{bits} in s32  o, i*bits^32        order=aB{word}b",
                "scale  weight_scale       {scales}        o/rows, i/group",
                "zero   weight_zero_point  u{bits} in s32  o*bits^32, i/group  order=Ab{word}a  "
                "when=zeros",
            ),
            Part("weight_shape", "", "{shape}", values=_is_dims, shows=("o", "i")),
        ),
        # compressed-tensors writes the first type of dims, Kimi-K2 the second
        (_GROUP, _ROWS, _ZEROS, _FOUR, _BF16, Option("shape", "s64", ("s64", "s32"))),
        _from_middle,
    ),
    Scheme(
        "int_quantized",
        "oi",
        _parts(
            "code   weight             s8        o, i",
            "scale  weight_scale       {scales}  o/rows, i/group",
            "zero   weight_zero_point  s8        o/rows, i/group  when=zeros",
        ),
        (Option("group", -1), _ROWS, _ZEROS, _BF16),
    ),
    Scheme(
        "hqq",
        "oi",
        (
            *_parts(
                "code   W_q    u{bits} in u8  o*bits/8*i/group, group  order=in_parts  is_bare=yes",
                "scale  scale  {scales}       i/group*o, 1             is_bare=yes",
                "zero   zero   {scales}       i/group*o, 1             is_bare=yes",
            ),
            *_HQQ_STATE,
        ),
        (Option("group", 64), Option("bits", 4, (1, 2, 4, 8)), _BF16),
        _in_scales,
    ),
    # GGUF's q4_0 as llama.cpp keeps it in the memory of an Adreno GPU
    *(
        Scheme(name, "oi", _parts(*lines), rule=_from_middle, stacked=stacked)
        for name, stacked, *lines in (
            (
                "ggml_soa",
                "",
                "code   adreno_q  u4 in u8  o, i*4/8  order=ggml_soa",
                "scale  adreno_d  f16       o, i/32",
            ),
            (
                "adreno_noshuffle",
                "",
                "code   adreno_q  u4 in u16  i*4/16, o  order=adreno_noshuffle",
                "scale  adreno_d  f16        i/32, o    order=adreno_scales",
            ),
            (
                "adreno_trans4_ns",
                "eoi",
                "code   adreno_q  u4 in u32  i*4/32, o  order=Ba8b  stacked_order=adreno_trans4_ns",
                "scale  adreno_d  f16        i/32, o    order=ba    stacked_order=acb",
            ),
        )
    ),
    _bitsandbytes("nf4"),
    _bitsandbytes("fp4"),
)
SCHEMES: Mapping[str, Scheme] = MappingProxyType({each.name: each for each in _ALL})
