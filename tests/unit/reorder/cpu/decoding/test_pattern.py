"""Which records compiled code decodes; all others take the definition in numpy, which is slow."""

import pytest

from memdesc.record import known_records, record_desc
from memdesc.record.gguf import GGUF_TYPES
from reorder.cpu.decoding.pattern import place_pattern


@pytest.mark.parametrize("name", GGUF_TYPES)
def test_compiled_code_takes_every_type_of_gguf(name: str) -> None:
    for dims in ((1, 256), (7, 1024), (3, 33 * 256), (2, 3, 512)):
        assert place_pattern(record_desc(dims, name)) is not None


@pytest.mark.parametrize("name", known_records())
def test_bytes_of_a_tensor_count_once_however_many_fields_share_it(name: str) -> None:
    desc = record_desc((128, 1024), name)
    placed = place_pattern(desc)
    if placed is not None:
        assert placed.nbytes == sum(desc.bare.tensors.values())
        assert placed.part(32, 64).nbytes == placed.nbytes // 4
