"""A family of kernels in which work items move elements by themselves, without local memory.

It can lower every nest. In each step a work item moves the lanes of a pixel, or a run of adjacent
elements that dst stores as words, or one element. It has several steps, spaced by the work items of
its group. All steps are loaded before the first one is stored, so that more bytes are in flight.

Devices store images in tiles of a few columns and rows, so work items should access a square of
pixels; in a buffer they should follow the smallest stride. To do both, a work-group covers some
iterations of several loops. 4-bit elements that do not fill whole bytes are written by two
launches, one for each half of a byte; the parameter `parity` is that of the offsets in dst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import gcd, prod

from memdesc.dtypes import BYTE_BITS
from reorder.opencl.kernel.access import (
    Access,
    Mode,
    load_words,
    one_element,
    store_element,
    store_words,
)
from reorder.opencl.kernel.formula import KernelFormula
from reorder.opencl.kernel.launch import (
    Body,
    KernelTask,
    Launch,
    Pattern,
    ceil_log2,
    divided,
    floor_log2,
    index_lines,
    indirect_lines,
    lower_nest,
    share_out,
    shared_lines,
    start_lines,
)
from reorder.opencl.kernel.placement import Lane, Loop, Nest, chain_of, without
from reorder.values.binding import BETA

_WORK_ITEMS = 256
# bits of a cache line
_LINE_BITS = 1024
# Bits of a run on the side with the wider elements, and the most elements of a run.
_RUN_BITS, _MAX_RUN = 128, 16
# Runs that a work item moves, of up to 4 elements each; fewer if runs are longer, or if there would
# be too few groups.
_RUNS, _MIN_GROUPS = 4, 1024
# steps of a work item, by the bytes of the elements that it moves
_STEPS = {1: 8, 2: 8, 4: 8, 8: 4, 16: 2}
# The role of a loop: it runs along columns or rows of the image, or the buffer's smallest stride.
_COLUMN, _ROW, _BUFFER = range(3)
# loops, innermost first, log2 of the work items along each, and the steps of a work item
_WorkGroup = list[tuple[Loop, int, int]]
# Shares of work-groups between an image and a buffer, innermost work items first: the role of a
# loop, log2 of the work items along it, the steps of each. The loop of the smallest stride in the
# buffer runs along the columns of the image, along the rows, or is separate from both (blocks of
# channels of NHWC). They were the best in sweeps on an NVIDIA H200.
_IMAGES = ((_COLUMN, 4, 1), (_ROW, 4, 1))
_PACK = (
    ((_ROW, 1, 2), (_COLUMN, 6, 1)),
    ((_COLUMN, 3, 2), (_ROW, 4, 1)),
    ((_COLUMN, 1, 1), (_ROW, 1, 1), (_BUFFER, 5, 2)),
)
_UNPACK = (
    ((_COLUMN, 6, 1), (_ROW, 2, 2)),
    ((_ROW, 4, 1), (_COLUMN, 3, 2)),
    ((_COLUMN, 1, 1), (_BUFFER, 5, 2), (_ROW, 2, 1)),
)


def try_lower(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launches of any nest."""
    # zeros read nothing, not even an image
    has_image = task.has_image
    task = _writing(task) if task.nest.is_zero else task
    nest, (src, dst) = task.nest, task.accesses
    if has_image:
        body = Direct()
        group = _for_image(task)
    else:
        by_stride = sorted(nest.loops, key=lambda loop: abs(loop.stride(1)))
        nest = nest._replace(loops=nest.filled(by_stride))
        body, src, dst = _run(task, nest)
        group = _for_buffers(nest, body.length, task)
    lanes = tuple(
        (lane.offsets[0] if src.mode == Mode.IMAGE else k) if lane.is_valid else -1
        for k, lane in enumerate(nest.lanes)
    )
    items = 1 << sum(shift for _, shift, _ in group)
    pattern = Pattern(src, dst, body, items, task.conversion, lanes)
    divisions = [
        divided(loop.extent, shift, steps, 1 if k else body.length)
        for k, (loop, shift, steps) in enumerate(group)
    ]
    parities: tuple[int, ...] = (0,)
    if body.is_nibble:
        is_even = all(stride % 2 == 0 for stride in nest.strides(1))
        parities = (nest.starts[1][0] % 2,) if is_even else (0, 1)
    nest = nest._replace(loops=tuple(loop for loop, _, _ in group))
    numbers = ({**task.numbers, "parity": parity} for parity in parities)
    return tuple(lower_nest(nest, pattern, divisions, of) for of in numbers)


def _writing(task: KernelTask) -> KernelTask:
    """Return a task of zeros that reads nothing: neither src nor scales and zero points."""
    nest, (src, dst), conversion = task.nest, task.accesses, task.conversion
    nest = nest._replace(
        starts=((), nest.starts[1]),
        lanes=tuple(Lane(lane.offsets[:2], is_valid=False) for lane in nest.lanes),
        loops=tuple(loop._replace(strides=((), loop.strides[1])) for loop in nest.loops),
    )
    conversion = None if conversion is None else conversion.of_dst()
    accesses = src._replace(mode=Mode.NONE), dst
    return task._replace(nest=nest, accesses=accesses, conversion=conversion)


def _run(task: KernelTask, nest: Nest) -> tuple[Direct, Access, Access]:
    """Return the run of elements that a work item moves between two buffers, and the accesses."""
    src, dst = task.accesses
    if task.conversion is None:
        return Direct(), src, dst
    loop = nest.loops[0]
    most = min(_RUN_BITS // max(src.bits, dst.bits), _MAX_RUN, 1 << floor_log2(loop.extent))
    length = _length(nest, 1, most, task)
    if 1 < length == _length(nest, 0, length, task) and not nest.is_zero:
        src = src._replace(mode=Mode.VECTOR)
    if length > 1:
        dst = dst._replace(mode=Mode.VECTOR)
    is_whole = loop.valid == loop.extent and not loop.extent % length
    is_nibble = dst.bits < BYTE_BITS and length == 1
    return Direct(length, is_whole or length == 1, is_nibble, loop.uniform(task.varying)), src, dst


def _length(nest: Nest, operand: int, most: int, task: KernelTask) -> int:
    """Return the elements of a run, a power of two: all runs start at multiples of it."""
    loop = nest.loops[0]
    if loop.strides[operand] != (1,):
        return 1
    most = min(most, max(task.device.alignment * BYTE_BITS // task.accesses[operand].bits, 1))
    return gcd(most, nest.alignment(operand, (loop,)))


def _for_buffers(nest: Nest, length: int, task: KernelTask) -> _WorkGroup:
    """Share the work items among the loops of a nest between two buffers."""
    extents = [-(-nest.loops[0].extent // length), *(loop.extent for loop in nest.loops[1:])]
    total = floor_log2(task.work_items(_WORK_ITEMS))
    given = _lines(nest, length, total, task.accesses[1].bits)
    shifts = share_out(extents, total, given)
    order = [*range(len(extents))]
    wanted = 1 if nest.indirect else _STEPS[max(task.accesses[1].nbytes, 1)]
    if task.conversion is None:
        # the outermost loop along which a group has several work items
        order.sort(key=lambda k: (not shifts[k], -k if shifts[k] else k))
    else:
        groups = prod(-(-extent >> shift) for extent, shift in zip(extents, shifts, strict=True))
        wanted = max(_RUNS // max(length // _RUNS, 1), 1)
        while wanted > 1 and groups < wanted * _MIN_GROUPS:
            wanted //= 2
    stepping = next((k for k in order if extents[k] >> shifts[k] >= wanted), -1)
    steps = [wanted if k == stepping else 1 for k in range(len(extents))]
    return list(zip(nest.loops, shifts, steps, strict=True))


def _lines(nest: Nest, length: int, total: int, bits: int) -> list[int]:
    """Return log2 of the work items of each loop for a cache line of dst, then one of src."""
    shifts = [0] * len(nest.loops)
    # zeros have no src, and loops over tables come last
    for operand in (1, 0) if nest.starts[0] and not nest.indirect else ():
        chain = chain_of(nest.loops, operand, max(_LINE_BITS // bits, 1))
        for k, steps in zip(*chain, strict=True) if chain is not None else ():
            wanted = ceil_log2(steps if k else -(-steps // length))
            shifts[k] += min(max(wanted - shifts[k], 0), total - sum(shifts))
    return shifts


def _for_image(task: KernelTask) -> _WorkGroup:
    """Share the work items among the loops of a nest with at least one image."""
    nest, modes = task.nest, [access.mode for access in task.accesses]
    loops, image = list(reversed(nest.loops)), int(modes[1] == Mode.IMAGE)
    roles = [_smallest(loops, image, 0), _smallest(loops, image, 1)]
    shares: tuple[tuple[int, int, int], ...] = _IMAGES
    if modes[1 - image] not in {Mode.IMAGE, Mode.NONE}:
        roles.append(_smallest(loops, 1 - image, 0))
        place = next(k for k, loop in enumerate(roles) if loop is roles[_BUFFER])
        shares = shares if roles[_BUFFER] is None else (_UNPACK, _PACK)[image][place]
    total = floor_log2(task.work_items(1 << sum(shift for _, shift, _ in shares)))
    group: _WorkGroup = []
    for role, most, count in shares:
        loop = roles[role]
        if loop is not None:
            free = total - sum(shift for _, shift, _ in group)
            shift = min(ceil_log2(loop.extent), most, free)
            group.append((loop, shift, count if loop.extent >> shift >= count else 1))
    chosen = [loop for loop, _, _ in group]
    filled = nest.filled(chosen + without(loops, chosen))
    shifts = share_out([loop.extent for loop in filled], total, [shift for _, shift, _ in group])
    steps = [count for _, _, count in group] + [1] * (len(filled) - len(group))
    return list(zip(filled, shifts, steps, strict=True))


def _smallest(loops: list[Loop], operand: int, coord: int) -> Loop | None:
    """Return the loop with the smallest nonzero stride along a coordinate of an operand."""
    # an operand that is not read has no strides
    strides = [(loop.strides[operand][coord : coord + 1], k) for k, loop in enumerate(loops)]
    moving = [(abs(of[0]), k) for of, k in strides if any(of) and loops[k].extent > 1]
    return loops[min(moving)[1]] if moving else None


@dataclass(frozen=True)
class Direct(Body):
    """In each step a work item moves the lanes of the pattern, or `length` steps of loop 0.

    With `is_whole`, all elements of a run are inside and hold data. With `is_nibble`, a work item
    writes one half of a byte: the elements at odd offsets, or at even ones, as a parameter says.
    `uniform` are the roles whose values vary, but not within a run.
    """

    length: int = 1
    is_whole: bool = True
    is_nibble: bool = False
    uniform: tuple[str, ...] = ()

    def param_names(self) -> list[str]:
        """Return the parity of the offsets that are written, for 4-bit elements."""
        return ["parity"] if self.is_nibble else []

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: all loads, then conversions and stores; padding becomes 0."""
        reads = pattern.src.mode != Mode.NONE
        yield from index_lines(pattern)
        if self.length > 1:
            yield f"i0 *= {self.length};"
        outside = [f"i{k} >= p.extent{k}" for k, one in enumerate(pattern.loops) if one.steps == 1]
        # a nest has at least three loops, and work items take several steps of one or two
        yield f"if ({' || '.join(outside)}) return;"
        for k in range(pattern.indirect):
            yield from indirect_lines(pattern, k)
        if reads and pattern.conversion is not None:
            yield from shared_lines(pattern.conversion, pattern.conversion.scalars, 0)
        for operand, access in pattern.operands:
            yield from start_lines(pattern, operand, access)
        steps = list(enumerate(product(*(range(loop.steps) for loop in pattern.loops))))
        for s, step in steps:
            yield from self._place(pattern, s, step)
        for s, _ in steps:
            yield self._declared(pattern, "src", f"x{s}")
            if reads:
                yield f"if (is_data_{s}) {{"
                yield from self._load(pattern, s)
                yield "}"
        for s, step in steps:
            inside = self._inside(pattern, s, step)
            yield f"if ({' && '.join(inside)}) {{" if inside else "{"
            prefix = f"x{s}"
            if reads and pattern.conversion is not None and not pattern.conversion.is_move:
                prefix = "y"
                yield self._declared(pattern, "dst", prefix)
                yield f"if (is_data_{s}) {{"
                yield from self._convert(pattern, pattern.conversion, s)
                yield "}"
            yield from self._store(pattern, prefix, s)
            yield "}"

    def _place(self, pattern: Pattern, s: int, step: tuple[int, ...]) -> Iterator[str]:
        """Return where step s is in each operand, and whether it holds data."""
        moved = {k: self._moved(k, step) for k, count in enumerate(step) if count}
        for operand, access in pattern.operands:
            for c in access.coords:
                terms = [f"{operand}{c or '_offset'}"]
                terms += [f"{index} * p.{operand}{c}{k}" for k, index in moved.items()]
                ctype = "int" if c else "index_t"
                yield f"const {ctype} {operand}{c}_{s} = ({ctype})({' + '.join(terms)});"
        if self.length > 1:
            yield f"const index_t first_{s} = {self._index(0, step)};"
        if pattern.src.mode != Mode.NONE:
            data = [f"{self._index(k, step)} < p.valid{k}" for k in range(len(step))]
            data += [f"is_data{k}" for k in range(pattern.indirect)]
            data += self._parity(s)
            yield f"const int is_data_{s} = {' && '.join(data)};"

    def _moved(self, k: int, step: tuple[int, ...]) -> str:
        """Return how far the index of a loop is from that of the first step."""
        length = f" * {self.length}" if self.length > 1 and not k else ""
        return f"({step[k]} << p.shift{k}){length}"

    def _index(self, k: int, step: tuple[int, ...]) -> str:
        """Return the index of a loop in a step."""
        return f"i{k} + {self._moved(k, step)}" if step[k] else f"i{k}"

    def _parity(self, s: int) -> list[str]:
        return [f"(dst_{s} & 1) == p.parity"] if self.is_nibble else []

    def _inside(self, pattern: Pattern, s: int, step: tuple[int, ...]) -> list[str]:
        """Return the conditions, not known to hold already, under which a step is written."""
        loops = (k for k, loop in enumerate(pattern.loops) if loop.steps > 1)
        return [f"{self._index(k, step)} < p.extent{k}" for k in loops] + self._parity(s)

    def _count(self, pattern: Pattern) -> int:
        """Return the elements that a work item moves in each step."""
        return max(self.length, len(pattern.lanes))

    def _declared(self, pattern: Pattern, operand: str, prefix: str) -> str:
        """Return the declaration of the elements of a step, with bits of an operand."""
        names = ", ".join(f"{prefix}_{k} = 0" for k in range(self._count(pattern)))
        conversion, ctype = pattern.conversion, pattern.dst.element
        if conversion is not None:
            ctype = conversion.src_type if operand == "src" else conversion.dst_type
        return f"{ctype} {names};"

    def _lanes(self, pattern: Pattern) -> list[int]:
        """Return the lanes of a step that may hold data."""
        return [k for k in range(self._count(pattern)) if self.length > 1 or pattern.lanes[k] >= 0]

    def _at(self, operand: str, s: int, lane: int) -> str:
        """Return the offset of an element of step s."""
        moved = f"{lane} * p.{operand}0" if self.length > 1 else f"p.{operand}_lane{lane}"
        return f"{operand}_{s}{f' + {moved}' if lane else ''}"

    def _load(self, pattern: Pattern, s: int) -> Iterator[str]:
        """Return the loads of x{s}_0, x{s}_1, ... from src."""
        if pattern.src.mode != Mode.IMAGE:
            yield from self._loads(pattern, "src", f"x{s}", s)
            return
        pixel = pattern.src.read("src", f"src_x_{s}", f"src_y_{s}")
        yield f"const {pattern.src.pixel_type} pixel = {pixel};"
        for k in self._lanes(pattern):
            yield f"x{s}_{k} = {pattern.src.code_of_lane(f'pixel.s{pattern.lanes[k]}')};"

    def _loads(self, pattern: Pattern, operand: str, prefix: str, s: int) -> Iterator[str]:
        """Return the loads from a buffer: as words where elements are aligned and hold data."""
        access = getattr(pattern, operand)
        elements = {
            k: f"{prefix}_{k} = {one_element(operand, self._at(operand, s, k), access.bits)};"
            for k in self._lanes(pattern)
        }
        names = [f"{prefix}_{k}" for k in range(self._count(pattern))]
        words = load_words(operand, f"{operand}_{s}", access.bits, names)
        yield from self._as_words(words, elements, access, s, "valid")

    def _convert(self, pattern: Pattern, conversion: KernelFormula, s: int) -> Iterator[str]:
        """Return the statements that compute y_0, y_1, ... from the elements of src."""
        if BETA in conversion.roles:
            yield self._declared(pattern, "dst", "old")
            yield from self._loads(pattern, "dst", "old", s)
        shared = {role: f"{role}_all" for role in (*conversion.scalars, *self.uniform)}
        yield from shared_lines(conversion, self.uniform, s)
        for k in self._lanes(pattern):
            at = partial(self._at, s=s, lane=k)
            done = conversion.converted(f"x{s}_{k}", at, shared, f"old_{k}")
            guard = "" if self.is_whole or not k else f"if (first_{s} + {k} < p.valid0) "
            yield f"{guard}y_{k} = {done};"

    def _store(self, pattern: Pattern, prefix: str, s: int) -> Iterator[str]:
        """Return the stores of elements: as words where they are aligned and inside."""
        access = pattern.dst
        names = [f"{prefix}_{k}" for k in range(self._count(pattern))]
        if access.mode == Mode.IMAGE and pattern.conversion is not None:
            pixel = access.pixel_of_codes(names, pattern.conversion.dst)
            yield access.write("dst", f"dst_x_{s}", f"dst_y_{s}", pixel)
            return
        elements = {
            k: store_element("dst", self._at("dst", s, k), access.bits, lane)
            for k, lane in enumerate(names)
        }
        words = store_words("dst", f"dst_{s}", access.bits, names)
        yield from self._as_words(words, elements, access, s, "extent")

    def _as_words(
        self, words: Iterator[str], elements: Mapping[int, str], access: Access, s: int, limit: str
    ) -> Iterator[str]:
        """Return the statement for a run, or those for its elements if some are not inside."""
        is_vector = access.mode == Mode.VECTOR
        if is_vector and self.is_whole:
            yield from words
            return
        if is_vector:
            yield f"if (first_{s} + {self.length} <= p.{limit}0) {{"
            yield from words
            yield "} else {"
        for k, statement in elements.items():
            guard = f"if (first_{s} + {k} < p.{limit}0) " if k and not self.is_whole else ""
            yield f"{guard}{statement}"
        if is_vector:
            yield "}"
