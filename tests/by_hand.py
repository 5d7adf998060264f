"""Numbers of values changed at random: to nearby ones, extreme ones, and things that are none."""

from typing import Any

import numpy as np

_KINDS = (
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
)
_STRANGE: tuple[Any, ...] = (True, 1.0, np.float32(2), None, "1", 2**63, -(2**64), np.ones(2))
_EDGES = (0, 1, -1, 2, 3, 7, 8, 16, 127, 255, 300, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63) + 1)


def disguised(number: int, rng: np.random.Generator) -> Any:
    """Return the same number as an integer of any type that holds it."""
    kind = _KINDS[rng.integers(len(_KINDS))]
    if rng.random() < 0.5 or not np.iinfo(kind).min <= number <= np.iinfo(kind).max:
        return number
    return kind(number)


def _changed(number: int, rng: np.random.Generator) -> Any:
    """Return a nearby number, an extreme one, or a non-number."""
    choice = rng.integers(8)
    if choice < 4:
        return disguised(number + int(rng.integers(-3, 4)), rng)
    if choice < 5:
        return disguised(number * int(rng.choice([-1, 2, 3])), rng)
    if choice < 7:
        return disguised(_EDGES[rng.integers(len(_EDGES))], rng)
    return _STRANGE[rng.integers(len(_STRANGE))]


class _Change:
    """Walks through a value of tuples and changes one of its numbers, or a few."""

    def __init__(self, rng: np.random.Generator, count: int, changes: int) -> None:
        self._rng = rng
        self._at = set(rng.integers(max(count, 1), size=changes).tolist()) if changes else set()
        self._seen = 0

    def apply(self, value: Any) -> Any:
        """Return the value with the changes, and its numbers in integers of any type."""
        if isinstance(value, tuple):
            parts = [self.apply(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        self._seen += 1
        if self._seen - 1 in self._at:
            return _changed(value, self._rng)
        return disguised(value, self._rng)


def mutated(value: Any, rng: np.random.Generator, changes: int) -> Any:
    """Return tuples with some numbers changed, and the others in integers of any type."""
    return _Change(rng, _count(value), changes).apply(value)


def _count(value: Any) -> int:
    return sum(map(_count, value)) if isinstance(value, tuple) else 1
