"""Names of clDNN by their published digits, and those that are refused."""

from functools import reduce
from math import lcm, prod

import numpy as np
import pytest
from numpy.typing import NDArray

from memdesc import known_names, memory_desc
from memdesc.names.cldnn import VOCABULARY
from tests.tables import CLDNN

# a digit: letters, step, extent; None is the outer digit, which counts whole steps
Digits = list[tuple[str, int, int | None]]

WITH_DIGITS = [
    name for name, row in CLDNN.items() if row["digits"] and name not in VOCABULARY.refused
]
WITH_INT4_DIGITS = [name for name in WITH_DIGITS if "int4_digits" in CLDNN[name]]


def whole(digits: Digits, letters: str, align: dict[str, int]) -> int:
    """Return what the extent of an axis is rounded up to."""
    return lcm(
        max(step for own, step, extent in digits if own == letters and extent is None),
        align.get(letters, 1),
    )


def awkward_sizes(name: str, digits: Digits) -> dict[str, int]:
    """Return a size for each letter: two blocks, the last one partial; odd spatial sizes."""
    align = CLDNN[name].get("align", {})
    sizes = {"b": 2, "f": 3, "g": 2, "o": 3, "i": 2, "v": 2, "u": 1, "w": 2, "z": 2, "y": 3, "x": 5}
    for letters in {own for own, _, _ in digits}:
        size = whole(digits, letters, align)
        if size > 1 and len(letters) == 1:
            sizes[letters] = 2 * size - 1 if size < 16 else size + 3
    if CLDNN[name].get("odd_last_column"):
        sizes["x"] = 4
    if name == "os_is_osv32_isv32_swizzled_by_4":
        sizes["y"] = sizes["x"] = 1
    # in logical order
    present = {letter for letters, _, _ in digits for letter in letters}
    order = "bfvuwzyx" if present & {"b", "f"} else "goizyx"
    return {letter: sizes[letter] for letter in order if letter in present}


def published_offsets(
    digits: Digits, sizes: dict[str, int], align: dict[str, int]
) -> NDArray[np.int64]:
    """Return the offset of every logical index: the mixed-radix number of the digits."""
    index = dict(zip(sizes, np.indices(tuple(sizes.values()), dtype=np.int64), strict=True))
    offset = np.zeros(tuple(sizes.values()), dtype=np.int64)
    for letters, step, extent in digits:
        i = np.zeros_like(offset)
        for letter in letters:
            i = i * sizes[letter] + index[letter]
        rounded = whole(digits, letters, align)
        count = extent or -(-prod(sizes[letter] for letter in letters) // rounded) * rounded // step
        offset = offset * count + i // step % count
    return offset


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "s8") for name in WITH_DIGITS), *((name, "u4") for name in WITH_INT4_DIGITS)],
)
def test_every_element_is_where_the_published_digits_put_it(name: str, dtype: str) -> None:
    row = CLDNN[name]
    digits = row["int4_digits"] if dtype == "u4" else row["digits"]
    if name == "os_is_osv32_isv32_swizzled_by_4":
        digits = [*digits, ("y", 1, None), ("x", 1, None)]
    sizes = awkward_sizes(name, digits)
    desc = memory_desc(sizes.values(), dtype, name)
    # the dims that are one axis are neighbours
    described = reduce(np.add.outer, desc.layout.tables()).reshape(desc.dims)
    assert desc.offset0 == 0
    assert desc.letters in {"".join(sizes), None if name.endswith("by_4") else ""}
    assert np.array_equal(described, published_offsets(digits, sizes, row.get("align", {})))


def test_the_table_has_222_names_of_which_208_have_digits_that_are_elements() -> None:
    domains = {name.text: name.domain for name in known_names() if name.vocabulary == "cldnn"}
    assert {name for name, row in CLDNN.items() if not row["digits"]} <= {
        *VOCABULARY.refused,
        "bf_lyx_yx",
    }
    assert (len(domains), len(WITH_DIGITS)) == (222, 208)
    assert WITH_INT4_DIGITS == ["os_iyx_osv16", "os_iyx_osv32", "os_iyx_osv64"]
    for name, row in CLDNN.items():
        is_weights = row["is_weights"] or name == "bf_lyx_yx"
        wanted = "grouped " * ("g" in row["order"]) + "weights" if is_weights else "data"
        assert domains[name] == wanted, name
    dims = (2, 3, 2, 3, 2, 5)
    assert memory_desc(dims, "f32", "bf_lyx_yx") == memory_desc(dims, "f32", "abcdef")
