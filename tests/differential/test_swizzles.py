"""Swizzles: Triton, pycute and tensor-layouts give every element the same offset."""

from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import pytest

from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.exchange import written

pytestmark = pytest.mark.peers

SWIZZLES = [(3, 3, 3), (2, 4, 3), (1, 4, 3), (3, 2, 3), (3, 3, 4), (2, 3, -3), (0, 4, 3)]


@pytest.mark.parametrize("library", ["pycute", "tensor_layouts"])
@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("stride", [(64, 1), (1, 64), (128, 1)])
def test_libraries_of_cute_swizzle_alike(
    library: str, swizzle: tuple[int, int, int], stride: tuple[int, int]
) -> None:
    peer = pytest.importorskip(library, reason=f"{library} is not installed")
    parts = peer.Swizzle(*swizzle), peer.Layout((64, 64), stride)
    if library == "pycute":
        layout = peer.ComposedLayout(parts[0], 0, parts[1])
    else:
        layout = peer.compose(*parts)
    desc = memory_desc((64, 64), "f16", layout)
    offsets = [layout(row, column) for row, column in product(range(64), range(64))]
    assert desc.layout.offsets().ravel().tolist() == offsets
    assert memory_desc((64, 64), "f16", str(layout)) == desc


_TYPES = {8: "s8", 16: "f16", 32: "f32"}


def _layouts() -> list[tuple[str, tuple[int, ...], int]]:
    found: list[tuple[str, tuple[int, ...], int]] = []
    for vec, per, most in product((1, 4, 8), (1, 2, 4), (1, 2, 8)):
        for order in ([1, 0], [0, 1]):
            text = f"SwizzledSharedLayout({vec}, {per}, {most}, {order})"
            found += [(text, (64, 64), 16), (text, (16, 128), 32)]
    found.append(("SwizzledSharedLayout(8, 1, 8, [2, 1, 0])", (2, 16, 64), 16))
    for width, bits in product((0, 32, 64, 128), (8, 16, 32)):
        text = f"NVMMASharedLayout({width}, {bits}"
        found += [(f"{text})", (64, 128), bits), (f"{text})", (8, 256), bits)]
        found += [(f"{text}, transposed=True)", (128, 64), bits)]
        found += [(f"{text}, rank=3)", (2, 8, 128), bits)]
    found.append(("NVMMASharedLayout(128, 16)", (512, 128), 16))
    found.append(("NVMMASharedLayout(128, 8, fp4_padded=True)", (16, 64), 8))
    found.append(("SharedLinearLayout([[0, 1], [0, 2], [1, 0], [2, 2]])", (4, 4), 32))
    return found


@cache
def gluon() -> tuple[Any, Any, Any]:
    """Return Gluon, a builder of its layouts, which needs no GPU, and what it refers to."""
    gl = pytest.importorskip("triton.experimental.gluon.language", reason="Triton is not installed")
    lib = import_module("triton._C.libtriton")
    context = lib.ir.context()
    lib.ir.load_dialects(context)
    builder = lib.gluon_ir.GluonOpBuilder(context)
    # conflicts are counted for a target, which is that of the function at the insertion point
    module = builder.create_module()
    module.set_attr("ttg.target", builder.get_string_attr("cuda:90"))
    for name, count in (("num-warps", 4), ("threads-per-warp", 32), ("num-ctas", 1)):
        module.set_attr(f"ttg.{name}", builder.get_int32_attr(count))
    kind = builder.get_function_ty([], [])
    function = builder.get_or_insert_function(module, "kernel", kind, "public", False)  # noqa: FBT003
    module.push_back(function)
    builder.set_insertion_point_to_start(function.add_entry_block())
    return gl, builder, (context, module, function)


@pytest.mark.parametrize(("text", "dims", "bits"), _layouts())
def test_triton_has_the_same_linear_layout(text: str, dims: tuple[int, ...], bits: int) -> None:
    gl, builder, _ = gluon()
    layout = eval(f"gl.{text}", {"gl": gl})
    desc: MemoryDesc = memory_desc(dims, _TYPES[bits], text)
    linear = layout
    if not text.startswith("SharedLinear"):
        linear = builder.to_linear_layout(layout._to_ir(builder), list(dims))  # noqa: SLF001
    bases = linear.offset_bases
    index = np.zeros((len(dims), 1 << len(bases)), np.int64)
    for bit, base in enumerate(bases):
        is_set = np.arange(1 << len(bases)) >> bit & 1
        index ^= np.array(base)[:, None] * is_set
    is_used = np.ones(1 << len(bases), bool)
    for bit, base in enumerate(bases):  # of a zero base the second place is padding
        if not any(base):
            is_used &= ~(np.arange(1 << len(bases)) >> bit & 1).astype(bool)
    assert np.array_equal(desc.offset(index[:, is_used]), np.flatnonzero(is_used))
    assert memory_desc(dims, _TYPES[bits], layout) == desc
    for again in written(desc, "triton"):
        assert memory_desc(dims, _TYPES[bits], again) == desc


def access_of(dims: tuple[int, int], along: int, fast: int, count: int) -> Any:
    """Return the registers of 32 lanes along a dim, each of `count` elements along `fast`."""
    gl, *_ = gluon()
    bits = {dim: [1 << bit for bit in range(dims[dim].bit_length() - 1)] for dim in (0, 1)}

    def taken(dim: int, number: int) -> list[list[int]]:
        found, bits[dim] = bits[dim][:number], bits[dim][number:]
        return [[value, 0] if dim == 0 else [0, value] for value in found]

    registers = taken(fast, count.bit_length() - 1)
    lanes = taken(along, 5)
    for dim in (fast, 1 - fast):
        lanes += taken(dim, 5 - len(lanes))
    warps = taken(0, 20) + taken(1, 20)
    return gl.DistributedLinearLayout(registers, lanes, warps, [], list(dims))


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("order", [[1, 0], [0, 1]])
def test_triton_counts_the_same_bank_conflicts(bits: int, order: list[int]) -> None:
    gl, builder, _ = gluon()
    fast, chunk = order[0], 128 // bits
    sizes = [64, 64]
    sizes[fast] = 1024 // bits
    dims = sizes[0], sizes[1]
    texts = [
        f"SwizzledSharedLayout({vec}, {per}, {most}, {order})"
        for vec, per, most in (
            (1, 1, 1),
            (chunk, 1, 8),
            (chunk, 2, 4),
            (chunk, 4, 2),
            (chunk // 2, 1, 8),
        )
    ]
    texts += [
        f"NVMMASharedLayout({width}, {bits}, transposed={order == [0, 1]})"
        for width in (0, 32, 64, 128)
    ]
    compared = 0
    for text, along, nbytes in product(texts, (0, 1), (1, 2, 4, 8, 16)):
        if nbytes * 8 < bits:
            continue
        desc = memory_desc(dims, _TYPES[bits], text)
        try:
            found = desc.bank_conflicts(along, nbytes)
        except MemdescError as error:
            assert "not adjacent" in str(error)
            continue
        registers = access_of(dims, along, fast, nbytes * 8 // bits)._to_ir(builder)  # noqa: SLF001
        shared = eval(f"gl.{text}", {"gl": gl})._to_ir(builder)  # noqa: SLF001
        wanted = builder.get_shared_bank_conflicts(registers, shared, list(dims), bits)
        assert found == wanted, (text, along, nbytes)
        compared += 1
    assert compared > 50
