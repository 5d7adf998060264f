from __future__ import annotations

import pytest

from memdesc import MemdescError, UnknownFormatError, memory_desc, suggest


@pytest.mark.parametrize(
    ("name", "dims", "said"),
    [
        ("HWIO", (2, 3, 4, 5), "'HWIO': it is 'hwio' here, for logical dims o, i, h, w"),
        ("HWIO", (2, 3), "'HWIO': it is 'hwio' here, for logical dims o, i, h, w"),
        ("NDHWC", (1, 2, 3, 4, 5), "it is 'ndhwc' here, for logical dims n, c, d, h, w"),
        ("channels_last", (2, 3, 4), "it is 'nwc' here, for logical dims n, c, w"),
        ("torch.channels_last_3d", (1, 2, 3, 4, 5), "it is 'ndhwc' here"),
        ("channels_first", (2, 3), "'nchw' here, .* or 'ncw' here, .* or 'ncdhw' here"),
        ("row_major", (2, 3), "it is 'plain' here$"),
        ("C", (2, 3), "it is 'plain' here$"),
    ],
)
def test_names_of_other_systems_are_answered_with_what_they_are_here(
    name: str, dims: tuple[int, ...], said: str
) -> None:
    with pytest.raises(UnknownFormatError, match=said):
        memory_desc(dims, "f32", name)


def test_a_name_in_capitals_for_other_dims_leads_to_its_sibling() -> None:
    for name, dims, wanted in (
        ("NCHW", (2, 3, 4), "ncw"),
        ("NHWC", (1, 2, 3, 4, 5), "ndhwc"),
        ("OIHW", (2, 3, 4), "oiw"),
    ):
        with pytest.raises(MemdescError, match=f"is for 4 dims; did you mean '{wanted}'"):
            memory_desc(dims, "f32", name)


def test_names_with_more_blocks_than_the_string_come_last() -> None:
    assert suggest("oihww", 4)[0] == "oihw"
    assert all(not any(map(str.isdigit, name)) for name in suggest("oihww", 4))
    assert suggest("nchw16c", 4) == ("nChw16c", "nChw8c", "nChw4c")
    assert suggest("HWIO", 4)[0] == "hwio"
