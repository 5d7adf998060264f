"""A family of kernels in which each work item copies pixels or elements, without local memory.

It lowers every nest, and converts between an image and a buffer, or two images.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from reorder.opencl.kernel.access import (
    AccessKind,
    code_of_lane,
    lane_of_code,
    load_words,
    one_element,
    store_element,
    store_words,
)
from reorder.opencl.kernel.conversion import (
    BETA,
    Conversion,
    code_type,
    converted,
    operand_value,
)
from reorder.opencl.kernel.launch import Body, Pattern, divided, make_launch
from reorder.opencl.kernel.statements import gather_lines, guarded, index_lines, start_lines
from reorder.opencl.kernel.workgroups import choose_work_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reorder.opencl.kernel.access import Access
    from reorder.opencl.kernel.launch import Launch, Task
    from reorder.opencl.kernel.placement import Nest

__all__ = ["Copy", "try_lower"]

_IN_ORDER = (0, 1, 2, 3)
_WORD = 32


def try_lower(task: Task) -> tuple[Launch, ...]:
    """Make the launch of a nest."""
    nest, conversion, is_aligned = task.nest, task.conversion, task.is_aligned
    reads_image = task.accesses[0].kind == AccessKind.IMAGE
    if nest.is_zero:
        # zeros only move, without scales and zero points
        zeros = tuple(lane._replace(is_valid=False, others=()) for lane in nest.lanes)
        loops = tuple(loop._replace(others=()) for loop in nest.loops)
        nest = nest._replace(src=(), lanes=zeros, loops=loops, others=())
        if conversion is not None:
            halves = conversion.writes_halves
            conversion = Conversion(conversion.dst, conversion.dst, writes_halves=halves)
    if conversion is not None:
        # a vector has four elements, of at most 128 bits
        is_aligned = is_aligned and max(conversion.widths) <= _WORD
    src, dst = (
        _with_kind(nest, k, access, is_aligned=is_aligned) for k, access in enumerate(task.accesses)
    )
    device = task.device
    group = choose_work_group(nest, (src, dst), dst.bits, device.max_work_items, device.profile)
    lanes = tuple(
        (lane.src if reads_image else k) if lane.is_valid else -1
        for k, lane in enumerate(nest.lanes)
    )
    pattern = Pattern(src, dst, Copy(), group.work_items, conversion, lanes)
    loops = group.loops
    divisions = [
        divided(loop.extent, shift, steps)
        for loop, shift, steps in zip(loops, group.shifts, group.steps, strict=True)
    ]
    nest = nest._replace(loops=loops)
    return (make_launch(nest, pattern, divisions, task.numbers, group.gather_shift),)


def _with_kind(nest: Nest, operand: int, access: Access, *, is_aligned: bool) -> Access:
    """Return an access with the final kind: `NONE` or `VECTOR` where that applies."""
    if operand == 0 and nest.is_zero:
        return access._replace(kind=AccessKind.NONE)
    if access.kind == AccessKind.BUFFER and is_aligned and _is_vector(nest, operand):
        return access._replace(kind=AccessKind.VECTOR)
    return access


def _is_vector(nest: Nest, operand: int) -> bool:
    """Whether the lanes of an operand are 4 contiguous elements that start at multiples of 4."""
    lanes = [lane[operand] for lane in nest.lanes]
    if lanes != [0, 1, 2, 3] or (operand == 0 and not all(lane.is_valid for lane in nest.lanes)):
        return False
    start = (nest.src, nest.dst)[operand]
    strides = [(loop.src, loop.dst)[operand] for loop in nest.loops]
    return not nest.gathers and all(
        number % 4 == 0 for coords in (start, *strides) for number in coords
    )


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
        outside += [f"g{k} >= p.gather{k}_extent" for k in range(len(pattern.gathers))]
        if outside:
            yield f"if ({' || '.join(outside)}) return;"
        for k, gather in enumerate(pattern.gathers):
            yield from gather_lines(k, gather, reads=reads)
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
            kind = f"{code_type(pattern.conversion.dst)}4"
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
    """Return the conditions that steps are within their extents, without those tested before."""
    return [
        f"{_index(k, step)} < p.extent{k}"
        for k, step in enumerate(steps)
        if pattern.loops[k].steps > 1
    ]


def _is_data(pattern: Pattern, steps: tuple[int, ...]) -> list[str]:
    """Return the conditions that steps hold data."""
    return [
        *(f"{_index(k, step)} < p.valid{k}" for k, step in enumerate(steps)),
        *(f"is_data{k}" for k in range(len(pattern.gathers))),
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
    loads = []
    for k, lane in enumerate(pattern.lanes):
        if lane >= 0:
            offset = start + (f" + p.src_lane{k}" if k else "")
            scalar = f"vload_half({offset}, src)" if element.is_half else f"src[{offset}]"
            loads.append(f"{value}.s{k} = {element.to_value(scalar, '')};")
    return " ".join(loads)


def _load_pixel(pattern: Pattern, value: str, steps: tuple[int, ...]) -> str:
    element = pattern.src.element
    pixel = f"read_image{element.image_suffix}(src, {_pixel_coords('src', steps)})"
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
        coords = _pixel_coords("dst", steps)
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
    stores = []
    for k in range(len(pattern.lanes)):
        offset = start + (f" + p.dst_lane{k}" if k else "")
        if element.is_half:
            stores.append(f"vstore_half_rte({value}.s{k}, {offset}, dst);")
        else:
            scalar = element.from_value(f"{value}.s{k}", "")
            stores.append(f"dst[{offset}] = {scalar};")
    return " ".join(stores)


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
    pattern: Pattern, conversion: Conversion, value: str, start: Callable[[str], str]
) -> Iterator[str]:
    """Return the statements that load and convert the lanes of a pixel into a value.

    `start` returns the offset of the first lane in an operand, or its column and row.
    """
    reads_image = pattern.src.kind == AccessKind.IMAGE
    if reads_image:
        element = pattern.src.element
        pixel = f"read_image{element.image_suffix}(src, {start('src')})"
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
            return operand_value(conversion, role, at)

        old = ""
        if BETA in conversion.roles:
            first = start("dst")
            is_vector = pattern.dst.kind == AccessKind.VECTOR
            at = f"{first} + {k}" if is_vector else _lane("dst", first, k)
            old = one_element("dst", at, dst_bits)
        result = converted(conversion, code, operand, old)
        if pattern.dst.kind == AccessKind.IMAGE:
            result = lane_of_code(pattern.dst, conversion.dst, result)
        yield f"{value}.s{k} = {result};"


def _store_lanes(pattern: Pattern, conversion: Conversion, value: str, start: str) -> Iterator[str]:
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
