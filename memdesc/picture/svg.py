"""SVG as text: elements, and how everything here looks.

Cells carry light tints of the Okabe-Ito colours under dark ink in both colour
schemes; what lies on the paper itself follows the reader's scheme. Nothing is
referred to by an id, so that many pictures can stand in one page.
"""

from __future__ import annotations

from html import escape

__all__ = ["ACCENT", "COLOURS", "FONT", "INK", "document", "element", "hatch", "label"]

# sky blue, orange, green, purple, yellow, blue, vermilion, each mixed with white
COLOURS = ("#a4d7f3", "#f4cd78", "#86d0bb", "#e6bdd4", "#f7f1a0", "#8fbfdc", "#efb38a")
INK = "#1a1a1a"
ACCENT = "#d55e00"
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

_DARK = (
    ".memdesc-paper{fill:#16191d}.memdesc-ink{fill:#e8e8e8}.memdesc-faint{fill:#a0a6ad}.memdesc-edge{stroke:#e8e8e8}"
    ".memdesc-rule{stroke:#5a6169}.memdesc-none{fill:#16191d}.memdesc-void{fill:#2b3036}"
)


def element(name: str, *children: str, **attributes: object) -> str:
    """Return an element; `_` in the name of an attribute stands for `-`, at its end for nothing."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def label(  # noqa: PLR0913 - how text looks, named by keyword
    x: float,
    y: float,
    content: str,
    *,
    size: int = 11,
    anchor: str = "start",
    faint: bool = False,
    bold: bool = False,
) -> str:
    """Return text on the paper."""
    colour = (
        {"class_": "memdesc-faint", "fill": "#5f6368"}
        if faint
        else {"class_": "memdesc-ink", "fill": INK}
    )
    weight = {"font_weight": "bold"} if bold else {}
    return element(
        "text",
        escape(content, quote=False),
        x=f"{x:g}",
        y=f"{y:g}",
        font_size=size,
        text_anchor=anchor,
        **colour,
        **weight,
    )


def hatch(x: int, y: int, width: int, height: int) -> str:
    """Return diagonals across a rectangle."""
    parts = []
    for start in range(6, width + height, 6):
        x0, y0 = (x + start, y) if start <= width else (x + width, y + start - width)
        x1, y1 = (x, y + start) if start <= height else (x + start - height, y + height)
        parts.append(f"M{x0} {y0}L{x1} {y1}")
    return element("path", d="".join(parts), class_="memdesc-rule", stroke="#9aa0a6", fill="none")


def document(width: int, height: int, title: str, *children: str) -> str:
    """Return a picture of this size, on its own paper."""
    return element(
        "svg",
        element("title", escape(title, quote=False)),
        element("style", f"@media (prefers-color-scheme:dark){{{_DARK}}}"),
        element("rect", class_="memdesc-paper", width=width, height=height, rx=6, fill="#ffffff"),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        font_family=FONT,
    )
