"""Tensors of PyTorch, where it is installed: no part of memdesc imports it."""

import gc

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, data_type, memory_desc
from memdesc.dtypes import DATA_TYPES

pytestmark = pytest.mark.peers

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


_NAMES = """
f32 float32, f16 float16, bf16 bfloat16, f8_e4m3 float8_e4m3fn, f8_e5m2 float8_e5m2,
e8m0 float8_e8m0fnu, f8_e4m3fnuz float8_e4m3fnuz, f8_e5m2fnuz float8_e5m2fnuz, boolean bool,
s8 int8, s16 int16, s64 int64, u16 uint16, u64 uint64
"""


@pytest.mark.parametrize(("name", "torch_name"), [pair.split() for pair in _NAMES.split(",")])
def test_tensors_of_torch_come_in_and_go_out(name: str, torch_name: str) -> None:
    most = 2 if name == "boolean" else 64
    bits = np.random.default_rng(0).integers(0, most, (1, 17, 2, 3), DATA_TYPES[name].bits_dtype)
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
    q = reorder.quantize(torch.tensor([[0.5, -1.0], [1.0, 2.0]]).to(torch.bfloat16), "s8", axis=0)
    assert q.memory.numpy()[0].tolist() == [64, -127]


@pytest.mark.parametrize("scale", [1, 2])  # a parameter, and what is computed from it
def test_a_tensor_that_requires_a_gradient_is_read_and_never_written(scale: int) -> None:
    weight = torch.nn.Linear(3, 2).weight
    tensor = weight if scale == 1 else weight * scale
    values = tensor.detach().numpy().copy()
    desc = memory_desc((2, 3), "f32", "ab")
    memory = reorder.Memory(desc, tensor)
    for found in (reorder.reorder(tensor, "ba"), reorder.reorder(memory, "ba")):
        assert np.array_equal(found.numpy(), values)
    assert reorder.quantize(tensor, "s8", axis=0).memory.dtype.name == "s8"
    run = reorder.prepare(reorder.plan_reorder(desc, desc))
    zeros = np.zeros((2, 3), np.float32)
    with pytest.raises(MemdescError, match=r"out: the \w+ requires a gradient.*out\.detach\(\)"):
        reorder.reorder(zeros, out=tensor)
    padded = memory_desc((1, 3), "f32", "aB8b")
    with pytest.raises(MemdescError, match=r"requires a gradient.*pass buffer\.detach\(\)"):
        reorder.Memory(padded, torch.ones(8, requires_grad=True))
    with pytest.raises(MemdescError, match=r"requires a gradient.*pass out\.detach\(\)"):
        run(zeros, tensor)
    with pytest.raises(MemdescError, match="read-only"):
        reorder.reorder(zeros, out=memory)
    assert np.array_equal(tensor.detach().numpy(), values)
    reorder.reorder(zeros, out=tensor.detach())
    assert not tensor.any()


def test_a_result_goes_into_views_of_tensors() -> None:
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    for out in (
        torch.zeros(1, 2, 3, 4).to(memory_format=torch.channels_last),
        torch.zeros(1, 4, 3, 8)[:, ::2, :, 1::2],
        torch.zeros(1, 2, 3, 4, dtype=torch.bfloat16),
    ):
        assert reorder.reorder(x, out=out) is out
        assert np.array_equal(out.float().numpy(), x)
    with pytest.raises(MemdescError, match="stride of 0"):
        reorder.reorder(x, out=torch.zeros(1, 2, 3, 1).expand(1, 2, 3, 4))


def test_arrays_of_jax_are_read_and_never_written() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    array = jax.numpy.arange(6.0).reshape(2, 3)
    assert np.array_equal(reorder.reorder(array, "ba").numpy(), array)
    with pytest.raises(MemdescError, match="out is a read-only ArrayImpl"):
        reorder.reorder(np.zeros((2, 3), np.float32), out=array)
    assert array.sum() == 15


def test_the_memory_of_a_tensor_lives_as_long_as_it_is_attached() -> None:
    t = torch.arange(1 << 16, dtype=torch.bfloat16)
    m = reorder.Memory(memory_desc((1 << 16,), "bf16", "a"), t)
    held = bytes(m.data)
    del t
    gc.collect()
    other = [torch.zeros(1 << 16, dtype=torch.bfloat16) for _ in range(8)]
    assert bytes(m.data) == held
    assert len(other) == 8


def test_what_torch_alone_can_read_is_refused() -> None:
    view = torch.complex(torch.ones(2, 3), torch.ones(2, 3)).conj().imag
    with pytest.raises(MemdescError, match="resolve_neg"):
        reorder.reorder(view, "ba")
    with pytest.raises(MemdescError, match="exports no array"):
        reorder.reorder(torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "a")
