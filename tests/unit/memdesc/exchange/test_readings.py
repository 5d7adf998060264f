"""Notations and the layouts that they are: `readings.txt` has a line for each."""

from collections.abc import Iterator
from itertools import groupby, product

import ml_dtypes
import pytest

from memdesc import (
    MemdescError,
    MemoryDesc,
    UnknownFormatError,
    UnsupportedFormatError,
    dtypes,
    memory_desc,
    parse_layout,
)
from memdesc.exchange import SYSTEMS, written
from memdesc.names import vocabularies
from tests.tables import READINGS


def _desc(arguments: str) -> MemoryDesc:
    made = eval(f"memory_desc({arguments})", {"memory_desc": memory_desc})
    assert isinstance(made, MemoryDesc)
    return made


def test_a_notation_is_read_as_its_layout() -> None:
    for text, _, kind, arguments in READINGS:
        desc = _desc(arguments)
        assert parse_layout(text, desc.dims, desc.dtype) == desc, text
        assert parse_layout(f" {text}\n", desc.dims, desc.dtype) == desc
        assert memory_desc(desc.dims, desc.dtype, text) == desc
        if kind == "=":
            alone = parse_layout(text)
            assert isinstance(alone, MemoryDesc)
            assert alone.layout == desc.layout, text
            assert alone.dtype == desc.dtype or text.startswith(("pytorch:", "smem"))


def test_a_layout_is_written_as_these_notations_in_this_order() -> None:
    lines = [(arguments, *text.split(":", 1)) for text, mark, _, arguments in READINGS if mark]
    for (arguments, system), group in groupby(lines, key=lambda line: line[:2]):
        texts = [text for _, _, text in group]
        own = written(_desc(arguments), system)
        assert [text for text in own if text in texts] == texts
        if system not in {"cutlass", "openvino"}:
            assert own == tuple(texts)


_DIMS = (2, 17, 5, 4)


def test_a_string_that_contradicts_the_given_type_is_not_called_another_notation() -> None:
    with pytest.raises(UnknownFormatError) as refused:
        parse_layout("u4:oiyx:2x3x4x5:nopad", dtype="f16")
    assert str(refused.value) == "'u4:oiyx:2x3x4x5:nopad' has data type u4, not the given f16"


def test_a_string_that_two_systems_read_differently_is_refused_with_both_readings() -> None:
    with pytest.raises(UnknownFormatError) as refused:
        parse_layout("(8,4):(1,8)", (32,))
    assert "with the prefix cute: memory_desc((32,), 'f32', 'A8a')" in str(refused.value)
    assert "with the prefix tvm: memory_desc((32,), 'f32', '4a/1A')" in str(refused.value)
    assert parse_layout("cute:(8,4):(1,8)", (32,)) == memory_desc((32,), "f32", "A8a")
    assert parse_layout("tvm:(8,4):(1,8)", (32,)) == memory_desc((32,), "f32", "4a/1A")
    assert parse_layout("(8,4):(1,8)") == memory_desc((8, 4), "f32", "ba")


def test_a_name_calls_the_dims_alike_with_its_system_and_without() -> None:
    for name in ("onednn:nhwc", "onednn:aBcd16b", "cldnn:b_fs_yx_fsv16", "tensorrt:kCHW32"):
        named = parse_layout(name, _DIMS)
        assert isinstance(named, MemoryDesc)
        assert named.letters == memory_desc(_DIMS, "f32", name.partition(":")[2]).letters, name


def test_the_data_type_is_that_of_the_string_the_given_one_or_the_default() -> None:
    assert parse_layout("f16:bfyx:1x2x3x4").dtype.name == "f16"
    assert parse_layout("nchw", _DIMS, "s8").dtype.name == "s8"
    assert parse_layout("f16:bfyx:1x2x3x4", default=None).dtype.name == "f16"


def test_a_vocabulary_reads_names_of_four_bits_and_checks_sizes_as_memory_desc_does() -> None:
    names = ("os_iyx_osv16", "os_is_osv32_isv32_swizzled_by_4", "iy_xs_os_xsv2_osv8__ao32")
    all_dims = ((4, 8), (4, 8, 2, 2), (4, 8, 1, 1), (4, 8, 3, 3))
    for name, dims, dtype in product(names, all_dims, ("s4", "s8")):
        try:
            desc = memory_desc(dims, dtype, name)
        except MemdescError:
            with pytest.raises(MemdescError):
                parse_layout(f"cldnn:{name}", dims, dtype)
        else:
            assert parse_layout(f"cldnn:{name}", dims, dtype) == desc


# vocabularies whose tables have names for blocked or other layouts only
_PACKED = tuple(
    one.name
    for one in vocabularies()
    if one.rows and all("abcd" not in row.tags.values() for row in one.rows.values())
)
_SHARED = ("cutlass", "triton")


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name not in _PACKED + _SHARED])
def test_a_plain_layout_is_written_by_every_system(system: str) -> None:
    assert SYSTEMS[system].name == system
    desc = memory_desc((2, 17, 5, 4), "f32", "abcd")
    assert parse_layout(f"{system}:{desc.to_notation(system)}", desc.dims, "f32") == desc


@pytest.fixture
def added() -> Iterator[str]:
    """Return a data type that no system has a row for."""
    dtypes.add_row("f8_unlisted", 8, ml_dtypes.float8_e3m4)
    yield "f8_unlisted"
    del dtypes._BY_NAME["f8_unlisted"]  # noqa: SLF001 - nothing else takes a row out


def test_a_type_that_a_system_lacks_is_refused_or_left_out(added: str) -> None:
    for system, name in (
        *(("xla", added), ("openvino", added), ("pytorch", added)),
        # OpenVINO has no type without negative zero
        ("openvino", "f8_e4m3fnuz"),
    ):
        desc = memory_desc((2, 3, 5, 4), name, "nchw")
        with pytest.raises(UnsupportedFormatError, match=f"has no data type .*{name}"):
            desc.to_notation(system)
    assert added not in memory_desc((2, 3), added, "ba").to_notation("mlir")
