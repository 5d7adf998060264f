"""Loop groups: the two groups of loops that a transposition exchanges.

The columns are contiguous in src, the rows in dst. Each group has a table of its offsets on the
other side: where a column starts in dst, where a row starts in src.
"""

from collections.abc import Iterator

from memdesc.tuples import NamedTuple
from reorder.cpu.kernels.elements import Elements, Location
from reorder.cpu.llvm.emit import Value, load_fields, loop
from reorder.cpu.schedule.program import KernelLoop


class TileShape(NamedTuple):
    """Rows and columns of a tile that is transposed in registers."""

    height: int
    width: int


class LoopGroup(NamedTuple):
    """The steps of one or more loops, taken as one sequence, which is contiguous on one side."""

    extent: Value
    # steps that hold data
    valid: Value
    # the sequence consists of runs of this many steps, within which the offset on the other side
    # grows by the extent of the other group, so a run of both groups is contiguous; 0: no runs
    run: Value
    # address of the offsets on the other side: bytes, or 4-bit elements
    table: Value

    def locate(self, elements: Elements, start: Location, index: Value) -> Location:
        """Return the location of a step on the side on which the group is not contiguous."""
        return elements.moved(start, self.table[index])


class ColumnSpan(NamedTuple):
    """The columns of a call that hold data, `first` to `last`, and the bounds of src."""

    first: Value
    last: Value
    # elements of src from this address on must not be read
    src_end: Value
    # offset of the last row from the first in src, in bytes
    row_span: Value


class Transposition(NamedTuple):
    """Two loop groups to move from src to dst."""

    elements: Elements
    src: Location
    dst: Location
    columns: LoopGroup
    rows: LoopGroup
    # whether lines of dst are prefetched; see `ScheduledBox.prefetches_dst`
    prefetches_dst: Value
    # see `ScheduledBox.turns`
    turns: Value
    # address of the `KernelLoop`: it is loaded where its loop begins, to save registers until then
    kernel_loop_at: Value

    def each_step(self) -> Iterator["Transposition"]:
        """Emit the loop around both groups; yields the transposition of each step."""
        kernel_loop = load_fields(self.kernel_loop_at, KernelLoop)
        with loop(0, kernel_loop.extent) as i:
            ahead = i * kernel_loop.table_stride
            yield self._replace(
                src=self.elements.moved(self.src, i * kernel_loop.src_stride),
                dst=self.elements.moved(self.dst, i * kernel_loop.dst_stride),
                columns=self.columns._replace(table=self.columns.table + ahead),
                rows=self.rows._replace(table=self.rows.table + ahead),
            )
