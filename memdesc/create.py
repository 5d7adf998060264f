"""Make the layout that the arguments of a descriptor describe: a name, a value or strides."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from memdesc.dtypes import DataType, data_type
from memdesc.errors import MemdescError, UnknownFormatError, short_repr
from memdesc.int64 import INT64_MAX, check_length, checked_int, checked_ints
from memdesc.layout import Layout, check_dims, layout_by_strides, layout_by_tag
from memdesc.names import expand_meta_tag, refuse_record, resolve
from memdesc.names.registry import letters_for
from memdesc.names.tvm import tag_of_string
from memdesc.tags import LETTERS, FormatTag, parse_tag
from memdesc.tuples import NamedTuple

# packages whose layouts are read as they are printed
_READ_BY_REPR = {"pycute", "tensor_layouts", "triton"}


class BesideStrides(NamedTuple):
    """What a caller may give with strides."""

    padded_dims: Iterable[int] | None
    inner_blks: Iterable[int]
    inner_idxs: Iterable[int]
    offset0: int


def given_layout(dims: tuple[int, ...], layout: Layout | FormatTag | None) -> Layout:
    """Return the layout that a caller gives as a value; None is row-major."""
    if layout is None:
        layout = parse_tag(LETTERS[: len(dims)] or "a")
    if isinstance(layout, FormatTag):
        return layout_by_tag(layout, dims)
    if layout.dims != dims:
        raise MemdescError(f"dims {short_repr(dims)} are not those of the layout, {layout.dims}")
    return layout


def strided_layout(
    dims: tuple[int, ...], layout: object, strides: Iterable[int], given: BesideStrides
) -> Layout:
    """Check the strides and what goes with them, and make the layout."""
    if layout is not None:
        raise MemdescError(
            "give a layout or strides, not both: "
            f"layout={short_repr(layout)} and strides={short_repr(strides)}"
        )
    inner = _inner_blocks(given, len(dims))
    steps = checked_ints("strides", strides)
    padded = None if given.padded_dims is None else checked_ints("padded_dims", given.padded_dims)
    for name, values in (("strides", steps), ("padded_dims", padded)):
        if values is not None:
            check_length(name, values, len(dims))
    return layout_by_strides(dims, steps, inner, padded, checked_int("offset0", given.offset0))


def checked_type(dtype: object, layout: object) -> DataType:
    """Return the data type of a descriptor's arguments, or say that they are in the wrong order."""
    try:
        return data_type(dtype)
    except MemdescError as error:
        try:
            data_type(layout)
        except MemdescError:
            raise error from None
        raise MemdescError(
            f"dtype comes before layout: dtype is {short_repr(dtype)} here, and layout "
            f"{short_repr(layout)}"
        ) from None


def named_layout(dims: tuple[int, ...], tag: str, bits: int) -> tuple[Layout, str | None]:
    """Return the layout of a name of a vocabulary, and what the name calls the dims."""
    name = expand_meta_tag(tag, len(dims))
    letters = letters_for(name, len(dims))
    if letters is not None:
        check_dims(dims, letters)
    try:
        resolved = resolve(name, dims, bits)
    except MemdescError as error:
        if isinstance(error, UnknownFormatError):
            refuse_record(tag)
        if name == tag:
            raise
        raise type(error)(
            f"{short_repr(tag)} stands for {name!r} where there are {len(dims)} dims: {error}"
        ) from None
    try:
        return layout_by_tag(resolved, dims, name), letters
    except MemdescError as error:
        if resolved.ndims == len(dims):
            raise
        from memdesc.names.similar import did_you_mean, with_other_ndims  # only for a wrong name

        raise MemdescError(f"{error}{did_you_mean(with_other_ndims(name, len(dims)))}") from None


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
        try:
            return tag_of_string(name)[0]
        except UnknownFormatError:
            raise unknown from None


def name_of(given: object) -> str:
    """Return the name that a caller gives as a string or as a memory format of torch."""
    if isinstance(given, str):
        return given
    given_type = type(given)
    if (given_type.__module__, given_type.__name__) == ("torch", "memory_format"):
        return str(given)
    if given_type.__module__.partition(".")[0] in _READ_BY_REPR:
        return repr(given)
    msg = f"a layout is a name, a FormatTag or a torch.memory_format, not {short_repr(given)}"
    if isinstance(given, tuple | list) and all(isinstance(entry, int) for entry in given):
        msg += f"; strides are passed as strides={tuple(given)}"
    raise MemdescError(msg)


def check_empty(given: BesideStrides) -> None:
    """Refuse arguments that only go with strides, unless they are empty."""
    blks = checked_ints("inner_blks", given.inner_blks)
    idxs = checked_ints("inner_idxs", given.inner_idxs)
    if blks or idxs or given.padded_dims is not None or checked_int("offset0", given.offset0):
        raise MemdescError(
            "inner_blks, inner_idxs, padded_dims and offset0 go with strides=, not with a layout"
        )


def _inner_blocks(given: BesideStrides, ndims: int) -> tuple[tuple[int, int], ...]:
    """Return the size and dim of each inner block, without blocks of 1; refuse invalid ones."""
    blks = checked_ints("inner_blks", given.inner_blks)
    idxs = checked_ints("inner_idxs", given.inner_idxs)
    if (
        len(blks) != len(idxs)
        or any(blk < 1 for blk in blks)
        or any(not 0 <= dim < ndims for dim in idxs)
    ):
        raise MemdescError(
            f"inner_blks {short_repr(blks)} and inner_idxs {short_repr(idxs)} "
            f"must be sizes of 1 or more, each with a dim of 0 to {ndims - 1}"
        )
    if prod(blks) > INT64_MAX:
        raise MemdescError(
            f"inner_blks {short_repr(blks)} multiply to more elements than int64 holds "
            f"({INT64_MAX})"
        )
    return tuple((blk, dim) for blk, dim in zip(blks, idxs, strict=True) if blk > 1)
