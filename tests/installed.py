"""Reorder 500 random tensors with the installed package, and check its page's links.

Run it by its path outside of the repository, whose sources Python would find first. Each result is
compared with the definition: the element of an index lies at the offset of its descriptor, and all
other elements are zero.
"""

import re
import sys
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import numpy as np

import memdesc
import reorder

_COUNT = 500
_DTYPES = ("f32", "f16", "s8", "u8", "s32")
_TAGS = {
    2: ("ab", "ba", "AB16b16a", "aB8b", "BA4b4a"),
    3: ("abc", "acb", "cba", "aBc8b", "ABc4a4b"),
    4: ("nchw", "nhwc", "nChw8c", "nChw16c", "OIhw16i16o", "b_fs_yx_fsv4", "ABcd4a8b4a"),
}


def main() -> int:
    """Reorder, compare, and say how many were equal; 1 if one is not, or a link is relative."""
    page: Any = metadata("memdesc")  # a message of `email`; its type says less
    text = page.get_payload()
    assert isinstance(text, str)
    links = re.findall(r"\]\(([^)\s]+)", text)
    relative = [link for link in links if not link.startswith(("https://", "#"))]
    if relative or not links:
        sys.stderr.write(f"links of the package page that are not absolute: {relative}\n")
        return 1
    random = np.random.default_rng(1)
    for number in range(_COUNT):
        ndims = int(random.integers(2, 5))
        dims = tuple(int(size) for size in random.integers(1, 10, ndims))
        dtype = str(random.choice(_DTYPES))
        src, dst = (str(tag) for tag in random.choice(_TAGS[ndims], 2))
        empty = reorder.Memory(memdesc.memory_desc(dims, dtype, "abcdef"[:ndims])).numpy()
        x = random.integers(0, 100, dims).astype(empty.dtype)
        found = reorder.reorder(reorder.reorder(x, src), dst)
        wanted = np.zeros(found.elements.size, x.dtype)
        for index in np.ndindex(dims):
            wanted[found.desc.offset(index)] = x[index]
        if not np.array_equal(found.elements.view(x.dtype), wanted):
            sys.stderr.write(f"case {number}: {dims} {dtype} {src} -> {dst} is wrong\n")
            return 1
    sys.stdout.write(f"{_COUNT} random reorders are right, in {Path(memdesc.__file__).parent}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
