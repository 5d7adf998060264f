"""Pictures as SVG and as HTML, and the colours and sizes of all of them.

Halves are side by side in an SVG, or below each other on a narrow HTML page. The HTML has no
script, so notebooks and pages show it as it is. What does not fit scrolls, and a shadow marks the
edge that hides something.

Cells have light tints of the Okabe-Ito colours under dark ink in both colour schemes; what is drawn
on the background follows the reader's scheme. SVG elements have no ids, so that a page can contain
many pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from types import MappingProxyType

from memdesc.picture.cells import CACHE_LINE, Cell
from memdesc.picture.halves import Half, Table, gaps_in
from memdesc.tuples import NamedTuple

# sky blue, orange, green, purple, yellow, blue, vermilion, each mixed with white
COLOURS = ("#a4d7f3", "#f4cd78", "#86d0bb", "#e6bdd4", "#f7f1a0", "#8fbfdc", "#efb38a")
INK = "#1a1a1a"  # text, edges of blocks
FAINT = "#5f6368"  # headings, notes
RULE = "#9aa0a6"  # borders and hatching of padding
ACCENT = "#d55e00"  # where a cache line starts: vermilion
HIGHLIGHT = "#b0127b"  # around highlighted elements
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

# pixels per character by font size; characters of a monospaced font are 0.6 em wide
_CHARACTER = {11: 7, 14: 9}

# the dark scheme by class: background, text, faint text, edges, rules, missing cells, padding
_DARK = (
    ".memdesc-paper{fill:#16191d}.memdesc-ink{fill:#e8e8e8}.memdesc-faint{fill:#a0a6ad}.memdesc-edge{stroke:#e8e8e8}"
    ".memdesc-rule{stroke:#5a6169}.memdesc-none{fill:#16191d}.memdesc-void{fill:#2b3036}"
)


def element(name: str, *children: str, **attributes: object) -> str:
    """Return an element; `_` in attribute names becomes `-`, and a trailing one is dropped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


# text on the background follows the reader's scheme
_PLAIN = {"class_": "memdesc-ink", "fill": INK}
_FAINT = {"class_": "memdesc-faint", "fill": FAINT}
_STYLES = {"plain": _PLAIN, "faint": _FAINT, "bold": {**_PLAIN, "font_weight": "bold"}}


def label(
    x: float, y: float, content: str, *, size: int = 11, anchor: str = "start", style: str = "plain"
) -> str:
    """Return text on the background, whose style is plain, faint or bold."""
    place = {"x": f"{x:g}", "y": f"{y:g}", "font_size": size, "text_anchor": anchor}
    return element("text", escape(content, quote=False), **place, **_STYLES[style])


def edge(name: str, **attributes: object) -> str:
    """Return an element that is only an outline, such as those of blocks."""
    look = {"class_": "memdesc-edge", "fill": "none", "stroke": INK, "stroke_width": 1.5}
    return element(name, **attributes, **look)


def text_width(text: str, size: int = 11) -> int:
    """Return the width of a string in pixels, for a font size."""
    return _CHARACTER[size] * len(text)


def hatch(x: int, y: int, width: int, height: int) -> str:
    """Return diagonal lines across a rectangle, 6 pixels apart."""
    parts = []
    for start in range(6, width + height, 6):
        x0, y0 = (x + start, y) if start <= width else (x + width, y + start - width)
        x1, y1 = (x, y + start) if start <= height else (x + start - height, y + height)
        parts.append(f"M{x0} {y0}L{x1} {y1}")
    return element("path", d="".join(parts), class_="memdesc-rule", stroke=RULE, fill="none")


def document(corner: tuple[int, int], size: tuple[int, int], title: str, *children: str) -> str:
    """Return a picture with a background, given its upper left corner, its width and its height."""
    (x, y), (width, height) = corner, size
    box = {"x": x, "y": y, "width": width, "height": height}
    return element(
        "svg",
        element("title", escape(title, quote=False)),
        element("style", f"@media (prefers-color-scheme:dark){{{_DARK}}}"),
        element("rect", class_="memdesc-paper", **box, rx=6, fill="#ffffff"),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"{x} {y} {width} {height}",
        width=width,
        height=height,
        role="img",
        font_family=FONT,
    )


# pixels of a cell without a note, around the number in it, and of the narrowest one
CELL_HEIGHT = 22
_AROUND, _NARROWEST = 8, 26


def cell_width(number: str) -> int:
    """Return the width of a cell with this number."""
    return max(_NARROWEST, text_width(number) + _AROUND)


def paint_cell(cell: Cell, x: int, y: int, size: tuple[int, int]) -> str:
    """Return a cell of size (width, height): its number, the note below it, and the hover text."""
    width, height = size
    box = {"x": x, "y": y, "width": width, "height": height}
    parts = [element("title", escape(cell.hover, quote=False))]
    ink: dict[str, str] = {"fill": INK}
    if cell.run is None:
        look = {"class_": "memdesc-rule memdesc-none", "fill": "#ffffff", "stroke": RULE}
        parts.append(element("rect", stroke_dasharray="2 2", **look, **box))
        ink = _FAINT
    elif cell.is_padding:
        look = {"class_": "memdesc-rule memdesc-void", "fill": "#f1f2f4", "stroke": RULE}
        parts += [element("rect", stroke_width=0.5, **look, **box), hatch(x, y, width, height)]
        ink = _PLAIN
    else:
        look = {"fill": COLOURS[cell.colour], "stroke": "#ffffff"}
        parts.append(element("rect", stroke_width=0.5, **look, **box))
    middle = f"{x + width / 2:g}"
    base = f"{y + 12 if cell.note else y + height / 2 + 4:g}"
    texts = ((cell.number, base), (cell.note, f"{y + height - 5}"))
    parts += [
        element("text", escape(text), x=middle, y=at, font_size=11, **ink)
        for text, at in texts
        if text
    ]
    if cell.is_highlighted:
        inner = {"x": x + 1.5, "y": y + 1.5, "width": width - 3, "height": height - 3}
        parts.append(element("rect", fill="none", stroke=HIGHLIGHT, stroke_width=3, **inner))
    return element("g", *parts, class_="memdesc-cell", text_anchor="middle")


def outline(
    cells: Mapping[tuple[int, int], Cell], xs: list[int], ys: list[int], size: tuple[int, int]
) -> str:
    """Return the edges of blocks of cells, given the cells by column and row."""
    width, height = size
    lines: dict[str, None] = {}
    for (column, row), cell in cells.items():
        x, y = xs[column], ys[row]
        for neighbour, line in (
            ((column - 1, row), f"M{x} {y}v{height}"),
            ((column + 1, row), f"M{x + width} {y}v{height}"),
            ((column, row - 1), f"M{x} {y}h{width}"),
            ((column, row + 1), f"M{x} {y + height}h{width}"),
        ):
            adjacent = cells.get(neighbour)
            if cell.tile is not None and (adjacent is None or adjacent.tile != cell.tile):
                lines[line] = None
    return edge("path", d="".join(lines)) if lines else ""


# Pixels: above the cells of a table, for headings; where indices are left out; right of the
# headings of rows; height of a cell with a note; around the note.
_HEADINGS, _GAP, _BESIDE = 32, 16, 15
_HEIGHT, _AROUND_NOTE = 30, 6
# Pixels: the most of a line of panels; between panels; for panels that are left out.
_MAX_WIDTH, _APART, _SKIP = 620, 12, 20


class Drawing(NamedTuple):
    """SVG elements that start at (0, 0), and how many pixels they need."""

    caption: str
    width: int
    height: int
    parts: list[str]


def drawing(half: Half) -> Drawing:
    """Draw all tables, a frame around those of a block, and dots where some are left out."""
    width, height = map(max, zip(*(_size(table) for table in half.tables), strict=True))
    step = width + _APART
    parts: list[str] = []
    top, right = 0, 0
    for line in half.lines(max((_MAX_WIDTH + _APART) // step, 1), has_gaps=True):
        if line[0].after_gap:
            parts.append(label(_gutter(line[0]), top + _SKIP // 2, "⋮", size=14, style="faint"))
            top += _SKIP
        end = len(line) * step - _APART
        if line[0].block is not None:
            frame = {"x": 2, "y": top - 2, "width": end + 3, "height": height + 7}
            parts.append(edge("rect", rx=5, **frame))
        for k, table in enumerate(line):
            if k and table.after_gap:
                parts.append(label(k * step - 6, top + height // 2, "⋯", style="faint"))
            parts += _paint(table, k * step, top)
        top += height + _APART
        right = max(right, end)
    return Drawing(half.caption, right, top - _APART, parts)


def _gutter(table: Table) -> int:
    """Return the pixels left of the cells."""
    return max(text_width(head) for head, _ in table.heads) + _BESIDE


def _above(table: Table) -> int:
    return _HEADINGS if table.caption or table.groups else _HEADINGS // 2


def _cell(table: Table) -> tuple[int, int]:
    """Return the width and height of a cell in pixels."""
    if table.marks is None:
        return cell_width(table.widest), CELL_HEIGHT
    widths = [cell_width(cell.number) for cell in table.shown]
    widths += [text_width(cell.note) + _AROUND_NOTE for cell in table.shown]
    return max(cell_width(""), *widths), _HEIGHT


def _size(table: Table) -> tuple[int, int]:
    """Return the width and height in pixels, with headings."""
    width, height = _cell(table)
    right, bottom = _starts(table.columns, width)[-1], _starts(table.rows, height)[-1]
    return _gutter(table) + max(right, text_width(table.caption)), _above(table) + bottom


def _paint(table: Table, left: int, top: int) -> list[str]:
    """Return the SVG elements of headings, cells, outlines of blocks, marks and gaps."""
    width, height = size = _cell(table)
    *xs, _ = (left + _gutter(table) + x for x in _starts(table.columns, width))
    *ys, _ = (top + _above(table) + y for y in _starts(table.rows, height))
    base = (height + 8) // 2  # the baseline of text centred in a row
    parts = [label(xs[0], ys[0] - 18, table.caption, style="bold")] if table.caption else []
    tops = zip(xs, table.tops, strict=True)
    parts += [_faint(x + width / 2, ys[0] - 4, text) for x, text in tops]
    half = table.span * width / 2
    parts += [_faint(xs[k] + half, ys[0] - 18, text) for k, text in table.groups.items()]
    parts += [
        label(xs[0] - 6, y + base, head, anchor="end", style="faint")
        for y, (head, _) in zip(ys, table.heads, strict=True)
        if head
    ]
    placed = {
        (c, r): cell
        for r, row in enumerate(table.cells)
        for c, cell in enumerate(row)
        if cell is not None
    }
    parts += [paint_cell(cell, xs[c], ys[r], size) for (c, r), cell in placed.items()]
    tiles = [cell.tile for cell in placed.values()]
    # if blocks have one cell in each panel, the frames of panels show them
    if table.marks is not None or len(set(tiles)) < len(tiles):
        parts.append(outline(placed, xs, ys, size))
    if table.marks:
        path = "".join(f"M{xs[c]} {ys[r] - 1}v{height + 2}" for r, c in sorted(table.marks))
        parts.append(element("path", d=path, stroke=ACCENT, stroke_width=3.5, fill="none"))
    parts += [_faint(xs[k] - _GAP / 2, ys[0] + base, "⋯") for k in gaps_in(table.columns)]
    return parts + [_faint(xs[0] + 12, ys[k] - 4, "⋮") for k in gaps_in(table.rows)]


def _starts(indices: list[int], size: int) -> list[int]:
    """Return where each index starts, then where the last one ends; in pixels."""
    gaps = gaps_in(indices)
    starts = [k * size + _GAP * sum(gap <= k for gap in gaps) for k in range(len(indices))]
    return [*starts, starts[-1] + size]


def _faint(x: float, y: float, text: str) -> str:
    return label(x, y, text, anchor="middle", style="faint")


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
MEANINGS = MappingProxyType(
    {
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
)


@cache
def _style() -> str:
    """Return the style of a fragment, in which an `::after` covers the shadow of the last edge."""
    css = (files("memdesc.picture") / "figure.css").read_text(encoding="utf-8")
    return css.replace("\n", "").replace("{font}", FONT)


def svg_of(head: list[str], halves: list[Drawing], symbols: list[str]) -> str:
    """Return the halves side by side under the head lines, the legend below them."""
    head = [line if len(line) <= _MAX_TITLE else f"{line[: _MAX_TITLE - 1]}…" for line in head]
    lines = [label(_MARGIN, _MARGIN + 14, head[0], size=14, style="bold")]
    lines += [
        label(_MARGIN, _MARGIN + 14 + _HEAD_LINE * k, line) for k, line in enumerate(head) if k
    ]
    left, top = _MARGIN, _MARGIN + _HEAD_LINE * len(head)
    right = left + max(text_width(head[0], 14), *map(text_width, head))
    bottom = top
    for half in halves:
        place = f"translate({left} {top + _CAPTION})"
        lines.append(label(left, top + _CAPTION - 10, half.caption, style="faint"))
        lines.append(element("g", *half.parts, transform=place))
        end = left + max(half.width, text_width(half.caption))
        left, right = end + _BETWEEN, max(right, end)
        bottom = max(bottom, top + _CAPTION + half.height)
    if symbols:
        x, y = _MARGIN, bottom + _HEAD_LINE
        for symbol in symbols:
            meaning = MEANINGS[symbol]
            lines += [_symbol(symbol, x, y), label(x + 34, y + 13, meaning, style="faint")]
            x += 58 + text_width(meaning)
        right = max(right, x)
        bottom += _HEAD_LINE + _LEGEND
    return document((0, 0), (right + _MARGIN, bottom + _MARGIN), head[0], *lines)


def fragment_of(head: list[str], halves: list[Drawing], symbols: list[str]) -> str:
    """Return the halves as HTML, below each other on a narrow page."""
    title, *more = (escape(line, quote=False) for line in head)
    caption = "<br>".join([f"<strong>{title}</strong>", *more])
    legend = "".join(
        f"<span>{document((0, 0), _SYMBOL, MEANINGS[symbol], _symbol(symbol, 0, 0))}"
        f"{escape(MEANINGS[symbol], quote=False)}</span>"
        for symbol in symbols
    )
    return (
        f'<figure class="memdesc-figure"><style>{_style()}</style><figcaption>{caption}'
        f'</figcaption><div class="memdesc-halves">{"".join(map(_half_html, halves))}</div>'
        f'<div class="memdesc-legend">{legend}</div></figure>'
    )


def _half_html(half: Drawing) -> str:
    size = half.width + _LEFT + _RIGHT, half.height + _ABOVE + _LEFT
    return (
        f'<div class="memdesc-half">{escape(half.caption, quote=False)}<div class="memdesc-scroll">'
        f'<div class="memdesc-sheet" style="flex:0 0 {size[0]}px">'
        f"{document((-_LEFT, -_ABOVE), size, half.caption, *half.parts)}</div></div></div>"
    )


def _symbol(symbol: str, x: int, y: int) -> str:
    """Return a symbol for the legend: a mark, an outline or a cell."""
    width, height = _SYMBOL
    if symbol == "line":
        return element("path", d=f"M{x + width // 2} {y}v{height}", stroke=ACCENT, stroke_width=3.5)
    if symbol in {"block", "pixel"}:
        return edge("rect", x=x + 1, y=y + 1, width=width - 2, height=height - 2)
    run = None if symbol == "gap" else 0
    cell = Cell("", "", MEANINGS[symbol], run, None, symbol == "padding", symbol == "highlight")
    return paint_cell(cell, x, y, _SYMBOL)
