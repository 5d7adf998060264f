"""Thresholds follow the caches that the system lists, by a model that is a pure function."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reorder.cpu.host import Cache, cache_limit, own_cache, read_caches, streamed_part

_CACHES = st.lists(st.builds(Cache, st.integers(1 << 12, 1 << 30), st.integers(1, 64)), min_size=1)


@given(_CACHES)
def test_larger_caches_never_lower_a_limit(caches: list[Cache]) -> None:
    larger = [cache._replace(nbytes=2 * cache.nbytes) for cache in caches]
    assert cache_limit(caches) <= cache_limit(larger)
    assert 0 < streamed_part(caches) <= streamed_part(larger)
    assert own_cache(caches) <= own_cache(larger) <= sum(cache.nbytes for cache in larger)


def _write(folder: Path, name: str, *texts: str) -> None:
    cache = folder / name
    cache.mkdir()
    for file, text in zip(("type", "size", "shared_cpu_list"), texts, strict=False):
        (cache / file).write_text(f"{text}\n", encoding="utf-8")


def test_caches_of_data_are_read_with_the_cores_that_share_them(tmp_path: Path) -> None:
    _write(tmp_path, "index0", "Data", "48K", "0")
    _write(tmp_path, "index1", "Instruction", "32K", "0")
    _write(tmp_path, "index2", "Unified", "2048K", "0,16")
    _write(tmp_path, "index3", "Unified", "307200K", "0-7,16-23")
    # unreadable ones
    _write(tmp_path, "index4", "Unified")
    _write(tmp_path, "index5", "Unified", "many", "0")
    assert read_caches(tmp_path) == [(48 << 10, 1), (2 << 20, 2), (300 << 20, 16)]


@pytest.mark.parametrize("folder", ["", "missing"])
def test_a_system_that_lists_no_caches_has_the_limits_of_the_model(
    folder: str, tmp_path: Path
) -> None:
    assert read_caches(tmp_path / folder) == []
    assert 0 < cache_limit([], 12 << 20) < cache_limit([])
