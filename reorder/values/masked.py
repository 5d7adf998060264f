"""Refuse numpy's masked arrays: a layout has no place for a mask."""

from __future__ import annotations

import sys

from memdesc import MemdescError


def is_masked(x: object) -> bool:
    """Whether an object is a masked array; numpy.ma, which is slow to load, is not loaded."""
    module = sys.modules.get("numpy.ma")  # if it was never loaded, there is none
    return module is not None and isinstance(x, module.MaskedArray)


def refuse_masked(name: str, x: object) -> None:
    """Refuse a masked array, whose masked elements would become data."""
    if is_masked(x):
        raise MemdescError(
            f"{name} is a masked array, and a layout has no place for a mask; pass "
            "x.filled(value), or x.data for all elements"
        )
