"""Records with random bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import reorder

if TYPE_CHECKING:
    from memdesc import RecordDesc

__all__ = ["bits_of", "random_record"]


def random_record(desc: RecordDesc, rng: np.random.Generator) -> reorder.Record:
    """Return a record of random bits; padding of its fields is zero."""
    record = reorder.Record(
        desc, {name: rng.integers(0, 256, n, np.uint8) for name, n in desc.tensors.items()}
    )
    for part in desc.fields:
        if part.layout.has_padding:
            reorder.Memory(part.desc, record.tensors[part.tensor])
    return record


def bits_of(values: Any) -> Any:
    """Return the bits of f32, so that NaNs and zeros compare."""
    return np.asarray(values).view(np.uint32)
