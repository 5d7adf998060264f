"""The index at one offset, as `memdesc.layout.indices_at` gives it for many."""

import numpy as np

from memdesc import Layout
from memdesc.layout import indices_at


def index_at(layout: Layout, offset: int) -> tuple[int, ...] | None:
    """Return the padded index at an offset; None if there is none."""
    indices, exists = indices_at(layout, np.array([offset], np.int64))
    return tuple(int(i[0]) for i in indices) if exists[0] else None
