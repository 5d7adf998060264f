"""What `identify` finds: `verdicts.txt` has calls, each with a part of its verdict."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import image_desc, memory_desc
from reorder import identify
from tests.refused import sections

_VERDICTS = sections(Path(__file__).with_name("verdicts.txt"))


def floats(*dims: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(0).standard_normal(dims, np.float32)


def changed(x: Any, at: int) -> Any:
    """Return a tensor with one element changed, or one byte of packed elements."""
    held = x if isinstance(x, np.ndarray) else x.data if x.desc.dtype.is_packed else x.elements
    held.reshape(-1)[at] ^= 1
    return x


def _names() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (64, 128), np.uint8)
    packed = reorder.reorder(codes, "ba", dtype="u4").data
    odd = np.arange(1, 25, dtype=np.float32).reshape(4, 6)
    odd[0, 0], odd[1, 1] = -np.inf, np.nan
    return {
        "np": np,
        "identify": identify,
        "reorder": reorder.reorder,
        "image_desc": image_desc,
        "changed": changed,
        "x": floats(2, 17, 5, 4),
        "w": rng.integers(1, 15, (16, 16)).astype(np.float32) / 640,
        "q": codes,
        "large": rng.integers(0, 16, (512, 512), np.uint8),
        "image": floats(1, 6, 5, 4),
        "fused": rng.integers(1, 99, (16, 4, 6), np.uint8),
        "z": rng.integers(0, 120, (2, 17, 5, 4)).astype(np.float32),
        "swapped": packed >> 4 | packed << 4,
        # integers that f64 does not hold
        "far": np.arange(12, dtype=np.int64).reshape(3, 4) + 2**60,
        "odd": odd,
    }


@pytest.mark.parametrize("section", _VERDICTS)
def test_a_verdict_is_one_sentence(section: str) -> None:
    names = _names()
    for line in _VERDICTS[section]:
        call, _, says = line.partition("  # ")
        verdict = eval(call, names).verdict
        assert says in f"{verdict}$", (line, verdict)


def test_the_most_padded_layouts_then_the_common_ones_come_first() -> None:
    for dims, *first in (((4, 6), "ab", "ba"), ((2, 16, 16, 4), "abcd", "acdb")):
        found = identify(floats(*dims), dims=dims).candidates
        assert [each.names[0].text for each in found[:2]] == first
        keys = [(-each.desc.padded_nelems, len(each.desc.blocks)) for each in found]
        assert keys == sorted(keys)


def test_a_permutation_that_no_system_names_is_found() -> None:
    x = floats(2, 3, 5, 7, 4)
    m = reorder.reorder(x, "ecadb")
    assert {name.vocabulary for name in m.desc.names()} == {"memdesc"}
    assert [each.desc for each in identify(m, x).candidates] == [m.desc]
    assert m.desc in {each.desc for each in identify(m, dims=x.shape).candidates}


def test_bytes_come_from_any_buffer_or_tensor() -> None:
    x = floats(4, 8)
    (expected,) = identify(x.T.copy(), x).candidates
    moved = reorder.reorder(x, "ba")
    packed = np.zeros(129, np.uint8)[1:]
    packed[:] = moved.data
    for data in (x.T, memoryview(x.T.copy().data), packed, moved, moved.block_tensor()):
        found = identify(data, x).candidates[0].desc
        assert found in {expected.desc, memory_desc(x.shape, "f32")}
