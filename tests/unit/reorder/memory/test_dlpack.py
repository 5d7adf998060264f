"""DLPack in both directions; what a producer does wrong becomes an error of ours."""

from functools import partial
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.dtypes import DATA_TYPES
from reorder import Memory
from reorder.memory.dlpack import TensorView, from_dlpack
from tests.programs import run_python
from tests.unit.reorder.memory.producers import Copying, Exported, Raising, WrongCapsule

_WHOLE = [name for name, dtype in DATA_TYPES.items() if not dtype.is_packed]
ONES = np.ones((2, 3), np.float32)


def random_array(name: str, shape: tuple[int, ...] = (3, 4)) -> np.ndarray[Any, Any]:
    """Return any bits but those of NaN, for f64 and narrower types alike."""
    values = np.random.default_rng(0).integers(0, 100, shape)
    return np.maximum(values, 1).astype(DATA_TYPES[name].numpy)


@pytest.mark.parametrize("name", _WHOLE)
def test_every_whole_type_goes_out_and_comes_back_on_the_same_memory(name: str) -> None:
    x = random_array(name, (1, 17, 2, 3))
    for old in (False, True):
        back = from_dlpack(Exported(x, old=old), "x")
        assert (back.dtype, back.tobytes()) == (x.dtype, x.tobytes())
        assert np.shares_memory(back, x)
    if name in {"bf16", "f8_e4m3", "f8_e5m2", "e8m0"}:
        # the capsule says the true type, though numpy does not know it
        with pytest.raises((RuntimeError, BufferError)):
            np.from_dlpack(TensorView(x))


def test_a_memory_is_exported_as_its_logical_array_or_by_name_or_as_a_copy() -> None:
    x = random_array("f32", (1, 17, 2, 3))
    plain, blocked = (reorder.reorder(x, name) for name in ("nhwc", "nChw16c"))
    assert plain.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match=r"take block_tensor\(\)"):
        np.from_dlpack(blocked)
    views = {"plain": np.from_dlpack(plain), "blocks": np.from_dlpack(blocked.block_tensor())}
    copies = [np.from_dlpack(memory, copy=True) for memory in (plain, blocked)]
    assert np.array_equal(views["plain"], x)
    assert views["blocks"].shape == np.asarray(blocked.block_tensor()).shape == (1, 2, 2, 3, 16)
    plain.data[:] = blocked.data[:] = 0
    assert not any(view.any() for view in views.values())
    assert all(np.array_equal(copied, x) for copied in copies)


def test_an_exported_copy_is_read_and_never_written() -> None:
    tensor = Copying(ONES.copy())
    assert (reorder.reorder(tensor, "ba").numpy() == 1).all()
    plan = reorder.plan_reorder(memory_desc((2, 3), "f32"), "ab")
    for write in (
        partial(reorder.reorder, ONES, out=tensor),
        partial(reorder.execute, plan, ONES, tensor),
    ):
        with pytest.raises(MemdescError, match="out: the Copying exports a copy of its memory"):
            write()
    padded = memory_desc((1, 3), "f32", "aB6b")
    with pytest.raises(MemdescError, match="read-only, but its padding must be set to zero"):
        Memory(padded, tensor)
    with pytest.raises(MemdescError, match="read-only"):
        reorder.reorder(ONES[:1], out=Memory(padded, tensor, zero_pad=False))


def test_elements_of_4_bits_are_not_exported() -> None:
    memory = reorder.reorder(np.ones((3, 4), ml_dtypes.int4), "ab")
    message = r"^two s4 elements share a byte, .*; export \.data, or reorder\(\) to a wider"
    for options in ({}, {"copy": True}):
        with pytest.raises(BufferError, match=message):
            memory.__dlpack__(**options)


def test_read_only_memory_stays_read_only() -> None:
    x = np.frombuffer(bytes(24), np.float32).reshape(2, 3)
    memory = Memory(memory_desc((2, 3), "f32", "ab"), x)
    with pytest.raises(BufferError):
        memory.__dlpack__()  # the older form cannot say it
    assert not np.from_dlpack(memory).flags.writeable
    assert np.array_equal(reorder.reorder(Exported(x), "ba").numpy(), x)


def test_a_device_that_is_none_or_that_the_cpu_does_not_read_is_refused() -> None:
    none = "gives its device as .*, not as DLPack's device type and number"
    for device in (None, 3, "cpu", (1,), (1, 0, 0), ("a", 0), (None, 0), (2, 0)):
        away = "is on DLPack device type 2, not in CPU memory; move it"
        says = away if device == (2, 0) else none
        with pytest.raises(MemdescError, match=f"x: the Exported {says}"):
            reorder.reorder(Exported(ONES, device), "ab")
    with pytest.raises(MemdescError, match=r"x: the type does not report its device \(.*self"):
        reorder.reorder(Exported, "a")  # type: ignore[call-overload] # a class is no tensor


class OpaqueError(Exception):
    """An error of the producer's own kind."""


def test_a_producer_that_raises_is_refused_with_the_way_out() -> None:
    desc = memory_desc((2, 3), "f32")
    plan = reorder.plan_reorder(desc, desc)
    for error, stage in product(
        (
            # what torch raises for opaque tensors (to_mkldnn), sparse ones, and those on meta
            RuntimeError("Cannot access data pointer of Tensor that doesn't have storage"),
            NotImplementedError("Cannot access storage of OpaqueTensorImpl"),
            ValueError("Unknown device type meta for Dlpack"),
            *(AssertionError(), OpaqueError("lines\nof\na stack" * 1000)),
        ),
        ("device", "negation", "capsule"),
    ):
        x = Raising(error, stage)
        for use in (
            partial(reorder.reorder, x, "ba"),
            partial(Memory, desc, x),
            partial(reorder.execute, plan, x, bytearray(24)),
        ):
            reason = str(error.args[0]) if error.args else type(error).__name__
            with pytest.raises(MemdescError, match=r"^.{,600}pass a dense.{,99}$") as caught:
                use()
            assert " ".join(reason.split())[:60] in str(caught.value)
    with pytest.raises(MemoryError):
        reorder.reorder(Raising(MemoryError()), "ba")


def test_a_producer_of_a_wrong_capsule_is_refused() -> None:
    wrong: list[dict[str, Any]] = [
        *({"ndim": ndim} for ndim in (-1, 65, 2**31 - 1)),
        *({"shape": at} for at in (0, (-1, 3), (2**40, 2**40), (2**62, 1), (-(2**63), -(2**63)))),
        *({"data": 0}, {"byte_offset": 1}, {"byte_offset": 2**63}, {"byte_offset": 2**64 - 1}),
        *({"strides": (2**61, 1)}, {"lanes": 4}, {"lanes": 0}, {"bits": 7}, {"code": 99}),
        *({"code": 4, "bits": 8}, {"code": 4, "bits": 16, "lanes": 2}, {"device_type": 2}),
        *({"capsule": 3}, {"capsule": "tensor"}, {"capsule": None}),
    ]
    for fields, old in product(wrong, (False, True)):
        with pytest.raises(MemdescError):
            reorder.reorder(WrongCapsule(ONES, fields, old=old), "ba")
    # a tensor without elements may lie nowhere
    x = WrongCapsule(ONES, {"data": 0, "shape": (0, 3)}, old=False)
    assert reorder.reorder(x, "ba").desc.dims == (0, 3)


class Both(bytearray):
    """A buffer that exports itself too, as the arrays of JAX do on the CPU."""

    device = 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **_: Any) -> Any:
        msg = "it is read as a buffer"
        raise AssertionError(msg)


def test_a_tensor_that_is_a_buffer_is_read_as_one() -> None:
    x: Any = Both(range(6))
    assert reorder.reorder(x, "a").numpy().tolist() == [*range(6)]
    with pytest.raises(MemdescError, match="it is read as a buffer"):
        reorder.reorder(np.ones(6, np.uint8), out=x)
    x.device = 2
    with pytest.raises(MemdescError, match="not in CPU memory"):
        reorder.reorder(x, "a")


def test_torch_is_never_imported() -> None:
    program = (
        "import sys, numpy as np, reorder; "
        "reorder.reorder(np.ones((2, 3), np.float32), 'ba').__dlpack__(); "
        "print('torch' in sys.modules)"
    )
    assert run_python("-c", program).stdout == "False\n"
