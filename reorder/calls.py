"""Repeated calls of `reorder`: what runs them, looked up by what the call says.

A call says the shape, strides and dtype of x, or its descriptor, the arguments, and the same of
`out`. The first call of a kind goes the long way, which checks everything and raises all errors.
The second one does so too, and leaves here what it has found; if that must be compiled first, a
later call does. From then on a call needs a look-up or two, an allocation and a builtin function.
That function checks the arrays, under the GIL; if they do not fit, because they overlap, or are
misaligned or read-only, the call goes the long way. Tensors are treated like arrays if a C function
can export them.

In a key, objects other than strings, dtypes and attributes stand for themselves, by `id`: equal
descriptors may have other letters, which the result shows. What is found keeps them alive.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from memdesc import DataType, ImageDesc, MemoryDesc
from memdesc.tags import FormatTag
from memdesc.tuples import NamedTuple
from reorder.memory.buffers import ArrayView, address_of
from reorder.memory.dlpack import exporter_at
from reorder.memory.memory import MIN_ALIGNED, Memory, allocator_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from reorder.cpu import PreparedReorder

# The most kinds of calls that are known; then all are forgotten, as `reorder.opencl` does.
MAX_KNOWN = 1024
# what a key has of both sides
_SHOWN = 6
_SETTLED = (str, MemoryDesc, ImageDesc, FormatTag, DataType, type(None))


# What runs the calls of a kind, a plain tuple because that is the fastest to take apart:
# * the function of the arrays of x and of the result, a builtin: it returns None if it has run, or
#   the pixels of an image, and False if it has not,
# * the descriptor of the result, and a function that allocates it, given these bytes and a dtype,
# * what must outlive them.
KnownCall: TypeAlias = (
    "tuple[Callable[[Any, Any], object], MemoryDesc, Callable[..., Any], int, tuple[object, ...]]"
)


class Passed(NamedTuple):
    """One side of a call."""

    # for an array, its shape, strides and dtype in the key
    given: Any
    # the array or memory that the caller passed, or None for a new result
    argument: Any
    # what it is to the reorder
    memory: Memory


# What a kind has that was seen, and goes the long way.
SEEN: tuple[()] = ()
# By what a call says besides arrays, then by its arrays: `SEEN`, or a `KnownCall`.
known: dict[Any, dict[Any, Any]] = {}
# By what a call says besides arrays: the one `KnownCall`, which is tried without asking for shapes,
# as that takes a fifth of a small call; or all that is known, if there are several.
usual: dict[Any, Any] = {}


def forget() -> None:
    """Forget all calls."""
    known.clear()
    usual.clear()


def key_of(way: tuple[Any, ...], x: Any, out: Any) -> tuple[Any, Any] | None:
    """Return the key of a call; None if it has objects that go the long way.

    `way` is what the call says besides arrays. It starts with what x is: the descriptor of a
    `Memory`, by `id`, or the class of anything else; and ends with the same of `out`, or the class
    of None for a new result. The arguments are between them. The key is that, and the shape,
    strides and dtype of x and of `out`.
    """
    shown: list[Any] = []
    for kind, given in ((way[0], x), (way[-1], out)):
        if kind is np.ndarray:
            shown += given.shape, given.strides, given.dtype
        elif type(kind) is int or given is None:
            shown += None, None, None
        elif exporter_at(kind):
            # strides are not part of it, as libraries do not agree on their name
            with suppress(Exception):  # a library may raise anything, such as for nested tensors
                shown += tuple(map(int, given.shape)), None, given.dtype
    return (way, tuple(shown)) if len(shown) == _SHOWN else None


def known_at(key: tuple[Any, Any] | None) -> Any:
    """Return what is known of the calls with a key; None if nothing is."""
    if key is None:
        return None
    way, shown = key
    return known.get(way, {}).get(shown)


def note(key: tuple[Any, Any], entry: Any) -> None:
    """Keep what was found for a key."""
    way, shown = key
    if known_at(key) is None and sum(map(len, [*known.values()])) >= MAX_KNOWN:
        forget()
    kinds = known.setdefault(way, {})
    kinds[shown] = entry
    if entry:
        # larger results are not allocated in vain
        usual[way] = entry if way not in usual and entry[3] < MIN_ALIGNED else kinds


def known_call(
    reorder: PreparedReorder,
    x: Passed,
    out: Passed,
    named: tuple[object, ...],
    wanted: MemoryDesc | ImageDesc,
) -> KnownCall | tuple[()]:
    """Return what runs calls with such arguments, or `SEEN`."""
    attr, desc = reorder.plan.attr, out.memory.desc
    is_fast = reorder.is_fast_at(address_of(out.memory.data))
    if not is_fast or not all(map(_is_settled, named)):
        return SEEN
    views: list[ArrayView | None] = []
    for side in (x, out):
        view = None
        if not isinstance(side.argument, Memory | None):
            view = _view(side)
            if view is None:
                return SEEN
        views.append(view)
    run = _runner(reorder, views, wanted)
    if run is None:
        return SEEN
    owners = reorder, x.memory.desc, attr, named, wanted, views
    return run, desc, allocator_of(desc), desc.nbytes, owners


def _runner(reorder: PreparedReorder, views: list[ArrayView | None], wanted: object) -> Any:
    """Return the function that runs a reorder of such arrays; None if only the long way can."""
    run = reorder.fast_call(*views)
    if run is None or not isinstance(wanted, ImageDesc):
        return run
    shape, dtype = wanted.shape, wanted.dtype.numpy

    def run_image(x: Any, data: NDArray[np.uint8]) -> Any:
        return run(x, data) is None and np.ndarray(shape, dtype, data)

    return run_image


def note_tensors(key: tuple[Any, ...], x: Any, out: Any) -> None:
    """Keep for tensors what is known of a call with the arrays x and `out` that they export."""
    way, _ = key
    kinds = way[0], way[-1]
    given, into = (
        type(side) if isinstance(kind, type) else kind
        for kind, side in zip(kinds, (x, out), strict=True)
    )
    entry = known_at(key_of((given, *way[1:-1], into), x, out))
    if not entry:
        return
    _, *result, owners = entry
    reorder, *_, wanted, views = owners
    of_tensors = [
        view and view._replace(kind=kind) for view, kind in zip(views, kinds, strict=True)
    ]
    run = _runner(reorder, of_tensors, wanted)

    def run_plain(x: Any, out: Any) -> object:
        """Leave what `from_dlpack` refuses or detaches to it."""
        try:
            is_negated = getattr(x, "is_neg", bool)() or getattr(out, "is_neg", bool)()
            is_plain = not (is_negated or getattr(out, "requires_grad", False))
        except Exception:  # noqa: BLE001 - a library may raise anything
            return False
        return run(x, out) if is_plain else False

    note(key, (run_plain, *result, owners))


def _is_settled(argument: object) -> bool:
    """Whether an argument means the same as long as it exists."""
    is_scalar_type = isinstance(argument, type) and issubclass(argument, np.generic)
    return type(argument) in _SETTLED or isinstance(argument, np.dtype) or is_scalar_type


def _view(side: Passed) -> ArrayView | None:
    """Return where the memory of an array is; None if it was copied, or changed meanwhile."""
    array = side.argument
    if not isinstance(array, np.ndarray) or (array.shape, array.strides, array.dtype) != side.given:
        return None
    if not np.may_share_memory(array, side.memory.data):
        return None
    shift = address_of(side.memory.data) - address_of(array)
    return ArrayView(array.shape, array.strides, array.dtype, shift)
