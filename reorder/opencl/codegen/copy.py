"""A kernel body in which each work item moves a pixel, or an element, from where it lies to where it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.params import ELEMENTS, place_lines, value_type, when
from reorder.opencl.codegen.pattern import Space

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Access, LookupShape, Pattern

__all__ = ["move_lines"]


def move_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: each item moves its steps, all reads before all writes."""
    yield from place_lines(pattern)
    outside = [f"i{k} >= n.extent{k}" for k, loop in enumerate(pattern.loops) if loop.steps == 1]
    outside += [f"l{k} >= n.look{k}_extent" for k in range(len(pattern.lookups))]
    if outside:
        yield f"if ({' || '.join(outside)}) return;"
    for k, lookup in enumerate(pattern.lookups):
        yield from _lookup_lines(k, lookup, reads=pattern.src.space != Space.NOWHERE)
    for side, access in (("src", pattern.src), ("dst", pattern.dst)):
        yield from _start_lines(pattern, side, access)
    # all reads stand before all writes, so that they are under way together
    steps = list(_steps(pattern))
    # raw bits move alone, values as vectors like those of images
    kind = value_type(pattern) + "4" * bool(ELEMENTS[pattern.dst.element][2])
    for number, at in enumerate(steps):
        yield f"{kind} v{number} = ({kind})(0);"
        if pattern.src.space != Space.NOWHERE:
            yield when(_valid(pattern, at), f"{{ {_load(pattern, number, at)} }}")
    for number, at in enumerate(steps):
        yield when(_inside(pattern, at), f"{{ {_store(pattern, number, at)} }}")


def _lookup_lines(k: int, lookup: LookupShape, *, reads: bool) -> Iterator[str]:
    """Return the offsets of a step: the definition of a layout, digit by digit."""
    name = f"n.look{k}"
    yield f"index rest{k} = l{k}; index look{k}_src = 0, look{k}_dst = 0; int is_data{k} = 1;"
    for dim in lookup.dims:
        yield f"index at{k}_{dim} = 0;"
    for j in reversed(range(len(lookup.dst))):
        dims, blocks = lookup.dst[j]
        own = f"a{k}_{j}"
        yield f"index {own} = rest{k} % {name}_dst{j}_padded; rest{k} /= {name}_dst{j}_padded;"
        yield f"look{k}_dst += {_digits(own, f'{name}_dst{j}', blocks)};"
        yield f"is_data{k} &= {own} < {' * '.join(f'{name}_size{dim}' for dim in dims)};"
        for dim in reversed(dims):
            yield f"at{k}_{dim} = {own} % {name}_size{dim}; {own} /= {name}_size{dim};"
    if reads:
        for j, (dims, blocks) in enumerate(lookup.src):
            own = f"b{k}_{j}"
            yield f"index {own} = 0;"
            for dim in dims:
                yield f"{own} = {own} * {name}_size{dim} + at{k}_{dim};"
            yield f"look{k}_src += {_digits(own, f'{name}_src{j}', blocks)};"


def _digits(index: str, name: str, blocks: int) -> str:
    # the outermost block, which comes first, has no modulus
    parts = [
        f"{index} / {name}_step{b}{f' % {name}_extent{b}' if b else ''} * {name}_stride{b}"
        for b in range(blocks)
    ]
    return " + ".join(parts)


def _start_lines(pattern: Pattern, side: str, access: Access) -> Iterator[str]:
    """Return where the first step of an item lies."""
    loops = range(len(pattern.loops))
    if access.space == Space.IMAGE:
        for c in "xy":
            terms = [f"n.{side}_{c}", *(f"i{k} * n.{side}_{c}{k}" for k in loops)]
            yield f"const int {side}_{c} = (int)({' + '.join(terms)});"
    elif access.space != Space.NOWHERE:
        terms = [
            f"n.{side}",
            *(f"i{k} * n.{side}{k}" for k in loops),
            *(f"look{k}_{side}" for k in range(len(pattern.lookups))),
        ]
        yield f"const index {side}_at = {' + '.join(terms)};"


def _steps(pattern: Pattern) -> Iterator[tuple[int, ...]]:
    """Return the steps of an item as multiples of the tiles."""
    positions: list[tuple[int, ...]] = [()]
    for loop in pattern.loops:
        positions = [(*position, step) for position in positions for step in range(loop.steps)]
    yield from positions


def _inside(pattern: Pattern, at: tuple[int, ...]) -> list[str]:
    """Return the conditions that a step is one of the box; items without any step have left already."""
    return [
        f"{_index(k, step)} < n.extent{k}"
        for k, step in enumerate(at)
        if pattern.loops[k].steps > 1
    ]


def _valid(pattern: Pattern, at: tuple[int, ...]) -> list[str]:
    """Return the conditions that a step holds data."""
    return [f"{_index(k, step)} < n.valid{k}" for k, step in enumerate(at)] + [
        f"is_data{k}" for k in range(len(pattern.lookups))
    ]


def _index(k: int, step: int) -> str:
    return f"i{k} + ({step} << n.shift{k})" if step else f"i{k}"


def _at(side: str, at: tuple[int, ...], c: str = "at") -> str:
    """Return the place of a step: an offset, or a column or row."""
    infix = "" if c == "at" else f"_{c}"
    moved = [f"({step} << n.shift{k}) * n.{side}{infix}{k}" for k, step in enumerate(at) if step]
    place = " + ".join([f"{side}_{c}", *moved])
    return place if c == "at" or not moved else f"(int)({place})"


def _pixel(side: str, at: tuple[int, ...]) -> str:
    return f"(int2)({_at(side, at, 'x')}, {_at(side, at, 'y')})"


def _load(pattern: Pattern, number: int, at: tuple[int, ...]) -> str:
    access = pattern.src
    element, kind, suffix = ELEMENTS[access.element]
    v = f"v{number}"
    if access.space == Space.IMAGE:
        pixel = f"read_image{suffix}(src, {_pixel('src', at)})"
        if pattern.dst.space == Space.IMAGE or pattern.lanes == (0, 1, 2, 3):
            return (
                f"{v} = {pixel};"
                if pattern.lanes in {(0, 1, 2, 3), (0,)}
                else f"{v} = {pixel}; {_cleared(pattern, v)}"
            )
        parts = [f"{v}.s{k} = p.s{lane};" for k, lane in enumerate(pattern.lanes) if lane >= 0]
        return f"const {kind}4 p = {pixel}; {' '.join(parts)}"
    place = _at("src", at)
    if access.space == Space.VECTOR:
        if element == "half":
            return f"{v} = vloada_half4(({place}) / 4, src);"
        vector = f"*(__global const {element}4 *)(src + ({place}))"
        return f"{v} = {_to_value(access.element, vector, '4')};"
    if suffix == "" and len(pattern.lanes) == 1:
        return f"{v} = src[{place}];"
    loads = []
    for k, lane in enumerate(pattern.lanes):
        if lane >= 0:
            offset = place + (f" + n.src_lane{k}" if k else "")
            scalar = f"vload_half({offset}, src)" if element == "half" else f"src[{offset}]"
            loads.append(f"{v}.s{k} = {_to_value(access.element, scalar, '')};")
    return " ".join(loads)


def _cleared(pattern: Pattern, v: str) -> str:
    return " ".join(f"{v}.s{k} = 0;" for k, lane in enumerate(pattern.lanes) if lane < 0)


def _to_value(element: str, text: str, width: str) -> str:
    if element == "unorm8":
        return f"convert_float{width}({text}) / 255.0f"
    memory, kind, _ = ELEMENTS[element]
    return text if memory in (kind, "half") else f"convert_{kind}{width}({text})"


def _store(pattern: Pattern, number: int, at: tuple[int, ...]) -> str:
    access = pattern.dst
    element, _, suffix = ELEMENTS[access.element]
    v = f"v{number}"
    if access.space == Space.IMAGE:
        return f"write_image{suffix}(dst, {_pixel('dst', at)}, {v});"
    place = _at("dst", at)
    if access.space == Space.VECTOR:
        if element == "half":
            return f"vstorea_half4_rte({v}, ({place}) / 4, dst);"
        return f"*(__global {element}4 *)(dst + ({place})) = {_from_value(access.element, v, '4')};"
    if suffix == "" and len(pattern.lanes) == 1:
        return f"dst[{place}] = {v};"
    stores = []
    for k in range(len(pattern.lanes)):
        offset = place + (f" + n.dst_lane{k}" if k else "")
        scalar = f"{v}.s{k}"
        is_half = element == "half"
        stores.append(
            f"vstore_half_rte({scalar}, {offset}, dst);"
            if is_half
            else f"dst[{offset}] = {_from_value(access.element, scalar, '')};"
        )
    return " ".join(stores)


def _from_value(element: str, text: str, width: str) -> str:
    if element == "unorm8":
        return f"convert_uchar{width}_sat_rte({text} * 255.0f)"
    memory, kind, _ = ELEMENTS[element]
    return text if memory == kind else f"convert_{memory}{width}({text})"
