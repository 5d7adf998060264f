"""Read a picture back: what each cell shows, and where it is; check its numbers."""

import re
from dataclasses import dataclass
from itertools import product
from xml.etree import ElementTree as ET

import numpy as np

from memdesc import MemoryDesc
from memdesc.picture import Picture

_SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Seen:
    """A cell as it was drawn; `hover` are the lines shown under the pointer."""

    x: float
    y: float
    fill: str
    is_hatched: bool
    is_highlighted: bool
    texts: tuple[str, ...]
    hover: tuple[str, ...]

    @property
    def offset(self) -> int:
        """The number that is written in the cell."""
        return int(self.texts[0])

    @property
    def is_element(self) -> bool:
        return self.hover[0] != "no element"

    @property
    def index(self) -> tuple[int, ...]:
        """The padded index that the pointer shows."""
        return tuple(map(int, re.findall(r"[0-9]+", self.hover[0])))


def elements(svg: str, name: str) -> list[ET.Element]:
    """Return all elements of a name."""
    return list(ET.fromstring(svg).iter(_SVG + name))


def halves(picture: Picture) -> list[str]:
    """Return the halves of a picture, each as an SVG."""
    return re.findall("<svg .*?</svg>", picture.fragment, re.DOTALL)[:2]


def cells(svg: str) -> tuple[list[Seen], list[Seen]]:
    """Return the cells of the grid and those of the memory, without those of the legend."""
    grid: list[Seen] = []
    memory: list[Seen] = []
    groups = elements(svg, "g")
    moved = {
        cell: tuple(map(float, re.findall("[0-9]+", half.get("transform", ""))))
        for half in groups
        if half.get("transform")
        for cell in half.iter(_SVG + "g")
    }
    for group in groups:
        if group.get("class") != "memdesc-cell":
            continue
        left, top = moved.get(group, (0, 0))
        box, *rings = group.findall(_SVG + "rect")
        texts = tuple(text.text or "" for text in group.findall(_SVG + "text"))
        (title,) = group.findall(_SVG + "title")
        seen = Seen(
            float(box.get("x", "")) + left,
            float(box.get("y", "")) + top,
            box.get("fill", ""),
            group.find(_SVG + "path") is not None,
            bool(rings),
            texts,
            tuple((title.text or "").split("\n")),
        )
        # symbols of the legend have no number
        if texts:
            # a line of the memory is higher than a row of the grid: an index is written in it
            (memory if float(box.get("height", "")) > 22 else grid).append(seen)
    return grid, memory


def check(desc: MemoryDesc, grid: list[Seen], memory: list[Seen]) -> None:
    """Check every number that a picture shows against the descriptor."""
    padded = {}
    tables = desc.layout.tables(padded=True)
    for seen in [*grid, *memory]:
        if not seen.is_element:
            continue
        is_padding = seen.hover[0].startswith("padding at")
        assert is_padding == any(i >= size for i, size in zip(seen.index, desc.dims, strict=True))
        assert is_padding == seen.is_hatched
        if not is_padding:
            assert desc.offset(seen.index) == seen.offset
        by_axis = (
            np.ravel_multi_index(
                [seen.index[d] for d in axis.dims],
                (1 << 40, *(desc.dims[d] for d in axis.dims[1:])),
            )
            for axis in desc.axes
        )
        assert (
            desc.offset0 + sum(int(table[i]) for table, i in zip(tables, by_axis, strict=True))
            == seen.offset
        )
        padded[seen.index] = seen.offset
        place = next(line for line in seen.hover if line.startswith("byte "))
        assert f"offset {seen.offset}" in seen.hover
        half = f", {'high' if seen.offset % 2 else 'low'} half" if desc.dtype.is_packed else ""
        assert place == f"byte {seen.offset * desc.dtype.bits // 8}{half}"
    if desc.padded_nelems < 1 << 20:
        held = {desc.offset0 + sum(map(int, parts)) for parts in product(*tables)}
        assert all(seen.is_element == (seen.offset in held) for seen in memory)
    if not desc.has_broadcast:
        assert len(set(padded.values())) == len(padded)
    # one number, one colour on both sides
    colours = {seen.offset: seen.fill for seen in grid if not seen.is_hatched}
    for seen in memory:
        assert seen.is_hatched or colours.get(seen.offset, seen.fill) == seen.fill
    for side in (grid, memory):
        assert len({(seen.x, seen.y) for seen in side}) == len(side)
    # the memory runs line by line
    assert [seen.offset for seen in memory] == sorted(seen.offset for seen in memory)
    assert sorted(memory, key=lambda seen: (seen.y, seen.x)) == memory
