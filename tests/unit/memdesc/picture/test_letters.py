"""The letters of dims in pictures and in descriptors, and the title."""

import pickle

import numpy as np

import reorder
from memdesc import memory_desc
from tests.pictures import elements


def test_letters_name_the_dims() -> None:
    desc = memory_desc((1, 5, 2, 3), "f32", "nChw4c")
    assert "rows h, columns w, a panel for each c" in desc.show("nchw").text
    assert desc.show("nchw").text.startswith("memory_desc((1, 5, 2, 3), 'f32', 'nChw4c')\n")
    assert desc.show("wxyz").text.startswith("memory_desc((1, 5, 2, 3), 'f32', 'aBcd4b')\n")
    assert "n(1) c/4(2) h(2) w(3) c%4(4)" in desc.show("nchw").svg


def test_a_descriptor_has_the_letters_of_its_name() -> None:
    desc = memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    assert desc.letters == "nchw"
    assert "rows h, columns w, a panel for each n,c" in desc.show().text
    assert memory_desc((2, 17, 5, 4), "f32", "b_fs_yx_fsv8").letters == "bfyx"
    same = memory_desc((2, 17, 5, 4), "f32", "aBcd8b")
    assert same.letters is None
    assert same == desc
    assert hash(same) == hash(desc)
    assert repr(same) == repr(desc)
    assert desc.with_dtype("bf16").letters == desc.with_extra(None).letters == "nchw"
    assert desc.submemory((1, 8, 5, 4), (1, 8, 0, 0)).letters == "nchw"
    assert desc.permute_axes((0, 3, 1, 2)).letters == "nhwc"
    assert same.permute_axes((0, 3, 1, 2)).letters is None
    assert desc.reshape((2, 17, 20)).letters is None
    assert pickle.loads(pickle.dumps(desc)).letters == "nchw"


def test_the_reason_why_elements_move_names_dims_likewise() -> None:
    named = [memory_desc((2, 17, 5, 4), "f32", name) for name in ("bfyx", "b_fs_yx_fsv16")]
    assert "of b (dim 0) the offset" in reorder.compare_layouts(*named).why
    # what was asked before does not matter
    tags = [memory_desc((2, 17, 5, 4), "f32", name) for name in ("abcd", "aBcd16b")]
    assert "of a (dim 0) the offset" in reorder.compare_layouts(*tags).why


def test_a_long_title_is_cut() -> None:
    desc = memory_desc(
        (2,) * 12, "f32", strides=[2**k + (2**12 if k == 11 else 0) for k in range(12)]
    )
    assert "…" in elements(desc.show().svg, "title")[0].text  # type: ignore[operator] # it has one


def test_values_are_drawn_in_place_of_offsets() -> None:
    desc = memory_desc((3, 2), "f32", "Ab2a")
    values = [[0.5, -1.25e-5], [2.0, 3.0], [4.0, 1e10]]
    text = desc.show(values=values).text.splitlines()
    assert text[4] == "logical: rows a, columns b; numbers are values"
    assert text[6].split() == ["0", "0.5", "-1.25e-05"]
    assert text[-1].split("|")[1].split() == [
        "0.5",
        "2",
        "-1.25e-05",
        "3",
        "4",
        "[0]",
        "1e+10",
        "[0]",
    ]
    drawn = elements(desc.show(values=values).svg, "text")
    assert {"-1.25e-05", "1e+10"} <= {each.text for each in drawn}
    # the longest of many values is not searched for
    whole = memory_desc((80, 80), "s8", "ab").show(values=np.full((80, 80), -128, np.int8))
    assert "-128" in whole.text
