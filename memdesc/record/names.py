"""Names of record formats, and the functions that make them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from memdesc.dtypes import data_type
from memdesc.errors import MemdescError, UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.int64 import checked_ints
from memdesc.layout import check_dims
from memdesc.record.desc import RecordDesc
from memdesc.record.gguf import GGUF_TYPES, gguf_record
from memdesc.record.rows import SCHEMES
from memdesc.record.scheme import Scheme, check_names
from memdesc.tags import LETTERS

# the dims of a matrix with blocks along the last one: outputs and inputs
_MATRIX = "oi"

_IK_LLAMA = (
    "only ik_llama.cpp interleaves rows like this, and no test here compares with it; its "
    "llama-quantize also writes the types without the ending"
)
_IK_LLAMA_NAME = re.compile(r"i?q[1-9]_\w+_r(4|8|16)", re.ASCII)
_REFUSED = {
    "bf16_r16": "it is a layout of 16-bit floats: memory_desc((out, in), 'bf16', 'bf16_r16')",
    "gptq_act_order": (
        "g_idx, which is data, gives the group of each input channel; sort the channels by group "
        "first"
    ),
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
    "fp8": (
        "its scales may be per tensor, per output channel or per block; use fp8_tensor, "
        "fp8_channel or fp8_block"
    ),
    "mxfp4": (
        "several formats have this name; use gguf_mxfp4 (blocks of 17 bytes), or for separate "
        "tensors gpt_oss_mxfp4 (blocks, scales), compressed_mxfp4 (weight_packed, weight_scale), "
        "modelopt_mxfp4 (weight, weight_scale) or ocp_mxfp4"
    ),
    "nvfp4": (
        "several formats have this name; use gguf_nvfp4 (blocks of 36 bytes), or for separate "
        "tensors modelopt_nvfp4 (weight, weight_scale, weight_scale_2) or compressed_nvfp4 "
        "(weight_packed, weight_scale, weight_global_scale)"
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
        * ``swizzled``: whether block scales are.
        * ``g_idx``: whether ``gptq`` has the tensor with the group of each input.
        * ``codes`` (FP8): ``f8_e4m3`` or ``f8_e5m2``.
        * ``scale_inv`` (FP8): whether the tensor of scales is called ``weight_scale_inv``.
        * ``shape`` (``pack_quantized``): the type of ``weight_shape``, ``"s64"`` or ``"s32"``.
        * ``dtype`` (``bnb_nf4`` and ``bnb_fp4``): of the weight before it was quantised.

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
    merged = tuple((option, _plain(value)) for option, value in (legal | options).items())
    try:
        # 1 equals True, but only one of them is legal
        return _made(sizes, format_name, merged, tuple(type(value) for _, value in merged))
    except TypeError:  # an option that cannot be hashed
        raise MemdescError(
            f"{format_name}: options must be numbers or strings, not {short_repr(options)}"
        ) from None


def read_name(name: str, ndims: int = len(_MATRIX)) -> tuple[str, str, dict[str, Any]]:
    """Return the canonical name of a record, the letters of its dims, and its default options."""
    if not isinstance(name, str):
        raise UnknownFormatError(
            f"a record is named by a string such as 'q4_0', not {short_repr(name)}"
        )
    format_name = name.lower()
    if format_name not in (known := known_records()):
        is_ik_llama = _IK_LLAMA_NAME.fullmatch(format_name)
        if reason := _IK_LLAMA if is_ik_llama else _REFUSED.get(format_name):
            raise UnsupportedFormatError(f"{name!r} cannot be described as a record: {reason}")
        raise UnknownFormatError(
            f"unknown record {short_repr(name)}; the records are {', '.join(known)}"
        )
    scheme = SCHEMES.get(format_name)
    if scheme is None:
        return format_name, _MATRIX if ndims == len(_MATRIX) else LETTERS[:ndims], {}
    return format_name, scheme.letters_of(ndims) or LETTERS[:ndims], scheme.defaults


def scheme_of(name: str) -> Scheme | None:
    """Return the scheme of a record in several tensors; None for a block type of GGUF."""
    return SCHEMES.get(name)


def _plain(value: Any) -> Any:
    """Return a numpy scalar as Python's, and a data type as its name, for a readable repr."""
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    is_plain = value is None or isinstance(value, str | int | float | list)
    return value if is_plain else data_type(value).name


@lru_cache(maxsize=1024)
def _made(
    dims: tuple[int, ...], name: str, options: tuple[tuple[str, Any], ...], _kinds: tuple[type, ...]
) -> RecordDesc:
    scheme = SCHEMES.get(name)
    if scheme is not None:
        return scheme.bound(dims, dict(options))
    return RecordDesc(dims, *gguf_record(name, dims), name, read_name(name, len(dims))[1])
