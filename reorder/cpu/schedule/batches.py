"""From a plan to what threads run: batches of boxes, scheduled, encoded and cut into chunks."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.cpu.machine import Machine
from reorder.cpu.schedule.cuts import tile_boxes
from reorder.cpu.schedule.indirect import has_table, schedule_table
from reorder.cpu.schedule.partition import Partition, partition
from reorder.cpu.schedule.permuted import permuted_boxes
from reorder.cpu.schedule.program import encode, points_in_bytes
from reorder.cpu.schedule.rotation import rotate
from reorder.cpu.schedule.runs import join_runs
from reorder.cpu.schedule.select import (
    MICRO_KERNELS,
    Kernel,
    ScheduledBox,
    pack_for_kernels,
    scaled,
    width_of,
)
from reorder.cpu.tables import Words
from reorder.plan.nodes import SRC, Box, IndirectLoop
from reorder.plan.passes import pack_elements
from reorder.plan.plan import ReorderPlan

# Below this many bytes of src and dst per thread, dst is in a core's own caches, and prefetching
# its lines does not pay. Transpositions of bytes are bound by shuffles instead.
_NEAR_NBYTES = 1 << 19
# Up to this many 4-bit elements are moved one by one: unpacking them would take longer.
_MAX_SINGLE_MOVES = 64


def needs_tiles(plan: ReorderPlan) -> bool:
    """Whether any box of a plan is tiled."""
    return plan.converts or any(is_tiled(plan, box) for box in plan.boxes)


def is_tiled(plan: ReorderPlan, box: Box) -> bool:
    """Whether a box is converted, or has 4-bit elements to unpack to bytes, move and pack."""
    bits = plan.dst.dtype.bits
    if plan.converts or bits >= BYTE_BITS or box.indirect or box.is_zero:
        return plan.converts
    _, packed_bits = pack_elements(box, bits)
    return packed_bits == bits and box.size > _MAX_SINGLE_MOVES


class Batch(NamedTuple):
    """A program, and how threads share its work."""

    # the variant whose interpreter of boxes runs the program; None: the interpreter of tiles
    kernel: Kernel | None
    # `Words`; for tiles a list, in which code and arrays stand for their addresses
    program: Any
    partition: Partition
    # returns the table of points that the interpreter reads, from offsets in elements
    place: Callable[[Words], Words]
    # the program runs once at each step of these
    indirect: tuple[IndirectLoop, ...] = ()


class BatchBuilder:
    """Makes the batches that move elements.

    The batches are for a dst that starts `place` bytes into a cache line.
    """

    def __init__(self, plan: ReorderPlan, threads: int, machine: Machine, place: int = 0) -> None:
        self.plan = plan
        self.place = place
        self.threads = threads
        self.machine = machine
        # how many bytes of src and of dst may be read
        self.ends = [
            (desc.layout.last + 1) * desc.dtype.bits // BYTE_BITS for desc in (plan.src, plan.dst)
        ]
        # bytes of src and dst together
        self.nbytes = plan.src.min_nbytes + plan.dst.min_nbytes
        # whether they exceed the caches, so that non-temporal stores write conversions
        self.exceeds = machine.exceeds_cache(self.nbytes)
        # whether moves write whole lines of dst by non-temporal stores
        self.streams = machine.streams(self.nbytes, threads)
        # whether transpositions write whole lines of dst although they do not stream
        self.fills_lines = plan.dst.min_nbytes >= machine.filled_nbytes
        # for tiles, elements between the start of a cache line and dst; None: any number
        self.place_of_tiles = place * BYTE_BITS // plan.dst.dtype.bits if self.fills_lines else None
        # what `explain` shows: micro-kernels with the width of their elements, "tiles", and
        # "rotated rows"
        self.kernels: tuple[str, ...] = ()

    @property
    def streams_rows(self) -> bool:
        """Whether non-temporal stores write long rows that are converted in place.

        They do where the data exceed the threads' shares of the caches.
        """
        return self.machine.exceeds_parts(self.nbytes, self.threads)

    def move_indirect(self, box: Box) -> Batch:
        """Return the batch of a box with indirect loops."""
        bits = self.plan.dst.dtype.bits
        boxes = tile_boxes((scaled(box, width_of(bits)),), bits)
        return self._batch(boxes, Kernel(bits), box.indirect)

    def move(self, boxes: Iterable[Box]) -> list[Batch]:
        """Return a batch for each kernel, then one for each box with large indirect loops."""
        by_kernel: dict[Kernel, list[ScheduledBox]] = {}
        others: list[Box] = []
        for box in boxes:
            if box.indirect and not has_table(box):
                others.append(box)
                continue
            parts = self._schedule(box)
            can_stream = self.streams and parts[0].bits >= BYTE_BITS
            streams = [can_stream and part.fills_lines() for part in parts]
            for part, is_whole in zip(parts, streams, strict=True):
                # the ends of lines are written together with the lines
                is_streamed = is_whole or (any(streams) and part.writes_parts())
                by_kernel.setdefault(Kernel(part.bits, is_streamed), []).append(part)
        batches = [self._batch(boxes, kernel) for kernel, boxes in by_kernel.items()]
        return batches + [self.move_indirect(box) for box in others]

    def _schedule(self, box: Box) -> tuple[ScheduledBox, ...]:
        """Schedule a box, whose offsets in dst then count from the start of a line."""
        box, bits = pack_for_kernels(box, self.plan.dst.dtype.bits)
        if bits >= BYTE_BITS:
            src, dst = box.offsets
            box = box._replace(offsets=(src, dst + self.place))
        if box.indirect:
            return tuple(schedule_table(box, bits))
        # tiles of whole lines if there are any, otherwise tiles for the caches
        instructions = self.machine.instructions
        boxes = permuted_boxes(box, bits, instructions, streams=self.streams)
        if not boxes and (self.streams or self.fills_lines):
            boxes = join_runs(box, bits, instructions, streams=self.streams, exceeds=self.exceeds)
        if not boxes and (self.streams or self.fills_lines):
            boxes = rotate(box, bits, streams=self.streams)
            is_rotated = boxes and self.place and "rotated rows" not in self.kernels
            self.kernels += ("rotated rows",) if is_rotated else ()
        return boxes or tile_boxes((box,), bits, is_shared=self.threads > 1)

    def _batch(
        self,
        boxes: Sequence[ScheduledBox],
        kernel: Kernel,
        indirect: tuple[IndirectLoop, ...] = (),
    ) -> Batch:
        """Return the batch of boxes of one kernel; if it streams, they must fill cache lines."""
        bits = kernel.bits
        names = {f"{MICRO_KERNELS[box.micro_kernel]} {bits}-bit" for box in boxes}
        self.kernels += tuple(sorted(names - {*self.kernels}))
        place = self.place if bits >= BYTE_BITS and not indirect else 0
        is_large = bits > BYTE_BITS and self.nbytes > self.threads * _NEAR_NBYTES
        program, workloads, parts = encode(
            boxes, self.ends[SRC], self.machine.instructions, place, is_large=is_large
        )
        nbytes = sum(scheduled.written_nbytes() for scheduled in boxes)
        # two threads must not write the two 4-bit elements of one byte
        threads = 1 if kernel.is_packed else self.threads
        shares = partition(workloads, nbytes, threads, self.machine)
        points = partial(points_in_bytes, bits=bits)
        return Batch(kernel._replace(parts=parts), program, shares, points, indirect)
