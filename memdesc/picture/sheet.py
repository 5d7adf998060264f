"""Assemble a picture from its halves: side by side in an SVG, or stacked on a narrow HTML page.

The HTML has no script, so notebooks and pages show it as it is. What does not fit scrolls, and a
shadow marks the edge that hides something.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from memdesc.picture.cells import CACHE_LINE, Cell
from memdesc.picture.picture import Picture
from memdesc.picture.svg import (
    ACCENT,
    FONT,
    document,
    edge,
    element,
    label,
    paint_cell,
    plain,
    text_width,
)

# Pixels: around the picture and between its halves; height of a line of the head, of a caption, of
# the legend.
_MARGIN, _BETWEEN, _HEAD_LINE, _CAPTION, _LEGEND = 16, 36, 18, 28, 22
# Pixels left of a half, right of it and above it, if it is a picture of its own.
_LEFT, _RIGHT, _ABOVE = 6, 22, 4
# characters; longer lines are cut
_MAX_TITLE = 100
# Pixels: size of a symbol in the legend.
_SYMBOL = (28, 18)

# symbol of the legend -> what it means
_MEANINGS = {
    "run": "one colour: one run of memory",
    "banks": "one colour: four of the 32 banks of shared memory",
    "field": "one colour: one field",
    "padding": "padding, holds zeros",
    "block": "block",
    "pixel": "pixel",
    "gap": "no element",
    "highlight": "highlighted",
    "line": f"cache line of {CACHE_LINE} bytes starts",
}

_STYLE = (
    f".memdesc-figure{{margin:1em 0;font:12px/1.5 {FONT};text-align:left}}"
    ".memdesc-figure figcaption{margin:0;overflow-wrap:anywhere}"
    ".memdesc-halves{display:flex;flex-wrap:wrap;gap:8px 28px;align-items:flex-start}"
    ".memdesc-half{max-width:100%;margin:8px 0 0}"
    ".memdesc-scroll{display:flex;overflow-x:auto}"
    ".memdesc-half svg{display:block;width:100%;height:auto}"
    ".memdesc-sheet{position:relative}"
    # covers the shadow if there is nothing left to scroll to
    ".memdesc-sheet::after{content:'';position:absolute;z-index:1;inset:0 0 0 auto;width:14px;"
    "background:#fff}"
    ".memdesc-scroll::after{content:'';position:sticky;right:0;flex:none;width:14px;margin-left:-14px;"
    "background:linear-gradient(to right,#8080,#808080c0)}"
    ".memdesc-legend{display:flex;flex-wrap:wrap;gap:4px 20px;margin-top:8px;font-size:11px}"
    ".memdesc-legend span{display:flex;gap:6px;align-items:center}"
    "@media (prefers-color-scheme:dark){.memdesc-sheet::after{background:#16191d}}"
)


class Half(NamedTuple):
    """SVG elements that start at (0, 0), and how many pixels they need."""

    caption: str
    width: int
    height: int
    parts: list[str]


class Sheet(NamedTuple):
    """The parts of a picture: head lines, halves, symbols of the legend, and the coloured text."""

    head: list[str]
    halves: list[Half] = []  # noqa: RUF012 - nothing changes it
    symbols: list[str] = []  # noqa: RUF012 - likewise
    text: str = ""

    def picture(self) -> Picture:
        """Return the picture of these parts."""
        lines = self.text.split("\n") if self.text else self.head
        text = "\n".join(plain(line).rstrip() for line in lines)
        return Picture(self._svg(), text, self._fragment(), "\n".join(lines))

    def _svg(self) -> str:
        head = [_cut(line) for line in self.head]
        lines = [label(_MARGIN, _MARGIN + 14, head[0], size=14, style="bold")]
        lines += [
            label(_MARGIN, _MARGIN + 14 + _HEAD_LINE * k, line) for k, line in enumerate(head) if k
        ]
        left, top = _MARGIN, _MARGIN + _HEAD_LINE * len(head)
        right = left + max(text_width(head[0], 14), *map(text_width, head))
        bottom = top
        for half in self.halves:
            place = f"translate({left} {top + _CAPTION})"
            lines.append(label(left, top + _CAPTION - 10, half.caption, style="faint"))
            lines.append(element("g", *half.parts, transform=place))
            end = left + max(half.width, text_width(half.caption))
            left, right = end + _BETWEEN, max(right, end)
            bottom = max(bottom, top + _CAPTION + half.height)
        if self.symbols:
            symbols, end = _legend(self.symbols, bottom + _HEAD_LINE)
            lines += symbols
            right = max(right, end)
            bottom += _HEAD_LINE + _LEGEND
        return document((0, 0), (right + _MARGIN, bottom + _MARGIN), head[0], *lines)

    def _fragment(self) -> str:
        title, *more = (escape(line, quote=False) for line in self.head)
        caption = "<br>".join([f"<strong>{title}</strong>", *more])
        halves = "".join(map(_half_html, self.halves))
        symbols = "".join(
            f"<span>{document((0, 0), _SYMBOL, _MEANINGS[symbol], _symbol(symbol, 0, 0))}"
            f"{escape(_MEANINGS[symbol], quote=False)}</span>"
            for symbol in self.symbols
        )
        return (
            f'<figure class="memdesc-figure"><style>{_STYLE}</style><figcaption>{caption}'
            f'</figcaption><div class="memdesc-halves">{halves}</div>'
            f'<div class="memdesc-legend">{symbols}</div></figure>'
        )


def _half_html(half: Half) -> str:
    size = half.width + _LEFT + _RIGHT, half.height + _ABOVE + _LEFT
    return (
        f'<div class="memdesc-half">{escape(half.caption, quote=False)}<div class="memdesc-scroll">'
        f'<div class="memdesc-sheet" style="flex:0 0 {size[0]}px">'
        f"{document((-_LEFT, -_ABOVE), size, half.caption, *half.parts)}</div></div></div>"
    )


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_TITLE else f"{line[: _MAX_TITLE - 1]}…"


def _legend(symbols: list[str], y: int) -> tuple[list[str], int]:
    """Return symbols of `_MEANINGS` next to their meanings, and where the last one ends."""
    x = _MARGIN
    parts: list[str] = []
    for symbol in symbols:
        meaning = _MEANINGS[symbol]
        parts += [_symbol(symbol, x, y), label(x + 34, y + 13, meaning, style="faint")]
        x += 58 + text_width(meaning)
    return parts, x


def _symbol(symbol: str, x: int, y: int) -> str:
    """Return a symbol for the legend: a mark, an outline or a cell."""
    width, height = _SYMBOL
    if symbol == "line":
        return element("path", d=f"M{x + width // 2} {y}v{height}", stroke=ACCENT, stroke_width=3.5)
    if symbol in {"block", "pixel"}:
        return edge("rect", x=x + 1, y=y + 1, width=width - 2, height=height - 2)
    cell = Cell(
        "",
        "",
        _MEANINGS[symbol],
        None if symbol == "gap" else 0,
        None,
        is_padding=symbol == "padding",
        is_highlighted=symbol == "highlight",
    )
    return paint_cell(cell, x, y, _SYMBOL)
