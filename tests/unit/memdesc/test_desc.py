"""Descriptors as values: made, compared, printed, and what they answer."""

from typing import Any

import numpy as np

import memdesc
from memdesc import RUNTIME, MemoryDesc, data_type, image_desc, memory_desc, runtime_desc
from memdesc.tags import parse_tag

DESC = memory_desc((2, 17), "f32", "aB8b")


def by_strides(*strides: int, dtype: str = "f32", **fields: Any) -> MemoryDesc:
    return memory_desc((2, 17), dtype, strides=strides, inner_blks=(8,), inner_idxs=(1,), **fields)


def test_sizes_may_be_any_integers_in_any_iterable() -> None:
    given: tuple[Any, ...] = (
        *([2, 3], (n for n in (2, 3)), np.array([2, 3]), np.array([2, 3], np.uint8)),
        *((np.int64(2), np.int8(3)), {2: 0, 3: 0}.keys()),
    )
    for dims in given:
        desc = memory_desc(dims, "f32")
        assert desc.dims == (2, 3)
        assert {type(size) for size in desc.dims} == {int}
    assert memory_desc(np.array(3), "f32").dims == (3,)


def test_fields_without_an_effect_may_be_given() -> None:
    none: Any = {"inner_blks": [], "inner_idxs": np.array([], int), "offset0": np.int64(0)}
    assert memory_desc((2, 3), "f32", "ab", **none) == memory_desc((2, 3), "f32")
    ones: Any = {"inner_blks": (1, 8, 1), "inner_idxs": (0, 1, 1)}
    assert memory_desc((2, 17), "f32", strides=(24, 8), **ones) == DESC


def test_each_field_counts_in_equality() -> None:
    assert by_strides(24, 8) == DESC
    assert DESC == DESC  # noqa: PLR0124 - identity is a path of its own
    for other in (
        by_strides(24, 8, dtype="s32"),
        memory_desc((2, 18), "f32", "aB8b"),
        memory_desc((2, 17), "f32", "aB4b"),
        memory_desc((2, 17), "f32", "Ba8b"),
        by_strides(40, 8),
        by_strides(24, 8, offset0=8),
        by_strides(32, 8, padded_dims=(2, 32)),
        *((2, 17), None),
    ):
        assert other != DESC


_SHORTEST = """
memory_desc((2, 17), 'f32', 'aB8b')
memory_desc((2, 3), 's8', strides=(4, 1))
memory_desc((2, 3), 's8', strides=(-3, 0), offset0=3)
memory_desc((2, 3), 'f32', strides=(24, 8), inner_blks=(8,), inner_idxs=(1,), padded_dims=(2, 3), \
offset0=8)
memory_desc((2, 3), 'f32', strides=(9, 1), padded_dims=(2, 8))
memory_desc((2, 3), 'f32', 'ab__b8')
memory_desc((2, 3, 4, 5), 'f32', 'aB(CD)8b16(cd)')
memory_desc((0, 3), 'f32', strides=(0, 1))
memory_desc((1048576, 1048576), 'f64', strides=(0, 0), padded_dims=(2147483648, 2147483648))
"""


def test_the_repr_is_the_shortest_call_that_makes_the_same() -> None:
    for text in _SHORTEST.strip().splitlines():
        assert repr(eval(text)) == text
    # no call but that of the constructor makes this one
    desc = memory_desc((4, 3, 4, 5), "f32", "bf8_xy16").submemory((2, 3, 4, 5), (1, 0, 0, 0))
    assert repr(desc).startswith(
        "memory_desc((2, 3, 4, 5), 'f32', Layout(dims=(2, 3, 4, 5), axes=(Axis(dims=(0,), "
    )
    assert eval(repr(desc), vars(memdesc)) == desc


def test_a_value_is_formatted_as_its_text() -> None:
    image = image_desc((1, 4, 2, 2), "f16", "in_out_channel")
    runtime = runtime_desc((RUNTIME, 3), "s8", "ab")
    for value in (DESC, image, runtime, data_type("bf16"), parse_tag("aB8b")):
        assert f"{value:>90}" == str(value).rjust(90)
        assert f"{value}" == str(value)


def test_a_layout_is_dense_where_it_fills_its_bytes_in_order() -> None:
    rows = (2, 3, 3, 1, "dense"), (2, 3, 1, 2, "dense"), (2, 3, 4, 1, ""), (2, 3, 0, 1, "broadcast")
    for *numbers, word in (*rows, (2, 3, 3, -1, ""), (0, 3, 0, 0, "dense"), (1, 3, 0, 1, "dense")):
        desc = memory_desc(numbers[:2], "f32", strides=numbers[2:], offset0=2)
        assert (desc.is_dense, desc.has_broadcast) == (word == "dense", word == "broadcast")


def test_an_empty_view_has_no_padding_and_does_not_start_in_front_of_its_parent() -> None:
    at_end = memory_desc((2, 16), "f32", "ab__b24").submemory((2, 0), (0, 16))
    assert at_end.padded_dims == (2, 0)
    empty = memory_desc((0, 5), "f32", strides=(5, -1))
    assert empty.submemory((0, 4), (0, 1)).offset0 == 0


def names_of(desc: MemoryDesc) -> list[str]:
    return [name.text for name in desc.names()]


def test_the_names_are_those_of_the_layout_in_all_vocabularies() -> None:
    nchw16c = "aBcd16b gOiw16o nChw16c NC1HWC0 b_fs_yx_fsv16 o_is_yx_isv16 bfyx_f16 mlas_nchwc16"
    nhwc = "acdb nhwc ohwi byxf oyxi NHWC kHWC OHWI"
    for name, known in {"nChw16c": nchw16c, "b_fs_yx_fsv16": nchw16c, "nhwc": nhwc}.items():
        found = names_of(memory_desc((2, 17, 5, 4), "f32", name))
        assert set(found) == {*known.split()}
        assert found[0] == name
    # oneDNN does not enumerate this one
    assert memory_desc((2, 17), "f32", "aB3b").names() == (("memdesc", "aB3b", "any"),)
    # other tags would pad this one beyond int64
    assert "Abc16a" in names_of(memory_desc((2**59, 1, 1), "u8", "Abc16a"))


def test_elements_to_highlight_may_be_a_set_and_xor_terms_too() -> None:
    assert DESC.show(highlight={(0, 1)}).text == DESC.show(highlight=[(0, 1)]).text
    terms: Any = {(3, 0b111000)}
    layout = memory_desc((64, 64), "f16").layout
    parts = (layout.dims, layout.axes, layout.blocks, 0)
    assert memdesc.Layout(*parts, terms) == memdesc.Layout(*parts, ((3, 0b111000),))


def test_equal_descriptors_with_other_strides_of_a_unit_dim_are_spelled_otherwise() -> None:
    axes: Any = [((0,), 1)]
    blocks: list[Any] = [[(0, 2, 1, 7), (0, 1, 2, stride)] for stride in (3, 4)]
    made = [memory_desc((1,), "f32", memdesc.Layout((1,), axes, each)) for each in blocks]
    assert made[0] == made[1]
    assert made[0].spelling != made[1].spelling
