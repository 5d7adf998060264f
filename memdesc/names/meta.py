"""Names for any number of dims: `plain`, and benchdnn's meta-tags (`abx`, `axb`, `aBx16b`).

Source: oneDNN 3.13, `tests/benchdnn/doc/knobs_tag.md`.
"""

from __future__ import annotations

import re

from memdesc.tags import LETTERS

__all__ = ["expand_meta_tag"]

_PLAIN = "plain"
# the letter that stands for all dims that the tag does not name
_REST = "x"


def expand_meta_tag(name: str, ndims: int) -> str:
    """Return the tag of a name for any number of dims; other names as they are.

    `plain` is row-major. In a meta-tag of benchdnn, which names the first dims, `x` stands for
    the others.

    >>> expand_meta_tag("abx", 4), expand_meta_tag("axb", 5), expand_meta_tag("aBx16b", 3)
    ('abcd', 'acdeb', 'aBc16b')
    >>> expand_meta_tag("plain", 2), expand_meta_tag("x", 1), expand_meta_tag("bfyx", 4)
    ('ab', 'x', 'bfyx')
    """
    if name == _PLAIN:
        return LETTERS[:ndims]
    # behind a number it would be the letter of a block
    if name.count(_REST) != 1 or not re.fullmatch(f"([A-La-l{_REST}]|[0-9]+[A-La-l])+", name):
        return name
    named = "".join(sorted({*name.lower()} - {*"0123456789", _REST}))
    if not named or not LETTERS.startswith(named):
        return name
    return name.replace(_REST, LETTERS[len(named) : ndims])
