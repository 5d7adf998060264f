"""Arrays of numpy described where they lie, and those that cannot be."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from memdesc import MemdescError, array_desc, memory_desc


def test_strides_that_move_nothing_may_be_anything() -> None:
    for shape in ((0, 3), (3, 0), (2, 0, 4)):
        x = np.zeros(shape, [("a", "f4"), ("b", "u1")])["a"]
        for array in (x[::-1], np.zeros(shape, "f4")[::-1]):
            assert (array_desc(array).nbytes, array_desc(array).offset0) == (0, 0)
    x = np.zeros((1, 3), [("a", "f4"), ("b", "f4"), ("c", "u1")])[:, :1]["a"]
    assert array_desc(x) == memory_desc((1, 1), "f32")


class Tensor:
    """The part of torch's interface that says where elements are, over an array."""

    def __init__(self, array: np.ndarray[Any, Any], layout: str = "torch.strided") -> None:
        self._array = array
        self.shape, self.dtype, self.layout = array.shape, f"torch.{array.dtype.name}", layout

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self._array.itemsize for step in self._array.strides)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)


class RowMajor:
    """JAX's interface, which has no strides."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack__(self) -> None: ...


def test_a_tensor_is_described_by_its_own_strides_or_as_row_major() -> None:
    x = np.zeros((2, 3, 4, 5), np.float32)
    assert array_desc(Tensor(x)) == array_desc(x)
    assert array_desc(Tensor(x.transpose(0, 3, 1, 2))) == memory_desc((2, 5, 3, 4), "f32", "nhwc")
    assert array_desc(Tensor(x[:, ::2])) == array_desc(x[:, ::2])
    assert array_desc(RowMajor(x)) == memory_desc(x.shape, "f32")
    assert array_desc(RowMajor(x.astype(ml_dtypes.bfloat16))).dtype.name == "bf16"
    with pytest.raises(MemdescError, match=r"a tensor of torch\.sparse_coo has no strides"):
        array_desc(Tensor(x, "torch.sparse_coo"))
    with pytest.raises(MemdescError, match="a tensor of int4 holds one element per byte"):
        array_desc(RowMajor(x.astype(ml_dtypes.int4)))


def test_tensors_of_torch_are_described() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
    x = torch.zeros(2, 3, 4, 5, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    assert array_desc(x) == memory_desc((2, 3, 4, 5), "bf16", "nhwc")
    assert array_desc(x[:, 1:]).strides == x[:, 1:].stride()
    with pytest.raises(MemdescError, match=r"torch\.sparse_coo has no strides"):
        array_desc(x.to_sparse())
