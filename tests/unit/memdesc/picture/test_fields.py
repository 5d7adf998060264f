import re

import pytest

from memdesc.record import known_records, record_desc


@pytest.mark.parametrize("name", known_records())
def test_every_byte_of_a_picture_names_a_field_that_has_bits_there(name: str) -> None:
    desc = record_desc((256, 256), name)
    picture = desc.show()
    titles = re.findall(r"<title>byte (\d+)\n(.*?)</title>", picture.svg, re.DOTALL)
    assert len(titles) >= 18
    for _, lines in titles:
        bits = []
        for line in lines.splitlines():
            found = re.fullmatch(r"bits (\d) to (\d): (\w+), (padding|index \(.*\))", line)
            assert found, line
            assert desc.field(found[3])
            bits += list(range(int(found[1]), int(found[2]) + 1))
        # every bit once, in their order
        assert bits == list(range(8))


def test_a_byte_with_several_fields_shows_all_of_them_under_the_pointer() -> None:
    svg = record_desc((1, 256), "q4_k").show().svg
    assert (
        "byte 4\nbits 0 to 3: sc_low, index (0, 0)\nbits 4 to 5: sc_high, index (0, 0)\n"
        "bits 6 to 7: sc_high, index (0, 4)" in svg
    )
    assert "one colour: one field" in svg


def test_planes_of_bits_show_their_first_elements_and_an_ellipsis() -> None:
    lines = str(record_desc((1, 256), "q3_k").show()).splitlines()
    assert "hmask 0 32…" in lines[9]


def test_padding_and_bytes_without_a_field_are_marked() -> None:
    text = str(record_desc((2, 64), "ocp_mxfp4").show())
    assert "scales 0,1" in text
    assert "[2]" in text
    # the second half of each pair of a torch tensor with one field left out
    desc = record_desc((64, 256), "torch_int4_cpu")
    part = desc.field("scales")
    half = type(desc)(
        desc.dims, (desc.field("weight"), part), desc.rule._replace(offset=()), "half"
    )
    svg = half.show().svg
    assert "byte 2\nno field" in svg
    assert "no element" in svg


def test_a_record_without_elements_shows_its_head() -> None:
    text = str(record_desc((0, 256), "q6_k").show())
    assert text.splitlines()[0] == "record_desc((0, 256), 'q6_k')"
    assert "byte" in text


def test_notebooks_show_a_short_picture() -> None:
    desc = record_desc((1, 256), "q4_k")
    assert "<figure" in desc._repr_html_()
    assert len(desc._repr_html_()) < len(desc.show().fragment)
