"""What is suggested for a name that is not known, or is for other dims."""

import pytest

from memdesc import UnknownFormatError, memory_desc
from memdesc.names.similar import suggest


def test_a_string_that_resembles_no_name_gets_no_suggestion() -> None:
    with pytest.raises(UnknownFormatError) as caught:
        memory_desc((2,), "f32", "!?")
    assert "did you mean" not in str(caught.value)
    # one that is refused is not suggested where the dims are known
    assert "winograd_2x3_s1_weights" not in suggest("winograd_2x3_s1_weight", 4)
    assert suggest("!?") == ()


_MEANT = """
b_fs_yx_fsv61 - b_fs_yx_fsv16, b_sf_yx_fsv16 - b_fs_yx_fsv16, nChw61c - nChw16c
os_is_yx_isv61_osv16 - os_is_yx_isv16_osv16, OIhw16i61o - OIhw16i16o, aBcd61b - aBcd16b
kCHW23 - kCHW32, NC4WH4 - NC4HW4, marlni - marlin, in_out_chanenl - in_out_channel
nChw8d 4 nChw8c, nChw8d 3 nCw8c, b_fs_yx_fs16 5 b_fs_zyx_fsv16, oiww 3 oiw
channel_last 4 channels_last, Plain 2 plain, contigous - contiguous, row-major 3 row_major
chanels_last_3d 5 channels_last_3d, channel_last 2 in_out_channel
in_out_hight 3 in_out_height, winograd_2x3_s1_weight - winograd_2x3_s1_weights
"""


def test_the_name_that_is_meant_comes_first() -> None:
    for row in _MEANT.strip().replace("\n", ", ").split(", "):
        text, ndims, meant = row.split()
        assert suggest(text, None if ndims == "-" else int(ndims))[0] == meant, row


def test_names_are_ranked_by_case_and_by_the_number_of_blocks() -> None:
    assert suggest("nchw16c", 4) == ("nChw16c", "nChw8c", "nChw4c")
    assert "nChw16c" in suggest("nchw16C")[:2]
    assert suggest("HWIO", 4)[0] == "hwio"
    assert suggest("row_major", 2)[0] == "plain"
    assert suggest("oihww", 4)[0] == "oihw"
    assert all(not any(map(str.isdigit, name)) for name in suggest("oihww", 4))


def test_a_misspelt_channels_last_does_not_become_channels_first() -> None:
    for text in ("channels_lst", "CHANNELS_LAST"):
        for ndims in (None, *range(1, 7)):
            assert "channels_first" not in suggest(text, ndims)
    assert suggest("channels_frist", 2)[0] == "channels_first"
