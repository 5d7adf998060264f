"""Buffers as flat bytes: callers' buffers, checked once, and new ones."""

from __future__ import annotations

from ctypes import c_void_p
from operator import index
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from memdesc import MemdescError, MemoryDesc
from memdesc.errors import OverlapError
from memdesc.overlap import are_apart
from memdesc.tuples import NamedTuple
from reorder.memory.dlpack import from_dlpack, is_exporter
from reorder.values.masked import refuse_masked

if TYPE_CHECKING:
    from numpy.typing import NDArray

# In an array object, the address of the data follows Python's object header (numpy's C API,
# PyArrayObject_fields); .ctypes.data gives the same address and takes eight times as long.
_DATA = object.__basicsize__
# the same place, counted in words of 8 bytes
DATA_SLOT = _DATA // 8
# flags of arrays: C-contiguous, and also writeable (numpy's C API, NPY_ARRAY_*)
_READABLE, _WRITABLE = 0x1, 0x401
# The first pickle protocol with out-of-band buffers.
_OUT_OF_BAND = 5
_UINT8 = np.dtype(np.uint8)
_TO_READ = "pass a numpy array or bytes"


def bytes_over(name: str, buffer: Any, way_out: str) -> NDArray[np.uint8]:
    """Return the bytes of a buffer; `name` and `way_out` begin and end the message for others."""
    try:
        has_bytes = memoryview(buffer).nbytes
        return np.frombuffer(buffer, np.uint8) if has_bytes else np.empty(0, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise MemdescError(
            f"{name}: {type(buffer).__name__} is not a contiguous buffer ({error}); {way_out}"
        ) from None


def pickled_bytes(data: NDArray[np.uint8], protocol: SupportsIndex) -> PickleBuffer | bytearray:
    """Return flat bytes for a pickle; since protocol 5 they may be sent without copying."""
    return PickleBuffer(data) if index(protocol) >= _OUT_OF_BAND else bytearray(data)  # type: ignore[arg-type] # arrays of bytes are buffers


def address_of(array: NDArray[Any]) -> int:
    """Return the address of the first element of an array."""
    return c_void_p.from_address(id(array) + _DATA).value or 0


class ArrayView(NamedTuple):
    """Arrays of one shape, strides and dtype, and the buffer that each of them shows."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    # bytes from the data pointer to the start of the buffer: negative if a stride is
    shift: int
    # the class: numpy's, or one of tensors with an `exporter_at`
    kind: type = np.ndarray


class BufferCheck:
    """What one side of a reorder requires of a buffer; call it to check one."""

    __slots__ = ("alignment", "desc", "dtypes", "flags", "min_nbytes", "side", "write")

    def __init__(self, desc: MemoryDesc, side: str, *, write: bool) -> None:
        self.desc = desc
        self.side = side
        self.write = write
        self.min_nbytes = desc.min_nbytes
        self.flags = _WRITABLE if write else _READABLE
        bits = desc.dtype.bits_dtype
        self.alignment = bits.itemsize
        own = bits if desc.dtype.is_packed else desc.dtype.numpy
        self.dtypes: tuple[np.dtype[Any], ...] = own, bits, _UINT8

    def __call__(self, buffer: Any) -> NDArray[np.uint8]:
        """Return a caller's buffer, or an exporter's, as flat bytes without copying.

        It is an array of the dtype or of its bits, or raw bytes.
        """
        desc, side = self.desc, self.side
        refuse_masked(side, buffer)
        held = getattr(buffer, "desc", None)
        if isinstance(held, MemoryDesc):
            raise MemdescError(
                f"{side} is a {type(buffer).__name__} of {held!r}; pass its bytes, .data"
            )
        if not isinstance(buffer, np.ndarray) and is_exporter(buffer):
            buffer = from_dlpack(buffer, side, write=self.write)
        if not isinstance(buffer, np.ndarray):
            way_out = "pass a writable numpy array or a bytearray" if self.write else _TO_READ
            buffer = bytes_over(side, buffer, way_out)
        buffer = np.asarray(buffer)  # a numpy.matrix always has two axes
        if buffer.dtype not in self.dtypes:
            why = (
                "one element per byte; Memory holds two"
                if desc.dtype.is_packed
                else f"elements of another type than {desc.dtype}"
            )
            raise MemdescError(
                f"{side} is an array of {buffer.dtype}: {why}; pass {desc.dtype} elements or raw "
                "bytes (uint8)"
            )
        if not buffer.flags.c_contiguous:
            raise MemdescError(
                f"{side} of shape {buffer.shape} and strides {buffer.strides} is not C-contiguous; "
                "describe it with array_desc() or copy it"
            )
        if buffer.nbytes < self.min_nbytes:
            raise MemdescError(
                f"{side} has {buffer.nbytes} bytes, but {desc!r} touches {self.min_nbytes} "
                f"(allocate {desc.nbytes})"
            )
        if self.write and not buffer.flags.writeable:
            raise MemdescError(f"{side} is read-only; pass a writable buffer, or a copy")
        if desc.nelems and address_of(buffer) % self.alignment:
            raise MemdescError(
                f"{side} starts at address {address_of(buffer):#x}, which is not a multiple of the "
                f"{self.alignment} bytes of {desc.dtype}; copy it"
            )
        flat: NDArray[np.uint8] = buffer.reshape(-1).view(np.uint8)
        return flat


def check_disjoint(
    src: NDArray[Any], src_desc: MemoryDesc, dst: NDArray[Any], dst_desc: MemoryDesc
) -> None:
    """Refuse buffers with a byte that src reads and dst writes, unless the reorder is a no-op."""
    distance = address_of(dst) - address_of(src)
    if (distance == 0 and src_desc == dst_desc) or are_disjoint(src_desc, dst_desc, distance):
        return
    raise OverlapError(
        f"x and out share memory: {src_desc.min_nbytes} bytes at {address_of(src):#x} and "
        f"{dst_desc.min_nbytes} at {address_of(dst):#x}, and out would overwrite bytes of "
        "x before they are read; reorder into another buffer"
    )


def are_disjoint(src_desc: MemoryDesc, dst_desc: MemoryDesc, distance: int) -> bool:
    """Whether a bounded search proves that buffers `distance` apart share no touched byte."""
    if distance >= src_desc.min_nbytes or -distance >= dst_desc.min_nbytes:
        return True
    if src_desc.layout.xor or dst_desc.layout.xor:
        return False
    src, dst = ((desc.layout, desc.dtype.bits) for desc in (src_desc, dst_desc))
    # two elements of 4 bits may share a byte, wherever each of them starts in it
    return are_apart(src, dst, 8 * distance, 5)
