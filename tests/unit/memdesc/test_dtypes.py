import copy
import pickle

import numpy as np
import pytest

from memdesc import DataType, data_type
from memdesc.dtypes import DATA_TYPES


@pytest.mark.parametrize("found", DATA_TYPES.values(), ids=str)
def test_each_type_is_found_by_its_name_and_by_its_numpy_dtype(found: DataType) -> None:
    kind = found.numpy
    for spec in (found, found.name, kind, kind.type, kind.name):
        assert data_type(spec) is found


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        *((f"i{bits}", f"s{bits}") for bits in (4, 8, 16, 32, 64)),
        *((f"fp{bits}", f"f{bits}") for bits in (16, 32, 64)),
        *(("half", "f16"), ("float", "f32"), ("double", "f64"), ("bfloat16", "bf16")),
        *(("f8e4m3", "f8_e4m3"), ("f8e5m2", "f8_e5m2"), ("f8e8m0", "e8m0")),
        *(("bool", "boolean"), ("int16", "s16"), ("uint64", "u64"), ("uint4", "u4")),
        *(("torch.float16", "f16"), ("torch.bool", "boolean"), ("torch.uint16", "u16")),
        ("torch.float8_e4m3fnuz", "f8_e4m3fnuz"),
    ],
)
def test_other_systems_names_are_read(alias: str, name: str) -> None:
    assert data_type(alias) is DATA_TYPES[name]


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        *(("i8", "s8"), (np.dtype("i8"), "s64")),
        *(("i4", "s4"), (np.dtype("i4"), "s32")),
        *(("u8", "u8"), (np.dtype("u8"), "u64")),
        *(("u4", "u4"), (np.dtype("u4"), "u32")),
        *((np.dtype("i2"), "s16"), (np.dtype("?"), "boolean"), (bool, "boolean"), (int, "s64")),
    ],
)
def test_a_string_counts_bits_and_a_dtype_is_numpys(spec: object, name: str) -> None:
    assert data_type(spec) is DATA_TYPES[name]


def test_torchs_other_names_of_integers_are_read_after_torch() -> None:
    names = ("torch.long", "torch.int", "torch.short")
    assert [data_type(name).name for name in names] == ["s64", "s32", "s16"]


@pytest.mark.parametrize("name", DATA_TYPES)
def test_a_type_survives_repr_str_pickle_and_copy(name: str) -> None:
    dtype = DATA_TYPES[name]
    assert eval(repr(dtype)) is dtype
    assert str(dtype) == name
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is copy.copy(dtype) is dtype
    assert hash(dtype) == hash(DataType(dtype.name, dtype.bits, dtype.numpy))
