"""The parts of patterns whose rows start at any byte: a copy of rows, a tile of a transpose."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Rows", "Skewed"]


class Rows(NamedTuple):
    """A copy of rows of bytes in vectors that are aligned in dst.

    `depth` loops follow one another in dst, and are loop 0 of the pattern; of the innermost of
    them, a row, the bytes follow one another in src as well.
    """

    depth: int


class Skewed(NamedTuple):
    """A tile of `width` steps of loop 1, along src, and `height` of loop 0, along dst.

    Its rows in dst end at multiples of `align` bytes; 0 where all rows of dst start at multiples of
    a vector. In local memory a row has `pitch` words, and those of a vector of src are followed by
    `gap` words.
    """

    width: int
    height: int
    nbytes: int
    align: int
    pitch: int
    gap: int = 0

    @property
    def unit(self) -> int:
        """Rows of src that are transposed in registers: the elements of a word."""
        return 4 // self.nbytes

    @property
    def before(self) -> int:
        """Steps of loop 0 that are loaded before those of the tile."""
        return self.align // self.nbytes

    @property
    def rows(self) -> int:
        """Steps of loop 0 that are loaded."""
        return self.height + self.before

    @property
    def local_words(self) -> int:
        """Words of local memory; rows of padding may be read one vector beyond them."""
        return self.width * self.pitch + self.width * self.nbytes // 16 * self.gap + 4
