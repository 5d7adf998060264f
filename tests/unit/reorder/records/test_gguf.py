from typing import Any

import numpy as np
import pytest

import reorder
from memdesc.dtypes import DATA_TYPES
from memdesc.record import record_desc
from reorder.cpu.decoding.jobs import choose_kernel, decode
from reorder.cpu.decoding.pattern import place_pattern
from reorder.cpu.machine import LINE_NBYTES, Machine
from reorder.memory.buffers import address_of
from tests.records import bits_of, random_record

gguf = pytest.importorskip("gguf")

KIND = gguf.GGMLQuantizationType
RNG = np.random.default_rng(0)
FLOATS = ("F32", "F16", "BF16")
# each kind of code once: plain, joined, of a table, of codebooks, with digits
QUICK = (*FLOATS, "Q8_0", "Q4_K", "IQ4_NL", "IQ2_XXS", "IQ3_S", "IQ1_M", "TQ1_0")
# all that the package decodes
DECODED = [
    "F32",
    "F16",
    *(
        kind.name
        for kind, decoder in gguf.quants._type_traits.items()  # noqa: SLF001 - the list it has
        if "dequantize_blocks" in vars(decoder)
    ),
]


def random_rows(name: str, *shape: int) -> np.ndarray:
    """Return rows of so many blocks of random bytes."""
    nbytes = gguf.GGML_QUANT_SIZES[KIND[name]][1]
    return RNG.integers(0, 256, (*shape[:-1], shape[-1] * nbytes), np.uint8)


def assert_same(found: Any, expected: np.ndarray) -> None:
    found = np.asarray(found)
    is_nan = np.isnan(expected)
    assert (found.shape, found.dtype) == (expected.shape, np.float32)
    assert (np.isnan(found) == is_nan).all()
    assert (bits_of(found) == bits_of(expected))[~is_nan].all()


def by_gguf(data: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        expected: np.ndarray = gguf.dequantize(data, KIND[name])
    return expected


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["q8_0", "q4_k"])
def test_results_that_exceed_the_cache_are_the_same_at_every_address(name: str, dtype: str) -> None:
    desc, nbytes = record_desc((48, 1024), name), 48 * 1024 * DATA_TYPES[dtype].bits // 8
    placed, tensors = place_pattern(desc), random_record(desc, RNG).tensors
    assert placed is not None
    found = []
    # whether the caches hold all bytes that are read and written together, or all but one
    for is_beyond in (False, True):
        machine = Machine(1, cache_nbytes=1 << 40, streamed_nbytes=desc.nbytes + nbytes - is_beyond)
        for shift in (0, DATA_TYPES[dtype].bits // 8):
            held = np.full(nbytes + 256, 99, np.uint8)
            start = -address_of(held) % LINE_NBYTES + shift
            out = held[start : start + nbytes]
            kernel = choose_kernel(placed, dtype, address_of(out), 1, machine)
            assert kernel.streams == (is_beyond and not shift)
            decode(placed, tensors, out, dtype, 1, machine)
            assert (np.delete(held, np.s_[start : start + nbytes]) == 99).all()
            found.append(out)
    assert all((found[0] == other).all() for other in found)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("shape", [(5,), (3, 8), (2, 3, 2), (7, 1)])
def test_arrays_of_any_dims_equal_those_of_gguf(name: str, shape: tuple[int, ...]) -> None:
    data = random_rows(name, *shape)
    expected = by_gguf(data, name)
    assert_same(reorder.records.dequantize_gguf(data, KIND[name]), expected)
    out = np.zeros(expected.shape[::-1], np.float32).T
    assert reorder.records.dequantize_gguf(data, name.lower(), out=out, threads=1) is out
    assert_same(out, expected)


@pytest.mark.parametrize("name", QUICK)
def test_a_type_may_be_a_number_and_data_need_not_be_contiguous(name: str) -> None:
    data = random_rows(name, 4, 6)
    expected = by_gguf(data[::-2], name)
    assert_same(reorder.records.dequantize_gguf(data[::-2], int(KIND[name])), expected)
    moved = np.zeros(data.size + 1, np.uint8)[1:].reshape(data.shape)
    moved[:] = data
    assert_same(reorder.records.dequantize_gguf(moved, qtype=name), by_gguf(data, name))


def test_long_rows_and_many_rows_are_cut_alike() -> None:
    data = random_rows("Q8_0", 3 * 1031)
    assert_same(reorder.records.dequantize_gguf(data, "Q8_0"), by_gguf(data, "Q8_0"))
    data = random_rows("Q8_0", 2, 2 * 1025)
    assert_same(reorder.records.dequantize_gguf(data, "Q8_0"), by_gguf(data, "Q8_0"))


@pytest.mark.parametrize("name", ["F32", "F16", "Q8_0", "IQ2_XXS"])
@pytest.mark.parametrize("shape", [(0, 2), (3, 0), (0,)])
def test_records_without_blocks_become_empty_tensors(name: str, shape: tuple[int, ...]) -> None:
    block, nbytes = gguf.GGML_QUANT_SIZES[KIND[name]]
    data = np.zeros((*shape[:-1], shape[-1] * nbytes), np.uint8)
    assert reorder.records.dequantize_gguf(data, name).shape == (*shape[:-1], shape[-1] * block)


def test_f32_is_not_copied_and_has_strides_of_whole_elements() -> None:
    x = RNG.standard_normal((3, 8), np.float32)
    assert np.shares_memory(reorder.records.dequantize_gguf(x.view(np.uint8), "F32"), x)
    assert_same(reorder.records.dequantize_gguf(x, "F32"), x)
    # numpy keeps any stride of a dim of size 1; torch wants whole elements
    row = x[:1].view(np.uint8).copy(order="F")
    assert row.strides[0] % 4
    assert reorder.records.dequantize_gguf(row, "F32").strides == (32, 4)


BLOCK = np.zeros(18, np.uint8)


@pytest.mark.peers
@pytest.mark.parametrize("name", DECODED)
def test_tensors_of_torch_become_tensors(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    data = random_rows(name, 6, 4)
    expected = by_gguf(data, name)
    tensor = torch.from_numpy(data)
    found = reorder.records.dequantize_gguf(tensor, KIND[name])
    assert found.dtype == torch.float32
    assert_same(found.numpy(), expected)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        out = torch.zeros(expected.shape, dtype=dtype)
        assert reorder.records.dequantize_gguf(tensor, KIND[name], out) is out
        wanted = torch.from_numpy(np.nan_to_num(expected, nan=0.0)).to(dtype)
        assert torch.equal(torch.where(out.isnan(), 0, out), wanted)
