"""Names that clDNN's spelling makes or refuses."""

from __future__ import annotations

import pytest

from memdesc import UnknownFormatError
from memdesc.names import cldnn


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("fs_b_yx_fsv8", "Bacd8b"),
        ("bs_fs_zyx_bsv8_fsv4", "ABcde8a4b"),
        ("os_is_yx_osa2_isa4_osv2_isv2", "ABcd2a4b2a2b"),
        ("bfvuwzyx", "abcdefgh"),
        ("b_fs_yx_fsv16__ax8", "aBcd16b__d8"),
        ("b_f32_yx", "abcd__b32"),
    ],
)
def test_well_formed_names_beyond_the_known_ones_are_read(name: str, canonical: str) -> None:
    assert str(cldnn.parse(name)) == canonical


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("b_fs_yx", "'fs' is sliced, but no block of it follows"),
        ("b_f_yx_fsv16", "'f' has a block, but is not sliced"),
        (
            "b_fs_fsv16_yx",
            (
                "'yx' is neither an outer part such as 'fs' or 'yx' nor, after those, "
                "a block such as 'fsv16'"
            ),
        ),
        ("b_fs_yx_fsv", "'fsv' is neither an outer part"),
        ("b__yx", "'__yx' is not an alignment such as '__ai8'"),
        ("bfyx__ai8", "'__ai8' must align a dim of the name, and only once"),
        ("b_f_yx__af8__af8", "'__af8' must align a dim of the name, and only once"),
        ("b_f8_yx__af8", "'__af8' must align a dim of the name, and only once"),
        ("b_fs_yx_fsv0", "which reads as 'aBcd0b', at character 5: block 0b has a size of zero"),
        ("bf_yxx", "which reads as 'abcdd', at character 4: dim d appears twice"),
        (
            "o_f_yx",
            (
                "no tensor has the dims f, o, x, y; data has b, f and [w] [z] y x, "
                "weights have [g], o, i and [z] y x"
            ),
        ),
        ("", "'' is neither an outer part"),
    ],
)
def test_a_name_that_breaks_the_grammar_is_refused_with_the_part_at_fault(
    name: str, reason: str
) -> None:
    with pytest.raises(UnknownFormatError) as caught:
        cldnn.parse(name)
    assert str(caught.value).startswith(f"{name!r}: {reason}")
