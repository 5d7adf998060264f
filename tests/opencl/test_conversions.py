"""Conversions on devices equal the definition, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdesc import DATA_TYPES, memory_desc
from reorder import execute_reference, opencl
from tests.attributes import conversions
from tests.conversions import every_code, random_codes, run
from tests.opencl.test_laws import COMMON
from tests.reorders import random_bytes

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder import Attr
    from tests.opencl.runtimes import Runtime

MAX_NELEMS = 512


def check(runtime: Runtime, case: tuple[MemoryDesc, MemoryDesc, Attr | None], seed: int) -> None:
    """Compare a reorder on a device with the definition; what lies around dst stays as it is."""
    src, dst, attr = case
    source = random_bytes(max(src.nbytes, 1), seed)
    before = random_bytes(dst.nbytes + 48, seed + 1)
    buffer = runtime.buffer(before)
    memory = runtime.buffer(source)
    event = opencl.enqueue_reorder(runtime.queue, memory, src, buffer, dst, attr)
    found = runtime.read(buffer, event)
    wanted = before.copy()
    if dst.nelems:
        execute_reference(src, dst, source[: src.nbytes], wanted[: dst.nbytes], attr)
    assert found.tobytes() == wanted.tobytes()


@settings(COMMON, max_examples=4)
@given(case=conversions(MAX_NELEMS), seed=st.integers(0, 2**20))
def test_any_types_layouts_and_attributes_equal_the_definition(
    runtime: Runtime, case: tuple[MemoryDesc, MemoryDesc, Attr | None], seed: int
) -> None:
    check(runtime, case, seed)


@pytest.mark.campaign
@settings(COMMON, max_examples=1_000)
@given(case=conversions(MAX_NELEMS), seed=st.integers(0, 2**20))
def test_a_thousand_conversions_equal_the_definition(
    runtime: Runtime, case: tuple[MemoryDesc, MemoryDesc, Attr | None], seed: int
) -> None:
    check(runtime, case, seed)


def check_codes(runtime: Runtime, src: str, dst: str, attr: Attr | None = None) -> None:
    """Compare all codes of a type, or many of a wide one."""
    codes = every_code(src) if DATA_TYPES[src].bits <= 16 else random_codes(src, 1 << 14)
    one, other = (memory_desc((codes.size,), name, "a") for name in (src, dst))
    packed = codes[0::2] | codes[1::2] << 4 if one.dtype.is_packed else codes
    buffer = runtime.buffer(np.full(other.nbytes, 0xA5, np.uint8))
    event = opencl.enqueue_reorder(runtime.queue, runtime.buffer(packed), one, buffer, other, attr)
    found = runtime.read(buffer, event)
    wanted = run(codes, src, dst, attr, by="definition")
    if other.dtype.is_packed:
        found = np.stack([found & 15, found >> 4], axis=1).reshape(-1)
    assert found.view(wanted.dtype).tobytes() == wanted.tobytes(), (src, dst)


@pytest.mark.parametrize(
    ("src", "dst"), [("f32", "f16"), ("f16", "s4"), ("f32", "f8_e4m3fnuz"), ("s64", "bf16")]
)
def test_all_codes_of_a_type_become_those_of_another(src: str, dst: str, runtime: Runtime) -> None:
    check_codes(runtime, src, dst)


@pytest.mark.campaign
@pytest.mark.parametrize("dst", DATA_TYPES)
@pytest.mark.parametrize("src", DATA_TYPES)
def test_all_pairs_of_types_convert(src: str, dst: str, runtime: Runtime) -> None:
    check_codes(runtime, src, dst)
