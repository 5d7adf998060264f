"""Hand-made values: their numbers become Python ints, or they are refused."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from memdesc import (
    Axis,
    Block,
    DataType,
    Layout,
    MemdescError,
    MemoryDesc,
    data_type,
)

F32 = data_type("f32")


def layout(stride: Any = 1, extent: Any = 4, padded: Any = 4, **fields: Any) -> Layout:
    given: dict[str, Any] = {
        "dims": (4,),
        "axes": (Axis((0,), padded),),
        "blocks": (Block(0, 1, extent, stride),),
        **fields,
    }
    return Layout(**given)


def test_numbers_of_numpy_do_not_wrap() -> None:
    found = layout(np.int16(300), np.int8(4), np.uint8(4), dims=(np.int8(4),))
    assert found == layout(300)
    assert MemoryDesc((4,), F32, found).min_nbytes == (3 * 300 + 1) * 4
    numbers = (*found.dims, *found.axes[0].dims, found.axes[0].padded, *found.blocks[0])
    assert {type(number) for number in (*numbers, found.offset0, found.last)} == {int}
    with pytest.raises(MemdescError, match="more than int64 holds"):
        layout(np.int64(2**50), 2**20, 2**20, dims=(2**20,))


def test_only_rows_of_the_table_are_data_types() -> None:
    made = DataType("f32", np.int8(32), np.dtype("f4"))  # type: ignore[arg-type] # what a caller might pass
    assert made == F32
    assert hash(made) == hash(F32)
    assert type(made.bits) is int
    assert pickle.loads(pickle.dumps(made)) is F32
    assert copy.copy(made) is F32
    with pytest.raises(AttributeError, match="is immutable"):
        F32.bits = 64  # type: ignore[misc] # likewise
