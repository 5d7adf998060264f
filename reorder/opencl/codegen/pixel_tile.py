"""A kernel body that moves tiles between a buffer and an image through local memory.

Work items move vectors along the runs of the buffer, and pixels in the order in which the image
stores them: devices keep small rectangles of an image together.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.opencl.codegen.convert import converted, operand_value
from reorder.opencl.codegen.element_types import ELEMENT_TYPES, from_value, memory_type, to_value
from reorder.opencl.codegen.indices import index_lines, start_lines
from reorder.opencl.codegen.lanes import code_of_lane, lane_of_code
from reorder.opencl.codegen.pattern import AccessKind
from reorder.opencl.codegen.pixels import LANES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.conversion import Conversion
    from reorder.opencl.codegen.pattern import Pattern
    from reorder.opencl.codegen.pixels import PixelTile

__all__ = ["pixel_tile_lines"]

# what counts the steps that may be accessed: src has data there, dst is written there
_COUNTED = {"src": "valid", "dst": "extent"}

_VECTORS = {4: "uint", 8: "uint2", 16: "uint4"}


def pixel_tile_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: all loads of a work item, its stores to local memory, then those to dst."""
    tile = _tile(pattern)
    packs = pattern.dst.kind == AccessKind.IMAGE
    yield f"__local uint4 tile[{tile.local_vectors}];"
    yield from index_lines(pattern)
    yield from start_lines(pattern, "src", pattern.src)
    yield from start_lines(pattern, "dst", pattern.dst)
    # src has data there; a tile starts inside of dst
    alone = [f"i{k} < p.valid{k}" for k, extent in enumerate(tile.extents) if extent == 1]
    vectors = _parts(tile.vectors, pattern.work_items)
    pixels = _parts(tile.pixels, pattern.work_items)
    if packs:
        yield _run_line(tile, "valid")
        for s in vectors:
            yield from _vector_lines(pattern, s, "src", alone)
            yield f"{_kind(tile)} v{s} = ({_kind(tile)})(0);"
            place = f"(__global const {_kind(tile)} *)(src + from{s})"
            yield f"if (inside{s}) v{s} = *{place};"
        for s in vectors:
            store = f"*(__local {_kind(tile)} *)((__local uchar *)tile + at{s}) = v{s};"
            yield _within(f"n{s}", tile.vectors, pattern.work_items, store)
        yield "barrier(CLK_LOCAL_MEM_FENCE);"
        for s in pixels:
            yield "{"
            yield from _pixel_lines(pattern, s, "dst", [])
            suffix = ELEMENT_TYPES[pattern.dst.element].image_suffix
            value = _loaded(pattern, s)
            yield f"if (inside{s}) write_image{suffix}(dst, (int2)(x{s}, y{s}), {value});"
            yield "}"
        return
    value = f"{ELEMENT_TYPES[pattern.src.element].value}4"
    suffix = ELEMENT_TYPES[pattern.src.element].image_suffix
    for s in pixels:
        yield from _pixel_lines(pattern, s, "src", alone)
        yield f"{value} v{s} = ({value})(0);"
        read = f"read_image{suffix}(src, (int2)(x{s}, y{s}))"
        yield f"if (inside{s}) v{s} = {read};"
    for s in pixels:
        yield _within(f"n{s}", tile.pixels, pattern.work_items, f"{{ {_stored(pattern, s)} }}")
    yield "barrier(CLK_LOCAL_MEM_FENCE);"
    yield _run_line(tile, "extent")
    for s in vectors:
        yield "{"
        yield from _vector_lines(pattern, s, "dst", [])
        local = f"*(__local const {_kind(tile)} *)((__local uchar *)tile + at{s})"
        yield f"if (inside{s}) *(__global {_kind(tile)} *)(dst + from{s}) = {local};"
        yield "}"


def _tile(pattern: Pattern) -> PixelTile:
    assert pattern.pixel_tile is not None  # noqa: S101 - for the type checker
    return pattern.pixel_tile


def _parts(total: int, work_items: int) -> range:
    return range(-(-total // work_items))


def _kind(tile: PixelTile) -> str:
    """Return the type of a vector."""
    return _VECTORS[tile.vector]


def _within(number: str, total: int, work_items: int, statement: str) -> str:
    return statement if total % work_items == 0 else f"if ({number} < {total}u) {statement}"


def _run_line(tile: PixelTile, counted: str) -> str:
    """Return the elements of a run that hold data, or that are inside."""
    *lower, top = tile.run
    steps = (
        "4"
        if top == LANES
        else f"(int)min((index_t){tile.extents[top]}, p.{counted}{top} - i{top})"
    )
    return f"const int run = {steps} * {prod(map(tile.steps, lower))};"


def _vector_lines(pattern: Pattern, s: int, operand: str, conditions: list[str]) -> Iterator[str]:
    """Return where vector s of a work item is in the buffer, and in local memory."""
    tile = _tile(pattern)
    strides = tile.local_strides
    yield f"const uint n{s} = get_local_id(0) + {s * pattern.work_items}u;"
    yield f"const int r{s} = (int)(n{s} % {tile.chunks}u) * {tile.lanes};"
    counted = _COUNTED[operand]
    offset, local = [f"{operand}_offset", f"r{s}"], [f"r{s} * {tile.nbytes}"]
    inside = [*conditions, f"r{s} < run"]
    if tile.vectors % pattern.work_items:
        inside.append(f"n{s} < {tile.vectors}u")
    step = tile.chunks
    for k in tile.rest:
        name = "lane" if k == LANES else f"u{k}"
        yield f"const int {name}_{s} = (int)(n{s} / {step}u % {tile.steps(k)}u);"
        step *= tile.steps(k)
        stride = f"p.{operand}_lane1" if k == LANES else f"p.{operand}{k}"
        offset.append(f"{name}_{s} * {stride}")
        local.append(f"{name}_{s} * {strides[k]}")
        if k != LANES:
            inside.append(f"i{k} + {name}_{s} < p.{counted}{k}")
    yield f"const index_t from{s} = {' + '.join(offset)};"
    yield f"const int at{s} = {' + '.join(local)};"
    yield f"const int inside{s} = {' && '.join(inside)};"


def _pixel_lines(pattern: Pattern, s: int, operand: str, conditions: list[str]) -> Iterator[str]:
    """Return where pixel s of a work item is in the image, and in local memory."""
    tile = _tile(pattern)
    yield f"const uint n{s} = get_local_id(0) + {s * pattern.work_items}u;"
    digits: dict[int, list[str]] = {}
    scales: dict[int, int] = {}
    step = 1
    for k, steps in tile.order:
        scale = scales.get(k, 1)
        digit = f"(int)(n{s} / {step}u % {steps}u)"
        digits.setdefault(k, []).append(f"{digit} * {scale}" if scale > 1 else digit)
        scales[k] = scale * steps
        step *= steps
    for k, terms in digits.items():
        yield f"const int t{k}_{s} = {' + '.join(terms)};"
    for c in "xy":
        terms = [f"{operand}_{c}", *(f"t{k}_{s} * p.{operand}_{c}{k}" for k in digits)]
        yield f"const int {c}{s} = (int)({' + '.join(terms)});"
    strides = tile.local_strides
    local = " + ".join(f"t{k}_{s} * {strides[k]}" for k in digits)
    yield f"const int at{s} = {local or '0'};"
    counted = _COUNTED[operand]
    inside = [*conditions, *(f"i{k} + t{k}_{s} < p.{counted}{k}" for k in digits)]
    if tile.pixels % pattern.work_items:
        inside.append(f"n{s} < {tile.pixels}u")
    yield f"const int inside{s} = {' && '.join(inside) or '1'};"


def _loaded(pattern: Pattern, s: int) -> str:
    """Return a pixel in local memory as a value."""
    tile = _tile(pattern)
    name = pattern.src.element
    memory = memory_type(pattern.src)
    kind = f"{ELEMENT_TYPES[pattern.dst.element].value}4"
    vector = f"*(__local const {memory}4 *)((__local uchar *)tile + at{s})"
    if tile.has_whole_pixels and pattern.conversion is None:
        if memory == "half":
            return f"vloada_half4(0, (__local const half *)((__local uchar *)tile + at{s}))"
        return to_value(name, vector, "4")
    stride = tile.local_strides[LANES]
    lanes = []
    for lane in range(tile.steps(LANES)):
        place = f"(__local const {memory} *)((__local uchar *)tile + at{s} + {lane * stride})"
        if pattern.conversion is not None:
            code = f"({vector}).s{lane}" if tile.has_whole_pixels else f"*{place}"
            result = _converted(pattern.conversion, f"(uint){code}")
            lanes.append(lane_of_code(pattern.dst.element, pattern.conversion.dst, result))
            continue
        element = f"vload_half(0, {place})" if memory == "half" else f"*{place}"
        lanes.append(to_value(name, element, ""))
    return f"({kind})({', '.join(lanes)})"


def _stored(pattern: Pattern, s: int) -> str:
    """Return the statements that store a value as a pixel in local memory."""
    tile = _tile(pattern)
    name = pattern.dst.element
    memory = memory_type(pattern.dst)
    place = f"((__local uchar *)tile + at{s})"
    stride = tile.local_strides[LANES]
    lanes = [f"v{s}.s{lane}" for lane in range(tile.steps(LANES))]
    if pattern.conversion is not None:
        codes = [code_of_lane(pattern.src.element, lane) for lane in lanes]
        lanes = [f"({memory})({_converted(pattern.conversion, code)})" for code in codes]
        if tile.has_whole_pixels:
            return f"*(__local {memory}4 *){place} = ({memory}4)({', '.join(lanes)});"
    elif tile.has_whole_pixels:
        if memory == "half":
            return f"vstorea_half4_rte(v{s}, 0, (__local half *){place});"
        return f"*(__local {memory}4 *){place} = {from_value(name, f'v{s}', '4')};"
    stores = []
    for k, lane in enumerate(lanes):
        place = f"(__local {memory} *)((__local uchar *)tile + at{s} + {k * stride})"
        if memory == "half":
            stores.append(f"vstore_half_rte({lane}, 0, {place});")
        else:
            value = lane if pattern.conversion is not None else from_value(name, lane, "")
            stores.append(f"*{place} = {value};")
    return " ".join(stores)


def _converted(conversion: Conversion, code: str) -> str:
    """Return the bits of dst, from those of src; no operand varies."""
    return converted(conversion, code, lambda role: operand_value(conversion, role, ""))
