"""Make descriptors from a name, from strides or from an array."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc.desc import MemoryDesc
from memdesc.dtypes import DataType, data_type
from memdesc.errors import (
    MemdescError,
    UnknownFormatError,
    UnsupportedFormatError,
    short_repr,
)
from memdesc.int64 import INT64_MAX, check_length, checked_flag, checked_int, checked_ints
from memdesc.layout import Layout, check_dims, dim_name, layout_by_strides, layout_by_tag
from memdesc.names import did_you_mean, dim_letters, expand_meta_tag, resolve, with_other_ndims
from memdesc.notation import parse_tag
from memdesc.overlap import check_nesting
from memdesc.tags import LETTERS, FormatTag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

# The default for inner blocks, recognised by identity: most calls pass none, so nothing is checked.
_NO_BLOCKS: tuple[int, ...] = ()


def memory_desc(  # noqa: PLR0913 - the fields of a descriptor, named by keyword
    dims: Iterable[int],
    dtype: object,
    tag: str | FormatTag | None = None,
    *,
    strides: Iterable[int] | None = None,
    inner_blks: Iterable[int] = _NO_BLOCKS,
    inner_idxs: Iterable[int] = _NO_BLOCKS,
    padded_dims: Iterable[int] | None = None,
    offset0: int = 0,
    strict: bool = False,
) -> MemoryDesc:
    """Describe memory by a name or by strides.

    Parameters
    ----------
    dims : iterable of int
        Logical sizes, 1 to 12 of them, 0 allowed.
    dtype : DataType, str or numpy dtype
        Type of the elements.
    tag : str, FormatTag or torch.memory_format, optional
        A name of any vocabulary: ``"nChw16c"``, ``"b_fs_yx_fsv16"``, ``"NHWC"``, ``"dnnl_nchw"``;
        for any number of dims ``"plain"`` (row-major), ``"channels_last"`` and benchdnn's
        ``"abx"``, ``"axb"``, ``"aBx16b"``; or any notation that `parse_layout` reads. Dims and
        data type in it must be the given ones. Without a tag and without strides the layout is
        row-major.
    strides : iterable of int, optional
        Elements between neighbours (outer blocks) of each dim, instead of a tag. 0
        (broadcast) and negative strides describe sources only.
    inner_blks, inner_idxs : iterable of int
        With strides: sizes and dims of the inner blocks, outermost first.
    padded_dims : iterable of int, optional
        With strides: by default the dims rounded up to whole blocks.
    offset0 : int
        With strides: offset of the element at index 0, in elements.
    strict : bool
        Refuse strides that oneDNN refuses, even if nothing overlaps.

    Raises
    ------
    MemdescError
        If a rule is broken; the message names the rule, the dim and the numbers.

    Examples
    --------
    >>> import memdesc
    >>> memdesc.memory_desc((2, 17, 5, 4), "f32", strides=(340, 20, 4, 1)).nbytes
    2720
    >>> memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c") == memdesc.memory_desc(
    ...     (2, 17, 5, 4), "f32", strides=(480, 160, 32, 8), inner_blks=(8,), inner_idxs=(1,))
    True
    """
    sizes = checked_ints("dims", dims)
    try:
        dtype = data_type(dtype)
    except MemdescError:
        _check_order(dtype, tag)
        raise
    if strides is not None:
        if tag is not None:
            msg = (
                "give a tag or strides, not both: "
                f"tag={short_repr(tag)} and strides={short_repr(strides)}"
            )
            raise MemdescError(msg)
        inner = _inner_blocks(inner_blks, inner_idxs, len(sizes))
        desc = MemoryDesc(dtype, _layout_by_strides(sizes, strides, inner, padded_dims, offset0))
    else:
        if (
            inner_blks is not _NO_BLOCKS
            or inner_idxs is not _NO_BLOCKS
            or padded_dims is not None
            or type(offset0) is not int
            or offset0
        ):
            _check_empty(inner_blks, inner_idxs, padded_dims, offset0)
        desc = (
            _desc_by_name(sizes, dtype, tag)
            if type(tag) is str
            else _desc_by_object(sizes, dtype, tag)
        )
    if checked_flag("strict", strict):
        check_nesting(desc.layout, dtype.bits, desc.letters)
    return desc


def _check_order(dtype: object, tag: object) -> None:
    """Report a tag and a data type that were passed in the wrong order."""
    try:
        data_type(tag)
    except MemdescError:
        return
    msg = (
        f"dtype comes before the tag: dtype is {short_repr(dtype)} here, and tag {short_repr(tag)}"
    )
    raise MemdescError(msg)


@lru_cache(maxsize=4096)
def _desc_by_name(dims: tuple[int, ...], dtype: DataType, text: str) -> MemoryDesc:
    """Describe memory by a name or, if no vocabulary has it, by another notation."""
    try:
        return desc_by_name(dims, dtype, text)
    except UnknownFormatError:
        from memdesc.exchange.parse import is_notation, parse_buffer  # only other notations need it

        if not is_notation(text):
            raise
        return parse_buffer(text, dims, dtype)


def desc_by_name(dims: tuple[int, ...], dtype: DataType, name: str) -> MemoryDesc:
    """Describe memory by a name of a vocabulary; no other notation is read."""
    called = dim_letters(expand_meta_tag(name, len(dims))) or ""
    # a few names exist for several numbers of dims
    letters = called if len(called) == len(dims) else None
    if letters is not None:
        check_dims(dims, letters)
    return MemoryDesc(dtype, _layout_by_name(dims, name, dtype.bits), letters=letters)


def _desc_by_object(dims: tuple[int, ...], dtype: DataType, tag: object) -> MemoryDesc:
    """Describe memory by what is neither a string nor strides; None is row-major."""
    if tag is None:
        return MemoryDesc(dtype, layout_by_tag(parse_tag(LETTERS[: len(dims)] or "a"), dims))
    if isinstance(tag, FormatTag):
        return MemoryDesc(dtype, layout_by_tag(tag, dims))
    return _desc_by_name(dims, dtype, name_of(tag))


def tag_of(layout: object, ndims: int, bits: int) -> FormatTag:
    """Return the tag of a layout by its name or TVM's string alone, for `ndims` dims of any size.

    Other notations, which describe a tensor of certain sizes, are refused.
    """
    if isinstance(layout, FormatTag):
        return layout
    name = expand_meta_tag(name_of(layout).removeprefix("torch."), ndims)
    try:
        return resolve(name, (), bits)
    except UnknownFormatError as unknown:
        from memdesc.exchange.tvm import tag_of_string  # most names are of a vocabulary

        try:
            return tag_of_string(name)[0]
        except UnknownFormatError:
            raise unknown from None


def name_of(given: object) -> str:
    """Return the name that a caller gives as a string or as a memory format of torch."""
    if isinstance(given, str):
        return given
    kind = type(given)
    if (kind.__module__, kind.__name__) == ("torch", "memory_format"):
        return str(given)
    msg = f"a layout is a name, a FormatTag or a torch.memory_format, not {short_repr(given)}"
    if isinstance(given, tuple | list) and all(isinstance(each, int) for each in given):
        msg += f"; strides are passed as strides={tuple(given)}"
    raise MemdescError(msg)


def _layout_by_name(dims: tuple[int, ...], tag: str, bits: int) -> Layout:
    name = expand_meta_tag(tag, len(dims))
    try:
        found = resolve(name, dims, bits)
    except MemdescError as error:
        if isinstance(error, UnknownFormatError):
            refuse_record(tag)
        if name == tag:
            raise
        msg = f"{short_repr(tag)} stands for {name!r} where there are {len(dims)} dims: {error}"
        raise type(error)(msg) from None
    try:
        return layout_by_tag(found, dims, name)
    except MemdescError as error:
        if found.ndims == len(dims):
            raise
        msg = f"{error}{did_you_mean(with_other_ndims(name, len(dims)))}"
        raise MemdescError(msg) from None


def refuse_record(name: str) -> None:
    """Raise if a name is that of a record, which is not a layout."""
    from memdesc.record import known_records  # only an unknown name needs it

    if name.lower() in known_records():
        msg = (
            f"{name!r} is a record, blocks with their own scales, and has no layout of elements; "
            f"record_desc(dims, {name!r}) describes it, and `memdesc show {name} DIMS` shows it"
        )
        raise UnsupportedFormatError(msg)


def _check_empty(
    inner_blks: Iterable[int],
    inner_idxs: Iterable[int],
    padded_dims: Iterable[int] | None,
    offset0: int,
) -> None:
    """Refuse arguments that only go with strides, unless they are empty."""
    blks, idxs = checked_ints("inner_blks", inner_blks), checked_ints("inner_idxs", inner_idxs)
    if blks or idxs or padded_dims is not None or checked_int("offset0", offset0):
        msg = "inner_blks, inner_idxs, padded_dims and offset0 go with strides=, not with a tag"
        raise MemdescError(msg)


def _inner_blocks(
    inner_blks: Iterable[int], inner_idxs: Iterable[int], ndims: int
) -> tuple[tuple[int, int], ...]:
    """Return the size and dim of each inner block, without blocks of 1; refuse invalid ones."""
    if inner_blks is _NO_BLOCKS and inner_idxs is _NO_BLOCKS:
        return ()
    blks, idxs = checked_ints("inner_blks", inner_blks), checked_ints("inner_idxs", inner_idxs)
    if (
        len(blks) != len(idxs)
        or any(blk < 1 for blk in blks)
        or any(not 0 <= dim < ndims for dim in idxs)
    ):
        msg = (
            f"inner_blks {short_repr(blks)} and inner_idxs {short_repr(idxs)} "
            f"must be sizes of 1 or more, each with a dim of 0 to {ndims - 1}"
        )
        raise MemdescError(msg)
    if prod(blks) > INT64_MAX:
        msg = (
            f"inner_blks {short_repr(blks)} multiply to more elements than int64 holds "
            f"({INT64_MAX})"
        )
        raise MemdescError(msg)
    return tuple((blk, dim) for blk, dim in zip(blks, idxs, strict=True) if blk > 1)


def _layout_by_strides(
    dims: tuple[int, ...],
    strides: Iterable[int],
    inner: tuple[tuple[int, int], ...],
    padded_dims: Iterable[int] | None,
    offset0: int,
) -> Layout:
    """Check the caller's arguments, except the inner blocks, and make the layout."""
    steps = checked_ints("strides", strides)
    padded = None if padded_dims is None else checked_ints("padded_dims", padded_dims)
    for name, values in (("strides", steps), ("padded_dims", padded)):
        if values is not None:
            check_length(name, values, len(dims))
    return layout_by_strides(dims, steps, inner, padded, checked_int("offset0", offset0))


def array_desc(array: NDArray[Any]) -> MemoryDesc:
    """Describe the memory of a numpy array; its axes are the logical dims.

    Element 0 of the described buffer is the lowest address that the array touches,
    so `offset0` is not 0 if a stride is negative.

    Parameters
    ----------
    array : ndarray
        Of any shape and strides.

    Raises
    ------
    MemdescError
        If memdesc has no such data type, the array holds unpacked 4-bit elements, or a stride
        is not a multiple of the element size.

    Examples
    --------
    >>> import numpy as np
    >>> import memdesc
    >>> memdesc.array_desc(np.zeros((3, 4), np.float32)[:, ::-1])
    memory_desc((3, 4), 'f32', strides=(4, -1), offset0=3)
    """
    if not isinstance(array, np.ndarray):
        msg = f"a numpy array is needed, not {short_repr(array)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    return _array_desc(array.shape, array.strides, array.dtype)


@lru_cache(maxsize=4096)
def _array_desc(
    shape: tuple[int, ...], strides: tuple[int, ...], kind: np.dtype[Any]
) -> MemoryDesc:
    dtype = data_type(kind)
    if dtype.is_packed:
        msg = (
            f"a numpy array of {kind.name} holds one element per byte, but memory of {dtype} "
            "holds two; reorder() packs them"
        )
        raise MemdescError(msg)
    steps = []
    skipped = 0
    is_empty = 0 in shape
    for dim, (size, nbytes) in enumerate(zip(shape, strides, strict=True)):
        # numpy allows any stride for a dim of size 1, and for all dims if one has size 0
        if size > 1 and not is_empty and nbytes % kind.itemsize:
            msg = (
                f"{dim_name(dim)} has a stride of {nbytes} bytes, "
                f"not a multiple of the {kind.itemsize}-byte element; copy the array"
            )
            raise MemdescError(msg)
        steps.append(nbytes // kind.itemsize)
        skipped += 0 if is_empty else (size - 1) * max(-steps[-1], 0)
    return memory_desc(shape, dtype, strides=steps, offset0=skipped)
