"""Hand-made values: their numbers become Python ints, or they are refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from memdesc import (
    Axis,
    Block,
    DataType,
    ImageDesc,
    Layout,
    MemdescError,
    MemoryDesc,
    data_type,
    image_desc,
    memory_desc,
)
from memdesc.desc import desc_of
from memdesc.tags import Digit, FormatTag

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


@pytest.mark.parametrize(
    "make",
    [
        lambda: layout(dims=None),
        lambda: layout(dims="4"),
        lambda: layout(axes=None),
        lambda: layout(axes=((0,), 4)),
        lambda: layout(axes=(Axis(None, 4),)),  # type: ignore[arg-type] # what a caller might pass
        lambda: layout(blocks=3),
        lambda: layout(blocks=((0, 1, 4),)),
        lambda: FormatTag(None, (), ()),  # type: ignore[arg-type] # likewise
        lambda: FormatTag(((0,),), ((0, 1),), (1,)),  # type: ignore[arg-type] # likewise
        lambda: FormatTag(((0,),), (Digit(0, 1, 0),), None),  # type: ignore[arg-type] # likewise
        lambda: MemoryDesc((5,), F32, layout()),
        lambda: desc_of("f32", layout()),  # type: ignore[arg-type] # likewise
        lambda: desc_of(F32, None),  # type: ignore[arg-type] # likewise
    ],
)
def test_fields_of_another_form_are_refused(make: Any) -> None:
    with pytest.raises(MemdescError):
        make()


def test_only_rows_of_the_table_are_data_types() -> None:
    made = DataType("f32", np.int8(32), np.dtype("f4"))  # type: ignore[arg-type] # what a caller might pass
    assert made == F32
    assert hash(made) == hash(F32)
    assert type(made.bits) is int
    assert pickle.loads(pickle.dumps(made)) is F32
    assert copy.copy(made) is F32
    for name, bits, kind in (
        ("f32", 64, np.dtype("f4")),
        ("f32", 32, np.dtype("f8")),
        ("f32", 32, "f4"),
        ("f31", 32, np.dtype("f4")),
        (["f32"], 32, np.dtype("f4")),
        ("f32", np.ones(2), np.dtype("f4")),
    ):
        with pytest.raises(MemdescError):
            DataType(name, bits, kind)  # type: ignore[arg-type] # likewise
    with pytest.raises(AttributeError, match="is immutable"):
        F32.bits = 64  # type: ignore[misc] # likewise


IMAGE = image_desc((1, 5, 3, 2), "f32", "in_out_channel")


@pytest.mark.parametrize(
    ("desc", "size"),
    [
        (IMAGE.desc, (IMAGE.width - 1, IMAGE.height, 4)),
        (IMAGE.desc, (IMAGE.width * 4, IMAGE.height, 3)),
        (IMAGE.desc, (-IMAGE.width, -IMAGE.height, 4)),
        (IMAGE.desc, (0, IMAGE.height, 4)),
        (memory_desc((4, 4), "f32", strides=(5, 1)), (4, 1, 4)),
        (memory_desc((4, 4), "f32", strides=(0, 1)), (4, 1, 4)),
        (memory_desc((4, 4), "f32", strides=(4, 1), offset0=16), (4, 1, 4)),
        (memory_desc((4, 4), "s4"), (4, 1, 4)),
        (memory_desc((0, 4), "f32"), (1, 0, 4)),
        (None, (4, 1, 4)),
    ],
)
def test_an_image_by_hand_has_all_pixels_that_it_addresses(desc: Any, size: Any) -> None:
    with pytest.raises(MemdescError):
        ImageDesc(desc, size[0], size[1], size[2], "in_out_channel")
    with pytest.raises(MemdescError, match="the name of an image type"):
        ImageDesc(IMAGE.desc, IMAGE.width, IMAGE.height, 4, None)  # type: ignore[arg-type] # what a caller might pass


def test_an_image_by_hand_that_is_right_is_the_image() -> None:
    width, height = np.int16(IMAGE.width), np.uint8(IMAGE.height)
    made = ImageDesc(IMAGE.desc, width, height, np.int64(4), IMAGE.name)  # type: ignore[arg-type] # what a caller might pass
    assert made == IMAGE
    assert {type(size) for size in (made.width, made.height, made.channels)} == {int}
