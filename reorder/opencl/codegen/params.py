"""What kernel texts share: names of types and numbers, and where a work item stands.

All numbers of a kernel come as one struct by value, in the order that `fields` returns,
so that a kernel serves every size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.pattern import Pattern, Space

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Access

__all__ = ["ELEMENTS", "element_type", "fields", "place_lines", "value_type", "when"]

# element: type in a buffer, type of a value, suffix of the image functions
ELEMENTS = {
    "f32": ("float", "float", "f"),
    "f16": ("half", "float", "f"),
    "s32": ("int", "int", "i"),
    "s8": ("char", "int", "i"),
    "u8": ("uchar", "uint", "ui"),
    "unorm8": ("uchar", "float", "f"),
    "b8": ("uchar", "uchar", ""),
    "b16": ("ushort", "ushort", ""),
    "b32": ("uint", "uint", ""),
    "b64": ("ulong", "ulong", ""),
    "b128": ("uint4", "uint4", ""),
}


def fields(pattern: Pattern) -> list[str]:
    """Return the names of a kernel's numbers, in the order in which it takes them."""
    names: list[str] = []
    for side, access in (("src", pattern.src), ("dst", pattern.dst)):
        names += (
            [f"{side}_x", f"{side}_y"]
            if access.space == Space.IMAGE
            else [side] * (access.space != Space.NOWHERE)
        )
        if access.space == Space.BUFFER:
            names += [f"{side}_lane{k}" for k in range(1, len(pattern.lanes))]
    for k in range(len(pattern.loops)):
        names += [f"extent{k}", f"valid{k}", f"shift{k}"] + [f"groups{k}"] * (
            not _is_last(pattern, k)
        )
        for side, access in (("src", pattern.src), ("dst", pattern.dst)):
            names += _stride_names(side, access, k)
    for k, lookup in enumerate(pattern.lookups):
        names += [f"look{k}_extent", f"look{k}_shift", f"look{k}_groups"]
        names += [f"look{k}_size{dim}" for dim in lookup.dims]
        for side, axes in (("src", lookup.src), ("dst", lookup.dst)):
            for j, (_, blocks) in enumerate(axes):
                names += [f"look{k}_{side}{j}_padded"]
                names += [
                    f"look{k}_{side}{j}_{what}{b}"
                    for b in range(blocks)
                    for what in ("step", "extent", "stride")
                ]
    return names


def _stride_names(side: str, access: Access, k: int) -> list[str]:
    if access.space == Space.IMAGE:
        return [f"{side}_x{k}", f"{side}_y{k}"]
    return [f"{side}{k}"] if access.space != Space.NOWHERE else []


def value_type(pattern: Pattern) -> str:
    """Return the type of what an item moves, without the number of its lanes."""
    return ELEMENTS[
        pattern.dst.element if pattern.src.space == Space.NOWHERE else pattern.src.element
    ][1]


def element_type(access: Access) -> str:
    """Return the type of an element in a buffer."""
    return ELEMENTS[access.element][0]


def when(conditions: list[str], statement: str) -> str:
    """Return a statement under conditions, of which there may be none."""
    return f"if ({' && '.join(conditions)}) {statement}" if conditions else statement


def place_lines(pattern: Pattern) -> Iterator[str]:
    """Return where along each loop a work item stands: i0, i1, ... and l0, l1, ... along lookups."""
    yield "uint item = get_local_id(0);"
    for axis in sorted({loop.axis for loop in pattern.loops} | ({0} if pattern.lookups else set())):
        yield f"uint group{axis} = get_group_id({axis});"
    for k, loop in enumerate(pattern.loops):
        is_last = _is_last(pattern, k)
        group = f"group{loop.axis}" if is_last else f"group{loop.axis} % (uint)n.groups{k}"
        start = f"(((index)({group}){f' * {loop.steps}' if loop.steps > 1 else ''}) << n.shift{k})"
        yield f"const index i{k} = {start} + (index)(item & ((1u << n.shift{k}) - 1));"
        yield f"item >>= n.shift{k};"
        if not is_last:
            yield f"group{loop.axis} /= (uint)n.groups{k};"
    for k in range(len(pattern.lookups)):
        is_last = k == len(pattern.lookups) - 1
        group = "group0" if is_last else f"group0 % (uint)n.look{k}_groups"
        yield f"const index l{k} = ((index)({group}) << n.look{k}_shift) + (index)(item & ((1u << n.look{k}_shift) - 1));"
        yield f"item >>= n.look{k}_shift;"
        if not is_last:
            yield f"group0 /= (uint)n.look{k}_groups;"


def _is_last(pattern: Pattern, k: int) -> bool:
    """Whether no loop or lookup after a loop shares its dimension of the grid."""
    axis = pattern.loops[k].axis
    return all(other.axis != axis for other in pattern.loops[k + 1 :]) and not (
        pattern.lookups and axis == 0
    )
