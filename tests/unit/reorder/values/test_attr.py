"""Attributes of a reorder: values that are checked when they are made, and when they are bound."""

import pickle
from dataclasses import fields
from math import nan
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from reorder import Attr
from tests import refused

SRC = memory_desc((4, 6), "s8", "ab")


class NeedsGradient:
    """As torch's tensors that require a gradient."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        msg = "use tensor.detach().numpy()"
        raise RuntimeError(msg)


def bound(src: str, dst: str, dims: tuple[int, ...] = (4, 6), **given: Any) -> None:
    reorder.plan_reorder(memory_desc(dims, src), memory_desc(dims, dst), Attr(**given))


_SECTIONS = refused.sections(Path(__file__).with_name("refused.txt"))


@pytest.mark.parametrize("section", _SECTIONS)
def test_what_no_reorder_can_use_is_refused(section: str) -> None:
    # arrays that were checked before are known by their content
    for _ in range(2):
        refused.check(_SECTIONS[section], globals() | {"nan": nan})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("values", [2.0, [2.0], [1.0], [2.0, 4.0]])
def test_values_cannot_be_changed_after_they_were_checked(values: Any, dtype: Any) -> None:
    given = np.array(values, dtype)
    groups = [1, 1]
    attr = reorder.Attr(
        src_scale=given,
        src_scale_mask=3,
        src_scale_groups=groups,  # type: ignore[arg-type] # what a caller might pass
        dst_zero_point=[7] * given.size,
        dst_zero_point_mask=1,
    )
    as_made = hash(attr), repr(attr), np.array(attr.src_scale).tolist()
    given += 1
    groups[0] = 5
    for array in (attr.src_scale, attr.dst_zero_point, attr.parameters[0].values):
        assert isinstance(array, np.ndarray)
        for held in (array, array.base):
            if isinstance(held, np.ndarray):
                with pytest.raises(ValueError, match="WRITEABLE"):
                    held.flags.writeable = True
    copied = pickle.loads(pickle.dumps(attr))
    assert copied == attr
    assert (hash(copied), repr(copied), np.array(copied.src_scale).tolist()) == as_made


_WRONG: dict[str, Any] = {
    "text": "a",
    "bytes": b"1",
    "complex": 2j,
    "object": object(),
    "type": int,
    "texts": np.array(["a"]),
    "objects": np.array([None]),
    "records": np.zeros(2, [("a", "f4")]),
    "times": np.array([1, 2], "m8[s]"),
    "uneven": [[1], [1, 2]],
    "nan": nan,
    "list of nan": [nan],
    "flags": np.array([True, False]),
    "masked": np.ma.masked_array([1, 2], [False, True]),
    "bf16": np.array([1, 2], ml_dtypes.bfloat16),
    "huge": 10**400,
    "dict": {1: 2},
}


@pytest.mark.parametrize("kind", _WRONG)
def test_no_parameter_takes_a_value_of_another_kind(kind: str) -> None:
    for name in (field.name for field in fields(Attr) if field.init):
        with pytest.raises(MemdescError, match=name):
            Attr(**{name: _WRONG[kind]})
