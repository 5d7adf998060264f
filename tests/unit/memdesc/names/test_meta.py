from __future__ import annotations

import pytest

from memdesc import RUNTIME, known_names, memory_desc, runtime_desc
from memdesc.names import expand_meta_tag


@pytest.mark.parametrize(
    ("meta", "ndims", "tag"),
    [
        ("plain", 3, "abc"),
        ("abx", 2, "ab"),
        ("axb", 4, "acdb"),
        ("xba", 4, "cdba"),
        ("ABx16b16a", 5, "ABcde16b16a"),
        ("nchw", 4, "nchw"),
        ("aBcd16b", 4, "aBcd16b"),
        ("x", 1, "x"),
        ("bx", 2, "bx"),
        ("axbx", 4, "axbx"),
    ],
)
def test_x_stands_for_the_other_dims(meta: str, ndims: int, tag: str) -> None:
    assert expand_meta_tag(meta, ndims) == tag


def test_known_names_are_as_they_are() -> None:
    for name in known_names():
        assert expand_meta_tag(name.text, 4) == name.text


def test_descriptors_are_made_of_them() -> None:
    assert memory_desc((2, 3, 4), "f32", "plain") == memory_desc((2, 3, 4), "f32")
    assert memory_desc((2, 3, 4), "f32", "axb") == memory_desc((2, 3, 4), "f32", "acb")
    dims = (RUNTIME, 3, 4)
    assert runtime_desc(dims, "f32", "aBx8b") == runtime_desc(dims, "f32", "aBc8b")
