"""Arrays of Dask, chunk by chunk: logical arrays to physical blocks, and back.

A chunk of whole blocks is a tensor of its own: its physical blocks are a part of those of the
whole. So each chunk is one task, and nothing moves between chunks.
"""

from reorder.dask.arrays import reorder

__all__ = ["reorder"]
