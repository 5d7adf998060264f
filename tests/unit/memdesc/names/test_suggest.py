"""What is suggested for a name that is not known, or is for other dims."""

import re

import pytest

from memdesc import MemdescError, UnknownFormatError, memory_desc
from memdesc.names import suggest


def test_a_string_that_resembles_no_name_gets_no_suggestion() -> None:
    with pytest.raises(UnknownFormatError) as caught:
        memory_desc((2,), "f32", "!?")
    assert "did you mean" not in str(caught.value)
    assert suggest("!?") == ()
    with pytest.raises(MemdescError, match="a name is a string, not 3"):
        suggest(3)  # type: ignore[arg-type] # callers without types


def test_names_for_as_many_dims_as_were_given_are_suggested() -> None:
    for text, dims, best in (
        ("nChw8d", (2, 17, 5, 4), "nChw8c"),
        ("nChw8d", (2, 17, 5), "nCw8c"),
        ("b_fs_yx_fs16", (1, 17, 4, 4, 4), "b_fs_zyx_fsv16"),
        ("oiww", (1, 2, 3), "oiw"),
        # no name for three dims resembles this one
        ("in_out_hight", (1, 2, 3), "in_out_height"),
    ):
        found = suggest(text, len(dims))
        assert found[0] == best
        meant = re.escape(f"did you mean {' or '.join(map(repr, found))}?")
        with pytest.raises(UnknownFormatError, match=meant):
            memory_desc(dims, "f32", text)
        if best != "in_out_height":
            assert {memory_desc((1,) * len(dims), "f32", name).ndims for name in found} <= {
                len(dims)
            }


def test_two_characters_that_changed_places_lead_to_the_name() -> None:
    for text, meant in {
        "b_fs_yx_fsv61": "b_fs_yx_fsv16",
        "b_sf_yx_fsv16": "b_fs_yx_fsv16",
        "os_is_yx_isv61_osv16": "os_is_yx_isv16_osv16",
        "nChw61c": "nChw16c",
        "OIhw16i61o": "OIhw16i16o",
        "aBcd61b": "aBcd16b",
        "kCHW23": "kCHW32",
        "NC4WH4": "NC4HW4",
        "marlni": "marlin",
        "in_out_chanenl": "in_out_channel",
    }.items():
        assert suggest(text)[0] == meant


def test_names_are_ranked_by_case_and_by_the_number_of_blocks() -> None:
    assert suggest("nchw16c", 4) == ("nChw16c", "nChw8c", "nChw4c")
    assert "nChw16c" in suggest("nchw16C")[:2]
    assert suggest("HWIO", 4)[0] == "hwio"
    assert suggest("row_major", 2)[0] == "plain"
    assert suggest("oihww", 4)[0] == "oihw"
    assert all(not any(map(str.isdigit, name)) for name in suggest("oihww", 4))


def test_a_refused_name_is_not_suggested_if_the_dims_are_known() -> None:
    assert "winograd_2x3_s1_weights" in suggest("winograd_2x3_s1_weight")
    with pytest.raises(UnknownFormatError) as caught:
        memory_desc((4, 4, 3, 3), "f32", "winograd_2x3_s1_weight")
    assert "did you mean 'winograd" not in str(caught.value)
