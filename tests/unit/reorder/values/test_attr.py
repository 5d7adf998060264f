"""Attributes of a reorder: values that are checked when they are made, and when they are bound."""

import pickle
from dataclasses import fields
from itertools import product
from math import nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from reorder import Attr


def test_values_cannot_be_changed_after_they_were_checked() -> None:
    kinds = (np.float32, np.float64, ml_dtypes.bfloat16)
    for values, kind in product((2.0, [2.0], [1.0], [2.0, 4.0]), kinds):
        given, groups = np.array(values, kind), [1, 1]
        attr = reorder.Attr(
            src_scale=given,
            src_scale_mask=3,
            src_scale_groups=groups,  # type: ignore[arg-type] # what a caller might pass
            dst_zero_point=[7] * given.size,
            dst_zero_point_mask=1,
        )
        as_made = pickle.loads(pickle.dumps(attr))
        given += 1
        groups[0] = 5
        assert (attr, repr(attr), hash(attr)) == (as_made, repr(as_made), hash(as_made))
        for array in (attr.src_scale, attr.dst_zero_point, attr.parameters[0].values):
            assert isinstance(array, np.ndarray)
            for held in (each for each in (array, array.base) if isinstance(each, np.ndarray)):
                with pytest.raises(ValueError, match="WRITEABLE"):
                    held.flags.writeable = True


def test_no_parameter_takes_a_value_of_another_kind() -> None:
    wrong: list[Any] = [
        *("a", b"1", 2j, object(), int, nan, [nan], 10**400, {1: 2}, [[1], [1, 2]]),
        *(np.array(["a"]), np.array([None]), np.zeros(2, [("a", "f4")]), np.array([1, 2], "m8[s]")),
        *(np.array([True, False]), np.ma.masked_array([1, 2], [False, True])),
        np.array([1, 2], ml_dtypes.bfloat16),
    ]
    for value, name in product(wrong, (field.name for field in fields(Attr) if field.init)):
        with pytest.raises(MemdescError, match=name):
            Attr(**{name: value})
