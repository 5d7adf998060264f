"""Names of clDNN that are no plain blocking, as the kernels of OpenVINO address them."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING

import pytest

from memdesc import MemoryDesc, memory_desc
from tests.oracles import positions

if TYPE_CHECKING:
    from tests.oracles import Digits

# What memory holds, outermost first, copied by hand from section 4 of the specification and the
# column "who is right" of section 2: the names whose table contradicts the kernels.
EXCEPTIONS: dict[str, tuple[Digits, dict[str, int], dict[str, int]]] = {
    # name: digits, sizes, padded extents
    "bs_fs_fsv8_bsv8": (
        [("b", 8, None), ("f", 8, None), ("f", 1, 8), ("b", 1, 8)],
        {"b": 11, "f": 9},
        {"b": 16, "f": 16},
    ),
    "bs_fs_fsv8_bsv16": (
        [("b", 16, None), ("f", 8, None), ("f", 1, 8), ("b", 1, 16)],
        {"b": 19, "f": 9},
        {"b": 32, "f": 16},
    ),
    "g_os_is_zyx_isv16_osv16": (
        [
            ("g", 1, None),
            ("o", 16, None),
            ("i", 16, None),
            ("z", 1, None),
            ("y", 1, None),
            ("x", 1, None),
            ("i", 1, 16),
            ("o", 1, 16),
        ],
        {"g": 2, "o": 17, "i": 3, "z": 2, "y": 2, "x": 3},
        {"g": 2, "o": 32, "i": 16, "z": 2, "y": 2, "x": 3},
    ),
    "os_i_osv16__ai8": (
        [("o", 16, None), ("i", 1, None), ("o", 1, 16)],
        {"o": 19, "i": 9},
        {"o": 32, "i": 16},
    ),
    "os_i_osv8__ai8": (
        [("o", 8, None), ("i", 1, None), ("o", 1, 8)],
        {"o": 11, "i": 9},
        {"o": 16, "i": 16},
    ),
    "os_is_yx_osv32_isv2": (
        [
            ("o", 32, None),
            ("i", 2, None),
            ("y", 1, None),
            ("x", 1, None),
            ("o", 1, 32),
            ("i", 1, 2),
        ],
        {"o": 35, "i": 3, "y": 2, "x": 3},
        {"o": 64, "i": 4, "y": 2, "x": 3},
    ),
    "os_is_yx_osv64_isv2": (
        [
            ("o", 64, None),
            ("i", 2, None),
            ("y", 1, None),
            ("x", 1, None),
            ("o", 1, 64),
            ("i", 1, 2),
        ],
        {"o": 67, "i": 3, "y": 2, "x": 3},
        {"o": 128, "i": 4, "y": 2, "x": 3},
    ),
    "i_yxs_os_yxsv2_osv16": (
        [("i", 1, None), ("yx", 2, None), ("o", 16, None), ("yx", 1, 2), ("o", 1, 16)],
        {"o": 19, "i": 2, "y": 3, "x": 5},
        {"o": 32, "i": 2, "yx": 16},
    ),
    "gi_yxs_os_yxsv2_osv16": (
        [
            ("g", 1, None),
            ("i", 1, None),
            ("yx", 2, None),
            ("o", 16, None),
            ("yx", 1, 2),
            ("o", 1, 16),
        ],
        {"g": 2, "o": 19, "i": 2, "y": 3, "x": 5},
        {"g": 2, "o": 32, "i": 2, "yx": 16},
    ),
    **{
        f"gs_oi_yxs_gsv{n}_yxsv4": (
            [
                ("g", n, None),
                ("o", 1, None),
                ("i", 1, None),
                ("yx", 4, None),
                ("g", 1, n),
                ("yx", 1, 4),
            ],
            {"g": n + 1, "o": 2, "i": 3, "y": 3, "x": 3},
            {"g": 2 * n, "o": 2, "i": 3, "yx": 12},
        )
        for n in (4, 16, 32)
    },
    "os_i_yxs_osv4_yxsv4": (
        [("o", 4, None), ("i", 1, None), ("yx", 4, None), ("o", 1, 4), ("yx", 1, 4)],
        {"o": 5, "i": 3, "y": 3, "x": 3},
        {"o": 8, "i": 3, "yx": 12},
    ),
    "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4": (
        [
            ("o", 32, None),
            ("i", 32, None),
            ("y", 1, None),
            ("x", 1, None),
            ("o", 1, 4),
            ("i", 4, 8),
            ("o", 4, 8),
            ("i", 1, 4),
        ],
        {"o": 35, "i": 37, "y": 2, "x": 3},
        {"o": 64, "i": 64, "y": 2, "x": 3},
    ),
    "os_is_zyx_osa4_isa8_osv8_isv4_swizzled_by_4": (
        [
            ("o", 32, None),
            ("i", 32, None),
            ("z", 1, None),
            ("y", 1, None),
            ("x", 1, None),
            ("o", 1, 4),
            ("i", 4, 8),
            ("o", 4, 8),
            ("i", 1, 4),
        ],
        {"o": 35, "i": 37, "z": 2, "y": 1, "x": 3},
        {"o": 64, "i": 64, "z": 2, "y": 1, "x": 3},
    ),
    "os_is_yx_isa8_osv8_isv4_swizzled_by_4": (
        # o' = (o % 4) * 8 + o % 32 / 4 + 32 * (o / 32), then isa8_osv8_isv4 on o':
        # o' / 8 is o / 32, o % 4
        [
            ("o", 32, None),
            ("o", 1, 4),
            ("i", 32, None),
            ("y", 1, None),
            ("x", 1, None),
            ("i", 4, 8),
            ("o", 4, 8),
            ("i", 1, 4),
        ],
        {"o": 35, "i": 37, "y": 2, "x": 3},
        {"o": 64, "i": 64, "y": 2, "x": 3},
    ),
    "is_o32_yx_isv32_swizzled_by_4": (
        [
            ("i", 32, None),
            ("o", 32, None),
            ("o", 1, 4),
            ("o", 4, 8),
            ("y", 1, None),
            ("x", 1, None),
            ("i", 1, 32),
        ],
        {"o": 35, "i": 37, "y": 2, "x": 3},
        {"o": 64, "i": 64, "y": 2, "x": 3},
    ),
    "os_is_y_x8_osv8_isv4": (
        [("o", 8, None), ("i", 4, None), ("y", 1, None), ("x", 1, None), ("o", 1, 8), ("i", 1, 4)],
        {"o": 11, "i": 7, "y": 2, "x": 9},
        {"o": 16, "i": 8, "y": 2, "x": 16},
    ),
    "os_is_y_x8_osv8_isv4_swizzled_by_4": (
        [
            ("o", 32, None),
            ("o", 1, 4),
            ("i", 4, None),
            ("y", 1, None),
            ("x", 1, None),
            ("o", 4, 8),
            ("i", 1, 4),
        ],
        {"o": 35, "i": 7, "y": 2, "x": 9},
        {"o": 64, "i": 8, "y": 2, "x": 16},
    ),
    "is_o_yx_isv32": (
        [("i", 32, None), ("o", 1, None), ("y", 1, None), ("x", 1, None), ("i", 1, 32)],
        {"o": 3, "i": 35, "y": 2, "x": 3},
        {"o": 3, "i": 64, "y": 2, "x": 3},
    ),
    "os_is_osv32_isv32_swizzled_by_4": (
        [("o", 32, None), ("i", 32, None), ("o", 1, 4), ("i", 4, 8), ("o", 4, 8), ("i", 1, 4)],
        {"o": 35, "i": 37, "y": 1, "x": 1},
        {"o": 64, "i": 64, "y": 1, "x": 1},
    ),
}
# The other rows of section 4.
OTHERS: dict[str, tuple[Digits, dict[str, int], dict[str, int]]] = {
    "os_is_yx_osv32_isv4_swizzled_by_2": (
        [
            ("o", 32, None),
            ("i", 4, None),
            ("y", 1, None),
            ("x", 1, None),
            ("o", 1, 2),
            ("o", 2, 16),
            ("i", 1, 4),
        ],
        {"o": 35, "i": 7, "y": 2, "x": 3},
        {"o": 64, "i": 8, "y": 2, "x": 3},
    ),
    **{
        f"{g}iy_xs_os_xsv2_osv{n}__ao32": (
            [
                *([("g", 1, None)] if g else []),
                ("i", 1, None),
                ("y", 1, None),
                ("x", 2, None),
                ("o", n, None),
                ("x", 1, 2),
                ("o", 1, n),
            ],
            {**({"g": 2} if g else {}), "o": 35, "i": 2, "y": 3, "x": 4},
            {**({"g": 2} if g else {}), "o": 64, "i": 2, "y": 3, "x": 4},
        )
        for g in ("", "g")
        for n in (8, 16)
    },
    "os_iyx_osv32__ai32": (
        [("o", 32, None), ("i", 1, None), ("y", 1, None), ("x", 1, None), ("o", 1, 32)],
        {"o": 35, "i": 3, "y": 2, "x": 3},
        {"o": 64, "i": 32, "y": 2, "x": 3},
    ),
    "bs_f_bsv16": (
        [("b", 16, None), ("f", 1, None), ("b", 1, 16)],
        {"b": 19, "f": 9},
        {"b": 32, "f": 16},
    ),
    "bs_x_bsv16": (
        [("b", 16, None), ("x", 1, None), ("b", 1, 16)],
        {"b": 19, "x": 9},
        {"b": 32, "x": 16},
    ),
    "bs_xs_xsv8_bsv8": (
        [("b", 8, None), ("x", 1, None), ("b", 1, 8)],
        {"b": 11, "x": 9},
        {"b": 16, "x": 16},
    ),
    "bf8_xy16": (
        [("b", 1, None), ("f", 8, None), ("yx", 16, None), ("f", 1, 8), ("yx", 1, 16)],
        {"b": 2, "f": 9, "y": 5, "x": 7},
        {"b": 2, "f": 16, "yx": 48},
    ),
    "byxf_af32": (
        [("b", 1, None), ("y", 1, None), ("x", 1, None), ("f", 1, None)],
        {"b": 2, "f": 3, "y": 2, "x": 3},
        {"b": 2, "f": 32, "y": 2, "x": 3},
    ),
    "byx8_f4": (
        [("b", 1, None), ("y", 1, None), ("x", 1, None), ("f", 1, None)],
        {"b": 2, "f": 3, "y": 2, "x": 9},
        {"b": 2, "f": 4, "y": 2, "x": 16},
    ),
    "bfyx_f16": (
        [("b", 1, None), ("f", 16, None), ("y", 1, None), ("x", 1, None), ("f", 1, 16)],
        {"b": 2, "f": 17, "y": 2, "x": 3},
        {"b": 2, "f": 32, "y": 2, "x": 3},
    ),
    "o_i_yx_i16_o16": (
        [
            ("o", 16, None),
            ("i", 16, None),
            ("y", 1, None),
            ("x", 1, None),
            ("i", 1, 16),
            ("o", 1, 16),
        ],
        {"o": 17, "i": 5, "y": 2, "x": 3},
        {"o": 32, "i": 16, "y": 2, "x": 3},
    ),
}
INT4: dict[str, tuple[Digits, dict[str, int], dict[str, int]]] = {
    "os_iyx_osv16": (
        [
            ("o", 16, None),
            ("i", 2, None),
            ("y", 1, None),
            ("x", 1, None),
            ("o", 1, 16),
            ("i", 1, 2),
        ],
        {"o": 17, "i": 3, "y": 2, "x": 3},
        {"o": 32, "i": 4, "y": 2, "x": 3},
    ),
    "os_iyx_osv32": (
        [
            ("o", 32, None),
            ("i", 1, None),
            ("y", 1, None),
            ("x", 1, None),
            ("o", 1, 16),
            ("o", 16, 2),
        ],
        {"o": 35, "i": 3, "y": 2, "x": 3},
        {"o": 64, "i": 3, "y": 2, "x": 3},
    ),
    "os_iyx_osv64": (
        [
            ("o", 64, None),
            ("i", 1, None),
            ("y", 1, None),
            ("x", 1, None),
            ("o", 32, 2),
            ("o", 1, 16),
            ("o", 16, 2),
        ],
        {"o": 67, "i": 3, "y": 2, "x": 3},
        {"o": 128, "i": 3, "y": 2, "x": 3},
    ),
}


def check_positions(
    desc: MemoryDesc, digits: Digits, sizes: dict[str, int], padded: dict[str, int]
) -> None:
    found = {
        desc.offset(index[letter] for letter in sizes): at
        for at, index in positions(digits, sizes, padded)
    }
    assert found == {at: at for at in found}
    assert len(found) == prod(sizes.values())
    assert desc.padded_nelems == prod(padded.values())


def test_there_are_21_names_whose_table_contradicts_the_kernels() -> None:
    assert len(EXCEPTIONS) == 21


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_where_table_and_kernels_disagree_the_kernels_win(name: str) -> None:
    digits, sizes, padded = EXCEPTIONS[name]
    check_positions(memory_desc(sizes.values(), "s8", name), digits, sizes, padded)


@pytest.mark.parametrize("name", OTHERS)
def test_a_name_that_is_no_plain_blocking_lies_as_the_kernels_read_it(name: str) -> None:
    digits, sizes, padded = OTHERS[name]
    check_positions(memory_desc(sizes.values(), "s8", name), digits, sizes, padded)


@pytest.mark.parametrize("name", INT4)
@pytest.mark.parametrize("dtype", ["s4", "u4", "f4_e2m1"])
def test_three_names_pack_elements_of_four_bits_differently(name: str, dtype: str) -> None:
    digits, sizes, padded = INT4[name]
    check_positions(memory_desc(sizes.values(), dtype, name), digits, sizes, padded)
    assert memory_desc(sizes.values(), "s8", name) != memory_desc(
        sizes.values(), dtype, name
    ).with_dtype("s8")


def test_swizzled_by_4_is_the_permutation_of_o_that_the_specification_states() -> None:
    swizzled = memory_desc((64, 32, 2, 3), "s8", "os_is_yx_isa8_osv8_isv4_swizzled_by_4")
    plain = memory_desc((64, 32, 2, 3), "s8", "os_is_yx_isa8_osv8_isv4")
    for o, i, y, x in product(range(64), (0, 5, 31), range(2), range(3)):
        assert swizzled.offset((o, i, y, x)) == plain.offset(
            (o % 4 * 8 + o % 32 // 4 + o // 32 * 32, i, y, x)
        )
