"""Selection of the micro-kernel of a box, and of the loops that it runs: pure functions.

Offsets and strides are in bytes, those of 4-bit elements in elements; `pack_for_kernels` makes them
so. Neighbouring elements are `width_of` their bits apart. Offsets in dst may count from the start
of a cache line.
"""

from collections.abc import Iterable
from enum import StrEnum
from itertools import compress, product
from types import MappingProxyType

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.cpu.machine import LANE_BITS, LINE_BITS, LINE_NBYTES, Instructions
from reorder.cpu.schedule.loops import contiguous_loops, contiguous_size, size_of
from reorder.plan.nodes import Box, Node
from reorder.plan.passes import pack_elements, simplify

RUN, STRIDED, TRANSPOSED, PERMUTED = 0, 1, 2, 3
MICRO_KERNELS = MappingProxyType(
    {RUN: "run", STRIDED: "strided", TRANSPOSED: "transposed", PERMUTED: "permuted"}
)

# Only the first 32 elements of a group, a cache line of 16-bit ones, count towards its score.
_LANES = 32
# Elements of both loop groups together score up to this number.
_MAX_SIZE = 4096
# Most rows or columns that are interleaved instead of transposed.
MAX_INTERLEAVED = 4
# Up to this many columns are moved one tile of columns after the other, each in all rows.
FEW_COLUMNS = 16
# Most registers of a cache line that hold a tile. Its transposition needs as many again; only
# AVX-512 has registers of this width, and it has 32.
TILE_REGISTERS = 16
# Elements that one call of the transposing kernel should move: smaller loop groups are moved
# together with the loop around them.
MAX_CALL_SIZE = 1 << 12
# Lines of dst are prefetched for rows of at least this many lines and at least this many columns:
# the lines of the first row of tiles are not prefetched, and some tiles must be between a prefetch
# and its use.
_PREFETCHED_LINES, _PREFETCHED_COLUMNS = 2, 6
# Two loop groups of up to this many elements are moved one by one: most of a tile would be empty.
_TINY = 36
# Elements of a side of a cache tile; a loop group shorter than two sides is not cut.
TILE = 256
# Beside this many lines, those written in part at both ends cost little.
MANY_LINES = 8
# A loop of at least this many steps in dst, of which one holds data, is a run of mostly zeros.
_MANY_ZEROS = 8
# Bits of the parts of permuted elements, and of these elements.
PART_BITS, PERMUTED_BITS = (8, 16), (32, 64)


def width_of(bits: int) -> int:
    """Return the stride between neighbouring elements."""
    return max(1, bits // BYTE_BITS)


def line_of(bits: int) -> int:
    """Return the stride between cache lines."""
    return LINE_BITS // bits * width_of(bits)


class Tables(NamedTuple):
    """Offsets that are not those of loops.

    For runs and strided elements, the offsets of the rows in src and in dst; for a transposition,
    those of the rows in src and of the columns in dst. None stands for the offsets of the loops.
    """

    src: tuple[int, ...] | None = None
    dst: tuple[int, ...] | None = None
    # for each place in a line where steps of the outer loops may start: for each row of joined
    # runs, `JoinedRow` and then a `LinePiece` for each of its pieces
    joined: tuple[tuple[tuple[int, ...], ...], ...] = ()


class Permutation(NamedTuple):
    """How the bytes of a row are permuted: so that pairs or quads become elements, or in blocks."""

    # 0: bytes of rows that are loaded from src, 1: of columns before they are stored to dst
    side: int
    # from which byte each one comes, or from which two if `unit` is 2
    picks: tuple[int, ...]
    unit: int = 1

    @property
    def loaded_nbytes(self) -> int:
        """Bytes of a row up to the last one that is moved."""
        return (max(self.picks) + 1) * self.unit


class ScheduledBox(NamedTuple):
    """A box, and the micro-kernel that moves it.

    The micro-kernel runs two groups of loops, the interpreter the others. The loops of a group come
    innermost first. For `TRANSPOSED` the columns are contiguous in src and the rows in dst;
    otherwise the columns are one loop, and the rows have any strides.
    """

    box: Box
    # bits of an element: a pair of narrow ones counts as one element with the bits of both
    bits: int
    micro_kernel: int
    rows: tuple[Node, ...]
    columns: tuple[Node, ...]
    # the offsets, if they do not follow from the loops
    tables: Tables = Tables()
    # whether rows of joined runs end in a line that is put together
    joins: bool = False
    # of lines, or for a transposition whose elements are not contiguous on one side
    permutation: Permutation | None = None

    @property
    def outer(self) -> tuple[Node, ...]:
        """The loops that the interpreter runs, outermost first."""
        inner = {*self.rows, *self.columns}
        return tuple(node for node in self.box.nodes if node not in inner)

    @property
    def width(self) -> int:
        """The stride between neighbouring elements."""
        return width_of(self.bits)

    @property
    def is_transposed(self) -> bool:
        """Whether the transposing kernel moves it."""
        return self.micro_kernel == TRANSPOSED

    @property
    def inner_size(self) -> int:
        """Elements of the rows and columns together: what a call moves if nothing is cut."""
        return size_of((*self.rows, *self.columns))

    @property
    def kernel_loop(self) -> Node | None:
        """The outer loop that the transposing kernel runs itself, so that a call moves enough.

        It is the innermost one, if the loop groups are small and all of its steps hold data.
        """
        if not self.is_transposed or 2 * self.inner_size > MAX_CALL_SIZE:
            return None
        return next((node for node in self.outer[-1:] if node.valid == node.extent), None)

    def prefetches_dst(self, *, is_large: bool = False) -> bool:
        """Whether its kernel prefetches lines of dst.

        The model: a store that crosses the end of a line waits for the next line, because it is the
        first to need it. A store within a line waits only if there is so much data that the line is
        not in a cache of the core.
        """
        return (
            self.is_transposed
            and size_of(self.rows) * self.bits >= _PREFETCHED_LINES * LINE_BITS
            and size_of(self.columns) >= _PREFETCHED_COLUMNS
            and (is_large or not self._starts_lines(self.rows))
        )

    def shared_lines(self, inner: Iterable[Node]) -> int:
        """Return how many lines two threads would both write if they divided the outer loops.

        These are the loops that are not in `inner`.
        """
        nodes = tuple(inner)
        size = contiguous_size(nodes, 1, self.width)
        piece = tuple(node for node in nodes if abs(node.strides[1]) < size * self.width)
        if self._starts_lines(piece):
            return 0
        return size_of(nodes) // size

    def fills_lines(self) -> bool:
        """Whether it writes only whole cache lines if dst starts at one."""
        if self.tables.dst:
            return False  # strides do not say where it writes
        if self.is_transposed and size_of(self.columns) < LANE_BITS // self.bits:
            # tiles are wider than the columns: their stores beyond these do not go to dst
            return False
        inner = self.rows if self.is_transposed else self.columns
        return self.micro_kernel != STRIDED and self._starts_lines(inner)

    def as_bytes(self) -> "ScheduledBox":
        """Return the same runs, of bytes."""
        *outer, run = self.box.nodes
        row = Node(run.extent * self.width, run.valid * self.width, (1, 1))
        box = self.box._replace(nodes=(*outer, row))
        return self._replace(box=box, bits=BYTE_BITS, columns=(row,))

    def writes_parts(self) -> bool:
        """Whether its stores are shorter than a cache line, in kernels that stream too."""
        # rows that are interleaved are stored together
        inner = (*self.rows, *self.columns) if self.is_transposed else self.columns
        piece = contiguous_size(inner, 1, self.width)
        return self.micro_kernel == STRIDED or piece * self.bits < LINE_BITS

    def _starts_lines(self, inner: tuple[Node, ...]) -> bool:
        """Whether each step of the loops around some contiguous ones writes whole lines of dst."""
        if self.tables.joined:
            return True
        strides = [node.strides[1] for node in self.box.nodes if node not in inner]
        starts = [size_of(inner) * self.width, self.box.offsets[1], *strides]
        return not any(start % line_of(self.bits) for start in starts)

    def written_nbytes(self) -> int:
        """Return the bytes that it writes; a separate piece counts as at least a cache line."""
        piece = contiguous_size(self.box.nodes, 1, self.width)
        return self.box.size // piece * max(piece * self.bits // BYTE_BITS, LINE_NBYTES)


def scaled(box: Box, factor: int) -> Box:
    """Return a box whose offsets and strides count parts of elements, `factor` of each."""
    nodes = tuple(
        node._replace(strides=tuple(factor * stride for stride in node.strides))
        for node in box.nodes
    )
    return box._replace(offsets=tuple(factor * at for at in box.offsets), nodes=nodes)


def select_kernel(box: Box, bits: int) -> ScheduledBox:
    """Select the micro-kernel of a box of `bits`-bit elements.

    Two loop groups that share no loop, one contiguous in src and one in dst, are transposed unless
    they are tiny; an innermost loop that is contiguous on both sides, or one element and zeros
    after it, is copied as a run; all else is moved element by element.
    """
    width = width_of(bits)
    one_step = Node(1, 1, (width, width))
    run = box.nodes[-1] if box.nodes else one_step
    if run.valid == 1 and run.extent >= _MANY_ZEROS and run.strides[1] == width:
        # its other steps have no place in src
        run = run._replace(strides=(width, width))
        box = box._replace(nodes=(*box.nodes[:-1], run))
    elif not box.is_zero and bits >= BYTE_BITS:
        columns, rows = transposed_groups(box.nodes, bits)
        if columns and rows and not _is_tiny(columns, rows, bits):
            return ScheduledBox(box, bits, TRANSPOSED, rows, columns)
    if run.strides[1] == width and (run.strides[0] == width or box.is_zero):
        return ScheduledBox(box, bits, RUN, row_loops(box.nodes[:-1]) or (one_step,), (run,))
    # the longest loop whose steps share lines with those of the others
    near = (node for node in box.nodes[:-1] if max(map(abs, node.strides)) < LINE_NBYTES)
    run = max((run, *near), key=lambda node: node.extent)
    others = tuple(node for node in box.nodes if node != run)
    return ScheduledBox(box, bits, STRIDED, row_loops(others) or (one_step,), (run,))


def _is_tiny(columns: tuple[Node, ...], rows: tuple[Node, ...], bits: int) -> bool:
    """Whether two loop groups have too few elements for tiles, and none can be interleaved."""
    few, many = sorted(map(size_of, (columns, rows)))
    is_interleaved = few <= MAX_INTERLEAVED and many * bits >= LANE_BITS
    return few * many <= _TINY and not is_interleaved


def row_loops(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the innermost loops whose steps fit in a table of rows, innermost first.

    At most one of them holds padding, and it becomes the outermost one.
    """
    rows: list[Node] = []
    padded: list[Node] = []
    size = 1
    for node in reversed(nodes):
        is_padded = node.valid < node.extent
        if (is_padded and padded) or _exceeds_tile(size, node):
            break
        (padded if is_padded else rows).append(node)
        size *= node.extent
    return (*rows, *padded)


def _exceeds_tile(size: int, node: Node) -> bool:
    """Whether a loop makes a group of TILE / 2 elements or more too long: 2 * TILE or more."""
    return 2 * size >= TILE and size * node.extent >= 2 * TILE


def contiguous_group(nodes: tuple[Node, ...], side: int, bits: int) -> tuple[Node, ...]:
    """Return the longest loop group that is contiguous on a side, innermost first.

    Only its last loop may hold padding.
    """
    group: list[Node] = []
    size = 1
    for k in contiguous_loops(nodes, side, width_of(bits)):
        if _exceeds_tile(size, nodes[k]):
            break
        group.append(nodes[k])
        size *= nodes[k].extent
        if nodes[k].valid < nodes[k].extent:
            break
    return tuple(group)


def transposed_groups(
    nodes: tuple[Node, ...], bits: int
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Return columns and rows: the best prefixes of both groups that share no loop.

    All pairs of prefixes are compared, shorter ones first, by how much of a tile of vectors they
    fill, then by whether rows are whole lines of dst, then by their number of elements, up to a
    limit. Among equal pairs, the first one wins.
    """
    from_src, from_dst = (contiguous_group(nodes, side, bits) for side in (0, 1))
    best: tuple[tuple[Node, ...], tuple[Node, ...]] = (), ()
    best_score = (0, False, 0)
    lengths = (range(1, len(group) + 1) for group in (from_src, from_dst))
    for i, j in product(*lengths):
        columns, rows = from_src[:i], from_dst[:j]
        width, height = map(size_of, (columns, rows))
        is_whole = height * bits % LINE_BITS == 0
        size = min(width * height, _MAX_SIZE)
        score = min(width, _LANES) * min(height, _LANES), is_whole, size
        if score > best_score and set(columns).isdisjoint(rows):
            best, best_score = (columns, rows), score
    return best


class Part(StrEnum):
    """Code that an interpreter has only if its program needs it."""

    RUNS = "runs"
    # two ways to transpose groups whose columns are whole, without sweeps
    FEW_COLUMNS = "few columns"
    BLOCKS = "blocks"
    TILES = "transposed"
    # two ways to transpose other groups that need `TILES` too; wide tiles are for rows that collide
    INTERLEAVED = "interleaved"
    WIDE_TILES = "wide tiles"
    PERMUTED = "permuted"
    PERMUTED_LINES = "permuted lines"


class Kernel(NamedTuple):
    """A variant of the interpreter of boxes and its micro-kernels: each is compiled separately.

    `bits` is 4, 8, 16, 32 or 64. With `streams` whole, aligned cache lines of dst are written by
    non-temporal stores; not for 4-bit elements. A first call waits for the compiler, so besides
    `STRIDED` a variant has only the parts that a program needs, in their order.
    """

    bits: int
    streams: bool = False
    parts: tuple[Part, ...] = ()

    @property
    def is_packed(self) -> bool:
        """Whether elements share bytes."""
        return self.bits < BYTE_BITS

    def __str__(self) -> str:
        streams = ["non-temporal stores"] * self.streams
        return ", ".join([f"{self.bits}-bit elements", *streams, *self.parts])


def parts_for(bits: int, instructions: Instructions) -> tuple[Part, ...]:
    """Return the parts that code for elements of a width may have on a processor."""
    is_whole = bits >= BYTE_BITS
    lacks_registers = LINE_BITS // bits > TILE_REGISTERS and instructions.masks
    is_permuted = bits in PERMUTED_BITS and instructions.permutes_lines
    has_lines = bits == BYTE_BITS and instructions.masks
    has_tiles = [is_whole] * 4
    has_part = True, *has_tiles, is_whole and lacks_registers, is_permuted, has_lines
    return tuple(compress(Part, has_part))


# Bits of the widest element that kernels move.
_WIDEST = 64
# Loop groups of fewer wide elements than this are not faster than runs of narrow ones.
_MIN_WIDE_SIZE = 16


def pack_for_kernels(box: Box, bits: int) -> tuple[Box, int]:
    """Pack adjacent elements into wider ones, and simplify the box.

    Returns the box, which counts in bytes, and the bits of its elements. Wide elements may start at
    places that are not multiples of their width (rows of an odd number of bytes), but only those of
    transpositions of whole runs: their vectors are loaded and stored at any byte.
    """
    packed, bits = pack_elements(box, bits)
    (packed,) = simplify((packed,))
    is_run = packed.nodes and packed.nodes[-1].strides == (1, 1)
    packed = scaled(packed, width_of(bits))
    if bits < BYTE_BITS or not is_run or packed.indirect:
        return packed, bits
    *outer, run = packed.nodes
    wide = run.extent * bits
    if not run.valid == run.extent > 1 or wide > _WIDEST or wide & (wide - 1):
        return packed, bits
    scheduled = select_kernel(packed._replace(nodes=tuple(outer)), wide)
    is_wide = scheduled.is_transposed and scheduled.inner_size >= _MIN_WIDE_SIZE
    return (scheduled.box, wide) if is_wide else (packed, bits)
