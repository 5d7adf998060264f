from __future__ import annotations

import numpy as np
import pytest

from memdesc import Field, MemdescError, RecordDesc, record_desc
from memdesc.record.gguf import GGUF_TYPES


def bits_of(part: Field) -> np.ndarray:
    """Return the bits that each element of a field takes, over its dims and the width."""
    return part.layout.offsets()[..., None] * part.bits + np.arange(part.bits)


@pytest.mark.parametrize("name", GGUF_TYPES)
@pytest.mark.parametrize("dims", [(512,), (3, 256), (2, 1, 768)])
def test_every_bit_of_a_block_belongs_to_one_element_of_one_field(
    name: str, dims: tuple[int, ...]
) -> None:
    desc = record_desc(dims, name)
    used = np.concatenate([bits_of(part).reshape(-1) for part in desc.fields])
    assert sorted(used.tolist()) == list(range(8 * desc.nbytes))


def joined_bits(desc: RecordDesc, names: list[str], group: int) -> list[int]:
    """Return the bits of one element of some fields, the lowest first."""
    return [bit for name in names for bit in bits_of(desc.field(name))[0, group].tolist()]


@pytest.mark.parametrize("name", ["q4_k", "q5_k"])
def test_six_bit_scales_lie_where_the_c_code_reads_them(name: str) -> None:
    # get_scale_min_k4 of ggml: for j < 4 scale q[j] & 63 and min q[j + 4] & 63; else
    # (q[j + 4] & 15) | (q[j - 4] >> 6) << 4 and q[j + 4] >> 4 | (q[j] >> 6) << 4; q is at byte 4
    desc = record_desc((1, 256), name)
    for j in range(8):
        scale, least = (joined_bits(desc, [f"{k}_low", f"{k}_high"], j) for k in ("sc", "m"))
        if j < 4:
            assert scale == [8 * (4 + j) + bit for bit in range(6)]
            assert least == [8 * (8 + j) + bit for bit in range(6)]
        else:
            low = 8 * (8 + j)
            assert scale == [*range(low, low + 4), 8 * j + 6, 8 * j + 7]
            assert least == [*range(low + 4, low + 8), 8 * (4 + j) + 6, 8 * (4 + j) + 7]


def test_a_row_of_partial_blocks_is_refused_with_the_numbers() -> None:
    message = r"q4_k has blocks of 256 elements, which do not divide b \(dim 1\) of size 4000"
    with pytest.raises(MemdescError, match=message):
        record_desc((4, 4000), "q4_k")


def test_sizes_of_zero_are_records_without_bytes() -> None:
    for dims in ((0, 256), (4, 0), (0,)):
        assert record_desc(dims, "q6_k").tensors == {"data": 0}


def test_the_table_of_nvfp4_scales_is_half_of_e4m3_without_sign() -> None:
    table = record_desc((1, 64), "gguf_nvfp4").rule.scale[0].table
    assert (table[0], table[1], table[8], table[0x38], table[0x7E]) == (0, 2**-10, 2**-7, 0.5, 224)
    # 0x7f is NaN in e4m3; only that code is 0, since the sign does not count in the others
    assert (table[0x7F], table[0xFF], table[0x80]) == (0, 240, 0)
