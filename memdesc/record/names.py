"""Names of record formats, and the functions that make them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from memdesc.dtypes import data_type
from memdesc.errors import MemdescError, UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.int64 import checked_ints
from memdesc.layout import check_dims
from memdesc.record.desc import RecordDesc
from memdesc.record.gguf import GGUF_TYPES, gguf_record
from memdesc.record.tensors import TENSOR_FORMATS
from memdesc.tags import LETTERS


class _Format(NamedTuple):
    """How a format makes its fields, rule and constants from dims and options."""

    make: Callable[..., tuple[Any, ...]]
    # names of the dims of a matrix format; empty for any number of dims
    letters: str = ""
    # options with their defaults
    options: tuple[tuple[str, Any], ...] = ()
    # names of the dims of stacked matrices, such as the experts of a layer; empty if there are none
    experts: str = ""
    # the library that uses it, if no test compares with that library
    unjudged: str = ""


_FORMATS = {
    **{
        name: _Format(partial(gguf_record, name), unjudged=row.unjudged)
        for name, row in GGUF_TYPES.items()
    },
    **{name: _Format(*row) for name, row in TENSOR_FORMATS.items()},
}

# the dims of a matrix with blocks along the last one: outputs and inputs
_MATRIX = "oi"

_IK_LLAMA = (
    "only ik_llama.cpp interleaves rows like this, and no test here compares with it; its "
    "llama-quantize also writes the types without the ending; q4_0_r8, q8_0_r8 and iq4_nl_r4 are "
    "records"
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
        "tensors modelopt_nvfp4 (weight, weight_scale, weight_scale_2), compressed_nvfp4 "
        "(weight_packed, weight_scale, weight_global_scale) or cublas_nvfp4"
    ),
}


def known_records() -> tuple[str, ...]:
    """Return the names that `record_desc` reads.

    Examples
    --------
    >>> import memdesc
    >>> "q4_k" in memdesc.record.known_records()
    True
    """
    return tuple(_FORMATS)


def record_desc(dims: Iterable[int], name: str, **options: Any) -> RecordDesc:
    """Describe a tensor stored as several fields: block-quantised or packed weights.

    Parameters
    ----------
    dims : iterable of int
        Logical sizes. GGUF formats have blocks along the last dim; the dims of ``gptq``, ``awq``
        and ``marlin`` are (in, out), those of other matrix formats (out, in): see
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
        * ``bits``: 4 or 8 for ``gptq``, ``marlin`` and ``pack_quantized``; 1, 2, 4 or 8 for ``mlx``
          and ``hqq``, and for ``mlx`` also 3, 5 and 6.
        * ``zeros``: for ``gptq`` ``"v1"`` if zero points are stored minus 1, ``"v2"`` if they are
          stored unchanged; elsewhere whether there are zero points. Without them, the zero point
          of ``marlin`` is 8, or 128 for 8 bits.
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
    >>> import memdesc
    >>> r = memdesc.record.record_desc((4096, 11008), "gptq", group=128)
    >>> r.tensors
    {'qweight': 22544384, 'qzeros': 176128, 'scales': 704512}
    >>> print(r.rule)
    scales * (qweight - (qzeros + 1))
    >>> print(memdesc.record.record_desc((4096, 11008), "marlin", zeros=True).rule)
    scales * (qweight - qzeros)
    """
    sizes = checked_ints("dims", dims)
    check_dims(sizes)
    found, _, legal = read_name(name)
    for option in options:
        if option not in legal:
            what = f"takes {', '.join(legal)}" if legal else "takes none"
            msg = f"{found} has no option {option!r}; it {what}"
            raise MemdescError(msg)
    merged = tuple((option, _plain(value)) for option, value in (legal | options).items())
    try:
        # 1 equals True, but only one of them is legal
        return _made(sizes, found, merged, tuple(type(value) for _, value in merged))
    except TypeError:  # an option that cannot be hashed
        msg = f"{found}: options must be numbers or strings, not {short_repr(options)}"
        raise MemdescError(msg) from None


def read_name(name: str, ndims: int = len(_MATRIX)) -> tuple[str, str, dict[str, Any]]:
    """Return the canonical name of a record, the letters of its dims, and its default options."""
    if not isinstance(name, str):
        msg = f"a record is named by a string such as 'q4_0', not {short_repr(name)}"  # type: ignore[unreachable] # callers without types
        raise UnknownFormatError(msg)
    found = name.lower()
    reason = _REFUSED.get(found)
    if found not in _FORMATS and _IK_LLAMA_NAME.fullmatch(found):
        reason = _IK_LLAMA
    if reason is not None:
        msg = f"{name!r} cannot be described as a record: {reason}"
        raise UnsupportedFormatError(msg)
    if found not in _FORMATS:
        msg = f"unknown record {short_repr(name)}; the records are {', '.join(_FORMATS)}"
        raise UnknownFormatError(msg)
    made = _FORMATS[found]
    legal = (made.letters or _MATRIX, made.experts)
    letters = next((each for each in legal if len(each) == ndims), LETTERS[:ndims])
    return found, letters, dict(made.options)


def experts_of(name: str) -> str:
    """Return the letters of stacked matrices of a record; empty if it has no dim for them."""
    return _FORMATS[name].experts


def unjudged_by(name: str) -> str:
    """Return the library that uses a record if no test compares with it; otherwise nothing."""
    return _FORMATS[name].unjudged if name in _FORMATS else ""


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
    form = _FORMATS[name]
    legal = [each for each in (form.letters, form.experts) if each]
    if legal and len(dims) not in map(len, legal):
        listed = " or ".join(f"{len(each)} dims, ({', '.join(each)})" for each in legal)
        msg = f"{name} is for {listed}; not for {dims}"
        raise MemdescError(msg)
    fields, rule, *constants = form.make(dims, **dict(options))
    letters = read_name(name, len(dims))[1]
    return RecordDesc(dims, fields, rule, name, letters, options, *constants)
