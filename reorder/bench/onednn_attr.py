"""Attributes as oneDNN takes them: a handle, and arguments that carry the values."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_int32, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reorder.bench.libdnnl import ExecArg

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.bench.libdnnl import Engine
    from reorder.values.attr import Attr

__all__ = ["ATTR_SIGNATURES", "OnednnArguments", "onednn_arguments", "onednn_attr"]

# The numbers of arguments, and what is added for scales and zero points (dnnl_types.h, 3.13).
_SIDES = {"src": 1, "dst": 17}
_KINDS = {"scale": 4096, "zero_point": 8192}
ATTR_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "primitive_attr_create": (c_void_p,),
    "primitive_attr_destroy": (c_void_p,),
    "primitive_attr_set_scales_mask": (c_void_p, c_int, c_int),
    "primitive_attr_set_zero_points_mask": (c_void_p, c_int, c_int),
    "primitive_attr_set_post_ops": (c_void_p, c_void_p),
    "post_ops_create": (c_void_p,),
    "post_ops_destroy": (c_void_p,),
    "post_ops_append_sum": (c_void_p, c_float, c_int32, c_int),
}


class OnednnArguments(NamedTuple):
    """Arguments of a primitive, their memories, and the arrays that the memories point to."""

    arguments: list[ExecArg]
    memories: list[int]
    arrays: list[NDArray[Any]]


def onednn_attr(engine: Engine, attr: Attr) -> int:
    """Return a handle of attributes, without their values."""
    for name, argtypes in ATTR_SIGNATURES.items():
        getattr(engine.c, f"dnnl_{name}").argtypes = argtypes
    handle = engine.new("primitive_attr_create")
    for role, _, mask in _values(attr):
        side, _, kind = role.partition("_")
        engine.call(f"primitive_attr_set_{kind}s_mask", handle, _SIDES[side], mask)
    if attr.beta:
        operations = engine.new("post_ops_create")
        engine.call("post_ops_append_sum", operations, attr.beta, 0, 0)
        engine.call("primitive_attr_set_post_ops", handle, operations)
        engine.call("post_ops_destroy", operations)
    return handle


def onednn_arguments(engine: Engine, attr: Attr | None) -> OnednnArguments:
    """Return the arguments that carry the values of attributes."""
    found = OnednnArguments([], [], [])
    for role, values, _ in _values(attr) if attr else ():
        side, _, kind = role.partition("_")
        array = values.astype(np.float32 if kind == "scale" else np.int32)
        dims = (ctypes.c_int64 * 1)(array.size)
        desc = engine.new(
            "memory_desc_create_with_strides", 1, dims, 3 if kind == "scale" else 4, None
        )
        found.memories.append(engine.new("memory_create", desc, engine.engine, array.ctypes.data))
        engine.call("memory_desc_destroy", desc)
        found.arguments.append(ExecArg(_SIDES[side] | _KINDS[kind], found.memories[-1]))
        found.arrays.append(array)
    return found


def _values(attr: Attr) -> list[tuple[str, Any, int]]:
    return [(each.role, each.values.reshape(-1), each.mask) for each in attr.parameters]
