"""The real oneDNN executing reorders on the CPU."""

from __future__ import annotations

import ctypes
import os
from contextlib import ExitStack
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p
from functools import cached_property
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import numpy as np

from .libdnnl import DATA_TYPES, RUNTIME, Desc, Fields, Library, Status

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

_BITS: Final = {
    DATA_TYPES[name]: bits
    for bits, names in (
        (64, ("f64", "s64")),
        (32, ("f32", "s32")),
        (16, ("f16", "bf16")),
        (8, ("s8", "u8", "f8_e5m2", "f8_e4m3", "e8m0")),
        (4, ("s4", "u4", "f4_e2m1")),
    )
    for name in names
}
_CPU: Final = 1
_IN_ORDER: Final = 1
_FROM: Final = 1
_TO: Final = 17
_SIGNATURES: Final[dict[str, tuple[type, ...]]] = {
    "engine_create": (c_void_p, c_int, c_size_t),
    "stream_create": (c_void_p, c_void_p, c_uint),
    "stream_wait": (c_void_p,),
    "reorder_primitive_desc_create": (c_void_p, *(c_void_p,) * 5),
    "primitive_desc_destroy": (c_void_p,),
    "primitive_create": (c_void_p, c_void_p),
    "primitive_execute": (c_void_p, c_void_p, c_int, c_void_p),
    "primitive_destroy": (c_void_p,),
    "memory_create": (c_void_p, c_void_p, c_void_p, c_void_p),
    "memory_destroy": (c_void_p,),
}


class _ExecArg(ctypes.Structure):
    _fields_ = (("arg", c_int), ("memory", c_void_p))


class DnnlError(RuntimeError):
    """A call refused by oneDNN."""

    def __init__(self, name: str, status: Status) -> None:
        super().__init__(f"dnnl_{name}: {status.name}")
        self.status = status


class Executor(Library):
    """One loaded oneDNN, able to reorder too.

    Give 3.13 some room behind both buffers: where the layouts are equal and blocked it may
    write beyond a view, or beyond dst for blocks of 24, and it reads one element too many on
    the way to 4-bit types with an odd count.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for name, argtypes in _SIGNATURES.items():
            getattr(self.c, f"dnnl_{name}").argtypes = argtypes
        # A cached primitive keeps its memory, and serves every descriptor that is equal but
        # for the strides of unit dims.
        self._call("set_primitive_cache_capacity", 0)

    @cached_property
    def engine(self) -> int:
        """The handle of CPU engine 0.

        Neither it nor the stream is destroyed: ending thread pools while the interpreter
        exits is a risk without a gain.
        """
        # 3.13 reaches the CPU through OpenCL, and the wheel's ICD file points nowhere. The
        # OpenCL loader looks once, so the variables need not stay.
        driver = str(self.path.parent / "libintelocl.so")
        with patch.dict(os.environ, OCL_ICD_VENDORS="/nowhere", OCL_ICD_FILENAMES=driver):
            return self._new("engine_create", _CPU, 0)

    @cached_property
    def stream(self) -> int:
        """The handle of a stream on the engine."""
        return self._new("stream_create", self.engine, _IN_ORDER)

    def reorder(self, src: Desc, dst: Desc, src_bytes: npt.NDArray[np.uint8], dst_bytes: npt.NDArray[np.uint8]) -> Status:
        """Fill dst_bytes from src_bytes, with default attributes."""
        engine, stream = self.engine, self.stream
        _check_buffer("src", src, src_bytes)
        _check_buffer("dst", dst, dst_bytes)
        with ExitStack() as stack:

            def new(name: str, *arguments: object) -> int:
                handle = self._new(f"{name}_create", *arguments)
                owner = name.removeprefix("reorder_")
                stack.callback(self._call, f"{owner}_destroy", handle)
                return handle

            try:
                primitive_desc = new("reorder_primitive_desc", src.handle, engine, dst.handle, engine, None)
                primitive = new("primitive", primitive_desc)
                arguments = (_ExecArg * 2)(
                    _ExecArg(_FROM, new("memory", src.handle, engine, src_bytes.ctypes.data)),
                    _ExecArg(_TO, new("memory", dst.handle, engine, dst_bytes.ctypes.data)),
                )
                self._call("primitive_execute", primitive, stream, len(arguments), arguments)
                self._call("stream_wait", stream)
            except DnnlError as error:
                return error.status
        return Status.SUCCESS

    def _new(self, name: str, *arguments: object) -> int:
        handle = c_void_p()
        self._call(name, byref(handle), *arguments)
        if handle.value is None:
            raise DnnlError(name, Status.RUNTIME_ERROR)
        return handle.value

    def _call(self, name: str, *arguments: object) -> None:
        if status := getattr(self.c, f"dnnl_{name}")(*arguments):
            raise DnnlError(name, Status(status))


def _check_buffer(side: str, desc: Desc, buffer: npt.NDArray[np.uint8]) -> None:
    # oneDNN trusts the pointer: whatever is too short here would end the test process.
    need = _count_bytes(desc.fields())
    if buffer.dtype != np.uint8 or not buffer.flags.c_contiguous or buffer.nbytes < need:
        message = f"{side}: need {need} contiguous bytes as uint8, got {buffer.nbytes} bytes"
        raise ValueError(message)


def _count_bytes(fields: Fields) -> int:
    # Not fields.size: that leaves offset0 out, is 0 for 3.2 where offset0 is not, and is too
    # small for some views.
    unusable = fields.data_type not in _BITS or RUNTIME in fields.padded_dims + fields.strides
    if unusable or 0 in fields.dims:
        return 0
    blocks = [1] * fields.ndims
    for dim, extent in zip(fields.inner_idxs, fields.inner_blks, strict=True):
        blocks[dim] *= extent
    last = fields.offset0
    tile = 1
    for padded, block, stride in zip(fields.padded_dims, blocks, fields.strides, strict=False):
        last += ((padded - 1) // block) * max(stride, 0)
        tile *= block
    return ((last + tile) * _BITS[fields.data_type] + 7) // 8
