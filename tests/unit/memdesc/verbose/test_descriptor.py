"""oneDNN's verbose form of descriptors, read and written."""

import pytest

from memdesc import MemoryDesc, memory_desc
from memdesc.verbose import from_verbose, to_verbose

# Verbose: the examples of the specification.

WIDE = (9, 8, 13, 11, 40, 9, 33, 17)
PARENT = (12, 9, 13, 11, 48, 9, 33, 17)


@pytest.mark.parametrize(
    ("desc", "text"),
    [
        (memory_desc((2, 16, 5, 4), "f32", "abcd"), "f32::blocked:abcd::f0"),
        (memory_desc((2, 17, 5, 4), "f32", "aBcd16b"), "f32:p:blocked:aBcd16b::f0"),
        (
            memory_desc((2, 3, 6, 2), "f32", strides=(48, 100, 8, 3)),
            "f32::blocked:bacd:48x100x8x3:f0",
        ),
        (
            memory_desc(PARENT, "f32", "abcdefhg").submemory(WIDE, (1, 1, 0, 0, 8, 0, 0, 0)),
            "f32:0:blocked:abcdefhg:311907024x34656336x2665872x242352x5049x561x1x33:f0",
        ),
        (memory_desc((3, 5, 2, 2), "s8", "ABcd4b16a4b"), "s8:p:blocked:ABcd4b16a4b::f0"),
        (memory_desc((3, 5, 1), "s8", "cba"), "s8::blocked:cba::f0"),
        # as the last one prints with compensation, which makes it count as not dense
        (
            memory_desc((2, 17), "f32", "aB8b").submemory((2, 3), (0, 8)),
            "f32:0:blocked:aB8b:24x8:f0",
        ),
        # a stride of 0 counts as the largest; ties go to more outer blocks, then to the letter
        (memory_desc((2, 3, 4), "f32", strides=(12, 0, 1)), "f32::blocked:bac:12x0x1:f0"),
        (memory_desc((2, 3), "f32", strides=(0, 0)), "f32::blocked:ba:0x0:f0"),
        (memory_desc((1, 5, 1), "f32", strides=(1, 1, 1)), "f32::blocked:bac::f0"),
        # a negative stride is a huge unsigned one
        (memory_desc((2, 3), "f32", strides=(9, -1), offset0=2), "f32:0:blocked:ba:9x-1:f0"),
    ],
)
def test_a_descriptor_prints_as_onednn_prints_it_and_reads_back(
    desc: MemoryDesc, text: str
) -> None:
    assert to_verbose(desc) == text
    assert from_verbose(text, desc.dims, offset0=desc.offset0) == desc


@pytest.mark.parametrize("prefix", ["", "src:", "dst:", "wei:", "bia:", "src0:", "src_", "wei1_"])
def test_the_name_before_a_descriptor_and_the_flag_a_are_skipped(prefix: str) -> None:
    desc = memory_desc((2, 17, 5, 4), "f32", "aBcd16b")
    assert from_verbose(f"{prefix}f32:ap:blocked:aBcd16b::f0", desc.dims) == desc


def test_a_dense_layout_at_an_offset_has_the_strides_of_its_tag() -> None:
    desc = from_verbose("f32:0:blocked:ba::f0", (2, 3), offset0=6)
    assert desc == memory_desc((2, 3), "f32", strides=(1, 2), offset0=6)
    assert to_verbose(desc) == "f32:0:blocked:ba::f0"


def test_padding_beyond_whole_blocks_is_printed_but_not_read_back() -> None:
    desc = memory_desc((2, 3, 4, 5), "f32", "byxf_af32")
    assert to_verbose(desc) == "f32:p:blocked:acdb::f0"
