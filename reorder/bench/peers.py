"""Peers as callables on the same buffers: numpy, torch, and memcpy as the yardstick."""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from memdesc.tuples import NamedTuple
from reorder.bench.cases import Case
from reorder.plan.nodes import Box
from reorder.plan.passes import zeros_beyond
from reorder.plan.plan import plan_reorder
from reorder.system import system_function

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.kernels.interpreter import InterpreterCall

_PAGE = 4096
_TORCH_TYPES = {8: np.int8, 16: np.int16, 32: np.float32, 64: np.float64}
SHORT_SPIN = MappingProxyType({"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"})
"""Settings that OpenMP reads when torch is loaded. By default, threads of GNU's runtime spin for up
to a tenth of a second after a call on a virtual machine, those of Intel's for 200 ms: they would
occupy the cores while the next candidate runs. Between consecutive calls they still spin."""


class Peer(NamedTuple):
    """Another way to do a reorder: its name and a callable."""

    name: str
    call: Callable[[], Any]
    # objects that must live as long as the peer
    owner: Any = None
    # whether its threads spin for a while after a call
    spins: bool = False


Buffers: TypeAlias = "tuple[NDArray[np.uint8], NDArray[np.uint8]]"
"""The bytes of src and of dst."""
MakePeer: TypeAlias = "Callable[[Case, Buffers, int], Peer | None]"
"""Make a peer for a case, its buffers and a number of threads; None if it cannot do the case."""


def known_peers() -> dict[str, MakePeer | None]:
    """Return the known peers by name; None for those that are not installed."""
    spec = None
    with suppress(ValueError):  # a module in sys.modules without a spec
        spec = find_spec("torch")
    return {"numpy": numpy_peer, "torch": torch_peer if spec else None}


def memcpy(buffers: Buffers, threads: int) -> Peer:
    """Return the C library's memcpy of the common bytes, split over threads in whole pages."""
    src, dst = buffers
    nbytes = min(src.nbytes, dst.nbytes)
    if threads == 1:
        return Peer("memcpy", lambda: ctypes.memmove(dst.ctypes.data, src.ctypes.data, nbytes))
    from reorder.cpu.runtime.jit import compiled_interpreter  # LLVM is slow to load
    from reorder.cpu.runtime.pool import ADDRESS, load_pool, run_job
    from reorder.cpu.runtime.worker import Job

    load_pool()
    pages = -(-nbytes // _PAGE)
    bounds = np.array([pages * chunk // threads for chunk in range(threads + 1)], np.int64)
    # Windows has no memcpy to find by its name, but Python has its memmove
    function = system_function("memcpy") or ctypes.memmove
    job = Job(
        interpreter=compiled_interpreter("copy of pages", f"{__name__}:emit_copy"),
        program=nbytes,
        ranges=ctypes.cast(function, ctypes.c_void_p).value or 0,
        steps=pages,
        points=0,
        point_count=1,
        bounds=bounds.ctypes.data,
        chunks=threads,
        workers=threads - 1,
        pool=ADDRESS,
    )
    places = src.ctypes.data, dst.ctypes.data
    return Peer("memcpy", lambda: run_job(*places, job), owner=(bounds, src, dst))


def emit_copy(call: InterpreterCall) -> None:
    """Emit the copy of some pages: the program is the number of bytes, the tasks are memcpy."""
    from llvmlite import ir  # only where it is compiled

    from reorder.cpu.llvm.emit import I64, minimum

    start = call.begin * _PAGE
    nbytes = minimum((call.end - call.begin) * _PAGE, call.program - start)
    function = ir.FunctionType(I64, [I64] * 3)
    memcpy = call.ranges.inttoptr(function.as_pointer()).raw
    nbytes.builder.call(memcpy, (call.dst_at + start, call.src_at + start, nbytes))


def numpy_peer(case: Case, buffers: Buffers, _threads: int) -> Peer | None:
    """Return a reorder by numpy: assignments of strided views, for each box of the plan."""
    if case.src.dtype != case.dst.dtype or case.attr is not None:
        return None
    views = list(_views(case, buffers))

    def call() -> None:
        for dst, src in views:
            dst[...] = 0 if src is None else src

    return Peer("numpy", call) if views else None


def torch_peer(case: Case, buffers: Buffers, threads: int) -> Peer | None:
    """Return a reorder by torch: `copy_` between strided tensors."""
    kind = _TORCH_TYPES.get(case.dst.dtype.bits)
    if case.src.dtype != case.dst.dtype or case.attr is not None or kind is None:
        return None
    for variable, value in SHORT_SPIN.items():
        os.environ.setdefault(variable, value)
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    views = [
        (
            torch.from_numpy(dst.view(kind)),
            None if src is None else torch.from_numpy(src.view(kind)),
        )
        for dst, src in _views(case, buffers)
    ]

    def call() -> None:
        for dst, src in views:
            if src is None:
                dst.zero_()
            else:
                dst.copy_(src)

    return Peer("torch", call, spins=True) if views else None


def _views(case: Case, buffers: Buffers) -> Iterator[tuple[NDArray[Any], NDArray[Any] | None]]:
    """Yield views of dst with those of src, or None for zeros; none with indirection tables."""
    boxes = plan_reorder(case.src, case.dst).boxes
    if any(box.indirect for box in boxes) or case.dst.dtype.is_packed:
        return
    kind = case.dst.dtype.bits_dtype
    elements = [x[: x.nbytes // kind.itemsize * kind.itemsize].view(kind) for x in buffers]

    def view(side: int, box: Box, extents: list[int]) -> NDArray[Any]:
        strides = [node.strides[side] * kind.itemsize for node in box.nodes]
        return as_strided(elements[side][box.offsets[side] :], extents, strides)

    for box in boxes:
        valid = [node.valid for node in box.nodes]
        if not box.is_zero:
            yield view(1, box, valid), view(0, box, valid)
        for zeros in zeros_beyond(box, valid):
            yield view(1, zeros, [node.extent for node in zeros.nodes]), None
