"""The fields of descriptors, their sizes in bytes, and what they answer."""

import pytest

from memdesc import memory_desc

# The asserts at the end of the seed page of oneDNN.


def test_the_seed_pages_17_channels_in_blocks_of_8_have_the_fields_it_asserts() -> None:
    n, c, h, w = 2, 17, 5, 4
    c_padded = 24
    desc = memory_desc((n, c, h, w), "f32", "nChw8c")
    assert desc.ndims == 4
    assert desc.dims == (n, c, h, w)
    assert desc.padded_dims == (n, c_padded, h, w)
    assert desc.strides == (c_padded * h * w, h * w * 8, w * 8, 8)
    assert (desc.inner_blks, desc.inner_idxs) == ((8,), (1,))
    assert desc.nbytes == desc.min_nbytes == 4 * n * c_padded * h * w
    assert desc == memory_desc(
        (n, c, h, w), "f32", strides=desc.strides, inner_blks=(8,), inner_idxs=(1,)
    )


# Examples that the specification marks as run on the real library.


@pytest.mark.parametrize(
    ("strides", "offset0", "words"),
    [
        ((3, 1), 0, "dense"),
        ((1, 2), 0, "dense"),
        ((4, 1), 0, ""),
        ((0, 1), 0, "broadcast"),
        ((3, 1), 7, "dense"),
        ((3, -1), 2, ""),
        ((-100, 2), 100, ""),
    ],
)
def test_a_layout_is_dense_where_it_fills_its_bytes_in_order(
    strides: tuple[int, int], offset0: int, words: str
) -> None:
    desc = memory_desc((2, 3), "f32", strides=strides, offset0=offset0)
    assert (desc.is_dense, desc.has_broadcast) == (words == "dense", words == "broadcast")


def test_a_stride_of_0_repeats_no_element_where_there_is_none() -> None:
    assert not memory_desc((0, 3), "f32", strides=(0, 0)).has_broadcast


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("get_size", r"oneDNN's get_size is \.nbytes here"),
        ("submemory_desc", r"oneDNN's submemory_desc is \.submemory\(dims, offsets\) here"),
        ("inner_nblks", r"oneDNN's inner_nblks is \.inner_blks, whose length it is here"),
        ("data_type", r"oneDNN's data_type is \.dtype here"),
        ("get_data_type", r"oneDNN's get_data_type is \.dtype here"),
        ("get_dims", r"oneDNN's get_dims is \.dims here"),
        ("volume", "a MemoryDesc has no attribute 'volume'$"),
    ],
)
def test_names_of_onednn_say_what_they_are_called_here(name: str, here: str) -> None:
    desc = memory_desc((2, 17), "f32", "aB8b")
    with pytest.raises(AttributeError, match=here) as raised:
        getattr(desc, name)
    assert raised.value.name == name
    assert not hasattr(desc, name)


def test_an_empty_view_has_no_padding_and_does_not_start_in_front_of_its_parent() -> None:
    view = memory_desc((2, 20), "f32", "aB8b").submemory((0, 20), (1, 0))
    assert (view.padded_dims, view.nbytes) == ((0, 24), 0)
    at_end = memory_desc((2, 16), "f32", "ab__b24").submemory((2, 0), (0, 16))
    assert at_end.padded_dims == (2, 0)
    empty = memory_desc((0, 5), "f32", strides=(5, -1))
    assert empty.submemory((0, 4), (0, 1)).offset0 == 0
