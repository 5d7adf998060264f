from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from memdesc import DATA_TYPES, DataType, MemdescError, data_type


@pytest.mark.parametrize(
    ("name", "bits", "dtype"),
    [
        ("f64", 64, np.float64),
        ("f32", 32, np.float32),
        ("f16", 16, np.float16),
        ("bf16", 16, ml_dtypes.bfloat16),
        ("f8_e5m2", 8, ml_dtypes.float8_e5m2),
        ("f8_e4m3", 8, ml_dtypes.float8_e4m3fn),
        ("e8m0", 8, ml_dtypes.float8_e8m0fnu),
        ("f4_e2m1", 4, ml_dtypes.float4_e2m1fn),
        ("s64", 64, np.int64),
        ("s32", 32, np.int32),
        ("s8", 8, np.int8),
        ("u8", 8, np.uint8),
        ("s4", 4, ml_dtypes.int4),
        ("u4", 4, ml_dtypes.uint4),
    ],
)
def test_each_type_is_found_by_its_name_and_by_its_numpy_dtype(
    name: str, bits: int, dtype: type
) -> None:
    found = data_type(name)
    assert (found.name, found.bits, found.numpy) == (name, bits, np.dtype(dtype))
    assert (
        data_type(found)
        is data_type(dtype)
        is data_type(np.dtype(dtype))
        is data_type(np.dtype(dtype).name)
        is found
    )


def test_there_are_fourteen_types() -> None:
    assert len(DATA_TYPES) == 14


@pytest.mark.parametrize("name", DATA_TYPES)
def test_a_type_survives_repr_str_pickle_and_copy(name: str) -> None:
    dtype = DATA_TYPES[name]
    assert eval(repr(dtype)) is dtype  # noqa: S307 - repr is meant to be evaluated
    assert str(dtype) == name
    assert pickle.loads(pickle.dumps(dtype)) is dtype  # noqa: S301 - our own bytes
    assert copy.deepcopy(dtype) is copy.copy(dtype) is dtype
    assert hash(dtype) == hash(DataType(dtype.name, dtype.bits, dtype.numpy))


@pytest.mark.parametrize(
    ("name", "unit"), [("f64", "u8"), ("f32", "u4"), ("bf16", "u2"), ("s8", "u1"), ("s4", "u1")]
)
def test_the_storage_unit_is_an_unsigned_integer_of_the_width_or_a_byte_of_two(
    name: str, unit: str
) -> None:
    assert data_type(name).bits_dtype == np.dtype(unit)


@pytest.mark.parametrize(
    ("name", "count", "nbytes"),
    [("f32", 3, 12), ("s4", 3, 2), ("s4", 4, 2), ("u4", 1, 1), ("f4_e2m1", 0, 0)],
)
def test_an_odd_count_of_packed_elements_takes_a_whole_last_byte(
    name: str, count: int, nbytes: int
) -> None:
    assert data_type(name).nbytes(count) == nbytes
    assert data_type(name).is_packed == (name != "f32")


@pytest.mark.parametrize(
    "spec",
    [
        "f33",
        "",
        "F32",
        "i8",
        ">f4",
        "f" * 9999,
        None,
        3,
        1.5,
        object,
        bool,
        complex,
        np.dtype("U3"),
        [],
        {},
        ("f4", -1),
        [("a", "f4")],
    ],
    ids=lambda spec: repr(spec)[:20],
)
def test_an_unknown_type_is_refused_with_the_types_there_are(spec: object) -> None:
    with pytest.raises(
        MemdescError,
        match=r"unknown data type .*; the types are f64, f32, .* or their numpy dtypes",
    ):
        data_type(spec)


def test_a_spec_over_which_numpy_itself_stumbles_is_an_unknown_type() -> None:
    with pytest.raises(MemdescError, match="unknown data type"):
        data_type({"names": ["a", "a"], "formats": ["f4", "f4"]})


def test_the_widths_in_numpys_short_strings_are_bytes_so_only_full_names_count() -> None:
    assert data_type("u4").bits == 4
    with pytest.raises(MemdescError):
        data_type("f4")


def test_a_foreign_byte_order_is_refused_with_the_way_to_convert() -> None:
    with pytest.raises(
        MemdescError, match=r"dtype '>f4' is not in native byte order; convert with x\.astype"
    ):
        data_type(np.dtype(">f4"))
