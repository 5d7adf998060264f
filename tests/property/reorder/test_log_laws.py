"""Laws of verbose logs: what was printed is read, and nothing makes the reader fail."""

from functools import partial
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from memdesc import MemoryDesc
from memdesc.verbose import from_verbose, to_verbose
from reorder.logs import read_verbose
from tests.strategies import dims, tag_descs

_LINES = [
    line
    for file in sorted((Path(__file__).parents[2] / "data" / "verbose").glob("*.log"))
    for line in file.read_text(encoding="utf-8").splitlines()
]


@given(dims().flatmap(partial(tag_descs, any_digits=False)))
def test_a_printed_descriptor_is_read_from_its_line(desc: MemoryDesc) -> None:
    text, sizes = to_verbose(desc), "x".join(map(str, desc.dims))
    line = f"onednn_verbose,exec,cpu,reorder,x,undef,src:{text} dst:{text},,,{sizes},1"
    (entry,) = read_verbose([line]).entries
    assert entry.primitive.tensors["src"].desc == from_verbose(text, sizes) == desc


@given(st.data())
def test_no_line_makes_the_reader_fail(data: DataObject) -> None:
    line = data.draw(st.sampled_from(_LINES))
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(line)))
        stop = data.draw(st.integers(start, min(start + 12, len(line))))
        other = data.draw(
            st.text(max_size=6) | st.sampled_from([":", ",", "x", "_", "0", "9" * 20])
        )
        line = line[:start] + other + line[stop:]
    log = read_verbose([line])
    for entry in log.entries:
        assert all(t.desc is None or not t.is_absent for t in entry.primitive.tensors.values())
        assert entry.primitive.attributes is not None
    assert len(log.entries) + len(log.info) + sum(log.skipped.values()) + log.other_lines == 1
