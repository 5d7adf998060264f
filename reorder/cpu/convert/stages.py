"""Compiled stages: conversions, arithmetic, prefetches.

A conversion is compiled for a pair of a type and a working type, arithmetic for a working type
and the types that it loads and stores. All stages have the signature of a walker, so that the
walker over tiles calls steps of any kind alike: they take the addresses of src, dst, their
record and their placement, and ignore the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reorder.cpu.convert.combine import CombineTypes, emit_combine
from reorder.cpu.convert.convert_rows import ConvertTypes, emit_convert, emit_prefetch
from reorder.cpu.convert.repeat_rows import emit_repeat
from reorder.cpu.convert.rows import StageArguments
from reorder.cpu.runtime.intrinsics import WALKER
from reorder.cpu.runtime.jit import compile_callback
from reorder.values.formats import FORMATS, narrow_working_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba.core.typing.templates import Signature

    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["combine_stage", "convert_stage", "prefetch_stage", "repeat_stage"]

# Compiled code on disk identifies a type by its index here. That is safe because a change of
# formats.py invalidates the code.
_NAMES = list(FORMATS)


def convert_stage(src: str, dst: str, *, streams: bool, as_codes: bool = False) -> int:
    """Return the address of the conversion between two types, one of them the working type.

    With `streams` whole cache lines of dst, which must be aligned to its elements, are written by
    non-temporal stores; a `fence` must follow. With `as_codes` codes are not converted, only
    their width changes.
    """
    a, b, c, d = _NAMES.index(src), _NAMES.index(dst), int(as_codes), int(streams)

    def convert(
        src_at: int,
        dst_at: int,
        record: int,
        _tasks: int,
        _begin: int,
        _end: int,
        placement: int,
        _count: int,
    ) -> None:
        run_convert((src_at, dst_at, record, placement), a, b, c, d)

    return _address(("convert", src, dst, *["codes"] * as_codes, *_stores(streams)), convert)


def combine_stage(src: str, dst: str, work: str, *, streams: bool) -> int:
    """Return the address of the arithmetic in a working type, from elements of one type to another.

    `streams` as for `convert_stage`.
    """
    a, b, c, d = (*(_NAMES.index(name) for name in (src, dst, work)), int(streams))

    def combine(
        src_at: int,
        dst_at: int,
        record: int,
        _tasks: int,
        _begin: int,
        _end: int,
        placement: int,
        _count: int,
    ) -> None:
        run_combine((src_at, dst_at, record, placement), a, b, c, d)

    return _address(("combine", src, dst, work, *_stores(streams)), combine)


def prefetch_stage() -> int:
    """Return the address of the prefetch of rows of src, for later steps."""

    def prefetch(
        src_at: int,
        dst_at: int,
        record: int,
        _tasks: int,
        _begin: int,
        _end: int,
        placement: int,
        _count: int,
    ) -> None:
        run_prefetch((src_at, dst_at, record, placement))

    return _address(("prefetch",), prefetch)


def repeat_stage(dtype: str) -> int:
    """Return the address of the repetition of values of a working type."""
    a = _NAMES.index(dtype)

    def repeat(
        src_at: int,
        dst_at: int,
        record: int,
        _tasks: int,
        _begin: int,
        _end: int,
        placement: int,
        _count: int,
    ) -> None:
        run_repeat((src_at, dst_at, record, placement), a)

    return _address(("repeat", dtype), repeat)


def _stores(streams: bool) -> tuple[str, ...]:  # noqa: FBT001 - it returns the name of this flag
    return ("non-temporal stores",) if streams else ()


def _address(key: tuple[str, ...], stage: Callable[..., None]) -> int:
    return int(compile_callback(stage, WALKER, f"stage: {', '.join(key)}").address)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator] # numba ships no types
def run_convert(
    _context: Any,
    arguments: Any,
    src: Any,
    dst: Any,
    as_codes: Any,
    streams: Any,
) -> tuple[Signature, Any]:
    """Emit a conversion; types are indices of names, known when it is compiled, like the flags."""
    src_name, dst_name = _NAMES[src.literal_value], _NAMES[dst.literal_value]
    work = (
        None
        if as_codes.literal_value
        else narrow_working_type(src_name, dst_name, arithmetic=False)
    )
    compiled_for = ConvertTypes(src_name, dst_name, work, bool(streams.literal_value))

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        emit_convert(builder, StageArguments(*cgutils.unpack_tuple(builder, args[0])), compiled_for)
        return context.get_dummy_value()

    return types.void(arguments, src, dst, as_codes, streams), build


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator] # numba ships no types
def run_combine(
    _context: Any,
    arguments: Any,
    src: Any,
    dst: Any,
    work: Any,
    streams: Any,
) -> tuple[Signature, Any]:
    """Emit arithmetic; types are indices of names, known when it is compiled, like the flag."""
    src_name, dst_name, work_name = (_NAMES[dtype.literal_value] for dtype in (src, dst, work))
    compiled_for = CombineTypes(src_name, dst_name, work_name, bool(streams.literal_value))

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        emit_combine(builder, StageArguments(*cgutils.unpack_tuple(builder, args[0])), compiled_for)
        return context.get_dummy_value()

    return types.void(arguments, src, dst, work, streams), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def run_prefetch(_context: Any, arguments: Any) -> tuple[Signature, Any]:
    """Emit the prefetch of rows."""

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        emit_prefetch(builder, StageArguments(*cgutils.unpack_tuple(builder, args[0])))
        return context.get_dummy_value()

    return types.void(arguments), build


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator] # numba ships no types
def run_repeat(_context: Any, arguments: Any, dtype: Any) -> tuple[Signature, Any]:
    """Emit the repetition of values; the type is an index of names, known when it is compiled."""
    name = _NAMES[dtype.literal_value]

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        emit_repeat(builder, StageArguments(*cgutils.unpack_tuple(builder, args[0])), name)
        return context.get_dummy_value()

    return types.void(arguments, dtype), build
