"""Attributes of what is measured: words on the command line to an Attr, and to oneDNN's."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_int32, c_void_p
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError
from reorder.bench.libdnnl import ExecArg
from reorder.values.attr import Attr

if TYPE_CHECKING:
    from reorder.bench.cases import Case
    from reorder.bench.libdnnl import Engine

__all__ = ["ATTRIBUTES", "attr_of", "onednn_arguments", "onednn_attr"]

# options, and what they are to an Attr
ATTRIBUTES = {
    "scale": "dst_scale",
    "zero-point": "dst_zero_point",
    "src-scale": "src_scale",
    "src-zero-point": "src_zero_point",
    "beta": "beta",
}
# as oneDNN numbers arguments, and what is added for scales and zero points (dnnl_types.h, 3.13)
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


def attr_of(dims: tuple[int, ...], words: dict[str, str]) -> Attr | None:
    """Return the attributes that words stand for: a number, or but for beta ``mask:M`` for made-up values along dims.

    Raises
    ------
    MemdescError
        If a word is neither.
    """
    given: dict[str, Any] = {}
    for option, text in words.items():
        role = ATTRIBUTES[option]
        try:
            if text.startswith("mask:") and role != "beta":
                mask = int(text.removeprefix("mask:"))
                count = prod(size for dim, size in enumerate(dims) if mask >> dim & 1)
                spread = np.arange(count) % 7
                given |= {
                    role: spread if "zero" in role else (0.5 + spread / 8).astype(np.float32),
                    f"{role}_mask": mask,
                }
            else:
                given[role] = int(text) if "zero" in role else float(text)
        except ValueError:
            what = (
                "no number"
                if role == "beta"
                else "neither a number nor mask:M, such as mask:2 for one along dim b"
            )
            msg = f"--{option} {text!r} is {what}"
            raise MemdescError(msg) from None
    return Attr(**given) if given else None


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


def onednn_arguments(engine: Engine, case: Case) -> tuple[list[ExecArg], list[int], list[Any]]:
    """Return the arguments that carry the values, their memories, and the arrays to keep."""
    arguments, memories, kept = [], [], []
    for role, values, _ in _values(case.attr) if case.attr else ():
        side, _, kind = role.partition("_")
        array = values.astype(np.float32 if kind == "scale" else np.int32)
        dims = (ctypes.c_int64 * 1)(array.size)
        desc = engine.new(
            "memory_desc_create_with_strides", 1, dims, 3 if kind == "scale" else 4, None
        )
        memories.append(engine.new("memory_create", desc, engine.engine, array.ctypes.data))
        engine.call("memory_desc_destroy", desc)
        arguments.append(ExecArg(_SIDES[side] | _KINDS[kind], memories[-1]))
        kept.append(array)
    return arguments, memories, kept


def _values(attr: Attr) -> list[tuple[str, Any, int]]:
    return [(own.role, own.values.reshape(-1), own.mask) for own in attr.parameters]
