"""The C reader against `from_json`."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memdesc
from memdesc import MemdescError
from tests.c_reader import Reader
from tests.strategies import descs

if TYPE_CHECKING:
    from memdesc import MemoryDesc

_NUMBERS = st.sampled_from(
    [0, 1, 2, 3, 8, 17, -1, -5, 2**31, 2**62, 2**63 - 1, -(2**63 - 1), 2**63, None, "f32", [1], 1.5]
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("reader"))


def _changed(fields: dict[str, Any], value: Any, rng: random.Random) -> None:
    """Replace one value anywhere in fields."""
    holders: list[tuple[Any, Any]] = [(fields, key) for key in fields]
    for value_ in fields.values():
        stack = [value_]
        while stack:
            inner = stack.pop()
            if isinstance(inner, list):
                holders += [(inner, k) for k in range(len(inner))]
                stack += inner
    holder, key = rng.choice(holders)
    holder[key] = value


def check(reader: Reader, desc: MemoryDesc, value: Any, seed: int) -> None:
    """Compare a descriptor, one with a value changed, and one with a character changed."""
    rng = random.Random(seed)  # noqa: S311 - examples
    text = memdesc.to_json(desc)
    assert reader.read(text) is None
    reader.check(desc)
    fields = json.loads(text)
    _changed(fields, value, rng)
    changed = json.dumps(fields)
    try:
        found = memdesc.from_json(changed)
    except MemdescError:
        reader.read(changed)  # overlaps are accepted here
    else:
        assert reader.read(changed) is None, changed
        reader.check(found)
    letters = bytearray(text.encode())
    for _ in range(rng.randint(1, 3)):
        letters[rng.randrange(len(letters))] = rng.choice(b'0123456789[]{},:"\\- .eu\x00\xff')
    reader.read(bytes(letters[: rng.choice([len(letters), rng.randrange(len(letters))])]))


@given(desc=descs(), value=_NUMBERS, seed=st.integers(0, 2**32))
def test_the_c_reader_reads_what_from_json_reads(
    reader: Reader, desc: MemoryDesc, value: Any, seed: int
) -> None:
    check(reader, desc, value, seed)


@pytest.mark.campaign
@settings(max_examples=5_000)
@given(desc=descs(), value=_NUMBERS, seed=st.integers(0, 2**32))
def test_the_c_reader_neither_overflows_nor_leaves_the_text(
    checking: Reader, desc: MemoryDesc, value: Any, seed: int
) -> None:
    check(checking, desc, value, seed)


@pytest.fixture(scope="module")
def checking(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    flags = ("-fsanitize=undefined", "-fno-sanitize-recover=all", "-D_FORTIFY_SOURCE=2")
    return Reader(tmp_path_factory.mktemp("reader"), *flags)
