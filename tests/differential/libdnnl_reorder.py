"""The real oneDNN executing reorders on the CPU, with and without attributes."""

from contextlib import ExitStack, closing
from ctypes import c_float, c_void_p
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from memdesc.dtypes import DATA_TYPES as OUR_TYPES

from .libdnnl import DATA_TYPES, RUNTIME, Desc, DnnlError, ExecArg, Fields, Library, Status

_BITS: Final = {
    number: OUR_TYPES[name].bits for name, number in DATA_TYPES.items() if name in OUR_TYPES
}
# The numbers of arguments, and what is added for scales and zero points (dnnl_types.h, 3.13).
_SIDES: Final = {"src": 1, "dst": 17}
_KINDS: Final = {"scale": (4096, "f32"), "zero_point": (8192, "s32")}


class Parameters(NamedTuple):
    """Values of one role, flat, and their mask; None where the role is not used."""

    src_scale: tuple[npt.NDArray[np.float32], int] | None = None
    dst_scale: tuple[npt.NDArray[np.float32], int] | None = None
    src_zero_point: tuple[npt.NDArray[np.int32], int] | None = None
    dst_zero_point: tuple[npt.NDArray[np.int32], int] | None = None
    beta: float = 0.0


class Primitive:
    """A reorder of oneDNN on given buffers, which must hold both layouts; a call executes it.

    It is planned for the descriptors `planned` where these are given: with runtime dims, oneDNN
    chooses its reference.
    """

    def __init__(
        self,
        library: Library,
        descs: tuple[Desc, Desc],
        buffers: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]],
        parameters: Parameters | None = None,
        planned: tuple[Desc, Desc] | None = None,
    ) -> None:
        self._library = library
        self._stack = ExitStack()
        # the values that arguments point to
        self._kept: list[object] = [descs, buffers, parameters]
        with ExitStack() as failed:
            failed.callback(self.close)
            arguments = [
                (
                    number,
                    self._new("memory", desc.handle, library.engine, c_void_p(buffer.ctypes.data)),
                )
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

    def _memory(self, desc: Desc, buffer: npt.NDArray[Any]) -> c_void_p:
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
                memory = self._new(
                    "memory", desc.handle, library.engine, c_void_p(values.ctypes.data)
                )
                arguments.append((number | offset, memory))
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


class Executor(Library):
    """One loaded oneDNN, able to reorder too.

    Give 3.13 some room after both buffers: where the layouts are equal and blocked it may
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
        _check_buffer("src", src, src_bytes)
        _check_buffer("dst", dst, dst_bytes)
        try:
            with closing(Primitive(self, (src, dst), (src_bytes, dst_bytes))) as primitive:
                primitive()
        except DnnlError as error:
            return error.status
        return Status.SUCCESS


def reorder_with_attributes(
    library: Executor,
    dims: tuple[int, ...],
    sides: tuple[tuple[str, str], tuple[str, str]],
    buffers: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]],
    parameters: Parameters,
) -> Status:
    """Fill dst from src by the reference; a side is a dtype and a tag. Buffers must hold both."""
    src, dst = (_desc(library, dims, *side) for side in sides)
    # with runtime dims no other implementation is chosen
    runtime = (RUNTIME,) * len(dims)
    planned = _desc(library, runtime, *sides[0]), _desc(library, runtime, *sides[1])
    try:
        with closing(Primitive(library, (src, dst), buffers, parameters, planned)) as primitive:
            primitive()
    except DnnlError as error:
        return error.status
    return Status.SUCCESS


def _desc(library: Executor, dims: tuple[int, ...], dtype: str, tag: str) -> Desc:
    desc = library.by_string_tag(dims, dtype, tag)
    assert isinstance(desc, Desc)
    assert dtype in DATA_TYPES
    return desc


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
