import copy
import pickle

import pytest

from memdesc import DataType, data_type
from memdesc.dtypes import DATA_TYPES


@pytest.mark.parametrize("dtype", DATA_TYPES.values(), ids=str)
def test_each_type_is_found_by_its_names_and_survives_repr_pickle_and_copy(dtype: DataType) -> None:
    kind = dtype.numpy
    for spec in (dtype, dtype.name, str(dtype), kind, kind.type, kind.name):
        assert data_type(spec) is dtype
    assert eval(repr(dtype)) is pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is copy.copy(dtype) is dtype
    assert hash(dtype) == hash(DataType(dtype.name, dtype.bits, dtype.numpy))


_ALIASES = """
s4 i4, s8 i8, s16 i16 int16 torch.short, s32 i32 torch.int, s64 i64 torch.long, u4 uint4, u64 uint64
f16 fp16 half torch.float16, f32 fp32 float, f64 fp64 double, bf16 bfloat16, e8m0 f8e8m0
f8_e4m3 f8e4m3, f8_e5m2 f8e5m2, f8_e4m3fnuz torch.float8_e4m3fnuz
boolean bool torch.bool, u16 torch.uint16
"""


def test_other_systems_names_are_read() -> None:
    for row in _ALIASES.strip().replace("\n", ", ").split(", "):
        name, *aliases = row.split()
        assert [data_type(alias).name for alias in aliases] == [name] * len(aliases)
    assert [data_type(kind).name for kind in (bool, int)] == ["boolean", "s64"]
