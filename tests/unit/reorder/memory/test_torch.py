"""Tensors of PyTorch, where it is installed: no part of memdesc imports it."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import DATA_TYPES, MemdescError, data_type, memory_desc

pytestmark = pytest.mark.peers

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize(
    ("name", "torch_name"),
    [
        ("f32", "float32"),
        ("f16", "float16"),
        ("bf16", "bfloat16"),
        ("f8_e4m3", "float8_e4m3fn"),
        ("f8_e5m2", "float8_e5m2"),
        ("e8m0", "float8_e8m0fnu"),
        ("f8_e4m3fnuz", "float8_e4m3fnuz"),
        ("f8_e5m2fnuz", "float8_e5m2fnuz"),
        ("s8", "int8"),
        ("s16", "int16"),
        ("s64", "int64"),
        ("u16", "uint16"),
        ("u64", "uint64"),
    ],
)
def test_tensors_of_torch_come_in_and_go_out(name: str, torch_name: str) -> None:
    bits = np.random.default_rng(0).integers(0, 64, (1, 17, 2, 3), DATA_TYPES[name].bits_dtype)
    t = torch.from_numpy(bits).view(getattr(torch, torch_name))
    m = reorder.reorder(t, "nChw16c")
    assert m.desc == memory_desc((1, 17, 2, 3), name, "nChw16c")
    assert np.array_equal(m.numpy().view(bits.dtype), bits)
    out = torch.from_dlpack(reorder.reorder(m, "nhwc"))
    assert out.dtype == t.dtype
    assert out.shape == t.shape
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(out.contiguous().view(torch.uint8), t.view(torch.uint8))
    assert torch.from_dlpack(m.block_tensor()).shape == (1, 2, 2, 3, 16)


def test_dtypes_of_torch_are_taken_where_a_type_is_named() -> None:
    assert data_type(torch.float16) is data_type("torch.float16") is DATA_TYPES["f16"]
    assert data_type(torch.bool) is DATA_TYPES["boolean"]
    assert reorder.reorder(torch.ones(3), "a", dtype=torch.bfloat16).desc.dtype.name == "bf16"


def test_tensors_of_booleans_come_in_and_go_out() -> None:
    t = torch.tensor([[True, False], [False, False]])
    m = reorder.reorder(t, "ba")
    assert m.desc == memory_desc((2, 2), "boolean", "ba")
    out = torch.from_dlpack(m)
    assert out.dtype == torch.bool
    assert torch.equal(out, t)


def test_a_tensor_in_channels_last_needs_no_copy_to_be_read() -> None:
    t = (
        torch.arange(2 * 3 * 4 * 5, dtype=torch.bfloat16)
        .reshape(2, 3, 4, 5)
        .contiguous(memory_format=torch.channels_last)
    )
    m = reorder.reorder(t, "nhwc")
    assert np.array_equal(
        m.elements.view(ml_dtypes.bfloat16).astype(np.float32),
        t.permute(0, 2, 3, 1).float().numpy().ravel(),
    )


def test_a_tensor_that_wants_a_gradient_is_refused_with_the_way_out() -> None:
    with pytest.raises(MemdescError, match="detach"):
        reorder.reorder(torch.ones(3, requires_grad=True), "a")


def test_pairs_of_4_bit_elements_are_refused() -> None:
    t = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(MemdescError, match="exports no array"):
        reorder.reorder(t, "a")


def test_a_reorder_writes_into_a_tensor() -> None:
    t = torch.zeros((2, 3), dtype=torch.bfloat16)
    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    plan = reorder.plan_reorder(
        memory_desc((2, 3), "bf16", "ab"), memory_desc((2, 3), "bf16", "ab")
    )
    reorder.execute(plan, x, t)
    assert np.array_equal(t.float().numpy(), x.astype(np.float32))


def test_the_memory_of_a_tensor_lives_as_long_as_it_is_attached() -> None:
    t = torch.arange(1 << 16, dtype=torch.bfloat16)
    m = reorder.Memory(memory_desc((1 << 16,), "bf16", "a"), t)
    held = bytes(m.data)
    del t
    gc.collect()
    other = [torch.zeros(1 << 16, dtype=torch.bfloat16) for _ in range(8)]
    assert bytes(m.data) == held
    assert len(other) == 8


def test_a_view_that_negates_its_memory_is_refused() -> None:
    view = torch.complex(torch.ones(2, 3), torch.ones(2, 3)).conj().imag
    with pytest.raises(MemdescError, match="resolve_neg"):
        reorder.reorder(view, "ba")


def test_half_precision_tensors_are_quantised() -> None:
    q = reorder.quantize(torch.tensor([[0.5, -1.0], [1.0, 2.0]]).to(torch.bfloat16), "s8", axis=0)
    assert q.memory.numpy()[0].tolist() == [64, -127]
