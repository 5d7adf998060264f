"""What PyTorch takes for the same move on the same GPU: one call of permute and contiguous."""

from __future__ import annotations

import statistics
from importlib import import_module
from typing import TYPE_CHECKING, Any

from reorder.plan.plan import plan_reorder

if TYPE_CHECKING:
    from memdesc import MemoryDesc

__all__ = ["torch_seconds"]

_RUNS, _WARM = 11, 3
_TYPES = {8: "uint8", 16: "int16", 32: "int32", 64: "int64"}


def torch_seconds(src: MemoryDesc, dst: MemoryDesc) -> float | None:
    """Return the median time; None where one strided copy does not say it, or without CUDA.

    Raises
    ------
    ImportError
        Without torch.
    """
    torch: Any = import_module("torch")
    boxes = plan_reorder(src, dst).boxes if src.dtype == dst.dtype else ()
    if not torch.cuda.is_available() or len(boxes) != 1 or src.dtype.bits not in _TYPES:
        return None
    (box,) = boxes
    nodes = sorted(box.nodes, key=lambda node: -node.strides[1])
    if box.lookups or any(node.valid != node.extent for node in nodes):
        return None
    dtype = getattr(torch, _TYPES[src.dtype.bits])
    flat = torch.empty(src.nelems, dtype=dtype, device="cuda").random_()
    view = flat.as_strided([n.extent for n in nodes], [n.strides[0] for n in nodes])
    times: list[float] = []
    for _ in range(_WARM + _RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        view.contiguous()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times[_WARM:])
