"""Kernel statements that load the lanes of one work item into a vector, and store them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.element_types import ELEMENT_TYPES, from_value, to_value
from reorder.opencl.codegen.lanes import load_lanes, store_lanes
from reorder.opencl.codegen.pattern import AccessKind

if TYPE_CHECKING:
    from reorder.opencl.codegen.pattern import Pattern

__all__ = ["load", "store"]

_IN_ORDER = (0, 1, 2, 3)


def load(pattern: Pattern, value: str, steps: tuple[int, ...]) -> str:
    """Return the statement that loads the lanes of some steps into a value."""
    if pattern.conversion is not None:

        def first(operand: str) -> str:
            is_image = operand == "src" and pattern.src.kind == AccessKind.IMAGE
            return _pixel_coords(operand, steps) if is_image else _coord(operand, steps)

        return " ".join(load_lanes(pattern, pattern.conversion, value, first))
    if pattern.src.kind == AccessKind.IMAGE:
        return _load_pixel(pattern, value, steps)
    element = ELEMENT_TYPES[pattern.src.element]
    start = _coord("src", steps)
    if pattern.src.kind == AccessKind.VECTOR:
        if element.memory == "half":
            return f"{value} = vloada_half4(({start}) / 4, src);"
        vector = f"*(__global const {element.memory}4 *)(src + ({start}))"
        return f"{value} = {to_value(pattern.src.element, vector, '4')};"
    if element.is_raw and len(pattern.lanes) == 1:
        return f"{value} = src[{start}];"
    loads = []
    for k, lane in enumerate(pattern.lanes):
        if lane >= 0:
            offset = start + (f" + p.src_lane{k}" if k else "")
            is_half = element.memory == "half"
            scalar = f"vload_half({offset}, src)" if is_half else f"src[{offset}]"
            loads.append(f"{value}.s{k} = {to_value(pattern.src.element, scalar, '')};")
    return " ".join(loads)


def _load_pixel(pattern: Pattern, value: str, steps: tuple[int, ...]) -> str:
    element = ELEMENT_TYPES[pattern.src.element]
    pixel = f"read_image{element.image_suffix}(src, {_pixel_coords('src', steps)})"
    if pattern.dst.kind == AccessKind.IMAGE or pattern.lanes == _IN_ORDER:
        if pattern.lanes in {_IN_ORDER, (0,)}:
            return f"{value} = {pixel};"
        cleared = [f"{value}.s{k} = 0;" for k, lane in enumerate(pattern.lanes) if lane < 0]
        return f"{value} = {pixel}; {' '.join(cleared)}"
    lanes = [f"{value}.s{k} = pixel.s{lane};" for k, lane in enumerate(pattern.lanes) if lane >= 0]
    return f"const {element.value}4 pixel = {pixel}; {' '.join(lanes)}"


def store(pattern: Pattern, value: str, steps: tuple[int, ...]) -> str:
    """Return the statement that stores the lanes of a value to some steps."""
    element = ELEMENT_TYPES[pattern.dst.element]
    if pattern.dst.kind == AccessKind.IMAGE:
        coords = _pixel_coords("dst", steps)
        return f"write_image{element.image_suffix}(dst, {coords}, {value});"
    start = _coord("dst", steps)
    if pattern.conversion is not None:
        return " ".join(store_lanes(pattern, pattern.conversion, value, start))
    if pattern.dst.kind == AccessKind.VECTOR:
        if element.memory == "half":
            return f"vstorea_half4_rte({value}, ({start}) / 4, dst);"
        vector = from_value(pattern.dst.element, value, "4")
        return f"*(__global {element.memory}4 *)(dst + ({start})) = {vector};"
    if element.is_raw and len(pattern.lanes) == 1:
        return f"dst[{start}] = {value};"
    stores = []
    for k in range(len(pattern.lanes)):
        offset = start + (f" + p.dst_lane{k}" if k else "")
        if element.memory == "half":
            stores.append(f"vstore_half_rte({value}.s{k}, {offset}, dst);")
        else:
            scalar = from_value(pattern.dst.element, f"{value}.s{k}", "")
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
