"""Notations and the layouts that they are: `readings.txt` has a line for each."""

from itertools import groupby

import pytest

from memdesc import MemoryDesc, memory_desc, parse_layout
from memdesc.dtypes import DATA_TYPES
from memdesc.exchange import written
from tests.named import buffer_layout
from tests.tables import READINGS


def _desc(arguments: str) -> MemoryDesc:
    made = eval(f"memory_desc({arguments})", {"memory_desc": memory_desc})
    assert isinstance(made, MemoryDesc)
    return made


def test_a_notation_is_read_as_its_layout() -> None:
    for text, _, kind, arguments in READINGS:
        desc = _desc(arguments)
        assert parse_layout(text, desc.dims, desc.dtype) == desc, text
        if kind == "=":
            alone = parse_layout(text)
            assert isinstance(alone, MemoryDesc)
            assert alone.layout == desc.layout, text
            assert alone.dtype == desc.dtype or text.startswith(("pytorch:", "smem"))


def test_a_layout_is_written_as_these_notations_in_this_order() -> None:
    lines = [(arguments, *text.split(":", 1)) for text, mark, _, arguments in READINGS if mark]
    for (arguments, system), group in groupby(lines, key=lambda line: line[:2]):
        texts = [text for _, _, text in group]
        own = written(_desc(arguments), system)
        assert [text for text in own if text in texts] == texts
        if system not in {"cutlass", "openvino"}:
            assert own == tuple(texts)


@pytest.mark.parametrize("name", DATA_TYPES)
def test_mlir_names_every_data_type_but_booleans(name: str) -> None:
    desc = memory_desc((9, 5), name, "bA4a")
    texts = written(desc, "mlir")
    assert len(texts) == (2 if name == "boolean" else 3)
    for text in texts:
        assert parse_layout(f"mlir:{text}", (9, 5), name) == desc


def test_offsets_are_those_that_other_systems_state() -> None:
    # tiled_layout.md of XLA: element (2, 3) of F32[3,5]{1,0:T(2,2)} lies at 17
    assert buffer_layout("xla:f32[3,5]{1,0:T(2,2)}").offset((2, 3)) == 17
    # inner extents of 1 are not digits; deeper tuples are digits in turn
    assert buffer_layout("cute:((1,(2,2),3)):((9,(1,2),4))").offset((7,)) == 7
    assert buffer_layout("cute:((2,4),(3,5)):((3,6),(1,24))").offset((5, 7)) == 64
    desc = buffer_layout("tvm:S[(2, 4, 3, 8):(96, 1 @ Axis.m, 32, 4)] + 5", (8, 24))
    for i, j in ((0, 0), (3, 7), (5, 23), (7, 9)):
        assert desc.offset((i, j)) == 5 + i // 4 * 96 + i % 4 + j // 8 * 32 + j % 8 * 4


def test_tensors_without_elements_are_not_channels_last_for_torch() -> None:
    assert "torch.channels_last" not in written(memory_desc((2, 0, 5, 1), "f32", "nhwc"), "pytorch")
