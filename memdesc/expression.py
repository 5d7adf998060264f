"""The Python expression that makes a descriptor, as its repr shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.errors import MemdescError
from memdesc.infer_tag import dense_tag, is_laid_out_by

if TYPE_CHECKING:
    from memdesc.dtypes import DataType
    from memdesc.layout import Layout

__all__ = ["expression"]


def expression(dtype: DataType, layout: Layout) -> str:
    """Return the shortest call that makes a descriptor: by a tag, by strides, by a Layout."""
    tag = dense_tag(layout)
    if is_laid_out_by(layout, tag):
        return f"memory_desc({layout.dims}, '{dtype}', '{tag}')"
    try:
        inner = layout.tile()
    except MemdescError:
        return f"MemoryDesc({dtype!r}, {layout!r})"
    arguments = [str(layout.dims), f"'{dtype}'", f"strides={layout.strides()}"]
    if inner:
        arguments.append(f"inner_blks={tuple(block.extent for block in inner)}")
        arguments.append(f"inner_idxs={tuple(block.axis for block in inner)}")
    if not _has_default_padding(layout):
        arguments.append(f"padded_dims={layout.padded_dims()}")
    if layout.offset0:
        arguments.append(f"offset0={layout.offset0}")
    return f"memory_desc({', '.join(arguments)})"


def _has_default_padding(layout: Layout) -> bool:
    """Whether each dim is rounded up to whole blocks, and no further."""
    steps = [layout.outer(dim).step for dim in range(layout.ndims)]
    return all(
        padded == -(-size // step) * step
        for size, padded, step in zip(layout.dims, layout.padded_dims(), steps, strict=True)
    )
