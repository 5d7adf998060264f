"""A codec for zarr v3 that stores each chunk of an array in a layout, including its padding.

zarr finds it under the name `memdesc`, through the entry point group `zarr.codecs`, so a program
that reads such arrays need not import this package. Source of the interface: zarr 3.1.6,
`zarr/abc/codec.py`.
"""

from __future__ import annotations

from asyncio import to_thread
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.common import parse_named_configuration
from zarr.registry import register_codec

from memdesc import (
    DataType,
    MemdescError,
    UnknownFormatError,
    UnsupportedFormatError,
    data_type,
    image_desc,
    memory_desc,
)
from memdesc.checked import Checked
from memdesc.errors import short_repr
from memdesc.immutable import immutable
from memdesc.int64 import checked_ints
from memdesc.names.images import is_image
from memdesc.record import BIT_PLANES, Field, known_records, record_desc
from memdesc.tags import FormatTag
from reorder.api import reorder
from reorder.memory.memory import Memory
from reorder.records.record import field_bits, read_field, write_field

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer, NDBuffer

    from memdesc import MemoryDesc

__all__ = ["MemdescCodec"]

NAME = "memdesc"
# what to do instead, by the kind of an array's type
_WAYS_OUT = {
    "c": "store its .real and its .imag in two arrays",
    "M": "make the array of int64, and write .view('i8')",
    "m": "make the array of int64, and write .view('i8')",
    "V": "make the array of unsigned integers, such as uint32, and write .view('u4')",
}
# a size that every record supports along each dim, to look at its fields
_BLOCK = 4096


@immutable
@dataclass(frozen=True)
class MemdescCodec(Checked, ArrayBytesCodec):  # type: ignore[misc] # types of zarr are not read
    """Store each chunk of a zarr array in a layout: a `serializer` of zarr v3.

    The axes of the array are the logical dims. Every chunk, even one at an edge of the array, is
    stored with the bytes of a whole chunk's descriptor; the padding is zero.

    *Law*: reading an array returns what was written; values that the stored type cannot represent
    exactly are refused.

    Parameters
    ----------
    layout : str, FormatTag
        A name of any vocabulary, an image type or a tag, for the dims of a chunk; or a field of a
        record, such as ``q6_k.qh``: only its elements, in the order they have in the record.
    dtype : str, optional
        Data type of the stored elements, if it differs from that of the array: zarr has no 4-bit
        types and no bf16. Values are converted, such as uint8 to u4 or f32 to bf16.

    Raises
    ------
    MemdescError
        If the layout or the type is unknown; when an array is created, or one with shards is
        written, if they do not fit its chunks.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> from reorder.zarr import MemdescCodec
    >>> codec = MemdescCodec("nChw8c")
    >>> array = zarr.create_array(
    ...     {}, shape=(2, 17, 5, 4), chunks=(1, 17, 5, 4), dtype="float32", serializer=codec
    ... )
    >>> array[:] = 1
    >>> array[1, 16, 4], codec.chunk_desc(array.chunks, array.dtype)
    (array([1., 1., 1., 1.], dtype=float32), memory_desc((1, 17, 5, 4), 'f32', 'aBcd8b'))
    """

    is_fixed_size = True

    layout: str
    dtype: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.layout, str | FormatTag):
            raise MemdescError(
                "layout must be a name such as 'nChw16c', or a FormatTag, not "
                f"{short_repr(self.layout)}"
            )
        object.__setattr__(self, "layout", str(self.layout))
        if self.dtype is not None:
            object.__setattr__(self, "dtype", data_type(self.dtype).name)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read the metadata of an array; zarr calls this."""
        _, fields = parse_named_configuration(data, NAME)
        unknown = sorted(fields.keys() - {"layout", "dtype"})
        if unknown or "layout" not in fields:
            raise MemdescError(
                f"the codec {NAME} is configured by layout and dtype, not by "
                f"{short_repr(', '.join(fields) or 'nothing')}; a newer version may have written it"
            )
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Return what to write into the metadata of an array; zarr calls this."""
        fields = {"layout": self.layout, "dtype": self.dtype}
        if self.dtype is None:
            del fields["dtype"]
        return {"name": NAME, "configuration": fields}

    def chunk_desc(self, shape: tuple[int, ...], dtype: Any) -> MemoryDesc:
        """Return the descriptor of the bytes of a chunk.

        Parameters
        ----------
        shape : tuple of int
            The shape of the chunk: `array.chunks`, even if the array has shards.
        dtype : DataType, str or numpy dtype
            The dtype of the array.
        """
        stored = self._stored(checked_ints("shape", shape), dtype)
        return stored.desc if isinstance(stored, Field) else stored

    def _stored(self, shape: tuple[int, ...], dtype: Any) -> MemoryDesc | Field:
        """Return what a chunk holds: a descriptor, or a field whose elements have no data type."""
        field = self._field(shape)
        if not isinstance(dtype, str | DataType):
            dtype = _native(np.dtype(dtype))
            try:
                data_type(dtype)
            except MemdescError:
                kind = self.dtype or (field.kind if field else f"elements of {self.layout!r}")
                way_out = _WAYS_OUT.get(dtype.kind, "make the array of numbers")
                raise MemdescError(
                    f"an array of {dtype} cannot be stored as {kind}: {way_out}"
                ) from None
        if field is not None and field.kind not in BIT_PLANES:
            return field.desc
        if field is not None:
            if data_type(dtype).numpy.kind not in "iu":
                raise MemdescError(
                    f"{self.layout} holds {field.kind}: the array must be of integers, not {dtype}"
                )
            return field
        stored = data_type(dtype if self.dtype is None else self.dtype)
        if is_image(self.layout):
            return image_desc(shape, stored, self.layout).desc
        try:
            return memory_desc(shape, stored, self.layout)
        except UnknownFormatError as error:
            if "." not in self.layout:
                raise
            msg = f"{error}; a layout may be a field, such as q6_k.qh, of the records "
            raise UnknownFormatError(msg + ", ".join(known_records())) from None
        except UnsupportedFormatError as error:
            if self.layout not in known_records():
                raise
            fields = record_desc((_BLOCK,) * len(shape), self.layout).fields
            named = ", ".join(f"{self.layout}.{field.name}" for field in fields)
            raise UnsupportedFormatError(
                f"{error}; give each of its fields an array, as {named}"
            ) from None

    def _field(self, shape: tuple[int, ...]) -> Field | None:
        """Return the field of a record that a chunk of the given shape holds, if it holds one."""
        record, dot, name = self.layout.rpartition(".")
        if not dot or record not in known_records():
            return None
        if self.dtype is not None:
            raise MemdescError(f"{self.layout} already has a type; leave dtype={self.dtype!r} out")
        # any record shows how many adjacent elements of the tensor share an element of the field
        field = record_desc((_BLOCK,) * len(shape), record).field(name)
        sizes = zip(shape, field.groups, field.counts, strict=True)
        dims = tuple(size // count * group for size, group, count in sizes)
        return record_desc(dims, record).field(name).dense

    def validate(self, *, shape: tuple[int, ...], dtype: Any, chunk_grid: Any) -> None:
        """Refuse chunks that do not fit the layout; zarr calls this before it makes an array."""
        # other grids have chunks of several shapes, which are checked when they are written
        chunk = getattr(chunk_grid, "chunk_shape", None)
        if chunk is not None and len(chunk) == len(shape):
            self._stored(chunk, dtype.to_native_dtype())

    def compute_encoded_size(self, _: int, chunk_spec: ArraySpec) -> int:
        """Return the number of bytes of a stored chunk; zarr calls this."""
        return _nbytes(self._stored(chunk_spec.shape, chunk_spec.dtype.to_native_dtype()))

    def _encode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        array = chunk_array.as_numpy_array()
        array = array.astype(_native(array.dtype), copy=False)
        stored = self._stored(array.shape, array.dtype)
        if isinstance(stored, Field):
            data = np.zeros(stored.min_nbytes, np.uint8)
            write_field(data, stored, field_bits(stored, array))
            return chunk_spec.prototype.buffer.from_array_like(data)
        memory: Memory = reorder(array, stored)
        if stored.dtype.numpy != array.dtype:
            _check_exact(array, memory)
        return chunk_spec.prototype.buffer.from_array_like(memory.data)

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        dtype = chunk_spec.dtype.to_native_dtype()
        stored = self._stored(chunk_spec.shape, dtype)
        data = chunk_bytes.as_numpy_array()
        if data.nbytes != _nbytes(stored):
            raise MemdescError(
                f"a chunk of {stored!r} has {_nbytes(stored)} bytes, but this one has "
                f"{data.nbytes}: it is damaged, or another codec wrote it"
            )
        if isinstance(stored, Field):
            array = read_field(data.view(np.uint8), stored)
        else:
            array = _plain(Memory(stored, data, zero_pad=False), _native(dtype))
        return chunk_spec.prototype.nd_buffer.from_numpy_array(array.astype(dtype, copy=False))

    async def _encode_single(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        return await to_thread(self._encode_sync, chunk_array, chunk_spec)

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return await to_thread(self._decode_sync, chunk_bytes, chunk_spec)


def _nbytes(stored: MemoryDesc | Field) -> int:
    return stored.min_nbytes if isinstance(stored, Field) else stored.nbytes


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=")


def _plain(memory: Memory, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the elements of a chunk as a row-major array of the zarr array's type."""
    row_major: Memory = reorder(memory, "plain", dtype=dtype)
    return row_major.numpy()


def _check_exact(array: NDArray[Any], memory: Memory) -> None:
    """Refuse values that the stored type would change; a NaN may become another NaN."""
    back = _plain(memory, array.dtype)
    bits = np.dtype(f"u{array.dtype.itemsize}")
    differs = np.ascontiguousarray(array).view(bits) != back.view(bits)
    if array.dtype.kind == "f":
        differs &= ~(np.isnan(array) & np.isnan(back))
    if not differs.any():
        return
    at = tuple(int(i) for i in np.argwhere(differs)[0])
    raise MemdescError(
        f"{memory.desc.dtype} cannot represent {array[at]}, the value at {at} of a chunk, and "
        f"would store {back[at]}; {np.count_nonzero(differs)} of {array.size} values do not fit: "
        "round or scale them first, or leave dtype out"
    )


# for programs that use this package without its metadata installed, so without entry points
register_codec(NAME, MemdescCodec)
