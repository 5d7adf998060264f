"""The schemes whose weights are several tensors: a row each; and records by their names.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from operator import index
from types import MappingProxyType
from typing import Any

from memdesc.dtypes import data_type
from memdesc.errors import MemdescError, UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.int64 import checked_ints
from memdesc.layout import Layout, check_dims, layout_by_digits, layout_by_strides
from memdesc.record.desc import RecordDesc
from memdesc.record.gguf import GGUF_TYPES, gguf_record
from memdesc.record.rule import Rule
from memdesc.record.scheme import Option, Options, Part, Scheme, axis_of, check_names
from memdesc.tags import LETTERS

# A scheme begins with its name, the letters of its dims, and those of stacked matrices if there are
# any; then follow its other fields and, after a colon, its options, with usual values that are not
# those of `_OPTIONS`. A tensor is a line of its role in the rule (scales multiply, a divisor
# divides, zero points are subtracted and offsets added), its name, the type of its elements (in
# words of another type), its shape, and other fields of a `Part`, with two blanks between them;
# tensors that are alike have one line. In stacked matrices, a part has the shape after `stacked=`
# or, without it, an axis e before its shape, and the order after `stacked_order=`, if there is one;
# `{experts}` becomes `_experts`. For `{a,b}` in a name there is a scheme for each, which `{}`
# stands for.
_TABLE = """
gptq io model=oi rule=from_one: group zeros_by_version bits floats g_idx
  code   qweight  u{bits} in s32  i*bits/32, o        order=Ab{word}a
  zero   qzeros   u{bits} in s32  i/group, o*bits/32  by=g_idx
  scale  scales   {scales}        i/group, o          by=g_idx
  -      g_idx    s32             i                   when=g_idx  values=groups

awq io model=oi: group floats
  code   qweight  u4 in s32  i, o*4/32        order=awq
  zero   qzeros   u4 in s32  i/group, o*4/32  order=awq
  scale  scales   {scales}   i/group, o

torch_int4_cpu{,_avx2,_default} oi rule=from_middle: group floats=bf16
  code    weight  u4 in u8  o, i*4/8       order=torch_int4_cpu{}
  scale   scales  {scales}  i/group, o, 2  order=first_of_pairs   within=scales_and_zeros  is_bare
  offset  zeros   {scales}  i/group, o, 2  order=second_of_pairs  within=scales_and_zeros  is_bare

ocp_mxfp4 oi,eoi: swizzled
  code   data    f4_e2m1 in u8  o, i*4/8
  scale  scales  e8m0           o~128, i/32~4  order=nvfp4_scales{experts}  when=swizzled
  scale  scales  e8m0           o, i/32        when=!swizzled

ocp_mxfp8 oi,eoi: swizzled
  code   data    f8_e4m3  o, i
  scale  scales  e8m0     o~128, i/32~4  order=nvfp4_scales{experts}  when=swizzled
  scale  scales  e8m0     o, i/32        when=!swizzled

modelopt_nvfp4 oi,eio
  code   weight          f4_e2m1 in u8  o, i*4/8  stacked=e, i*4/8, o  stacked_order=aBc2b
  scale  weight_scale    f8_e4m3        o, i/16   stacked=e, i/16, o
  scale  weight_scale_2  f32            1         stacked=1

compressed_nvfp4 oi,eoi
  code     weight_packed        f4_e2m1 in u8  o, i*4/8
  scale    weight_scale         f8_e4m3        o, i/16
  divisor  weight_global_scale  f32            1        stacked=e, 1, 1

modelopt_mxfp4 oi,eoi
  code   weight        f4_e2m1 in u8  o, i*4/8
  scale  weight_scale  e8m0 in u8     o, i/32

compressed_mxfp4 oi,eoi
  code   weight_packed  f4_e2m1 in u8  o, i*4/8
  scale  weight_scale   e8m0 in u8     o, i/32

gpt_oss_mxfp4 oi,eoi model=eio joint=_
  code   blocks  f4_e2m1 in u8  o, i/32, 16
  scale  scales  e8m0 in u8     o, i/32

mxfp8 oi,eoi
  code   weight        f8_e4m3     o, i
  scale  weight_scale  e8m0 in u8  o, i/32

mlx_mxfp4 oi,eoi
  code   weight  f4_e2m1 in u32  o, i*4/32  is_bare
  scale  scales  e8m0 in u8      o, i/32    is_bare

mlx_mxfp8 oi,eoi
  code   weight  f8_e4m3 in u32  o, i*8/32  is_bare
  scale  scales  e8m0 in u8      o, i/32    is_bare

mlx_nvfp4 oi,eoi
  code   weight  f4_e2m1 in u32  o, i*4/32  is_bare
  scale  scales  f8_e4m3 in u8   o, i/16    is_bare

fp8_tensor oi,eoi: codes fp8_scales scale_inv
  code   weight            {codes}   o, i
  scale  weight_scale_inv  {scales}  1  stacked=e, 1, 1  when=scale_inv
  scale  weight_scale      {scales}  1  stacked=e, 1, 1  when=!scale_inv

fp8_channel oi,eoi: codes fp8_scales scale_inv
  code   weight            {codes}   o, i
  scale  weight_scale_inv  {scales}  o, 1  when=scale_inv
  scale  weight_scale      {scales}  o, 1  when=!scale_inv

fp8_block oi,eoi: codes fp8_scales scale_inv block
  code   weight            {codes}   o, i
  scale  weight_scale_inv  {scales}  o^block, i^block  when=scale_inv
  scale  weight_scale      {scales}  o^block, i^block  when=!scale_inv

deepseek_fp8 oi,eoi: block
  code   weight  f8_e4m3  o, i
  scale  scale   e8m0     o^block, i^block

deepseek_fp4 oi,eoi
  code   weight  f4_e2m1 in s8  o, i*4/8
  scale  scale   e8m0           o, i/32

mlx oi,eoi rule=in_scales: mlx_group mlx_bits floats=bf16
  code    weight  u{bits} in u32  o, i*bits/32  is_bare
  scale   scales  {scales}        o, i/group
  offset  biases  {scales}        o, i/group

pack_quantized oi rule=from_middle: group rows zeros bits floats=bf16 shape
  code   weight_packed      u{bits} in s32  o, i*bits^32        order=aB{word}b
  scale  weight_scale       {scales}        o/rows, i/group
  zero   weight_zero_point  u{bits} in s32  o*bits^32, i/group  order=Ab{word}a  when=zeros
  -      weight_shape       {shape}         -                   values=dims      shows=o,i

int_quantized oi: group=-1 rows zeros floats=bf16
  code   weight             s8        o, i
  scale  weight_scale       {scales}  o/rows, i/group
  zero   weight_zero_point  s8        o/rows, i/group  when=zeros

hqq oi rule=in_scales: group=64 hqq_bits floats=bf16
  code   W_q                  u{bits} in u8  o*bits/8*i/group, group  order=in_parts  is_bare
  scale  scale                {scales}       i/group*o, 1             is_bare
  zero   zero                 {scales}       i/group*o, 1             is_bare
  -      shape                s64            -  values=dims        shows=o,i
  -      nbits                s32            -  values=bits        shows=bits
  -      group_size           s32            -  values=group_size  shows=group
  -      axis                 s32            -  values=1
  -      packing              u8             -  values=packing
  -      unpack_view_dtype    u8             -  values=uint8
  -      compute_dtype        u8             -  values=type_of_scales
  -      view_as_float,quant_scale,quant_zero,offload_meta             u8  -  values=0
  -      encoded_state_dict,stores_quant_config,channel_wise,optimize  u8  -  values=1
  -      round_zero           u8             -  values=is_four_bits

ggml_soa oi rule=from_middle
  code   adreno_q  u4 in u8  o, i*4/8  order=ggml_soa
  scale  adreno_d  f16       o, i/32

adreno_noshuffle oi rule=from_middle
  code   adreno_q  u4 in u16  i*4/16, o  order=adreno_noshuffle
  scale  adreno_d  f16        i/32, o    order=adreno_scales

adreno_trans4_ns oi,eoi rule=from_middle
  code   adreno_q  u4 in u32  i*4/32, o  order=Ba8b  stacked_order=adreno_trans4_ns
  scale  adreno_d  f16        i/32, o    order=ba    stacked_order=acb

bnb_{nf4,fp4} oi rule={}: bnb_block dtype
  code   weight                               u4 in u8  i*4/8*o, 1  order=high_first  is_bare
  scale  absmax                               f32  i/block*o  within=weight.absmax  is_bare
  -      weight.quant_map                     f32  -  values={}
  -      weight.quant_state.bitsandbytes__{}  u8  -  values={}_state  shows=bnb_state
"""

_FLAG, _FP8 = (False, True), ("f8_e4m3", "f8_e5m2")
_OPTIONS: Mapping[str, Option] = {
    "group": Option("group", 128),
    "mlx_group": Option("group", 64, (32, 64, 128)),  # what MLX has kernels for
    "rows": Option("rows", 1),
    "block": Option("block", 128, is_block=True),
    "bnb_block": Option("block", 64),
    "bits": Option("bits", 4, (4, 8)),
    "mlx_bits": Option("bits", 4, (1, 2, 3, 4, 5, 6, 8)),
    # HQQ pads 3-bit codes to whole words over all rows, so they have no record
    "hqq_bits": Option("bits", 4, (1, 2, 4, 8)),
    "floats": Option("scales", "f16", ("f16", "bf16", "f32")),
    "fp8_scales": Option("scales", "f32", ("f32", "bf16", "f16", "e8m0")),
    "codes": Option("codes", _FP8[0], _FP8),
    # compressed-tensors writes the first type of dims, Kimi-K2 the second
    "shape": Option("shape", "s64", ("s64", "s32")),
    "dtype": Option("dtype", "bfloat16", ("bfloat16", "float16", "float32")),
    "zeros": Option("zeros", usual=False, legal=_FLAG),
    "zeros_by_version": Option("zeros", "v1", ("v1", "v2"), ("stored minus 1", "as they are")),
    # both names hold the factor that codes are multiplied by
    "scale_inv": Option("scale_inv", usual=False, legal=_FLAG),
    "swizzled": Option("swizzled", usual=True, legal=_FLAG[::-1]),
    "g_idx": Option("g_idx", usual=False, legal=_FLAG),
}


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


def _of_codes(rule: Rule, **changes: Any) -> Rule:
    return rule._replace(code=rule.code._replace(**changes))


# how the rule differs from the one that the roles of the tensors make
_RULES: Mapping[str, Callable[[Rule, Options], Rule]] = {
    "": lambda rule, _: rule,
    # version 1 stores zero points minus 1
    "from_one": lambda rule, o: rule._replace(
        zero=rule.zero and rule.zero._replace(minus=-1 if o["zeros"] == "v1" else 0)
    ),
    # codes are around the middle one, unless there are zero points
    "from_middle": lambda rule, o: _of_codes(
        rule, minus=0 if rule.zero else 1 << o.get("bits", 4) - 1
    ),
    # everything is computed in the type of the scales
    "in_scales": lambda rule, o: rule._replace(kind=o["scales"]),
    "nf4": lambda rule, _: _of_codes(rule, table=_BNB_TABLES["nf4"]),
    "fp4": lambda rule, _: _of_codes(rule, table=_BNB_TABLES["fp4"]),
}


def _in_parts(dims: tuple[int, ...], options: Options) -> Layout:
    """Return bytes whose bits, highest first, hold codes of successive parts of the rows."""
    parts = 8 // options["bits"]
    if parts == 1 or not dims[0]:
        return layout_by_strides(dims, (dims[1], 1))
    rows = [(parts, -1), (dims[0] // parts, parts * dims[1])]
    return layout_by_digits(dims, [rows, [(dims[1], parts)]], parts - 1)


# orders of elements that are not those of a tag
_ORDERS: Mapping[str, Callable[[tuple[int, ...], Options], Layout]] = {
    # 4-bit codes; the first one of a byte is in its high half
    "high_first": lambda dims, _: layout_by_digits(
        dims, [[(dims[0], dims[1])], [(dims[1] // 2, 2), (2, -1)]], 1
    ),
    "in_parts": _in_parts,
    # over groups, outputs, and the two of a pair
    "first_of_pairs": lambda dims, _: layout_by_strides(dims, (2, 2 * dims[0])),
    "second_of_pairs": lambda dims, _: layout_by_strides(dims, (2, 2 * dims[0]), offset0=1),
}


def _group(options: Options, size: int) -> int:
    return options["group"] if options["group"] > 0 else max(size, 1)


def _bnb_state(quant_type: str, dims: tuple[int, ...], options: Options) -> bytes:
    block, dtype = options["block"], options["dtype"]
    state = {"quant_type": quant_type, "blocksize": block, "dtype": dtype, "shape": [*dims]}
    return json.dumps(state).encode()


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


# the values of tensors that follow from dims and options; numbers stand for themselves
_VALUES: Mapping[str, Callable[[tuple[int, ...], Options], Sequence[float]]] = {
    "0": lambda _, __: (0,),
    "1": lambda _, __: (1,),
    "dims": lambda dims, _: dims,
    # the group of each input, with which readers of AutoGPTQ's format index scales
    "groups": lambda dims, o: [k // _group(o, dims[0]) for k in range(dims[0])],
    "bits": lambda _, o: (o["bits"],),
    "group_size": lambda dims, o: (_group(o, dims[1]),),
    "packing": lambda _, o: f"{o['bits']}bit_u8".encode(),
    "uint8": lambda _, __: b"torch.uint8",
    "type_of_scales": lambda _, o: f"torch.{data_type(o['scales']).numpy.name}".encode(),
    # HQQ rounds the zero points of 4-bit codes
    "is_four_bits": lambda _, o: (int(o["bits"] == 4),),  # noqa: PLR2004
    "nf4": lambda _, __: _BNB_TABLES["nf4"],
    "fp4": lambda _, __: _BNB_TABLES["fp4"],
    "nf4_state": partial(_bnb_state, "nf4"),
    "fp4_state": partial(_bnb_state, "fp4"),
}


def _rows() -> Iterator[str]:
    for text in _TABLE.strip().split("\n\n"):
        several = re.match(r"\w*{(.*?)}", text)
        for word in several[1].split(",") if several else [""]:
            yield text.replace(f"{{{several[1]}}}", word).replace("{}", word) if several else text


def _schemes() -> Iterator[Scheme]:
    for text in _rows():
        head, *lines = text.split("\n")
        head, _, options = head.partition(": ")
        name, forms, *more = head.split()
        fields = dict(word.split("=") for word in more)
        parts = {x: tuple(p for line in lines for p in _parts(line, x)) for x in forms.split(",")}
        own = {option.name: option for option in map(_option, options.split())}
        yield Scheme(name, parts, own, _RULES[fields.pop("rule", "")], **fields)


def _option(text: str) -> Option:
    name, _, usual = text.partition("=")
    option = _OPTIONS[name]
    return option._replace(usual=type(option.usual)(usual)) if usual else option


def _parts(line: str, form: str) -> Iterator[Part]:
    is_stacked = form[0] == "e"
    line = line.strip().replace("{experts}", "_experts" if is_stacked else "")
    role, names, element, shape, *more = ("" if x == "-" else x for x in _GAP.split(line))
    element, _, words = element.partition(" in ")
    # a word alone is a flag
    settings: dict[str, Any] = dict([*word.split("="), True][:2] for word in more)
    order, values, shows = (settings.pop(key, "") for key in ("order", "values", "shows"))
    stacked = settings.pop("stacked", f"e, {shape}"), settings.pop("stacked_order", order)
    shape, order = stacked if is_stacked else (shape, order)
    part = Part(
        "",
        tuple(axis_of(axis) for axis in shape.split(", ") if axis),
        element,
        words,
        _ORDERS.get(order, order or "plain"),
        role=role,
        values=_VALUES[values] if values else None,
        shows=_read_bnb_state if shows == "bnb_state" else tuple(filter(None, shows.split(","))),
        **settings,
    )
    return (part._replace(name=name) for name in names.split(","))


_GAP = re.compile(r"\s{2,}")
SCHEMES: Mapping[str, Scheme] = MappingProxyType({scheme.name: scheme for scheme in _schemes()})


# --- records by name ---

_REFUSED = {
    "bnb_nested": (
        "with double quantisation, a scale is a number from the tensor nested_quant_map, times "
        "nested_absmax, plus an offset; the tables of a rule are fixed, and this one depends on "
        "the processor that computed it; model.dequantize() of transformers decodes a whole "
        "model, and the page on records shows how to decode the scales of a layer"
    ),
    "bnb_int8": (
        "LLM.int8 multiplies codes by their scales and then by 1/127, which rounds differently "
        "from one product, and keeps columns of outliers elsewhere"
    ),
}


def known_records() -> tuple[str, ...]:
    """Return the names that `record_desc` reads.

    >>> "q4_k" in memdesc.record.known_records()
    True
    """
    return (*GGUF_TYPES, *SCHEMES)


def record_desc(dims: Iterable[int], name: str, **options: Any) -> RecordDesc:
    """Describe a tensor stored as several fields: block-quantised or packed weights.

    Parameters
    ----------
    dims : iterable of int
        Logical sizes. GGUF formats have blocks along the last dim; the dims of ``gptq`` and
        ``awq`` are (in, out), those of other matrix formats (out, in): see
        `RecordDesc.letters`. FP8 and the formats of MX and NVFP4 take (experts, out, in) too.
    name : str
        One of `known_records`, in upper or lower case.
    **options
        Formats of several tensors have some of these:

        * ``group``: how many inputs share a scale; -1 for all.
        * ``rows``: how many outputs share a scale; -1 for all.
        * ``block``: how many rows and columns (FP8; ``"128x64"`` if these differ) or inputs
          (bitsandbytes) share a scale.
        * ``scales``: their data type, in which ``mlx`` and ``hqq`` also compute.
        * ``bits``: 4 or 8 for ``gptq`` and ``pack_quantized``; 1, 2, 4 or 8 for ``mlx`` and
          ``hqq``, and for ``mlx`` also 3, 5 and 6.
        * ``zeros``: for ``gptq`` ``"v1"`` if zero points are stored minus 1, ``"v2"`` if they are
          stored unchanged; elsewhere whether there are zero points.
        * ``swizzled``: whether block scales are swizzled.
        * ``g_idx``: whether ``gptq`` has the tensor with the group of each input.
        * ``codes`` (FP8): ``f8_e4m3`` or ``f8_e5m2``.
        * ``scale_inv`` (FP8): whether the tensor of scales is called ``weight_scale_inv``.
        * ``shape`` (``pack_quantized``): the type of ``weight_shape``, ``"s64"`` or ``"s32"``.
        * ``dtype`` (``bnb_nf4`` and ``bnb_fp4``): the type of the weight before it was quantised.

    Raises
    ------
    UnknownFormatError
        If there is no such name; with the names that exist.
    UnsupportedFormatError
        If the format is known but cannot be described as a record; with the reason.
    MemdescError
        If the dims or an option do not fit.

    Examples
    --------
    >>> r = memdesc.record.record_desc((4096, 11008), "gptq", group=128)
    >>> r.tensors
    {'qweight': 22544384, 'qzeros': 176128, 'scales': 704512}
    >>> print(r.rule)
    scales * (qweight - (qzeros + 1))
    """
    sizes = checked_ints("dims", dims)
    check_dims(sizes)
    format_name, _, legal = read_name(name)
    check_names(format_name, legal, options)
    scheme = SCHEMES.get(format_name)
    return _made(sizes, format_name, tuple(scheme.checked(options).items()) if scheme else ())


def read_name(name: str, ndims: int = 2) -> tuple[str, str, dict[str, Any]]:
    """Return the canonical name of a record, the letters of its dims, and its default options."""
    if not isinstance(name, str):
        raise UnknownFormatError(
            f"a record is named by a string such as 'q4_0', not {short_repr(name)}"
        )
    format_name = name.lower()
    if format_name not in (known := known_records()):
        if reason := _REFUSED.get(format_name):
            raise UnsupportedFormatError(f"{name!r} cannot be described as a record: {reason}")
        from memdesc.names.similar import did_you_mean, similar_words  # only for a wrong name

        raise UnknownFormatError(
            f"unknown record {short_repr(name)}; the records are {', '.join(known)}"
            f"{did_you_mean(similar_words(format_name, known))}"
        )
    if scheme := SCHEMES.get(format_name):
        return format_name, scheme.letters_of(ndims), scheme.defaults
    return format_name, "oi" if ndims == 2 else LETTERS[:ndims], {}  # noqa: PLR2004 - a matrix


@lru_cache(maxsize=1024)
def _made(dims: tuple[int, ...], name: str, options: tuple[tuple[str, Any], ...]) -> RecordDesc:
    if scheme := SCHEMES.get(name):
        return scheme.bound(dims, dict(options))
    return RecordDesc(dims, *gguf_record(name, dims), name, read_name(name, len(dims))[1])
