"""The real oneDNN, asked about memory descriptors through its public C API by ctypes.

Two builds serve as oracles: 3.2 (PyPI ``onednn-cpu-gomp``) and 3.13 (PyPI ``onednn``).
Both install into one environment: they fight over ``lib/libdnnl.so.3``, but each keeps a
file named by its full version. Both load into one process, in any order.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_void_p,
)
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Final

FOLDER_VARIABLE: Final = "MEMDESC_LIBDNNL_DIR"
"""Environment variable naming a folder to search, at any depth, before the environment."""

_DISTRIBUTIONS: Final = ("onednn-cpu-gomp", "onednn")
_FILE_NAME: Final = re.compile(r"libdnnl\.so\.(\d+\.\d+)(?:\.\d+)?")
# What 3.13 needs, dependencies first. Its wheel sets no run path, so the dynamic loader
# finds these only when they are already in the process.
_COMPANIONS: Final = ("libintlc.so.5", "libimf.so", "libsvml.so", "libtbb.so.12", "libsycl.so.9")
# Never RTLD_GLOBAL: Intel's libimf would replace libm for every module imported later, and
# the two builds of oneDNN export the same names.
_MODE: Final = getattr(os, "RTLD_NOW", 0) | getattr(os, "RTLD_LOCAL", 0)  # Windows has neither
_CPU: Final = 1
_IN_ORDER: Final = 1
_IMPL_INFO: Final = 8
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


class Status(IntEnum):
    """What a C call returned."""

    SUCCESS = 0
    OUT_OF_MEMORY = 1
    INVALID_ARGUMENTS = 2
    UNIMPLEMENTED = 3
    LAST_IMPL_REACHED = 4
    RUNTIME_ERROR = 5
    NOT_REQUIRED = 6


class DnnlError(RuntimeError):
    """A call refused by oneDNN."""

    def __init__(self, name: str, status: Status) -> None:
        super().__init__(f"dnnl_{name}: {status.name}")
        self.status = status


class ExecArg(ctypes.Structure):
    """An argument of a primitive: what it is, and a memory."""

    _fields_ = (("arg", c_int), ("memory", c_void_p))


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

    def __init__(self, library: Library, handle: c_void_p) -> None:
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


class Library:
    """One loaded oneDNN with a CPU engine and a stream.

    Its functions have no signatures here: addresses are given as c_void_p, which is not cut off.

    Neither is destroyed: ending thread pools while the interpreter exits is a risk without
    a gain.

    Known to end the process: 3.13 divides by zero when the padded volume of a tag wraps to a
    multiple of 2^64, as dims (2^62, 1) with AB16a16b do. 3.2 answers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.c = _load(path)
        self.c.dnnl_version.restype = POINTER(c_int)
        self.c.dnnl_memory_desc_get_size.restype = c_size_t
        # 3.13 prints a line for every refusal
        self.c.dnnl_set_verbose(0)

    @cached_property
    def version(self) -> tuple[int, int, int]:
        """Major, minor, patch."""
        major, minor, patch = self.c.dnnl_version()[:3]
        return major, minor, patch

    @cached_property
    def engine(self) -> c_void_p:
        """The handle of CPU engine 0."""
        # 3.13 reaches the CPU through OpenCL, and the wheel's ICD file points nowhere. The
        # OpenCL loader looks once, so the variables need not stay.
        variables = {
            "OCL_ICD_VENDORS": "/nowhere",
            "OCL_ICD_FILENAMES": str(self.path.parent / "libintelocl.so"),
        }
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            return self.new("engine_create", _CPU, c_size_t(0))
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    @cached_property
    def stream(self) -> c_void_p:
        """The handle of a stream on the engine."""
        return self.new("stream_create", self.engine, _IN_ORDER)

    def implementation(self, primitive_desc: c_void_p) -> str:
        """Return oneDNN's name of the implementation that it chose."""
        text = c_char_p()
        self.call("primitive_desc_query", primitive_desc, _IMPL_INFO, 0, byref(text))
        return (text.value or b"").decode()

    def new(self, name: str, *arguments: object) -> c_void_p:
        """Call a C function whose first argument receives a handle."""
        handle = c_void_p()
        self.call(name, byref(handle), *arguments)
        if handle.value is None:
            raise DnnlError(name, Status.RUNTIME_ERROR)
        return handle

    def call(self, name: str, *arguments: object) -> None:
        """Call a C function that returns a status."""
        if status := getattr(self.c, f"dnnl_{name}")(*arguments):
            raise DnnlError(name, Status(status))

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
        return Desc(self, handle)


def find_libraries() -> dict[str, Path]:
    """Find libraries: a version ("3.2", "3.13") and its file."""
    found: dict[str, Path] = {}
    for path in _candidates():
        # A shorter name (libdnnl.so.3) belongs to whichever wheel was installed last.
        if match := _FILE_NAME.fullmatch(path.name):
            found.setdefault(match[1], path)
    return found


def _candidates() -> Iterator[Path]:
    if folder := os.environ.get(FOLDER_VARIABLE):
        yield from sorted(Path(folder).rglob("libdnnl.so.*"))
    for name in _DISTRIBUTIONS:
        try:
            files = importlib.metadata.files(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        paths = (Path(str(file.locate())).resolve() for file in files)
        yield from (path for path in paths if path.is_file())


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), mode=_MODE)
    except OSError:
        for companion in filter(None, (_find_companion(path, name) for name in _COMPANIONS)):
            ctypes.CDLL(str(companion), mode=_MODE)
    return ctypes.CDLL(str(path), mode=_MODE)


def _find_companion(path: Path, name: str) -> Path | None:
    candidates = [path.parent / name, Path(sys.prefix, "lib", name)]
    if folder := os.environ.get(FOLDER_VARIABLE):
        candidates += Path(folder).rglob(name)
    return next(filter(Path.is_file, candidates), None)


def _pack(values: Sequence[int], code: str = "q") -> bytes:
    # Raises where a ctypes array would wrap a number that is too large.
    return struct.pack(f"{len(values)}{code}", *values)
