"""Arrays of zarr whose chunks the codec writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def create(store: Any, x: NDArray[Any], layout: str, dtype: str | None = None, **other: Any) -> Any:
    """Make an array with the codec and nothing else, and write all of x."""
    import zarr  # optional

    from reorder.zarr import MemdescCodec  # it imports zarr

    array = zarr.create_array(
        store,
        shape=x.shape,
        dtype=x.dtype,
        serializer=MemdescCodec(layout, dtype),
        compressors=None,
        **other,
    )
    array[...] = x
    return array


def chunk_bytes(store: Any, *at: int) -> bytes:
    """Return what is stored for the chunk at these indices."""
    return bytes(store["c/" + "/".join(map(str, at))].to_bytes())
