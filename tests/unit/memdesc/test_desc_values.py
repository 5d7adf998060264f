"""Descriptors as values: compared, hashed, printed, pickled, and never changed."""

import pytest

import memdesc
from memdesc import RUNTIME, data_type, image_desc, memory_desc, runtime_desc
from memdesc.tags import parse_tag


@pytest.mark.parametrize(
    "other",
    [
        memory_desc((2, 17), "s32", "aB8b"),
        memory_desc((2, 18), "f32", "aB8b"),
        memory_desc((2, 17), "f32", "aB4b"),
        memory_desc((2, 17), "f32", "Ba8b"),
        memory_desc((2, 17), "f32", strides=(40, 8), inner_blks=(8,), inner_idxs=(1,)),
        memory_desc((2, 17), "f32", strides=(24, 8), inner_blks=(8,), inner_idxs=(1,), offset0=8),
        memory_desc(
            (2, 17), "f32", strides=(32, 8), inner_blks=(8,), inner_idxs=(1,), padded_dims=(2, 32)
        ),
        (2, 17),
        None,
    ],
)
def test_each_field_counts_in_equality(other: object) -> None:
    desc = memory_desc((2, 17), "f32", "aB8b")
    assert desc != other
    assert desc == desc  # noqa: PLR0124 - identity is a path of its own


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


@pytest.mark.parametrize("text", _SHORTEST.strip().splitlines())
def test_the_repr_is_the_shortest_call_that_makes_the_same(text: str) -> None:
    assert repr(eval(text)) == text


def test_the_repr_of_a_layout_that_no_call_makes_is_the_constructor() -> None:
    desc = memory_desc((4, 3, 4, 5), "f32", "bf8_xy16").submemory((2, 3, 4, 5), (1, 0, 0, 0))
    assert repr(desc).startswith(
        "memory_desc((2, 3, 4, 5), 'f32', Layout(dims=(2, 3, 4, 5), axes=(Axis(dims=(0,), "
    )
    assert eval(repr(desc), vars(memdesc)) == desc


VALUES = (
    memory_desc((2, 3), "f32", "ba"),
    image_desc((1, 4, 2, 2), "f16", "in_out_channel"),
    runtime_desc((RUNTIME, 3), "s8", "ab"),
    data_type("bf16"),
    parse_tag("aB8b"),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_formatted_as_its_text(value: object) -> None:
    assert f"{value:>90}" == str(value).rjust(90)
    assert f"{value}" == str(value)
