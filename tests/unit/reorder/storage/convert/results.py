"""Conversions by rules as lines: the tensors that come out, or the line that refuses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from memdesc import DATA_TYPES, MemdescError
from reorder.storage.containers.table import read_container
from reorder.storage.convert.conversion import ConvertOptions, plan_conversion

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SMALL = ConvertOptions(threads=1, max_bytes=1 << 20, verify=True)


def converted(
    source: Path, target: Path, *rules: str, settings: ConvertOptions = SMALL
) -> dict[str, NDArray[Any]]:
    """Convert, and return the words of each tensor of the output, by its name."""
    plan_conversion(source, target, rules, settings).run()
    return {
        name: entry.read().view(DATA_TYPES[entry.dtype].numpy).reshape(entry.shape)
        for name, entry in read_container(target).entries.items()
    }


def refused(source: Path, target: Path, *rules: str, settings: ConvertOptions = SMALL) -> str:
    """Return the line that refuses a conversion; nothing was written."""
    before = sorted(target.parent.rglob("*"))
    with pytest.raises(MemdescError) as caught:
        plan_conversion(source, target, rules, settings).run()
    assert sorted(target.parent.rglob("*")) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)
