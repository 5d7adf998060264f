import numpy as np
import pytest

from memdesc import MemdescError
from memdesc.record import Field, record_desc
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


def test_a_row_of_partial_blocks_is_refused_with_the_numbers() -> None:
    message = r"q4_k has blocks of 256 elements, which do not divide b \(dim 1\) of size 4000"
    with pytest.raises(MemdescError, match=message):
        record_desc((4, 4000), "q4_k")


def test_sizes_of_zero_are_records_without_bytes() -> None:
    for dims in ((0, 256), (4, 0), (0,)):
        assert record_desc(dims, "q6_k").tensors == {"data": 0}
