"""Where the reference of oneDNN 3.13 is known to store another value: which elements, by name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from memdesc.dtypes import DATA_TYPES

# the largest f32 below 2^31
_LARGEST = 2147483520


def saturates_s32_below_its_largest(
    ours: NDArray[Any], theirs: NDArray[Any], dst: str
) -> NDArray[np.bool_]:
    """It clamps in f32, whose last number before 2^31 is 2147483520, not the type's largest."""
    if dst != "s32":
        return np.zeros(ours.shape, np.bool_)
    found: NDArray[np.bool_] = (ours.view(np.int32) == 2**31 - 1) & (
        theirs.view(np.int32) == _LARGEST
    )
    return found


def loses_the_sign_of_zero(ours: NDArray[Any], theirs: NDArray[Any], dst: str) -> NDArray[np.bool_]:
    """It always adds a zero point, of 0 where there is none, and -0.0 + 0.0 is 0.0."""
    if dst not in {"f32", "bf16", "f16", "f8_e5m2", "f8_e4m3"}:
        return np.zeros(ours.shape, np.bool_)
    found: NDArray[np.bool_] = (ours == 1 << (DATA_TYPES[dst].bits - 1)) & (theirs == 0)
    return found


KNOWN_VALUES = (saturates_s32_below_its_largest, loses_the_sign_of_zero)
