"""The real oneDNN executing reorders with attributes: by its reference all dims are runtime."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reorder.bench.libdnnl import DnnlError, ExecArg, Status
from reorder.bench.onednn_attr import ATTR_SIGNATURES

from .libdnnl import DATA_TYPES, RUNTIME, Desc

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .libdnnl_reorder import Executor

__all__ = ["Parameters", "reorder_with_attributes"]

_FROM: Final = 1
_TO: Final = 17
_SCALES: Final = 4096
_ZERO_POINTS: Final = 8192


class Parameters(NamedTuple):
    """Values of one role, flat, and their mask; None where the role is not used."""

    src_scale: tuple[npt.NDArray[np.float32], int] | None = None
    dst_scale: tuple[npt.NDArray[np.float32], int] | None = None
    src_zero_point: tuple[npt.NDArray[np.int32], int] | None = None
    dst_zero_point: tuple[npt.NDArray[np.int32], int] | None = None
    beta: float = 0.0


def reorder_with_attributes(
    library: Executor,
    dims: tuple[int, ...],
    sides: tuple[tuple[str, str], tuple[str, str]],
    buffers: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]],
    parameters: Parameters,
    *,
    by_reference: bool = True,
) -> Status:
    """Fill dst from src; a side is a dtype and a tag. Buffers must hold both."""
    for name, argtypes in ATTR_SIGNATURES.items():
        getattr(library.c, f"dnnl_{name}").argtypes = argtypes
    engine, stream = library.engine, library.stream
    known = [_desc(library, dims, *side) for side in sides]
    # with runtime dims no other implementation is chosen
    planned = (
        [_desc(library, (RUNTIME,) * len(dims), *side) for side in sides] if by_reference else known
    )
    with ExitStack() as stack:

        def new(name: str, *arguments: object) -> int:
            handle = library.new(f"{name}_create", *arguments)
            stack.callback(library.call, f"{name.removeprefix('reorder_')}_destroy", handle)
            return handle

        def memory(desc: Desc, buffer: npt.NDArray[Any]) -> int:
            return new("memory", desc.handle, engine, buffer.ctypes.data)

        try:
            attr = new("primitive_attr")
            arguments = [(_FROM, memory(known[0], buffers[0])), (_TO, memory(known[1], buffers[1]))]
            kept = []
            for side, at in (("src", _FROM), ("dst", _TO)):
                for part, offset, dtype in (
                    ("scale", _SCALES, "f32"),
                    ("zero_point", _ZERO_POINTS, "s32"),
                ):
                    given = getattr(parameters, f"{side}_{part}")
                    if given is not None:
                        library.call(f"primitive_attr_set_{part}s_mask", attr, at, given[1])
                        desc = library.by_strides((given[0].size,), dtype)
                        assert isinstance(desc, Desc)
                        kept.append(desc)
                        arguments.append((at | offset, memory(desc, given[0])))
            if parameters.beta:
                operations = new("post_ops")
                library.call("post_ops_append_sum", operations, parameters.beta, 0, 0)
                library.call("primitive_attr_set_post_ops", attr, operations)
            primitive_desc = new(
                "reorder_primitive_desc", planned[0].handle, engine, planned[1].handle, engine, attr
            )
            primitive = new("primitive", primitive_desc)
            packed = (ExecArg * len(arguments))(*(ExecArg(*argument) for argument in arguments))
            library.call(
                "primitive_execute",
                primitive,
                stream,
                len(arguments),
                ctypes.cast(packed, c_void_p),
            )
            library.call("stream_wait", stream)
        except DnnlError as error:
            return error.status
    return Status.SUCCESS


def _desc(library: Executor, dims: tuple[int, ...], dtype: str, tag: str) -> Desc:
    desc = library.by_string_tag(dims, dtype, tag)
    assert isinstance(desc, Desc)
    assert dtype in DATA_TYPES
    return desc
