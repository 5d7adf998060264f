"""A family of kernels in which each work item copies pixels or elements, without local memory.

It can lower every nest, and converts between an image and a buffer, or two images.

Adjacent work items access adjacent memory. Devices store images in tiles of a few columns and rows,
so work items should access a square of pixels; in a buffer they should follow the smallest stride.
To do both, a work-group covers some iterations of several loops; the profile of a device says how
many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from reorder.opencl.kernel.access import (
    Access,
    AccessKind,
    code_of_lane,
    lane_of_code,
    load_words,
    one_element,
    store_element,
    store_words,
)
from reorder.opencl.kernel.formula import WORD_BITS, KernelFormula
from reorder.opencl.kernel.launch import (
    Body,
    KernelTask,
    Launch,
    Pattern,
    ceil_log2,
    divided,
    floor_log2,
    lower_nest,
    share_out,
)
from reorder.opencl.kernel.placement import Lane, Loop, Nest, without
from reorder.opencl.kernel.statements import guarded, index_lines, indirect_lines, start_lines
from reorder.values.binding import BETA

_IN_ORDER = (0, 1, 2, 3)
# The role of a loop: it runs along columns or rows of the image, or the buffer's smallest stride.
COLUMN, ROW, BUFFER = "column", "row", "buffer"
# extents below which a separate loop is short, for scalars and for vectors
_SHORT, _SHORT_VECTOR = 32, 8


class Share(NamedTuple):
    """log2 of the work items along the loop of a role, and the iterations of each work item."""

    role: str
    shift: int
    steps: int = 1


class ImageGroups(NamedTuple):
    """Work-groups between an image and a buffer: shares, innermost work items first.

    The loop of the smallest stride in the buffer runs along the columns of the image, along the
    rows, or is separate from both (blocks of channels of NHWC); if it is too short to fill a cache
    line, it is short. With `vector_` the lanes of a pixel are contiguous in the buffer.
    """

    columns: tuple[Share, ...]
    rows: tuple[Share, ...]
    separate: tuple[Share, ...]
    short: tuple[Share, ...]
    vector_columns: tuple[Share, ...]
    vector_separate: tuple[Share, ...]
    vector_short: tuple[Share, ...]


_IMAGE_ONLY = (Share(COLUMN, 4), Share(ROW, 4))
_PACK = ImageGroups(
    columns=(Share(ROW, 1, 2), Share(COLUMN, 6)),
    rows=(Share(COLUMN, 3, 2), Share(ROW, 4)),
    separate=(Share(COLUMN, 1), Share(ROW, 1), Share(BUFFER, 5, 2)),
    short=(Share(COLUMN, 2, 2), Share(ROW, 1), Share(BUFFER, 4)),
    vector_columns=(Share(COLUMN, 4, 4), Share(ROW, 4)),
    vector_separate=(Share(COLUMN, 1), Share(ROW, 1), Share(BUFFER, 5, 2)),
    vector_short=(Share(COLUMN, 3), Share(BUFFER, 1, 2), Share(ROW, 3)),
)
_UNPACK = ImageGroups(
    columns=(Share(COLUMN, 6), Share(ROW, 2, 2)),
    rows=(Share(ROW, 4), Share(COLUMN, 3, 2)),
    separate=(Share(COLUMN, 1), Share(BUFFER, 5, 2), Share(ROW, 2)),
    short=(Share(COLUMN, 1, 2), Share(BUFFER, 4), Share(ROW, 2)),
    vector_columns=(Share(COLUMN, 4, 2), Share(ROW, 4)),
    vector_separate=(Share(COLUMN, 2), Share(BUFFER, 3), Share(ROW, 2)),
    vector_short=(Share(COLUMN, 3, 2), Share(BUFFER, 2), Share(ROW, 2)),
)


class CopySizes(NamedTuple):
    """Work-groups that copy.

    Between buffers a group has at most `work_items`; `elements` has how many elements each of them
    takes, by the bytes of an element. `pack` is for images as dst, `unpack` for elements of 32 bits
    from images, and `unpack_narrow` for narrower ones.
    """

    work_items: int = 256
    elements: Mapping[int, int] = {1: 8, 2: 8, 4: 8, 8: 4, 16: 2}
    pack: ImageGroups = _PACK
    unpack: ImageGroups = _UNPACK
    unpack_narrow: ImageGroups = _UNPACK._replace(
        columns=(Share(COLUMN, 6), Share(ROW, 2, 4)),
        vector_separate=(Share(COLUMN, 2), Share(BUFFER, 4), Share(ROW, 1)),
    )


def try_lower(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of a nest, which may be any."""
    nest, conversion, is_aligned = task.nest, task.conversion, task.is_aligned
    reads_image = task.accesses[0].kind == AccessKind.IMAGE
    if nest.is_zero:
        nest = _writing(nest)
        if conversion is not None:
            halves = conversion.writes_halves
            conversion = KernelFormula(conversion.dst, conversion.dst, writes_halves=halves)
    if conversion is not None:
        # a vector has four elements, of at most 128 bits
        is_aligned = is_aligned and max(conversion.widths) <= WORD_BITS
    src, dst = (
        _with_kind(nest, k, access, is_aligned=is_aligned) for k, access in enumerate(task.accesses)
    )
    loops, shifts, steps, indirect_shift = _work_group(nest, (src, dst), task)
    lanes = tuple(
        (lane.offsets[0] if reads_image else k) if lane.is_valid else -1
        for k, lane in enumerate(nest.lanes)
    )
    work_items = 1 << sum(shifts) + indirect_shift
    pattern = Pattern(src, dst, Copy(), work_items, conversion, lanes)
    divisions = [
        divided(loop.extent, shift, count)
        for loop, shift, count in zip(loops, shifts, steps, strict=True)
    ]
    nest = nest._replace(loops=loops)
    return (lower_nest(nest, pattern, divisions, task.numbers, indirect_shift),)


def _writing(nest: Nest) -> Nest:
    """Return a nest of zeros that reads nothing: neither src nor scales and zero points."""
    return nest._replace(
        starts=((), nest.starts[1]),
        lanes=tuple(Lane(lane.offsets[:2], is_valid=False) for lane in nest.lanes),
        loops=tuple(loop._replace(strides=loop.strides[:2]) for loop in nest.loops),
    )


def _with_kind(nest: Nest, operand: int, access: Access, *, is_aligned: bool) -> Access:
    """Return an access with the final kind: `NONE` or `VECTOR` where that applies."""
    if operand == 0 and nest.is_zero:
        return access._replace(kind=AccessKind.NONE)
    if access.kind == AccessKind.BUFFER and is_aligned and _is_vector(nest, operand):
        return access._replace(kind=AccessKind.VECTOR)
    return access


def _is_vector(nest: Nest, operand: int) -> bool:
    """Whether the lanes of an operand are 4 contiguous elements that start at multiples of 4."""
    lanes = [lane.offsets[operand] for lane in nest.lanes]
    if lanes != [0, 1, 2, 3] or (operand == 0 and not all(lane.is_valid for lane in nest.lanes)):
        return False
    return not nest.indirect and nest.alignment(operand) % 4 == 0


class _WorkGroup(NamedTuple):
    """Loops in the order of work items, innermost first.

    `shifts` are log2 of the work items along each loop, `steps` the iterations of each
    work item, `indirect_shift` is log2 of the work items along the first indirect loop.
    """

    loops: tuple[Loop, ...]
    shifts: tuple[int, ...]
    steps: tuple[int, ...]
    indirect_shift: int = 0


def _work_group(nest: Nest, accesses: tuple[Access, Access], task: KernelTask) -> _WorkGroup:
    """Order the loops of a nest, and choose the number of work items along each."""
    loops = list(reversed(nest.loops))
    sizes = task.device.profile.sizes_of(CopySizes)
    if any(access.kind == AccessKind.IMAGE for access in accesses):
        return _for_image(nest, loops, _shares(loops, accesses, sizes), task)
    total = floor_log2(task.work_items(sizes.work_items))
    group = _filled(nest, sorted(loops, key=lambda loop: abs(loop.stride(1))), [], total)
    # two elements of 4 bits are in a byte
    elements = sizes.elements[max(accesses[1].nbytes, 1)]
    return group if nest.indirect else _with_steps(group, elements)


def _with_steps(group: _WorkGroup, steps: int) -> _WorkGroup:
    """Give work items several steps of the outermost loop along which a group has several."""
    loops = range(len(group.loops))
    shared = [k for k in loops if group.shifts[k]]
    for k in [*reversed(shared), *(k for k in loops if not group.shifts[k])]:
        if group.loops[k].extent >> group.shifts[k] >= steps:
            return group._replace(steps=tuple(steps if j == k else 1 for j in loops))
    return group


def _filled(nest: Nest, loops: list[Loop], shifts: list[int], total: int) -> _WorkGroup:
    """Share 2^total work items among loops; `shifts` are those of the first loops."""
    filled = nest.filled(loops)
    shares, indirect_shift = share_out(nest, [loop.extent for loop in filled], total, shifts)
    return _WorkGroup(filled, tuple(shares), (1,) * len(filled), indirect_shift)


def _for_image(
    nest: Nest, loops: list[Loop], shares: list[tuple[Loop | None, int, int]], task: KernelTask
) -> _WorkGroup:
    """Return a group of a nest with at least one image."""
    total = floor_log2(task.work_items(1 << sum(shift for _, shift, _ in shares)))
    free = total
    chosen: list[Loop] = []
    shifts, steps = [], []
    for loop, max_shift, count in shares:
        # two roles may be those of one loop
        if loop is None or any(loop is taken for taken in chosen):
            continue
        shift = min(ceil_log2(loop.extent), max_shift, free)
        free -= shift
        chosen.append(loop)
        shifts.append(shift)
        steps.append(count if loop.extent >> shift >= count else 1)
    # the remaining work items go to loops that still have steps
    for k, loop in enumerate(chosen):
        more = max(min(free, ceil_log2(loop.extent) - shifts[k]), 0)
        shifts[k] += more
        free -= more
    group = _filled(nest, [*chosen, *without(loops, chosen)], shifts, total)
    return group._replace(steps=(*steps, *group.steps[len(steps) :]))


def _shares(
    loops: list[Loop], accesses: tuple[Access, Access], sizes: CopySizes
) -> list[tuple[Loop | None, int, int]]:
    """Return loops, log2 of the most work items along each, and the steps of a work item."""
    kinds = [access.kind for access in accesses]
    image = int(kinds[1] == AccessKind.IMAGE)
    roles = {COLUMN: _smallest(loops, image, 0), ROW: _smallest(loops, image, 1)}
    shares = _IMAGE_ONLY
    if kinds[1 - image] not in {AccessKind.IMAGE, AccessKind.NONE}:
        roles[BUFFER] = _smallest(loops, 1 - image, 0)
    buffer = roles.get(BUFFER)
    if buffer is not None:
        is_vector = AccessKind.VECTOR in kinds
        place = "separate"
        if buffer is roles[COLUMN] or buffer is roles[ROW]:
            place = "columns" if buffer is roles[COLUMN] else "rows"
        elif buffer.extent < (_SHORT_VECTOR if is_vector else _SHORT):
            place = "short"
        # the loop along the rows has the same shares for scalars and vectors
        prefix = "vector_" if is_vector and place != "rows" else ""
        unpack = sizes.unpack_narrow if accesses[1].bits < WORD_BITS else sizes.unpack
        groups = sizes.pack if image else unpack
        shares = getattr(groups, prefix + place)
    return [(roles[share.role], share.shift, share.steps) for share in shares]


def _smallest(loops: list[Loop], operand: int, coord: int) -> Loop | None:
    """Return the loop with the smallest nonzero stride along a coordinate of an operand."""
    strides = [(loop.strides[operand][coord:], k) for k, loop in enumerate(loops)]
    moving = [
        (abs(stride[0]), k) for stride, k in strides if any(stride[:1]) and loops[k].extent > 1
    ]
    return loops[min(moving)[1]] if moving else None


@dataclass(frozen=True)
class Copy(Body):
    """Each work item moves its lanes; all loads come before all stores."""

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: each work item copies its steps."""
        reads = pattern.src.kind != AccessKind.NONE
        yield from index_lines(pattern)
        outside = [
            f"i{k} >= p.extent{k}" for k, loop in enumerate(pattern.loops) if loop.steps == 1
        ]
        outside += [f"j{k} >= p.indirect{k}_extent" for k in range(len(pattern.indirect))]
        # a nest has three loops or more, and work items take several steps of one or two
        yield f"if ({' || '.join(outside)}) return;"
        for k in range(len(pattern.indirect)):
            yield from indirect_lines(pattern, k)
        for operand, access in pattern.operands:
            yield from start_lines(pattern, operand, access)
        # all loads come before all stores, so that they are in flight together
        all_steps = list(product(*(range(loop.steps) for loop in pattern.loops)))
        # raw bits are moved as scalars, values as vectors of four, like pixels
        if pattern.conversion is None:
            access = pattern.src if reads else pattern.dst
            kind = access.element.value + ("" if pattern.dst.element.is_raw else "4")
        elif pattern.dst.kind == AccessKind.IMAGE:
            kind = f"{pattern.dst.element.value}4"
        else:
            kind = f"{pattern.conversion.dst_type}4"
        for number, steps in enumerate(all_steps):
            value = f"v{number}"
            yield f"{kind} {value} = ({kind})(0);"
            if reads:
                yield guarded(_is_data(pattern, steps), f"{{ {_load(pattern, value, steps)} }}")
        for number, steps in enumerate(all_steps):
            yield guarded(
                _is_inside(pattern, steps), f"{{ {_store(pattern, f'v{number}', steps)} }}"
            )


def _is_inside(pattern: Pattern, steps: tuple[int, ...]) -> list[str]:
    """Return the conditions that steps are within their extents, where this is not known yet."""
    return [
        f"{_index(k, step)} < p.extent{k}"
        for k, step in enumerate(steps)
        if pattern.loops[k].steps > 1
    ]


def _is_data(pattern: Pattern, steps: tuple[int, ...]) -> list[str]:
    """Return the conditions that steps hold data."""
    return [
        *(f"{_index(k, step)} < p.valid{k}" for k, step in enumerate(steps)),
        *(f"is_data{k}" for k in range(len(pattern.indirect))),
    ]


def _index(k: int, step: int) -> str:
    return f"i{k} + ({step} << p.shift{k})" if step else f"i{k}"


def _load(pattern: Pattern, value: str, steps: tuple[int, ...]) -> str:
    """Return the statement that loads the lanes of some steps into a value."""
    if pattern.conversion is not None:

        def first(operand: str) -> str:
            is_image = operand == "src" and pattern.src.kind == AccessKind.IMAGE
            return _pixel_coords(operand, steps) if is_image else _coord(operand, steps)

        return " ".join(_load_lanes(pattern, pattern.conversion, value, first))
    if pattern.src.kind == AccessKind.IMAGE:
        return _load_pixel(pattern, value, steps)
    element = pattern.src.element
    start = _coord("src", steps)
    if pattern.src.kind == AccessKind.VECTOR:
        if element.is_half:
            return f"{value} = vloada_half4(({start}) / 4, src);"
        vector = f"*(__global const {element.memory}4 *)(src + ({start}))"
        return f"{value} = {element.to_value(vector, '4')};"
    if element.is_raw and len(pattern.lanes) == 1:
        return f"{value} = src[{start}];"
    return " ".join(
        f"{value}.s{k} = {element.load('src', _lane('src', start, k))};"
        for k, lane in enumerate(pattern.lanes)
        if lane >= 0
    )


def _load_pixel(pattern: Pattern, value: str, steps: tuple[int, ...]) -> str:
    element = pattern.src.element
    at = pattern.src.pixel(_pixel_coords("src", steps))
    pixel = f"read_image{element.image_suffix}(src, {at})"
    if pattern.dst.kind == AccessKind.IMAGE or pattern.lanes == _IN_ORDER:
        if pattern.lanes in {_IN_ORDER, (0,)}:
            return f"{value} = {pixel};"
        cleared = [f"{value}.s{k} = 0;" for k, lane in enumerate(pattern.lanes) if lane < 0]
        return f"{value} = {pixel}; {' '.join(cleared)}"
    lanes = [f"{value}.s{k} = pixel.s{lane};" for k, lane in enumerate(pattern.lanes) if lane >= 0]
    return f"const {element.value}4 pixel = {pixel}; {' '.join(lanes)}"


def _store(pattern: Pattern, value: str, steps: tuple[int, ...]) -> str:
    """Return the statement that stores the lanes of a value to some steps."""
    element = pattern.dst.element
    if pattern.dst.kind == AccessKind.IMAGE:
        coords = pattern.dst.pixel(_pixel_coords("dst", steps))
        return f"write_image{element.image_suffix}(dst, {coords}, {value});"
    start = _coord("dst", steps)
    if pattern.conversion is not None:
        return " ".join(_store_lanes(pattern, pattern.conversion, value, start))
    if pattern.dst.kind == AccessKind.VECTOR:
        if element.is_half:
            return f"vstorea_half4_rte({value}, ({start}) / 4, dst);"
        vector = element.from_value(value, "4")
        return f"*(__global {element.memory}4 *)(dst + ({start})) = {vector};"
    if element.is_raw and len(pattern.lanes) == 1:
        return f"dst[{start}] = {value};"
    return " ".join(
        element.store("dst", _lane("dst", start, k), f"{value}.s{k}")
        for k in range(len(pattern.lanes))
    )


def _pixel_coords(operand: str, steps: tuple[int, ...]) -> str:
    return f"(int2)({_coord(operand, steps, 'x')}, {_coord(operand, steps, 'y')})"


def _coord(operand: str, steps: tuple[int, ...], coord: str = "offset") -> str:
    """Return the offset, the column or the row of some steps."""
    infix = "" if coord == "offset" else f"_{coord}"
    moved = [
        f"({step} << p.shift{k}) * p.{operand}{infix}{k}" for k, step in enumerate(steps) if step
    ]
    expression = " + ".join([f"{operand}_{coord}", *moved])
    return expression if coord == "offset" or not moved else f"(int)({expression})"


def _load_lanes(
    pattern: Pattern, conversion: KernelFormula, value: str, start: Callable[[str], str]
) -> Iterator[str]:
    """Return the statements that load and convert the lanes of a pixel into a value.

    `start` returns the offset of the first lane in an operand, or its column and row.
    """
    reads_image = pattern.src.kind == AccessKind.IMAGE
    if reads_image:
        element = pattern.src.element
        pixel = f"read_image{element.image_suffix}(src, {pattern.src.pixel(start('src'))})"
        yield f"const {element.value}4 pixel = {pixel};"
    src_bits, dst_bits = conversion.widths
    if pattern.src.kind == AccessKind.VECTOR:
        yield "uint x0, x1, x2, x3;"
        yield from load_words("src", start("src"), src_bits, [f"x{k}" for k in range(4)])
    for k, lane in enumerate(pattern.lanes):
        if lane < 0:
            continue
        if reads_image:
            code = code_of_lane(pattern.src, f"pixel.s{lane}")
        elif pattern.src.kind == AccessKind.VECTOR:
            code = f"x{k}"
        else:
            code = one_element("src", _lane("src", start("src"), k), src_bits)

        def operand(role: str, k: int = k) -> str:
            at = _lane(role, start(role), k) if role in conversion.varying else ""
            return conversion.operand_value(role, at)

        old = ""
        if BETA in conversion.roles:
            first = start("dst")
            is_vector = pattern.dst.kind == AccessKind.VECTOR
            at = f"{first} + {k}" if is_vector else _lane("dst", first, k)
            old = one_element("dst", at, dst_bits)
        result = conversion.converted(code, operand, old)
        if pattern.dst.kind == AccessKind.IMAGE:
            result = lane_of_code(pattern.dst, conversion.dst, result)
        yield f"{value}.s{k} = {result};"


def _store_lanes(
    pattern: Pattern, conversion: KernelFormula, value: str, start: str
) -> Iterator[str]:
    """Return the statements that store the bits of the lanes of a value in a buffer."""
    _, bits = conversion.widths
    lanes = [f"{value}.s{k}" for k in range(len(pattern.lanes))]
    if pattern.dst.kind == AccessKind.VECTOR:
        yield from store_words("dst", start, bits, lanes)
        return
    for k, lane in enumerate(lanes):
        yield store_element("dst", _lane("dst", start, k), bits, lane)


def _lane(operand: str, start: str, k: int) -> str:
    return f"{start} + p.{operand}_lane{k}" if k else start
