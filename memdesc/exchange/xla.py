"""XLA's shapes with layouts, `bf16[64,32]{1,0:T(8,128)(2,1)}`.

`{1,0}` lists the dims, most minor first. A tile `T(t1,..,tn)` replaces the last n physical dims d
by ceil(d / t) and appends n dims of sizes t; a further tile divides the last dims of the result. In
a tile, `*` joins a dim with the next more minor one. Sources: OpenXLA,
`docs/tiled_layout.md` and `xla/layout.h`; jaxlib 0.8 parses and prints the same strings.
"""

from __future__ import annotations

import re

from memdesc.desc import MemoryDesc, memory_desc
from memdesc.errors import excerpt
from memdesc.exchange.system import XLA_TYPES, Given, System, impossible, integers, tag_of, unclear
from memdesc.layout import dim_name
from memdesc.tags import Digit, FormatTag, tag_of_digits

# a physical dim as a digit: dims indexed as one, its step, and its extent, 0 if it is unbounded
_Physical = tuple[tuple[int, ...], int, int]


def _check_tag(desc: MemoryDesc, tag: FormatTag) -> None:
    """Refuse what tiles cannot express: blocks outside whole dims."""
    steps: dict[int, int] = {}
    has_inner = False
    for axis, step, extent in tag.digits:
        name = dim_name(tag.axes[axis][0], desc.letters)
        if bool(extent) != (axis in steps):
            impossible(f"a block of {name} is outside its whole blocks")
        if step > steps.get(axis, step):
            impossible(f"the blocks of {name} are swizzled, and a tile nests them")
        if not extent and has_inner:
            impossible(f"{name} is inside the blocks of another dim")
        steps[axis] = step
        has_inner = has_inner or extent > 0


def _tiles_of(tag: FormatTag, outer: list[int]) -> list[list[str]]:
    """Return the tiles of a tag whose outer digits are in this order, outermost first.

    The first is a tile of all blocks, and further ones are inside it. Consecutive blocks that are
    in the physical order of their dims are made by one tile.
    """
    place = {axis: k for k, axis in enumerate(outer)}
    runs: list[list[Digit]] = []
    for digit in tag.digits[len(outer) :]:
        if not runs or place[digit.axis] <= place[runs[-1][-1].axis]:
            runs.append([])
        runs[-1].append(digit)
    left = [tag.block_sizes[axis] for axis in outer]
    stars = ["*" * (len(tag.axes[axis]) - 1) for axis in outer]
    tiles: list[list[str]] = []
    for run in ([], *runs[:-1]):
        first = next((k for k, size in enumerate(left) if size > 1 or stars[k]), len(left))
        for digit in run:
            left[place[digit.axis]] //= digit.extent
        sides = zip(stars[first:], left[first:], strict=True)
        tiles.append([part for star, size in sides for part in (*star, str(size))])
        stars = [""] * len(outer)
    return list(filter(None, tiles))


def _tiled(physical: list[_Physical], tile: list[str]) -> list[_Physical]:
    """Return the physical dims after a tile: untouched dims, numbers of tiles, and the tile."""
    sizes = [part.strip() for part in tile]
    if not all(re.fullmatch(r"\*|[1-9][0-9]{0,18}", size) for size in sizes) or sizes[-1] == "*":
        unclear(f"a tile is sizes of 1 or more, or * before another one, not ({','.join(tile)})")
    if len(sizes) > len(physical):
        impossible(
            f"the tile ({','.join(sizes)}) pads dims that the array does not have; add dims of "
            f"size 1 in front until it has {len(sizes)}"
        )
    outer, inner, joined = physical[: -len(sizes)], list[_Physical](), list[_Physical]()
    for whole, size in zip(physical[-len(sizes) :], sizes, strict=True):
        joined.append(whole)
        if size == "*":
            continue
        dims, step, extent = whole
        if len(joined) > 1:
            if any(axis[1:] != (1, 0) or len(axis[0]) > 1 for axis in joined):
                impossible("* joins dims that are already tiled")
            dims = tuple(axis[0][0] for axis in joined)
        if extent % int(size):
            where = f"of extent {extent} in {dim_name(dims[0])}"
            impossible(f"a tile of {size} pads the inside of another, {where}")
        outer.append((dims, step * int(size), extent // int(size)))
        inner.append((dims, step, int(size)))
        joined = []
    return [*outer, *inner]


_SHAPE = r"\s*(?P<type>[a-z][a-z0-9]*)\[(?P<dims>[^\]]*)\]\s*(?:\{(?P<layout>.*)\})?\s*"
_SUFFIX = r"\s*(SC|[DTL#*ESPM])((?:\s*\((?:[^()]|\([^()]*\))*\))+)"

# suffix -> why no descriptor can describe a shape with it
_REFUSED = {
    "D": "only sparse arrays have dim level types (D) other than dense",
    "#": "only sparse arrays have an index type (#)",
    "*": "only sparse arrays have a pointer type (*)",
    "P": "only sparse arrays have a physical shape (P)",
    "SC": "a split configuration (SC) spreads the array over several memories",
}


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    tag = tag_of(desc, "only tiles pad")
    _check_tag(desc, tag)
    outer = [digit.axis for digit in tag.digits if not digit.extent]
    minor_to_major = [dim for axis in reversed(outer) for dim in reversed(tag.axes[axis])]
    tiles = "".join(f"({','.join(tile)})" for tile in _tiles_of(tag, outer))
    suffix = f"T{tiles}" if tiles else ""
    suffix += f"E({desc.dtype.bits})" if desc.dtype.is_packed else ""
    type_name = XLA_TYPES.name_of(desc.dtype)
    sizes, order = (",".join(map(str, values)) for values in (desc.dims, minor_to_major))
    return (f"{type_name}[{sizes}]{{{order}{':' if suffix else ''}{suffix}}}",)


def _read(given: Given) -> MemoryDesc:
    text = given.text
    match = re.fullmatch(_SHAPE, text)
    if match is None:
        unclear("it is one array shape, such as f32[2,17,5,4]{3,2,1,0:T(16,1,1)}")
    dtype = XLA_TYPES.named(match["type"])
    dims = given.sizes(_sizes(match["dims"]))
    order, _, suffixes = (match["layout"] or "").partition(":")
    everyone = tuple(range(len(dims)))
    major_to_minor = everyone if match["layout"] is None else integers(order)[::-1]
    if sorted(major_to_minor) != [*everyone]:
        unclear(f"{{{order}}} must list dims 0 to {len(dims) - 1} once each, most minor first")
    digits: list[_Physical] = [((dim,), 1, 0) for dim in major_to_minor]
    suffixes_of = _suffixes(suffixes)
    for tile in suffixes_of.pop("T", []):
        digits = _tiled(digits, tile.split(","))
    numbers = {suffix: _one(*suffixes_of.pop(suffix)) for suffix in "LESM" if suffix in suffixes_of}
    if numbers.get("M"):
        impossible(f"{numbers['M']} bytes of metadata (M) precede the elements")
    for suffix, groups in suffixes_of.items():
        if suffix != "D" or set(groups[0].replace(" ", "").split(",")) != {"D"}:
            impossible(_REFUSED[suffix])
    # without E, each 4-bit element takes a byte; a memory space (S) does not change the layout
    stored = numbers.get("E") or max(dtype.bits, 8)
    if stored != dtype.bits:
        hint = "; packed ones have E(4)" if dtype.is_packed else ""
        impossible(f"its elements of {dtype.bits} bits are stored in {stored} bits each{hint}")
    desc = memory_desc(dims, given.type(dtype), tag_of_digits(digits))
    tail = numbers.get("L", 1)
    if tail > 1 and desc.padded_nelems % tail:
        whole = f"the whole buffer of {desc.padded_nelems} elements"
        impossible(f"L({tail}) pads {whole} at its end")
    return desc


def _one(group: str) -> int:
    number, *others = integers(group) or (0, 0)
    return unclear(f"expected one integer, found {excerpt(group)}") if others else number


def _sizes(part: str) -> tuple[int, ...]:
    if "<=" in part or "?" in part:
        impossible("the sizes of dynamic dims are not known")
    if not part.strip():
        impossible("a scalar has no dims, a descriptor 1 to 12")
    return integers(part)


def _suffixes(part: str) -> dict[str, list[str]]:
    """Read what follows the order of dims: suffixes, each with the texts in its parentheses."""
    suffixes: dict[str, list[str]] = {}
    if rest := re.sub(rf"^(?:{_SUFFIX})*\s*", "", part):
        unclear(f"expected a suffix, found {excerpt(rest.rstrip())}")
    for suffix, groups in re.findall(_SUFFIX, part):
        if suffix in suffixes:
            unclear(f"it has suffix {suffix} twice")
        suffixes[suffix] = re.findall(r"\(((?:[^()]|\([^()]*\))*)\)", groups)
        if len(suffixes[suffix]) > 1 and suffix != "T":
            unclear(f"suffix {suffix} has several values")
    return suffixes


SYSTEM = System("xla", "XLA", _write, _read, r"\s*[a-z]\w*\[.*")
