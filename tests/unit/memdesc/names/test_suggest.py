"""Names that are suggested for one that is not known."""

from __future__ import annotations

import re

import pytest

from memdesc import MemdescError, UnknownFormatError, image_desc, memory_desc, suggest


def test_a_string_that_resembles_no_name_gets_no_suggestion() -> None:
    with pytest.raises(UnknownFormatError) as caught:
        memory_desc((2,), "f32", "!?")
    assert "did you mean" not in str(caught.value)
    assert suggest("!?") == ()
    with pytest.raises(MemdescError, match="a name is a string, not 3"):
        suggest(3)  # type: ignore[arg-type] # callers without types


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("nChw16", "nChw16c"),
        ("nchw16C", "nChw16c"),
        ("b_fs_yx_fsv15", "b_fs_yx_fsv16"),
        ("in_out_chanel", "in_out_channel"),
    ],
)
def test_the_nearest_name_is_suggested_first_whatever_the_case(text: str, best: str) -> None:
    found = suggest(text)
    assert best in found[:2]
    assert len(found) <= 3


@pytest.mark.parametrize(
    ("text", "dims", "best"),
    [
        ("nChw8d", (2, 17, 5, 4), "nChw8c"),
        ("nChw8d", (2, 17, 5), "nCw8c"),
        ("nChw8d", (2, 17, 5, 4, 3), "nCdhw8c"),
        ("b_fs_yx_fs16", (1, 17, 4, 4, 4), "b_fs_zyx_fsv16"),
        ("oiww", (1, 2, 3), "oiw"),
        # no name for three dims resembles this one
        ("in_out_hight", (1, 2, 3), "in_out_height"),
    ],
)
def test_names_for_as_many_dims_as_were_given_are_suggested(
    text: str, dims: tuple[int, ...], best: str
) -> None:
    found = suggest(text, len(dims))
    assert found[0] == best
    with pytest.raises(
        UnknownFormatError, match=re.escape(f"did you mean {' or '.join(map(repr, found))}?")
    ):
        memory_desc(dims, "f32", text)
    if best != "in_out_height":
        assert {memory_desc((1,) * len(dims), "f32", name).ndims for name in found} == {len(dims)}


@pytest.mark.parametrize(
    ("name", "dims", "meant"),
    [("OIhw8i8o", (2, 8, 8, 3, 3), "gOIhw8i8o"), ("nchw", (2, 3, 4), "ncw")],
)
def test_a_name_for_another_number_of_dims_leads_to_its_sibling(
    name: str, dims: tuple[int, ...], meant: str
) -> None:
    with pytest.raises(MemdescError, match=f"'{name}' is for 4 dims; did you mean '{meant}'"):
        memory_desc(dims, "f32", name)


def test_a_name_without_a_sibling_gets_no_suggestion() -> None:
    with pytest.raises(MemdescError, match=r"'nchw' is for 4 dims$"):
        memory_desc((2,) * 12, "f32", "nchw")


def test_image_names_for_as_many_dims_as_were_given_are_suggested() -> None:
    with pytest.raises(UnknownFormatError, match=r"did you mean 'argument'\?$"):
        image_desc((4,), "f32", "argumen")
    with pytest.raises(UnknownFormatError, match=r"did you mean 'weight_width' or "):
        image_desc((4, 4, 4, 4), "f32", "weight_wdth")


def test_what_is_refused_is_not_suggested_where_the_dims_are_known() -> None:
    assert "winograd_2x3_s1_weights" in suggest("winograd_2x3_s1_weight")
    with pytest.raises(UnknownFormatError) as caught:
        memory_desc((4, 4, 3, 3), "f32", "winograd_2x3_s1_weight")
    assert "did you mean 'winograd" not in str(caught.value)


def test_an_image_name_with_a_slip_gets_the_nearest_image_names() -> None:
    with pytest.raises(UnknownFormatError, match=r"did you mean 'in_out_channel' or "):
        image_desc((1, 4, 4, 4), "f32", "in_out_chanel")
