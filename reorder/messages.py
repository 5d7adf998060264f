"""Names of tensors in messages: the first few of many, or one for all alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

# numbers between dots
_NUMBERS = re.compile(r"(?<![^.])[0-9]+(?![^.])")


def first_of(names: Iterable[str], count: int = 3) -> str:
    """Return the first few names for a message, and how many more there are."""
    listed = [*names]
    more = f" and {len(listed) - count} more" if len(listed) > count else ""
    return ", ".join(listed[:count]) + more


def starred(name: str) -> str:
    """Replace each number in the name of a tensor with a star, which groups equal layers.

    >>> starred("model.layers.17.mlp.w1")
    'model.layers.*.mlp.w1'
    """
    return _NUMBERS.sub("*", name)
