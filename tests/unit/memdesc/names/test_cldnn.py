from __future__ import annotations

import re
from functools import reduce
from itertools import product
from math import lcm, prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memdesc import (
    MemoryDesc,
    UnknownFormatError,
    UnsupportedFormatError,
    known_names,
    memory_desc,
    parse_tag,
)
from memdesc.names import cldnn
from tests.oracles import positions
from tests.tables import CLDNN, CLDNN_TO_ONEDNN, DATA

if TYPE_CHECKING:
    from numpy.typing import NDArray

# a digit: letters, step, extent; None is the outer digit, which counts whole steps
Digits = list[tuple[str, int, int | None]]

REFUSED = {
    "winograd_2x3_s1_data": (
        "transformed input tiles, which no reorder can make; describe the plain tensor, "
        "such as 'bfyx'"
    ),
    "winograd_2x3_s1_weights": (
        "transformed 3x3 filters, which no reorder can make; describe the plain filter, "
        "such as 'oiyx'"
    ),
    "winograd_2x3_s1_fused_weights": "transformed 3x3 filters",
    "winograd_6x3_s1_fused_weights": "transformed 3x3 filters",
    "image_2d_weights_winograd_6x3_s1_fbxyb": "transformed 3x3 filters",
    "image_2d_weights_winograd_6x3_s1_xfbyb": "transformed 3x3 filters",
    "nv12": "a video surface whose planes differ in size, and reading it converts colours",
    "lstm_weights_dio": "custom code over direction, input and 4*hidden; give strides instead",
    "b_fs_yx_32fp": (
        "one-bit values, and there is no one-bit data type; the nearest layout of whole "
        "elements is 'b_fs_yx_fsv32'"
    ),
    "os_is_yx_osv32_isv32p": (
        "one-bit values, and there is no one-bit data type; the nearest layout of whole "
        "elements is 'ABcd32a32b'"
    ),
    "image_2d_weights_c4_fyx_b": "an image, not a linear buffer; use memdesc.image_desc(",
    "image_2d_weights_c1_b_fyx": "an image, not a linear buffer; use memdesc.image_desc(",
    "image_2d_rgba": "an image, not a linear buffer; use memdesc.image_desc(dims, dtype, name)",
}
WITH_DIGITS = [name for name, row in CLDNN.items() if row["digits"] and name not in REFUSED]
WITH_INT4_DIGITS = [name for name in WITH_DIGITS if "int4_digits" in CLDNN[name]]


def letters_in_logical_order(digits: Digits) -> str:
    present = {letter for letters, _, _ in digits for letter in letters}
    order = "bfvuwzyx" if present & {"b", "f"} else "goizyx"
    return "".join(letter for letter in order if letter in present)


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
    return {letter: sizes[letter] for letter in letters_in_logical_order(digits)}


def published_offsets(
    digits: Digits, sizes: dict[str, int], align: dict[str, int]
) -> NDArray[np.int64]:
    """Return the offset of every logical index: the mixed-radix number of the digits."""
    index = dict(zip(sizes, np.indices(tuple(sizes.values()), dtype=np.int64), strict=True))
    offset = np.zeros(tuple(sizes.values()), dtype=np.int64)
    for letters, step, extent in digits:
        i = reduce(
            lambda high, letter: high * sizes[letter] + index[letter],
            letters,
            np.zeros_like(offset),
        )
        rounded = whole(digits, letters, align)
        count = extent or -(-prod(sizes[letter] for letter in letters) // rounded) * rounded // step
        offset = offset * count + i // step % count
    return offset


def described_offsets(desc: MemoryDesc) -> NDArray[np.int64]:
    """Return the offset of every logical index; the dims that are one axis are neighbours."""
    return desc.offset0 + reduce(np.add.outer, desc.layout.tables()).reshape(desc.dims)


def check_digits(name: str, dtype: str, digits: Digits) -> None:
    if name == "os_is_osv32_isv32_swizzled_by_4":
        digits = [*digits, ("y", 1, None), ("x", 1, None)]
    sizes = awkward_sizes(name, digits)
    desc = memory_desc(sizes.values(), dtype, name)
    np.testing.assert_array_equal(
        described_offsets(desc), published_offsets(digits, sizes, CLDNN[name].get("align", {}))
    )


def test_the_table_has_222_names_of_which_208_have_digits_that_are_elements() -> None:
    assert len(CLDNN) == 222
    assert {name for name, row in CLDNN.items() if not row["digits"]} <= {*REFUSED, "bf_lyx_yx"}
    assert len(WITH_DIGITS) == 208
    assert WITH_INT4_DIGITS == ["os_iyx_osv16", "os_iyx_osv32", "os_iyx_osv64"]


@pytest.mark.parametrize("name", WITH_DIGITS)
def test_every_element_lies_where_the_published_digits_put_it(name: str) -> None:
    check_digits(name, "s8", CLDNN[name]["digits"])


@pytest.mark.parametrize("name", WITH_DIGITS)
def test_every_element_of_four_bits_lies_where_the_published_digits_put_it(name: str) -> None:
    check_digits(name, "u4", CLDNN[name].get("int4_digits", CLDNN[name]["digits"]))


def test_local_convolution_weights_are_the_one_name_without_digits_that_is_a_layout() -> None:
    desc = memory_desc((2, 3, 2, 3, 2, 5), "f32", "bf_lyx_yx")
    loops = product(*map(range, (2, 3, 2, 3, 2, 5)))
    assert all(desc.offset(index) == at for at, index in enumerate(loops))


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


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_is_no_layout_of_elements_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(
        UnsupportedFormatError, match=f"^'{name}' cannot be described: .*{re.escape(REFUSED[name])}"
    ):
        memory_desc((2, 16, 4, 4), "f32", name)


def test_custom_is_refused_because_it_stands_for_any_layout() -> None:
    with pytest.raises(UnsupportedFormatError, match="built at run time; give its tag or strides"):
        memory_desc((2, 16, 4, 4), "f32", "custom")


@pytest.mark.parametrize("name", [name for name in CLDNN if "iy_xs_os_xsv2_" in name])
def test_an_odd_x_is_refused_where_the_kernels_store_the_last_column_apart(name: str) -> None:
    sizes = (2, 3, 4, 5, 7)[-memory_desc((2,) * (4 + name.startswith("g")), "f32", name).ndims :]
    with pytest.raises(
        UnsupportedFormatError, match=f"'{name}' with odd x = 7: .* pad x to an even size"
    ):
        memory_desc(sizes, "f32", name)


def test_filters_of_more_than_one_point_are_refused_where_the_kernels_address_one() -> None:
    with pytest.raises(
        UnsupportedFormatError, match=r"with y, x = \(1, 2\): the kernels address 1x1 filters only"
    ):
        memory_desc((32, 32, 1, 2), "s8", "os_is_osv32_isv32_swizzled_by_4")


@pytest.mark.parametrize("name", CLDNN_TO_ONEDNN)
def test_a_nested_blocking_is_the_same_tag_as_its_onednn_equivalent(name: str) -> None:
    row = CLDNN_TO_ONEDNN[name]
    sizes = tuple(awkward_sizes(name, CLDNN[name]["digits"]).values())
    if name == "bs_f_bsv16":  # the kernels round f up to 8, which the equivalent cannot say
        assert str(cldnn.parse(name)) == row["generic"] + "__b8"
        sizes = (19, 16)
    else:
        assert str(cldnn.parse(name)) == row["generic"]
    for equivalent in (row["tag"], *row.get("aliases", ())):
        assert memory_desc(sizes, "s8", equivalent) == memory_desc(sizes, "s8", name)


def test_there_are_179_equivalents_and_openvino_has_one_of_them_wrong() -> None:
    assert len(CLDNN_TO_ONEDNN) == 179
    wrong = {
        name: row["openvino_tag"] for name, row in CLDNN_TO_ONEDNN.items() if "openvino_tag" in row
    }
    assert wrong == {"g_os_is_zyx_isv16_osv16": "gIOdhw16i16o"}
    assert cldnn.parse("g_os_is_zyx_isv16_osv16") == parse_tag("aBCdef16c16b")


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("fs_b_yx_fsv8", "Bacd8b"),
        ("bs_fs_zyx_bsv8_fsv4", "ABcde8a4b"),
        ("os_is_yx_osa2_isa4_osv2_isv2", "ABcd2a4b2a2b"),
        ("bfvuwzyx", "abcdefgh"),
        ("b_fs_yx_fsv16__ax8", "aBcd16b__d8"),
        ("b_f32_yx", "abcd__b32"),
    ],
)
def test_well_formed_names_beyond_the_known_ones_are_read(name: str, canonical: str) -> None:
    assert str(cldnn.parse(name)) == canonical


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("b_fs_yx", "'fs' is sliced, but no block of it follows"),
        ("b_f_yx_fsv16", "'f' has a block, but is not sliced"),
        (
            "b_fs_fsv16_yx",
            (
                "'yx' is neither an outer part such as 'fs' or 'yx' nor, behind those, "
                "a block such as 'fsv16'"
            ),
        ),
        ("b_fs_yx_fsv", "'fsv' is neither an outer part"),
        ("b__yx", "'__yx' is no alignment such as '__ai8'"),
        ("bfyx__ai8", "'__ai8' must align a dim that the name has, and only once"),
        ("b_f_yx__af8__af8", "'__af8' must align a dim that the name has, and only once"),
        ("b_f8_yx__af8", "'__af8' must align a dim that the name has, and only once"),
        ("b_fs_yx_fsv0", "which reads as 'aBcd0b', at character 5: block 0b has a size of zero"),
        ("bf_yxx", "which reads as 'abcdd', at character 4: dim d stands twice"),
        (
            "o_f_yx",
            (
                "no tensor has the dims f, o, x, y; data have b, f and [w] [z] y x, "
                "weights [g], o, i and [z] y x"
            ),
        ),
        ("", "'' is neither an outer part"),
    ],
)
def test_a_name_that_breaks_the_grammar_is_refused_with_the_part_at_fault(
    name: str, reason: str
) -> None:
    with pytest.raises(UnknownFormatError) as caught:
        cldnn.parse(name)
    assert str(caught.value).startswith(f"{name!r}: {reason}")


def test_the_domain_of_every_known_name_is_the_one_of_the_table() -> None:
    for known in known_names():
        if known.vocabulary == cldnn.VOCABULARY.name and known.text != "bf_lyx_yx":
            row = CLDNN[known.text]
            assert known.domain == (
                "grouped " * ("g" in row["order"]) + "weights" if row["is_weights"] else "data"
            ), known
    assert cldnn.domain("bf_lyx_yx") == "weights"


# The seed page of OpenVINO: the lists of b_fs_yx_fsv16 and bfyx for b2 f2 y2 x2.
LISTED: list[Any] = [
    (
        int(line[0]),
        *(
            dict(
                zip(
                    re.findall("([a-z]+)=", part),
                    map(int, re.findall("=([0-9]+)", part)),
                    strict=True,
                )
            )
            for part in line[1:]
        ),
    )
    for line in (
        re.split(" => | == ", text[4:])
        for text in (DATA / "seed_001_indices.txt").read_text(encoding="utf-8").splitlines()
    )
]
PLAIN = [(i, index) for i, index, *blocked in LISTED if not blocked]
BLOCKED = [(i, index, blocked[0]) for i, index, *blocked in LISTED if blocked]
MISPRINTS = (18, 34, 50, 82, 98, 114)


def test_the_seed_page_lists_16_plain_and_32_blocked_indices() -> None:
    assert (len(PLAIN), len(BLOCKED)) == (16, 32)


def test_every_index_of_the_seed_pages_bfyx_list_has_the_listed_offset() -> None:
    desc = memory_desc((2, 2, 2, 2), "f32", "bfyx")
    assert [desc.offset(index.values()) for _, index in PLAIN] == [i for i, _ in PLAIN]
    assert desc.padded_nelems == 16


@pytest.mark.parametrize(
    ("i", "index", "blocked"), [row for row in BLOCKED if row[0] not in MISPRINTS]
)
def test_every_index_of_the_seed_pages_fsv16_list_has_the_listed_offset(
    i: int, index: dict[str, int], blocked: dict[str, int]
) -> None:
    # f runs to 15 in the list: from 2 on it is padding, which a tensor of 16 features shows
    desc, filled = (
        memory_desc((2, 2, 2, 2), "f32", "b_fs_yx_fsv16"),
        memory_desc((2, 16, 2, 2), "f32", "b_fs_yx_fsv16"),
    )
    assert index["f"] == blocked["fs"] * 16 + blocked["fsv"]
    assert filled.offset(index.values()) == i
    assert desc.padded_nelems == 128
    if index["f"] < 2:
        assert desc.offset(index.values()) == i


@pytest.mark.parametrize(("i", "index", "blocked"), [row for row in BLOCKED if row[0] in MISPRINTS])
def test_the_six_misprints_of_the_seed_page_say_f_1_and_mean_f_2(
    i: int, index: dict[str, int], blocked: dict[str, int]
) -> None:
    desc = memory_desc((2, 16, 2, 2), "f32", "b_fs_yx_fsv16")
    assert (index["f"], blocked["fsv"]) == (1, 2)
    assert desc.offset(index.values()) == i - 1
    assert desc.offset((index | {"f": 2}).values()) == i
