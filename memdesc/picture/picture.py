"""Picture: the value that `show()` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memdesc.disk import as_path, write_files

if TYPE_CHECKING:
    import os

__all__ = ["Picture"]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as SVG and as text; notebooks draw it, terminals print it.

    Parameters
    ----------
    svg : str
        The picture as one `<svg>` element, the same bytes every time.
    text : str
        The picture for a terminal; `str(picture)` is this.

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

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg}</div>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the SVG to a file; nothing is left half written.

        Raises
        ------
        MemdescError
            If the file cannot be written.
        """
        text = f"{self.svg}\n".encode()
        write_files({as_path(path): lambda file: file.write(text)})
