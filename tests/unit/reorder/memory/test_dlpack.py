from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.dtypes import DATA_TYPES
from reorder import Memory
from reorder.memory.dlpack import TensorView, _tensor_in, from_dlpack
from tests.programs import run_python

_WHOLE = [name for name, dtype in DATA_TYPES.items() if not dtype.is_packed]
_FOREIGN = ["bf16", "f8_e4m3", "f8_e5m2", "e8m0"]


def random_array(name: str, shape: tuple[int, ...] = (3, 4)) -> np.ndarray[Any, Any]:
    """Return any bits but those of NaN, for f64 and narrower types alike."""
    dtype = DATA_TYPES[name]
    values = np.random.default_rng(0).integers(0, 100, shape)
    return np.maximum(values, 1).astype(dtype.numpy)


class Producer:
    """Exports an array as another library would; `old` has no versions, a `reason` refuses."""

    def __init__(
        self, array: np.ndarray[Any, Any], device: int = 1, *, old: bool = False, reason: str = ""
    ) -> None:
        self.view, self.device, self.old, self.reason = TensorView(array), device, old, reason

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **options: Any) -> Any:
        if self.reason:
            raise BufferError(self.reason)
        if self.old and options:
            msg = "unexpected keyword"
            raise TypeError(msg)
        return self.view.__dlpack__(**options)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", _WHOLE)
def test_every_whole_type_goes_out_and_comes_back_on_the_same_memory(name: str, old: bool) -> None:
    x = random_array(name)
    back = from_dlpack(Producer(x, old=old), "x")
    assert back.dtype == x.dtype
    assert np.array_equal(back, x)
    assert np.shares_memory(back, x)


@pytest.mark.parametrize("name", _WHOLE)
def test_a_reorder_takes_what_exports_itself(name: str) -> None:
    x = random_array(name, (1, 17, 2, 3))
    m = reorder.reorder(Producer(x), "nChw16c")
    assert m.desc == memory_desc((1, 17, 2, 3), name, "nChw16c")
    assert np.array_equal(m.numpy(), x)
    transposed = reorder.reorder(Producer(x.transpose(0, 2, 3, 1)), "abcd")
    assert np.array_equal(transposed.numpy(), x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("name", _FOREIGN)
def test_a_capsule_says_the_true_type_though_numpy_does_not_know_it(name: str) -> None:
    with pytest.raises((RuntimeError, BufferError)):
        np.from_dlpack(TensorView(random_array(name)))


def test_a_plain_memory_is_exported_as_its_logical_array() -> None:
    x = random_array("f32", (2, 3, 4, 5))
    m = reorder.reorder(x, "nhwc")
    out = np.from_dlpack(m)
    assert np.array_equal(out, x)
    assert np.shares_memory(out, m.data)
    assert m.__dlpack_device__() == (1, 0)
    copied = np.from_dlpack(m, copy=True)
    assert np.array_equal(copied, x)
    assert not np.shares_memory(copied, m.data)


def test_a_blocked_memory_is_exported_by_name_or_as_a_copy() -> None:
    x = random_array("f32", (1, 17, 2, 3))
    m = reorder.reorder(x, "nChw16c")
    with pytest.raises(BufferError, match=r"take block_tensor\(\)"):
        np.from_dlpack(m)
    out = np.from_dlpack(m.block_tensor())
    assert out.shape == (1, 2, 2, 3, 16)
    assert np.shares_memory(out, m.data)
    assert np.asarray(m.block_tensor()).shape == (1, 2, 2, 3, 16)
    assert np.array_equal(np.from_dlpack(m, copy=True), x)


def test_a_copy_stays_where_it_is_when_the_memory_changes() -> None:
    m = reorder.reorder(np.ones((2, 3), np.float32), "ba")
    capsule_of_copy = np.from_dlpack(m, copy=True)
    m.data[:] = 0
    assert (capsule_of_copy == 1).all()


def test_elements_of_4_bits_are_not_exported_by_dlpack() -> None:
    m = reorder.reorder(np.ones((3, 4), ml_dtypes.int4), "ab")
    for options in ({}, {"copy": True}):
        with pytest.raises(
            BufferError,
            match=r"^two s4 elements share a byte, .*; export \.data, or reorder\(\) to a wider",
        ):
            m.__dlpack__(**options)
    with pytest.raises(MemdescError, match="share a byte"):
        m.block_tensor()


def test_read_only_memory_stays_read_only() -> None:
    x = np.arange(6, dtype=np.float32)
    x.flags.writeable = False
    m = Memory(memory_desc((2, 3), "f32", "ab"), x)
    with pytest.raises(BufferError):
        m.__dlpack__()  # the older form cannot say it
    assert not np.from_dlpack(m).flags.writeable
    assert np.array_equal(reorder.reorder(Producer(x.reshape(2, 3)), "ba").numpy(), x.reshape(2, 3))


def test_another_device_and_a_broken_producer_are_refused() -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(
        MemdescError, match="x: the Producer is on DLPack device type 2, not in CPU memory"
    ):
        reorder.reorder(Producer(x, device=2), "a")
    with pytest.raises(
        MemdescError, match="x: the Producer exports no array by DLPack: two pairs of glasses"
    ):
        reorder.reorder(Producer(x, reason="two pairs of glasses"), "a")


@pytest.mark.parametrize("device", [None, 3, "cpu", (1,), (1, 0, 0), ("a", 0), (None, 0)])
def test_a_producer_that_names_no_device_is_refused(device: Any) -> None:
    producer = Producer(np.ones(3, np.float32))
    producer.__dlpack_device__ = lambda: device  # type: ignore[method-assign] # a producer that is wrong
    with pytest.raises(
        MemdescError,
        match=r"x: the Producer gives its device as .*, not as DLPack's device type and number",
    ):
        reorder.reorder(producer, "a")
    with pytest.raises(MemdescError, match=r"x: the type does not report its device \(.*self"):
        reorder.reorder(Producer, "a")  # type: ignore[call-overload] # the class in place of an object


def test_a_producer_without_memory_is_refused_with_its_reason() -> None:
    def refuse() -> tuple[int, int]:
        msg = "Unknown device type meta for Dlpack"  # torch's of a tensor on meta
        raise ValueError(msg)

    producer = Producer(np.ones(3, np.float32))
    producer.__dlpack_device__ = refuse  # type: ignore[method-assign] # see above
    with pytest.raises(
        MemdescError,
        match=r"x: the Producer does not report its device \(Unknown device type meta for Dlpack\)",
    ):
        reorder.reorder(producer, "a")


class WrongProducer(Producer):
    """Exports a capsule with wrong fields, and keeps what they point to; or no capsule."""

    def __init__(self, fields: dict[str, Any], *, old: bool) -> None:
        super().__init__(np.ones((2, 3), np.float32), old=old)
        self.fields = fields

    def __dlpack__(self, **options: Any) -> Any:
        capsule = super().__dlpack__(**options)
        tensor = _tensor_in(capsule)
        assert tensor is not None
        self.kept = [
            (name, (ctypes.c_int64 * 2)(*value) if isinstance(value, tuple) else value)
            for name, value in self.fields.items()
        ]
        for name, value in self.kept:
            setattr(
                tensor, name, ctypes.addressof(value) if isinstance(value, ctypes.Array) else value
            )
        return self.fields.get("capsule", capsule)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        *({"ndim": ndim} for ndim in (-1, 65, 2**31 - 1)),
        *(
            {"shape": shape}
            for shape in (0, (-1, 3), (2**40, 2**40), (2**62, 1), (-(2**63), -(2**63)))
        ),
        *(
            {"data": 0},
            {"byte_offset": 1},
            {"byte_offset": 2**63},
            {"byte_offset": 2**64 - 1},
            {"strides": (2**61, 1)},
        ),
        *(
            {"lanes": 4},
            {"lanes": 0},
            {"bits": 7},
            {"code": 99},
            {"code": 4, "bits": 8},
            {"code": 4, "bits": 16, "lanes": 2},
        ),
        *({"device_type": 2}, {"capsule": 3}, {"capsule": "tensor"}, {"capsule": None}),
    ],
    ids=str,
)
def test_a_producer_of_a_wrong_capsule_is_refused(fields: dict[str, Any], old: bool) -> None:
    with pytest.raises(MemdescError):
        reorder.reorder(WrongProducer(fields, old=old), "ba")


def test_a_tensor_without_elements_may_lie_nowhere() -> None:
    assert reorder.reorder(
        WrongProducer({"data": 0, "shape": (0, 3)}, old=False), "ba"
    ).desc.dims == (0, 3)


def test_buffers_are_taken_by_dlpack_too() -> None:
    x = random_array("bf16", (2, 17))
    desc = memory_desc((2, 17), "bf16", "aB16b")
    src, dst = np.zeros(desc.nbytes // 2, ml_dtypes.bfloat16), np.zeros((2, 17), ml_dtypes.bfloat16)
    src[:] = reorder.reorder(x, desc).elements.view(ml_dtypes.bfloat16)
    plan = reorder.plan_reorder(desc, memory_desc((2, 17), "bf16", "ab"))
    reorder.execute(plan, Producer(src), Producer(dst))
    assert np.array_equal(dst, x)
    attached = Memory(desc, Producer(src), zero_pad=False)
    assert np.shares_memory(attached.data, src)


def test_bytes_and_files_take_the_data() -> None:
    m = reorder.reorder(np.arange(6, dtype=np.int16).astype(np.int8).reshape(2, 3), "ba")
    assert bytes(m.data) == bytes([0, 3, 1, 4, 2, 5])
    assert m.data.data.nbytes == m.nbytes


def test_torch_is_never_imported() -> None:
    program = (
        "import sys, numpy as np, reorder; "
        "reorder.reorder(np.ones((2, 3), np.float32), 'ba').__dlpack__(); "
        "print('torch' in sys.modules)"
    )
    assert run_python("-c", program).stdout == "False\n"
