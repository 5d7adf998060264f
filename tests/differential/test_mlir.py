"""MLIR's layouts: IREE parses the maps, and runs the packs that are written here."""

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings

import reorder
from memdesc import MemoryDesc, UnsupportedFormatError, memory_desc, parse_layout
from memdesc.exchange import written
from tests import strategies

pytestmark = pytest.mark.peers

ir = pytest.importorskip("iree.compiler.ir", reason="IREE's compiler is not installed")
compiler = pytest.importorskip("iree.compiler")
runtime = pytest.importorskip("iree.runtime", reason="IREE's runtime is not installed")


def check_map(desc: MemoryDesc, text: str) -> None:
    """Compare what MLIR makes of a map with the descriptor, at some indices."""
    with ir.Context():
        attribute = ir.Attribute.parse(text)
        assert parse_layout(f"mlir:{attribute!s}", desc.dims, desc.dtype) == desc
        affine_map = ir.AffineMapAttr(attribute).value
        assert affine_map.n_inputs == desc.ndims

        def mapped(index: tuple[int, ...]) -> list[int]:
            constants = [ir.AffineConstantExpr.get(i) for i in index]
            point = ir.AffineMap.get(0, 0, constants)
            results = [
                ir.AffineExpr.simplify_affine_expr(r.compose(point), 0, 0)
                for r in affine_map.results
            ]
            return [ir.AffineConstantExpr(each).value for each in results]

        shape = [i + 1 for i in largest(mapped, desc.padded_dims)]
        assert prod(shape) == desc.padded_nelems
        for at in {0, desc.nelems - 1, desc.nelems // 2, desc.nelems // 3}:
            index = tuple(int(i) for i in np.unravel_index(at, desc.dims))
            place = 0
            for i, size in zip(mapped(index), shape, strict=True):
                place = place * size + i
            assert place == desc.offset(index)


def largest(mapped: Callable[[tuple[int, ...]], list[int]], sizes: tuple[int, ...]) -> list[int]:
    """Return the largest value of each result, over all padded indices of one dim at a time."""
    found = mapped((0,) * len(sizes))
    for dim, size in enumerate(sizes):
        for i in range(size):
            index = tuple(i if k == dim else 0 for k in range(len(sizes)))
            found = [max(pair) for pair in zip(found, mapped(index), strict=True)]
    return found


@given(strategies.descs(max_ndims=4, max_nelems=512))
@settings(max_examples=100, deadline=None)
def test_maps_have_the_offsets_of_the_descriptor(desc: MemoryDesc) -> None:
    try:
        texts = written(desc, "mlir")
    except UnsupportedFormatError:
        return
    for text in texts:
        if text.startswith("affine_map") and desc.nelems and not desc.layout.fused():
            check_map(desc, text)
        if text.startswith("memref"):
            with ir.Context():
                kind = str(ir.Type.parse(text))
            assert parse_layout(f"mlir:{kind}") == desc


_RUN = [
    ((2, 17, 5, 4), "f32", "nChw16c"),
    ((2, 17, 5, 4), "f32", "nhwc"),
    ((9, 5), "f32", "BA2b8a"),
    ((19, 33, 3), "s8", "cAB4b16a"),
    ((8, 16), "s32", "AB4a8b"),
]


@pytest.mark.parametrize(("dims", "dtype", "tag"), _RUN)
def test_a_compiled_pack_makes_the_same_bytes(dims: tuple[int, ...], dtype: str, tag: str) -> None:
    desc = memory_desc(dims, dtype, tag)
    operation = written(desc, "mlir")[1]
    src, _, dst = operation.rpartition(" : ")[2].partition(" -> ")
    kind = src.rpartition("x")[2].rstrip(">")
    zero = f"arith.constant {'0.0' if kind[0] == 'f' else '0'} : {kind}"
    module = f"""
    func.func @pack(%source: {src}) -> {dst} {{
      %zero = {zero}
      %dest = tensor.empty() : {dst}
      {operation}
      return %packed : {dst}
    }}"""
    binary = compiler.compile_str(
        module, target_backends=["llvm-cpu"], extra_args=["--iree-llvmcpu-target-cpu=generic"]
    )
    loaded = runtime.load_vm_flatbuffer(binary, driver="local-sync")
    x = np.arange(1, prod(dims) + 1).astype(desc.dtype.numpy).reshape(dims)
    packed = loaded.pack(x).to_host()
    assert packed.tobytes() == reorder.reorder(x, tag).data.tobytes()
