"""Refuse numpy's masked arrays: a layout has no place for a mask."""

from __future__ import annotations

import sys

from memdesc import MemdescError


def refuse_masked(name: str, x: object) -> None:
    """Refuse a masked array, whose masked elements would become data.

    The message says what to pass instead.
    """
    module = sys.modules.get("numpy.ma")  # without it there is no masked array
    if module is not None and isinstance(x, module.MaskedArray):
        msg = (
            f"{name} is a masked array, and a layout has no place for a mask; pass "
            "x.filled(value), or x.data for all elements"
        )
        raise MemdescError(msg)
