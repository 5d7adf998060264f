"""The real oneDNN, asked through its public C API by ctypes: its descriptors and its reorders.

Two builds serve as oracles: 3.2 (PyPI ``onednn-cpu-gomp``) and 3.13 (PyPI ``onednn``).
Both install into one environment: they fight over ``lib/libdnnl.so.3``, but each keeps a
file named by its full version. Both load into one process, in any order.
"""

import ctypes
import importlib.metadata
import os
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from memdesc import Extra, MemoryDesc
from memdesc import dtypes as ours

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

_BITS: Final = {
    number: ours.DATA_TYPES[name].bits
    for name, number in DATA_TYPES.items()
    if name in ours.DATA_TYPES
}
# The numbers of arguments, and what is added for scales and zero points (dnnl_types.h, 3.13).
_SIDES: Final = {"src": 1, "dst": 17}
_KINDS: Final = {"scale": (4096, "f32"), "zero_point": (8192, "s32")}
# Where a descriptor's C struct has its fields, each of 8 bytes or lists of 12 such; and the number
# of inner blocks. 3.13 has what follows the elements after the layouts of all kinds: flags, a mask,
# an adjustment of scales and another mask.
_PLACES: Final = {
    "dims": 8,
    "padded_dims": 112,
    "padded_offsets": 208,
    "offset0": 304,
    "strides": 320,
    "inner_blks": 424,
    "inner_idxs": 520,
}
_INNER_NBLKS_AT, _LAYOUT_END = 416, 616
_EXTRA_FORM: Final = "<Qifi"
_S8S8, _ADJUST, _ASYMMETRIC = 1, 2, 8
# dims of (3, 5, 7) by ABc8a16b, and bytes after the elements by flags and masks
_PROBE_SIZES: Final = {
    (_S8S8, 1, 0): 4 * 8,
    (_S8S8, 2, 0): 4 * 16,
    (_S8S8, 3, 0): 4 * 8 * 16,
    (_ASYMMETRIC, 0, 3): 4 * 8 * 16,
    (_S8S8 | _ASYMMETRIC, 1, 3): 4 * (8 + 8 * 16),
    (0, 3, 3): 0,
}


# the part of dnnl_query_t that is about memory descriptors
_NUMBERS: Final[dict[str, tuple[int, type[c_int32 | c_int64]]]] = {
    "ndims": (256, c_int32),
    "data_type": (258, c_int32),
    "offset0": (259, c_int64),
    "format_kind": (262, c_int32),
    "inner_nblks": (263, c_int32),
}
_LISTS: Final = {
    "dims": 257,
    "padded_dims": 260,
    "padded_offsets": 261,
    "strides": 14,
    "inner_blks": 264,
    "inner_idxs": 265,
}
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

    @property
    def blocks(self) -> list[int]:
        """The product of the inner blocks of each dim."""
        found = [1] * self.ndims
        for dim, extent in zip(self.inner_idxs, self.inner_blks, strict=True):
            found[dim] *= extent
        return found

    def count_elements(self) -> int:
        """Count the elements that a buffer needs: up to the end of the last tile.

        Not by `size`: that leaves offset0 out, is 0 for 3.2 where offset0 is not, and is too small
        for some views.
        """
        if 0 in self.dims:
            return 0
        outer = zip(self.padded_dims, self.blocks, self.strides, strict=True)
        steps = ((padded - 1) // block * max(stride, 0) for padded, block, stride in outer)
        return self.offset0 + sum(steps) + prod(self.blocks)


class Desc:
    """A memory descriptor that frees its handle."""

    __slots__ = ("handle", "library")

    def __init__(self, library: "Library", handle: c_void_p) -> None:
        self.library = library
        self.handle = handle

    def __del__(self) -> None:
        self.library.c.dnnl_memory_desc_destroy(self.handle)

    def fields(self) -> Fields:
        """Query everything."""
        found: dict[str, Any] = {
            name: self._number(what, kind()) for name, (what, kind) in _NUMBERS.items()
        }
        count = found.pop("inner_nblks")
        for name, what in _LISTS.items():
            found[name] = self._numbers(what, count if "inner" in name else found["ndims"])
        return Fields(**found, size=self.library.c.dnnl_memory_desc_get_size(self.handle))

    def submemory(self, dims: Sequence[int], offsets: Sequence[int]) -> "Desc | Status":
        """View a box of this descriptor."""
        self._check_count(dims)
        self._check_count(offsets)
        create = self.library.c.dnnl_memory_desc_create_submemory
        return self.library.make(create, self.handle, _pack(dims), _pack(offsets))

    def reshape(self, dims: Sequence[int]) -> "Desc | Status":
        """Give the same elements other dims."""
        create = self.library.c.dnnl_memory_desc_reshape
        return self.library.make(create, self.handle, len(dims), _pack(dims))

    def permute_axes(self, perm: Sequence[int]) -> "Desc | Status":
        """Move old axis k to place perm[k]."""
        self._check_count(perm)
        create = self.library.c.dnnl_memory_desc_permute_axes
        return self.library.make(create, self.handle, _pack(perm, "i"))

    def equals(self, other: "Desc") -> bool:
        """Ask oneDNN whether two of its own descriptors are equal."""
        if other.library is not self.library:
            message = "descriptors of two libraries cannot be compared"
            raise ValueError(message)
        return bool(self.library.c.dnnl_memory_desc_equal(self.handle, other.handle))

    def write(self, at: int, content: bytes) -> None:
        """Change the C struct."""
        ctypes.memmove((self.handle.value or 0) + at, content, len(content))

    def _check_count(self, values: Sequence[int]) -> None:
        # The C function gets a pointer and no count: it would read past a short list.
        if len(values) != (ndims := self.fields().ndims):
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

    Give 3.13 some room after both buffers of a reorder: where the layouts are equal and blocked it
    may write beyond a view, or beyond dst for blocks of 24, and it reads one element too many on
    the way to 4-bit types with an odd count.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.c = _load(path)
        self.c.dnnl_version.restype = POINTER(c_int)
        self.c.dnnl_memory_desc_get_size.restype = c_size_t
        # 3.13 prints a line for every refusal
        self.c.dnnl_set_verbose(0)
        # A cached primitive keeps its memory, and serves every descriptor that is equal but
        # for the strides of unit dims.
        self.call("set_primitive_cache_capacity", 0)

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
        with mock.patch.dict(os.environ, variables):
            return self.new("engine_create", _CPU, c_size_t(0))

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

    def by_tag(self, dims: Sequence[int], dtype_name: str, tag: int) -> "Desc | Status":
        """Lay dims out by a value of the tag enum."""
        create = self.c.dnnl_memory_desc_create_with_tag
        return self.make(create, len(dims), _pack(dims), DATA_TYPES[dtype_name], tag)

    def by_string_tag(self, dims: Sequence[int], dtype_name: str, tag: str) -> "Desc | Status":
        """Lay dims out by letters and blocks, whether the enum has them or not.

        Not by_tag in another spelling: it checks neither the data type nor the strides, and a
        dim of 0 makes the strides outside of it 0.
        """
        create = self.c.dnnl_memory_desc_create_with_string_tag
        return self.make(create, len(dims), _pack(dims), DATA_TYPES[dtype_name], tag.encode())

    def by_strides(
        self, dims: Sequence[int], dtype_name: str, strides: Sequence[int] | None = None
    ) -> "Desc | Status":
        """Lay dims out by strides in elements; None is row-major."""
        if strides is not None and len(strides) != len(dims):
            message = f"{len(strides)} strides for {len(dims)} dims"
            raise ValueError(message)
        create = self.c.dnnl_memory_desc_create_with_strides
        packed = None if strides is None else _pack(strides)
        return self.make(create, len(dims), _pack(dims), DATA_TYPES[dtype_name], packed)

    def by_fields(self, desc: MemoryDesc) -> Desc:
        """Describe the layout of a descriptor of ours: its fields are written into the C struct."""
        made = self.by_strides((1,) * desc.ndims, desc.dtype.name)
        assert isinstance(made, Desc)
        for name, at in _PLACES.items():
            value = getattr(desc, name)
            made.write(at, _pack((value,) if isinstance(value, int) else value))
        made.write(_INNER_NBLKS_AT, struct.pack("i", len(desc.inner_blks)))
        if (extra := desc.extra) is not None:
            self._add_extra(made, extra)
        return made

    def _add_extra(self, desc: Desc, extra: Extra) -> None:
        """Write what comes after the elements, which no public function sets; 3.13 alone."""
        flags = 0 if extra.s8s8_mask is None else _S8S8
        flags |= 0 if extra.asymmetric_mask is None else _ASYMMETRIC
        flags |= 0 if extra.scale_adjust == 1 else _ADJUST
        masks = extra.s8s8_mask or 0, extra.asymmetric_mask or 0
        values = struct.pack(_EXTRA_FORM, flags, masks[0], extra.scale_adjust, masks[1])
        desc.write(self._extra_at, values)

    @cached_property
    def _extra_at(self) -> int:
        """Where the struct has the extra fields: searched for, by the sizes that follow."""

        def probe() -> Desc:
            made = self.by_string_tag((3, 5, 7), "s8", "ABc8a16b")
            assert isinstance(made, Desc)
            return made

        nbytes, size = probe().fields().size, c_size_t()
        self.call("memory_desc_get_blob", None, byref(size), probe().handle)
        for at in range(_LAYOUT_END, size.value - struct.calcsize(_EXTRA_FORM) + 1, 4):
            found = {}
            for flags, mask, other in _PROBE_SIZES:
                changed = probe()
                changed.write(at, struct.pack(_EXTRA_FORM, flags, mask, 1.0, other))
                found[flags, mask, other] = changed.fields().size - nbytes
            if found == _PROBE_SIZES:
                return at
        message = "no field of the descriptor makes room for compensation"
        raise AssertionError(message)

    def reorder(
        self,
        descs: Sequence[Desc],
        buffers: tuple[NDArray[np.uint8], NDArray[np.uint8]],
        parameters: "Parameters | None" = None,
        planned: Sequence[Desc] | None = None,
    ) -> Status:
        """Fill dst from src."""
        for desc, buffer in zip(descs, buffers, strict=True):
            # oneDNN trusts the pointer: whatever is too short would end the test process
            fields = desc.fields()
            need = (fields.count_elements() * _BITS[fields.data_type] + 7) // 8
            if buffer.dtype != np.uint8 or not buffer.flags.c_contiguous or buffer.nbytes < need:
                message = f"{need} contiguous bytes as uint8 are needed, got {buffer.nbytes} bytes"
                raise ValueError(message)
        try:
            with closing(Primitive(self, descs, buffers, parameters, planned)) as primitive:
                primitive()
        except DnnlError as error:
            return error.status
        return Status.SUCCESS

    def make(self, create: Any, *arguments: object) -> "Desc | Status":
        """Call a C function whose first argument receives a new descriptor."""
        handle = c_void_p()
        status = create(byref(handle), *arguments)
        if status or handle.value is None:
            return Status(status)
        return Desc(self, handle)


class Parameters(NamedTuple):
    """Values of one role, flat, and their mask; None where the role is not used."""

    src_scale: tuple[NDArray[np.float32], int] | None = None
    dst_scale: tuple[NDArray[np.float32], int] | None = None
    src_zero_point: tuple[NDArray[np.int32], int] | None = None
    dst_zero_point: tuple[NDArray[np.int32], int] | None = None
    beta: float = 0.0


class Primitive:
    """A reorder of oneDNN on given buffers, which must hold both layouts; a call executes it.

    It is planned for the descriptors `planned` where these are given: with runtime dims, oneDNN
    chooses its reference.
    """

    def __init__(
        self,
        library: Library,
        descs: Sequence[Desc],
        buffers: tuple[NDArray[np.uint8], NDArray[np.uint8]],
        parameters: "Parameters | None" = None,
        planned: Sequence[Desc] | None = None,
    ) -> None:
        self._library = library
        self._stack = ExitStack()
        # the values that arguments point to
        self._kept: list[object] = [descs, buffers, parameters]
        with ExitStack() as failed:
            failed.callback(self.close)
            arguments = [
                (number, self._memory(desc, buffer))
                for number, desc, buffer in zip(_SIDES.values(), descs, buffers, strict=True)
            ]
            attr = self._attributes(parameters, arguments) if parameters else None
            src, dst = planned or descs
            self._primitive_desc = self._new(
                "reorder_primitive_desc",
                *(src.handle, library.engine, dst.handle, library.engine, attr),
            )
            self._primitive = self._new("primitive", self._primitive_desc)
            self._count = len(arguments)
            self._arguments = (ExecArg * self._count)(*(ExecArg(*each) for each in arguments))
            failed.pop_all()

    def _new(self, name: str, *arguments: object) -> c_void_p:
        handle = self._library.new(f"{name}_create", *arguments)
        owner = name.removeprefix("reorder_")
        self._stack.callback(self._library.call, f"{owner}_destroy", handle)
        return handle

    def _memory(self, desc: Desc, buffer: NDArray[Any]) -> c_void_p:
        address = c_void_p(buffer.ctypes.data)
        return self._new("memory", desc.handle, self._library.engine, address)

    def _attributes(
        self, parameters: Parameters, arguments: list[tuple[int, c_void_p]]
    ) -> c_void_p:
        """Return a handle of attributes; append the arguments that carry their values."""
        library = self._library
        attr = self._new("primitive_attr")
        for side, number in _SIDES.items():
            for kind, (offset, dtype) in _KINDS.items():
                given = getattr(parameters, f"{side}_{kind}")
                if given is None:
                    continue
                values, mask = given
                library.call(f"primitive_attr_set_{kind}s_mask", attr, number, mask)
                desc = library.by_strides((values.size,), dtype)
                assert isinstance(desc, Desc)
                self._kept.append(desc)
                arguments.append((number | offset, self._memory(desc, values)))
        if parameters.beta:
            operations = self._new("post_ops")
            library.call("post_ops_append_sum", operations, c_float(parameters.beta), 0, 0)
            library.call("primitive_attr_set_post_ops", attr, operations)
        return attr

    def __call__(self) -> None:
        """Execute the reorder, and wait for it."""
        library = self._library
        library.call(
            "primitive_execute", self._primitive, library.stream, self._count, self._arguments
        )
        library.call("stream_wait", library.stream)

    @property
    def implementation(self) -> str:
        """oneDNN's name of the implementation that it chose."""
        return self._library.implementation(self._primitive_desc)

    def close(self) -> None:
        """Free all handles."""
        self._stack.close()

    def __del__(self) -> None:
        self.close()


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
