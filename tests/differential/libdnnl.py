"""The real oneDNN, asked about memory descriptors through its public C API by ctypes.

Two builds serve as oracles: 3.2 (PyPI ``onednn-cpu-gomp``) and 3.13 (PyPI ``onednn``).
Both install into one environment: they fight over ``lib/libdnnl.so.3``, but each keeps a
file named by its full version. Both load into one process, in any order.
"""

from __future__ import annotations

import struct
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from reorder.bench.libdnnl import Engine, Status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RUNTIME: Final = -(2**63)
"""The runtime placeholder in dims and strides."""

FORMAT_KIND_BLOCKED: Final = 2

# fmt: off
DATA_TYPES: Final[dict[str, int]] = {
    "undef": 0, "f16": 1, "bf16": 2, "f32": 3, "s32": 4, "s8": 5, "u8": 6, "f64": 7, "boolean": 8,
    "f8_e5m2": 9, "f8_e4m3": 10, "s4": 11, "u4": 12, "e8m0": 13, "f4_e2m1": 14, "f4_e3m0": 15,
    "s64": 16,
}
# fmt: on
DESC_TYPES: Final = frozenset(DATA_TYPES) - {"undef", "boolean"}
"""Those that its memory descriptors may have."""


class _Query(IntEnum):
    """The part of dnnl_query_t that is about memory descriptors."""

    STRIDES = 14
    NDIMS = 256
    DIMS = 257
    DATA_TYPE = 258
    OFFSET0 = 259
    PADDED_DIMS = 260
    PADDED_OFFSETS = 261
    FORMAT_KIND = 262
    INNER_NBLKS = 263
    INNER_BLKS = 264
    INNER_IDXS = 265


_Int64s = POINTER(c_int64)
_SIGNATURES: Final[dict[str, tuple[type, ...]]] = {
    "dnnl_memory_desc_create_with_string_tag": (c_void_p, c_int, c_void_p, c_int, c_char_p),
    "dnnl_memory_desc_create_submemory": (c_void_p, c_void_p, c_void_p, c_void_p),
    "dnnl_memory_desc_reshape": (c_void_p, c_void_p, c_int, c_void_p),
    "dnnl_memory_desc_permute_axes": (c_void_p, c_void_p, c_void_p),
    "dnnl_memory_desc_equal": (c_void_p, c_void_p),
    "dnnl_memory_desc_get_size": (c_void_p,),
    "dnnl_memory_desc_query": (c_void_p, c_int, c_void_p),
}


@dataclass(frozen=True, slots=True)
class Fields:
    """All that a descriptor answers; strides and inner lists are empty unless it is blocked."""

    ndims: int
    dims: tuple[int, ...]
    data_type: int
    padded_dims: tuple[int, ...]
    padded_offsets: tuple[int, ...]
    offset0: int
    strides: tuple[int, ...]
    inner_blks: tuple[int, ...]
    inner_idxs: tuple[int, ...]
    size: int
    format_kind: int


class Desc:
    """A memory descriptor that frees its handle."""

    __slots__ = ("handle", "library")

    def __init__(self, library: Library, handle: int) -> None:
        self.library = library
        self.handle = handle

    def __del__(self) -> None:
        self.library.c.dnnl_memory_desc_destroy(self.handle)

    def fields(self) -> Fields:
        """Query everything."""
        ndims = self._number(_Query.NDIMS, c_int32())
        inner_nblks = self._number(_Query.INNER_NBLKS, c_int32())
        return Fields(
            ndims=ndims,
            dims=self._numbers(_Query.DIMS, ndims),
            data_type=self._number(_Query.DATA_TYPE, c_int32()),
            padded_dims=self._numbers(_Query.PADDED_DIMS, ndims),
            padded_offsets=self._numbers(_Query.PADDED_OFFSETS, ndims),
            offset0=self._number(_Query.OFFSET0, c_int64()),
            strides=self._numbers(_Query.STRIDES, ndims),
            inner_blks=self._numbers(_Query.INNER_BLKS, inner_nblks),
            inner_idxs=self._numbers(_Query.INNER_IDXS, inner_nblks),
            size=self.library.c.dnnl_memory_desc_get_size(self.handle),
            format_kind=self._number(_Query.FORMAT_KIND, c_int32()),
        )

    def submemory(self, dims: Sequence[int], offsets: Sequence[int]) -> Desc | Status:
        """View a box of this descriptor."""
        self._check_count(dims)
        self._check_count(offsets)
        create = self.library.c.dnnl_memory_desc_create_submemory
        return self.library.make(create, self.handle, _pack(dims), _pack(offsets))

    def reshape(self, dims: Sequence[int]) -> Desc | Status:
        """Give the same elements other dims."""
        create = self.library.c.dnnl_memory_desc_reshape
        return self.library.make(create, self.handle, len(dims), _pack(dims))

    def permute(self, perm: Sequence[int]) -> Desc | Status:
        """Move old axis k to place perm[k]."""
        self._check_count(perm)
        create = self.library.c.dnnl_memory_desc_permute_axes
        return self.library.make(create, self.handle, _pack(perm, "i"))

    def equals(self, other: Desc) -> bool:
        """Ask oneDNN whether two of its own descriptors are equal."""
        if other.library is not self.library:
            message = "descriptors of two libraries cannot be compared"
            raise ValueError(message)
        return bool(self.library.c.dnnl_memory_desc_equal(self.handle, other.handle))

    def _check_count(self, values: Sequence[int]) -> None:
        # The C function gets a pointer and no count: it would read past a short list.
        if len(values) != (ndims := self._number(_Query.NDIMS, c_int32())):
            message = f"{len(values)} values for a descriptor of {ndims} dims"
            raise ValueError(message)

    def _number(self, what: int, out: c_int32 | c_int64) -> int:
        # A query that fails (blocks where there are none) leaves the zero.
        self.library.c.dnnl_memory_desc_query(self.handle, what, byref(out))
        return out.value

    def _numbers(self, what: int, count: int) -> tuple[int, ...]:
        out = _Int64s()
        if self.library.c.dnnl_memory_desc_query(self.handle, what, byref(out)):
            return ()
        return tuple(out[:count])


class Library(Engine):
    """One loaded oneDNN, able to make descriptors.

    Known to end the process: 3.13 divides by zero when the padded volume of a tag wraps to a
    multiple of 2^64, as dims (2^62, 1) with AB16a16b do. 3.2 answers.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for name, argtypes in _SIGNATURES.items():
            getattr(self.c, name).argtypes = argtypes
        self.c.dnnl_memory_desc_get_size.restype = c_size_t

    def by_tag(self, dims: Sequence[int], dtype_name: str, tag: int) -> Desc | Status:
        """Lay dims out by a value of the tag enum."""
        create = self.c.dnnl_memory_desc_create_with_tag
        return self.make(create, len(dims), _pack(dims), DATA_TYPES[dtype_name], tag)

    def by_string_tag(self, dims: Sequence[int], dtype_name: str, tag: str) -> Desc | Status:
        """Lay dims out by letters and blocks, whether the enum has them or not.

        Not by_tag in another spelling: it checks neither the data type nor the strides, and a
        dim of 0 makes the strides outside of it 0.
        """
        create = self.c.dnnl_memory_desc_create_with_string_tag
        return self.make(create, len(dims), _pack(dims), DATA_TYPES[dtype_name], tag.encode())

    def by_strides(
        self, dims: Sequence[int], dtype_name: str, strides: Sequence[int] | None = None
    ) -> Desc | Status:
        """Lay dims out by strides in elements; None is row-major."""
        if strides is not None and len(strides) != len(dims):
            message = f"{len(strides)} strides for {len(dims)} dims"
            raise ValueError(message)
        create = self.c.dnnl_memory_desc_create_with_strides
        packed = None if strides is None else _pack(strides)
        return self.make(create, len(dims), _pack(dims), DATA_TYPES[dtype_name], packed)

    def make(self, create: Any, *arguments: object) -> Desc | Status:
        """Call a C function whose first argument receives a new descriptor."""
        handle = c_void_p()
        status = create(byref(handle), *arguments)
        if status or handle.value is None:
            return Status(status)
        return Desc(self, handle.value)


def _pack(values: Sequence[int], code: str = "q") -> bytes:
    # Raises where a ctypes array would wrap a number that is too large.
    return struct.pack(f"{len(values)}{code}", *values)
