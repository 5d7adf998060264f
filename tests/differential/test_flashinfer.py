"""Packings of FlashInfer: by its own functions on a CPU, and its own kernel compiled for one."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import memory_desc

pytestmark = [pytest.mark.judges, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
flashinfer = pytest.importorskip("flashinfer", reason="FlashInfer is not installed")
core = pytest.importorskip("flashinfer.fused_moe.core")
prepare = pytest.importorskip("flashinfer.fused_moe.prepare")

# an epilogue tile of each of FlashInfer's kernels -> the rows that are shuffled together
TILES = {64: 16, 128: 32, 192: 16, 256: 32}
BITS = {"u4": 4, "u8": 8, "f8_e4m3": 8, "bf16": 16, "f16": 16}


def random_bytes(*dims: int) -> NDArray[np.uint8]:
    return np.random.default_rng(sum(dims)).integers(0, 256, dims, np.uint8)


def packed(q: NDArray[Any], dims: tuple[int, ...], dtype: str, name: str) -> NDArray[np.uint8]:
    """Pack bytes in row-major order; check that the way back gives the same bytes."""
    plain = memory_desc(dims, dtype, "abcd"[: len(dims)])
    memory = reorder.reorder(reorder.Memory(plain, q.reshape(-1)), name)
    back = reorder.reorder(memory, plain)
    assert np.array_equal(back.data, q.reshape(-1))
    return memory.data


def permuted(q: NDArray[np.uint8], tile: int, *, gated: bool) -> NDArray[np.uint8]:
    """Permute rows of bytes by the indices that FlashInfer's loaders of MoE weights use."""
    indices = core._maybe_get_cached_w3_w1_permute_indices(  # noqa: SLF001 - what loaders call
        {}, torch.from_numpy(q), tile, is_gated_act_gemm=gated
    )
    shuffled: NDArray[np.uint8] = q[indices.numpy()]
    return shuffled


def in_blocks(q: NDArray[np.uint8]) -> NDArray[np.uint8]:
    blocks = core.convert_to_block_layout(torch.from_numpy(np.ascontiguousarray(q)), 128)
    return np.asarray(blocks)


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(("rows", "columns"), [(64, 256), (96, 768)])
@pytest.mark.parametrize("gated", [False, True])
def test_shuffled_weights_are_those_of_flashinfer(
    rows: int, columns: int, tile: int, dtype: str, gated: bool
) -> None:
    q = random_bytes(rows, columns * BITS[dtype] // 8)
    dims = (2, rows // 2, columns) if gated else (rows, columns)
    name = f"trtllm_shuffled{TILES[tile]}" + "_gated" * gated
    theirs = permuted(q, tile, gated=gated)
    assert np.array_equal(packed(q, dims, dtype, name), theirs.reshape(-1))
    blocks = in_blocks(theirs)
    assert np.array_equal(packed(q, dims, dtype, f"{name}_block_major_k"), blocks.reshape(-1))


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize(("rows", "columns"), [(6, 256), (34, 512)])
def test_each_step_alone_is_that_of_flashinfer(rows: int, columns: int, dtype: str) -> None:
    q = random_bytes(rows, columns * BITS[dtype] // 8)
    theirs = core.reorder_rows_for_gated_act_gemm(torch.from_numpy(q)).numpy()
    dims = (2, rows // 2, columns)
    assert np.array_equal(packed(q, dims, dtype, "trtllm_gated"), theirs.reshape(-1))
    blocks = in_blocks(q).reshape(-1)
    assert np.array_equal(packed(q, (rows, columns), dtype, "trtllm_block_major_k"), blocks)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(("rows", "columns"), [(128, 4), (384, 24), (256, 5)])
@pytest.mark.parametrize("gated", [False, True])
def test_shuffled_scales_are_those_of_flashinfer(
    rows: int, columns: int, tile: int, gated: bool
) -> None:
    """The rows by FlashInfer's indices; tiles of 128 x 4, a CUDA kernel there, by torchao."""
    utils = pytest.importorskip("torchao.prototype.mx_formats.utils")
    q = random_bytes(rows, columns)
    shuffled = torch.from_numpy(permuted(q, tile, gated=gated))
    theirs = utils.to_blocked(shuffled).numpy().reshape(-1)
    dims = (2, rows // 2, columns) if gated else (rows, columns)
    name = f"trtllm_scales{TILES[tile]}" + "_gated" * gated
    assert np.array_equal(packed(q, dims, "u8", name), theirs)


@pytest.mark.parametrize("dims", [(128, 8), (5, 3), (2, 130, 7), (3, 4, 1)])
def test_scales_of_deepgemm_are_those_that_flashinfer_packs(dims: tuple[int, ...]) -> None:
    deep_gemm = pytest.importorskip("flashinfer.deep_gemm")
    exponents = np.random.default_rng(0).integers(1, 255, dims, np.uint8)
    scales = np.ldexp(np.float32(1), exponents.astype(np.int32) - 127)
    theirs = deep_gemm.get_col_major_tma_aligned_packed_tensor(torch.from_numpy(scales))
    deep_gemm.check_sf_layout(
        theirs, dims[-2], 128 * dims[-1], (1, 128), dims[0] if len(dims) == 3 else None,
        tma_stride_check=True, type_check=torch.int,
    )  # fmt: skip
    words = np.frombuffer(bytes(theirs.untyped_storage()), np.uint8)
    name = "deepgemm_scales" + "_experts" * (len(dims) == 3)
    # bytes by themselves, and f32 converted on the way
    assert np.array_equal(packed(exponents, dims, "e8m0", name), words)
    converted = reorder.reorder(scales, name, dtype="e8m0")
    assert np.array_equal(converted.data, words)


@pytest.mark.parametrize("dims", [(128, 8), (5, 3), (2, 130, 7), (3, 4, 2)])
def test_scales_of_deepgemm_in_f32_have_the_strides_that_flashinfer_checks(
    dims: tuple[int, ...],
) -> None:
    deep_gemm = pytest.importorskip("flashinfer.deep_gemm")
    scales = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    name = "deepgemm_scales" + "_experts" * (len(dims) == 3)
    ours = reorder.reorder(scales, name)
    view = torch.from_numpy(ours.numpy(copy=False))
    assert np.array_equal(view.numpy(), scales)
    deep_gemm.check_sf_layout(
        view, dims[-2], 128 * dims[-1], (1, 128), dims[0] if len(dims) == 3 else None,
        tma_stride_check=True, type_check=torch.float,
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "group"), [("u8", 32), ("bf16", 128)])
@pytest.mark.parametrize("dims", [(1, 64, 4), (3, 192, 12)])
def test_scales_for_sm90_are_those_of_flashinfer(
    dims: tuple[int, int, int], dtype: str, group: int
) -> None:
    q = random_bytes(*dims[:2], dims[2] * BITS[dtype] // 8)
    typed = torch.from_numpy(q).view({"u8": torch.uint8, "bf16": torch.bfloat16}[dtype])
    theirs = (
        prepare.interleave_moe_scales_for_sm90_mixed_gemm(typed, group).view(torch.uint8).numpy()
    )
    ours = packed(q, dims, dtype, "sm90_mixed_gemm_scales_experts")
    assert np.array_equal(ours, theirs.reshape(-1))


_ON_A_CPU = """
#include <cstdint>
#define __global__ static
#define __device__
#define __forceinline__ inline
struct Dim {{ int x = 1, y = 1; }};
static Dim blockIdx, threadIdx, gridDim, blockDim;
{kernel}
extern "C" void interleave(uint8_t* src, uint8_t* dst, int rows, int columns) {{
  blockDim = {{16, 1}};
  blockIdx = {{0, 0}};
  for (threadIdx = {{0, 0}}; threadIdx.x < 16; ++threadIdx.x)
    interleave_int4_weights_for_sm90_mixed_gemm_kernel(src, dst, rows, columns);
}}
"""


@pytest.fixture(scope="module")
def interleave(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Compile FlashInfer's CUDA kernel, thread by thread, for the CPU."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    sources = Path(flashinfer.__file__).parent / "data" / "csrc"
    (file,) = sources.rglob("moe_gemm_mixed_utils.cu")
    text = file.read_text()
    start = text.index("__global__ void interleave_int4_weights_for_sm90_mixed_gemm_kernel")
    end = text.index("__device__", start)
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "kernel.cpp").write_text(_ON_A_CPU.format(kernel=text[start:end]))
    library = folder / "kernel.so"
    subprocess.run(
        [compiler, "-O1", "-fno-strict-aliasing", "-shared", "-fPIC", "-o", library, "kernel.cpp"],
        cwd=folder,
        check=True,
    )
    run: Callable[..., None] = ctypes.CDLL(str(library)).interleave
    return run


@pytest.mark.parametrize(("rows", "columns"), [(16, 64), (64, 256), (80, 448)])
def test_weights_for_sm90_are_those_of_the_kernel_of_flashinfer(
    rows: int, columns: int, interleave: Callable[..., None]
) -> None:
    q = random_bytes(rows, columns // 2)
    theirs = np.zeros_like(q)
    interleave(*(ctypes.c_void_p(each.ctypes.data) for each in (q, theirs)), rows, columns)
    assert np.array_equal(packed(q, (rows, columns), "s4", "sm90_mixed_gemm"), theirs.reshape(-1))
