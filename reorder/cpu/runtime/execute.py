"""Prepare a plan for execution on the CPU, and run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reorder.cpu.kernels.reduce import Sums
from reorder.cpu.runtime.fast_call import enter, table_of
from reorder.cpu.runtime.layers import Shares, job_of, run
from reorder.cpu.runtime.walker import walker_at
from reorder.cpu.schedule.kernel import Kernel
from reorder.cpu.schedule.program import encode, fills_lines, points, split, tile
from reorder.cpu.schedule.select import KERNELS, choose
from reorder.cpu.target import LINE_NBYTES, this_machine
from reorder.memory.buffers import BufferCheck, address_of, check_disjoint
from reorder.memory.compensation import compensate
from reorder.plan.passes import pack_elements, simplify
from reorder.threads import checked_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.runtime.pool import Job
    from reorder.cpu.schedule.program import Record
    from reorder.cpu.target import Machine
    from reorder.plan.nodes import Box, Lookup
    from reorder.plan.plan import ReorderPlan

__all__ = ["PreparedReorder"]

# From here on what numba's threads need to wake up does not count.
_LONG_NBYTES = 1 << 24
# A thread gets several parts of at least so many bytes.
_SHARE_NBYTES, _MAX_SHARES = 1 << 18, 4

_ORIGIN = np.zeros((1, 2), np.int64)
_AT_ORIGIN = address_of(_ORIGIN), 1


class PreparedReorder:
    """A plan with all that its execution needs; call it with src and dst buffers.

    Safe to call from several threads at once, with different dst buffers. `machine` is the one
    to schedule for, by default this one.
    """

    __slots__ = (
        "_dst",
        "_entry",
        "_job",
        "_job_at",
        "_machine",
        "_parts",
        "_src",
        "_sums",
        "kernels",
        "plan",
        "threads",
    )

    def __init__(
        self, plan: ReorderPlan, threads: int | None = None, machine: Machine | None = None
    ) -> None:
        self.plan = plan
        self._machine = this_machine() if machine is None else machine
        limit = self._machine.threads
        self.threads = limit if threads is None else min(checked_threads(threads), limit)
        self._src = BufferCheck(plan.src, "src", write=False)
        self._dst = BufferCheck(plan.dst, "dst", write=True)
        # the micro-kernels it consists of, and the width of their elements
        self.kernels: tuple[str, ...] = ()
        self._parts = self._make_parts()
        extra = plan.dst.extra
        masks = (
            set(extra.masks.values())
            if extra and not plan.dst.layout.has_partial_blocks and plan.dst.nelems
            else ()
        )
        self._sums = {mask: Sums(plan.dst, mask, self.threads) for mask in masks}
        # small ones skip all layers in between: a call takes half as long
        direct = self._parts[0].direct if len(self._parts) == 1 and plan.dst.extra is None else None
        self._entry = enter() if direct else None
        self._job = table_of(direct, self._src, self._dst) if direct else _ORIGIN
        self._job_at = address_of(self._job)

    def _make_parts(self) -> list[Any]:
        """Return what runs one after the other."""
        return self._moving_parts(self.plan.boxes)

    def _moving_parts(self, boxes: tuple[Box, ...]) -> list[Any]:
        """Return parts that move elements as they are, also by lookups."""
        kernel = Kernel(self.plan.dst.dtype.bits)
        looked = [self._part(tile((box,)), kernel, box.lookups) for box in boxes if box.lookups]
        return self._moves([box for box in boxes if not box.lookups]) + looked

    def _moves(self, boxes: list[Box]) -> list[Any]:
        """Return parts that move elements as they are."""
        streams = self._machine.nearly_exceeds_cache(self._nbytes)
        by_kernel: dict[Kernel, list[Box]] = {}
        for box in boxes:
            wide, width = pack_elements(box, self.plan.dst.dtype.bits)
            for part in tile(simplify((wide,))):
                kernel = Kernel(width)
                if streams and not kernel.is_packed and fills_lines(part, width):
                    kernel = kernel._replace(streams=True)
                by_kernel.setdefault(kernel, []).append(part)
        return [self._part(tuple(own), kernel, ()) for kernel, own in by_kernel.items()]

    @property
    def _nbytes(self) -> int:
        """Bytes of src and dst together."""
        return self._src.min_nbytes + self._dst.min_nbytes

    def __repr__(self) -> str:
        return f"<PreparedReorder of {self.plan!s}>"

    def _part(self, tiles: tuple[Box, ...], kernel: Kernel, lookups: tuple[Lookup, ...]) -> _Part:
        """Return tiles ready to run; where their kernel streams, they fill cache lines."""
        bits = kernel.bits
        nbytes = sum(box.size for box in tiles) * bits // 8
        end = (self.plan.src.layout.last + 1) * self.plan.src.dtype.bits // bits
        self.kernels += tuple(
            sorted({f"{KERNELS[choose(box).kernel]} {bits}-bit" for box in tiles} - {*self.kernels})
        )
        program, records = encode(tiles, end, is_far=self._machine.exceeds_core_cache(self._nbytes))
        # two 4-bit elements of one byte must not fall to two threads
        return _Part(
            program, self._split(records, nbytes, is_whole=kernel.is_packed), kernel, lookups
        )

    def _split(self, records: list[Record], nbytes: int, *, is_whole: bool) -> Split:
        """Share out records that write so many bytes, or leave them whole."""
        threads = (
            1 if is_whole else max(1, min(self.threads, nbytes // self._machine.min_thread_nbytes))
        )
        # several parts for each thread, since one may lose its core
        parts = (
            threads * max(1, min(_MAX_SHARES, nbytes // threads // _SHARE_NBYTES))
            if threads > 1
            else 1
        )
        return Split(records, parts, threads, is_long=nbytes >= _LONG_NBYTES)

    def __call__(self, src: Any, dst: Any) -> None:
        """Reorder src into dst.

        Parameters
        ----------
        src, dst : buffer
            As for `execute`.

        Raises
        ------
        MemdescError
            If a buffer does not fit its descriptor, or they overlap; nothing is
            written then.
        """
        entry = self._entry
        if entry and not entry(id(src), id(dst), self._job_at):
            return
        source, src_at = self._src(src)
        target, dst_at = self._dst(dst)
        if not self._parts:
            return
        apart = dst_at - src_at
        if apart < self._src.min_nbytes and -apart < self._dst.min_nbytes:
            check_disjoint(source, self.plan.src, target, self.plan.dst)
        for part in self._parts:
            part.run(src_at, dst_at)
        if self.plan.dst.extra is not None:
            sums = {mask: add(dst_at) for mask, add in self._sums.items()}
            compensate(target.reshape(-1).view(np.uint8), self.plan.dst, sums)


class Split:
    """Records shared out: both tables, kept alive, and where they are."""

    __slots__ = ("_tables", "shares")

    def __init__(self, records: list[Record], parts: int, threads: int, *, is_long: bool) -> None:
        self._tables = tasks, bounds = split(records, parts)
        self.shares = Shares(
            address_of(tasks), address_of(bounds), len(bounds) - 1, len(tasks), threads, is_long
        )


class _Part:
    """Boxes that are placed at the same points, and how threads share them."""

    __slots__ = ("_arrays", "_kernel", "_program", "_shares", "lookups")

    def __init__(
        self, program: NDArray[np.int64], own: Split, kernel: Kernel, lookups: tuple[Lookup, ...]
    ) -> None:
        self._arrays = program, own  # kept alive: the kernels take addresses
        self._program = address_of(program)
        self._shares = own.shares
        self._kernel = kernel
        self.lookups = lookups

    @property
    def direct(self) -> Job | None:
        """What the pool runs, where nothing else is to decide."""
        if self._shares.is_long or self.lookups or self._kernel.streams:
            return None
        return job_of(self._shares, walker_at(self._kernel), self._program, _AT_ORIGIN)

    def run(self, src_at: int, dst_at: int) -> None:
        """Run the boxes on src and dst that start at two addresses."""
        starts = src_at, dst_at, self._program
        if not self.lookups:
            kernel = self._kernel
            # non-temporal stores of cache lines need them aligned
            if kernel.streams and dst_at % LINE_NBYTES:
                kernel = kernel._replace(streams=False)
            run(starts, self._shares, _AT_ORIGIN, walker_at(kernel))
            return
        for places in points(self.lookups):
            self.run_at(src_at, dst_at, places)

    def run_at(self, src_at: int, dst_at: int, places: NDArray[np.int64]) -> None:
        """Run the boxes at many points."""
        run(
            (src_at, dst_at, self._program),
            self._shares,
            (address_of(places), len(places)),
            walker_at(self._kernel),
        )
