"""Picture: the value that `show()` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from memdesc.disk import as_path, write_file
from memdesc.errors import MemdescError
from memdesc.picture.png import png_of

if TYPE_CHECKING:
    import os

__all__ = ["Picture"]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as SVG, HTML, PNG and text; notebooks draw it, terminals print it.

    Parameters
    ----------
    svg : str
        The picture as one `<svg>` element, the same bytes every time.
    text : str
        The picture for a terminal; `str(picture)` is this.
    fragment : str, optional
        The picture as HTML without scripts, whose parts stand below each other where it is
        narrow; by default the SVG.

    Examples
    --------
    >>> import memdesc
    >>> print(memdesc.memory_desc((3, 4), "u8", "ba").show())
    memory_desc((3, 4), 'u8', 'ba')
    12 elements, 12 bytes in 1 cache line
    memory order, outermost first: b(4) a(3)
    <BLANKLINE>
    logical: rows a, columns b; numbers are offsets
          0   1   2   3
      0   0   3   6   9
      1   1   4   7  10
      2   2   5   8  11
    <BLANKLINE>
    memory: at each offset the index a,b
         0 |0,0 1,0 2,0 0,1 1,1 2,1 0,2 1,2
         8  2,2 0,3 1,3 2,3
    """

    svg: str
    text: str
    fragment: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.fragment or self.svg

    def html(self) -> str:
        """Return a page of its own: the pointer on a cell marks its element in both halves.

        The page zooms, follows the colour scheme of the reader, and loads nothing.

        Examples
        --------
        >>> import memdesc
        >>> memdesc.memory_desc((3, 4), "u8", "ba").show().html()[:15]
        '<!doctype html>'
        """
        page = (files("memdesc.picture") / "page.html").read_text(encoding="utf-8")
        title = escape(self.text.partition("\n")[0])
        return page.replace("{title}", title, 1).replace("{picture}", self._repr_html_(), 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file; nothing is left half written.

        Parameters
        ----------
        path : path
            Ends with what is written: ``.svg``, ``.png`` (needs the package `resvg_py`),
            ``.html`` (see `html`) or ``.txt``. A name without an ending is an SVG.

        Raises
        ------
        MemdescError
            If the name ends otherwise, a package is missing, or the file cannot be written.
        """
        target = as_path(path)
        match target.suffix.lower():
            case "" | ".svg":
                data = f"{self.svg}\n".encode()
            case ".png":
                data = png_of(self.svg)
            case ".html":
                data = self.html().encode()
            case ".txt":
                data = f"{self.text}\n".encode()
            case _:
                msg = f"a picture is written as .svg, .png, .html or .txt, not as {str(target)!r}"
                raise MemdescError(msg)
        write_file(target, lambda file: file.write(data))
