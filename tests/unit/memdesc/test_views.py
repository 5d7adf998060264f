import pytest

from memdesc import MemoryDesc, memory_desc


def desc(dims: tuple[int, ...], tag: str) -> MemoryDesc:
    return memory_desc(dims, "f32", tag)


# Sub-memory: the examples of the specification, of (2, 20) with blocks of 8 on dim 1.


@pytest.mark.parametrize(
    ("size", "at", "padded", "offset0"),
    [
        (4, 16, 8, 16),
        (3, 8, 3, 8),
        (8, 8, 8, 8),
        (20, 0, 24, 0),
        (12, 8, 16, 8),
        (0, 8, 0, 8),
        (0, 16, 0, 16),
    ],
)
def test_a_view_is_padded_at_the_parents_end_only(
    size: int, at: int, padded: int, offset0: int
) -> None:
    view = desc((2, 20), "aB8b").submemory((2, size), (0, at))
    assert (view.dims, view.padded_dims, view.offset0) == ((2, size), (2, padded), offset0)
    assert (view.strides, view.inner_blks) == ((24, 8), (8,))


def test_an_empty_view_keeps_no_padding() -> None:
    view = desc((2, 20), "aB8b").submemory((0, 20), (1, 0))
    assert (view.padded_dims, view.nbytes) == ((0, 24), 0)
    assert desc((2, 16), "ab__b24").submemory((2, 0), (0, 16)).padded_dims == (2, 0)


def test_an_empty_view_does_not_start_in_front_of_its_parent() -> None:
    desc = memory_desc((0, 5), "f32", strides=(5, -1))
    assert desc.submemory((0, 4), (0, 1)).offset0 == 0
