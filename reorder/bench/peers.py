"""Peers as callables on the same buffers: numpy, torch, and memcpy as the reference of speed."""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reorder.plan.plan import plan_reorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from numpy.typing import NDArray

    from memdesc import MemoryDesc
    from reorder.bench.cases import Case

PEERS = ("numpy", "torch", "onednn", "onnxruntime", "mkl")
# A peer that is a library with HPTT's C interface is this and the path of its file.
LIBRARY = "library:"
_PAGE = 4096

__all__ = ["LIBRARY", "PEERS", "Peer", "memcpy", "numpy_peer", "torch_peer"]


class Peer(NamedTuple):
    """Another way to do a reorder: its name, a call, and the name of the implementation."""

    name: str
    call: Callable[[], Any]
    detail: str = ""
    # objects that must live as long as the peer
    owner: Any = None
    # whether its threads spin for a while after a call
    spins: bool = False


def memcpy(src: NDArray[np.uint8], dst: NDArray[np.uint8], threads: int) -> Peer:
    """Return the C library's memcpy of the common bytes, split over threads in whole pages."""
    nbytes = min(src.nbytes, dst.nbytes)
    if threads == 1:
        return Peer("memcpy", lambda: ctypes.memmove(dst.ctypes.data, src.ctypes.data, nbytes))
    # numba is slow to load, and commands that measure nothing do not wait for it
    from reorder.cpu.runtime.job import Job  # noqa: PLC0415 - see above
    from reorder.cpu.runtime.pool import run_on_pool  # noqa: PLC0415 - likewise

    pages = -(-nbytes // _PAGE)
    bounds = np.array([pages * chunk // threads for chunk in range(threads + 1)], np.int64)
    # the copier takes the number of bytes as its program
    job = Job(
        walker=_copier().address,
        program=nbytes,
        tasks=0,
        steps=pages,
        points=0,
        point_count=1,
        bounds=bounds.ctypes.data,
        chunks=threads,
        workers=threads - 1,
    )
    dst_address, src_address = dst.ctypes.data, src.ctypes.data

    def call() -> None:
        run_on_pool(src_address, dst_address, job)

    return Peer("memcpy", call, owner=(bounds, src, dst))


@cache
def _copier() -> Any:
    """Return the callback of the thread pool that copies a range of pages."""
    import numba  # noqa: PLC0415 - see above

    copy = ctypes.CDLL(None).memcpy
    copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    copy.restype = None

    @numba.cfunc(numba.void(*[numba.int64] * 8))  # type: ignore[untyped-decorator] # numba ships no types
    def copy_pages(
        src: int,
        dst: int,
        nbytes: int,
        _tasks: int,
        begin: int,
        end: int,
        _points: int,
        _point_count: int,
    ) -> None:
        start = begin * _PAGE
        copy(dst + start, src + start, min((end - begin) * _PAGE, nbytes - start))

    return copy_pages


def numpy_peer(case: Case, src: NDArray[np.uint8], dst: NDArray[np.uint8]) -> Peer | None:
    """Return a reorder by numpy: assignments of strided views, for each box of the plan."""
    if case.src.dtype != case.dst.dtype or case.attr is not None:
        return None
    views = list(_views(case, src, dst, _as_numpy))

    def call() -> None:
        for dst_view, src_view in views:
            dst_view[...] = src_view

    return Peer("numpy", call) if views else None


def torch_peer(
    case: Case, src: NDArray[np.uint8], dst: NDArray[np.uint8], threads: int
) -> Peer | None:
    """Return a reorder by torch: `copy_` between strided tensors, if torch is installed."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    if (
        case.src.dtype != case.dst.dtype
        or case.attr is not None
        or not case.src.dtype.numpy.itemsize
    ):
        return None
    torch.set_num_threads(threads)
    views = list(_views(case, src, dst, _as_torch(torch)))

    def call() -> None:
        for dst_view, src_view in views:
            if src_view is None:
                dst_view.zero_()
            else:
                dst_view.copy_(src_view)

    return Peer("torch", call, spins=True) if views else None


def _views(
    case: Case, src: NDArray[np.uint8], dst: NDArray[np.uint8], view: Callable[..., Any]
) -> Iterator[tuple[Any, Any]]:
    """Return pairs of views, dst and src or zero, that cover a plan; none for offset tables."""
    boxes = plan_reorder(case.src, case.dst).boxes
    if any(box.lookups for box in boxes) or case.dst.dtype.is_packed:
        return
    for box in boxes:
        strides = [node.strides for node in box.nodes]
        valid = [node.valid for node in box.nodes]
        if not box.is_zero:
            src_view, dst_view = (
                view(x, case.dst, at, valid, [s[side] for s in strides])
                for side, (x, at) in _sides(box.offsets, src, dst)
            )
            yield dst_view, src_view
        # zeros: outer loops within the data, loop k in its padding, inner loops over all
        for k, node in enumerate(box.nodes):
            shape = [
                *valid[:k],
                node.extent - node.valid,
                *(inner.extent for inner in box.nodes[k + 1 :]),
            ]
            if all(shape):
                at = box.offsets[1] + node.valid * node.strides[1]
                yield (
                    view(dst, case.dst, at, shape, [s[1] for s in strides]),
                    view(None, case.dst, 0, (), ()),
                )


def _sides(
    offsets: tuple[int, ...], *buffers: NDArray[np.uint8]
) -> Iterator[tuple[int, tuple[NDArray[np.uint8], int]]]:
    return enumerate(zip(buffers, offsets, strict=True))


def _as_numpy(
    x: NDArray[np.uint8] | None, desc: MemoryDesc, at: int, shape: list[int], strides: list[int]
) -> Any:
    if x is None:
        return 0
    elements = x[
        : x.nbytes // desc.dtype.bits_dtype.itemsize * desc.dtype.bits_dtype.itemsize
    ].view(desc.dtype.bits_dtype)
    return np.lib.stride_tricks.as_strided(
        elements[at:], shape, [stride * elements.itemsize for stride in strides]
    )


def _as_torch(torch: ModuleType) -> Callable[..., Any]:
    def view(
        x: NDArray[np.uint8] | None, desc: MemoryDesc, at: int, shape: list[int], strides: list[int]
    ) -> Any:
        if x is None:
            return None
        bits = {8: torch.int8, 16: torch.int16, 32: torch.float32, 64: torch.float64}[
            desc.dtype.bits
        ]
        return torch.as_strided(torch.from_numpy(x).view(bits), tuple(shape), tuple(strides), at)

    return view
