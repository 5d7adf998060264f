"""Read a picture back: what each cell shows, and where it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree as ET

__all__ = ["Seen", "cells", "elements"]

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
    return list(ET.fromstring(svg).iter(_SVG + name))  # noqa: S314 - memdesc wrote it


def cells(svg: str) -> tuple[list[Seen], list[Seen]]:
    """Return the cells of the grid and those of the memory, without those of the legend."""
    grid: list[Seen] = []
    memory: list[Seen] = []
    for group in elements(svg, "g"):
        if group.get("class") != "memdesc-cell":
            continue
        box, *rings = group.findall(_SVG + "rect")
        texts = tuple(text.text or "" for text in group.findall(_SVG + "text"))
        (title,) = group.findall(_SVG + "title")
        seen = Seen(
            float(box.get("x", "")),
            float(box.get("y", "")),
            box.get("fill", ""),
            group.find(_SVG + "path") is not None,
            bool(rings),
            texts,
            tuple((title.text or "").split("\n")),
        )
        # signs of the legend have no number
        if texts:
            # a line of the memory is higher than a row of the grid: an index is written in it
            (memory if float(box.get("height", "")) > 22 else grid).append(seen)
    return grid, memory
