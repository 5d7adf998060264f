"""The real oneDNN executing reorders on the CPU."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import numpy as np

from memdesc import DATA_TYPES as OUR_TYPES
from reorder.bench.libdnnl import DnnlError, ExecArg, Status

from .libdnnl import DATA_TYPES, RUNTIME, Desc, Fields, Library

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

_BITS: Final = {
    number: OUR_TYPES[name].bits for name, number in DATA_TYPES.items() if name in OUR_TYPES
}
_FROM: Final = 1
_TO: Final = 17


class Executor(Library):
    """One loaded oneDNN, able to reorder too.

    Give 3.13 some room behind both buffers: where the layouts are equal and blocked it may
    write beyond a view, or beyond dst for blocks of 24, and it reads one element too many on
    the way to 4-bit types with an odd count.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # A cached primitive keeps its memory, and serves every descriptor that is equal but
        # for the strides of unit dims.
        self.call("set_primitive_cache_capacity", 0)

    def reorder(
        self,
        src: Desc,
        dst: Desc,
        src_bytes: npt.NDArray[np.uint8],
        dst_bytes: npt.NDArray[np.uint8],
    ) -> Status:
        """Fill dst_bytes from src_bytes, with default attributes."""
        engine, stream = self.engine, self.stream
        _check_buffer("src", src, src_bytes)
        _check_buffer("dst", dst, dst_bytes)
        with ExitStack() as stack:

            def new(name: str, *arguments: object) -> int:
                handle = self.new(f"{name}_create", *arguments)
                owner = name.removeprefix("reorder_")
                stack.callback(self.call, f"{owner}_destroy", handle)
                return handle

            try:
                primitive_desc = new(
                    "reorder_primitive_desc", src.handle, engine, dst.handle, engine, None
                )
                primitive = new("primitive", primitive_desc)
                arguments = (ExecArg * 2)(
                    ExecArg(_FROM, new("memory", src.handle, engine, src_bytes.ctypes.data)),
                    ExecArg(_TO, new("memory", dst.handle, engine, dst_bytes.ctypes.data)),
                )
                self.call("primitive_execute", primitive, stream, len(arguments), arguments)
                self.call("stream_wait", stream)
            except DnnlError as error:
                return error.status
        return Status.SUCCESS


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
