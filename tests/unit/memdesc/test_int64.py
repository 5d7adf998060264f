from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from memdesc import RUNTIME, Extra, MemdescError, image_desc, memory_desc, runtime_desc
from memdesc.int64 import checked_flag
from memdesc.verbose import from_verbose, to_verbose

Take = Callable[[Any], object]

DESC = memory_desc((2, 3), "f32", "ab")
# each takes one integer, or sequence of integers, of a caller
NUMBERS: dict[str, Take] = {
    "strides": lambda n: memory_desc((2, 2), "f32", strides=(2, n)),
    "offset0": lambda n: memory_desc((2, 2), "f32", strides=(2, 1), offset0=n),
    "inner_blks": lambda n: memory_desc(
        (2, 2), "f32", strides=(2, 1), inner_blks=(n,), inner_idxs=(0,)
    ),
    "padded_dims": lambda n: memory_desc((2, 1), "f32", strides=(1, 1), padded_dims=(2, n)),
    "dims": lambda n: memory_desc((n, 2), "f32"),
    "dims of an image": lambda n: image_desc((n, 4, 4, 4), "f16", "in_out_channel"),
    "dims of a string": lambda n: from_verbose(to_verbose(DESC.reshape((1, 6))), (n, 6)),
    "dims of a runtime_desc": lambda n: runtime_desc((n, RUNTIME), "f32", "ab"),
    "offset": lambda n: DESC.offset((n, 0)),
    "index": DESC.index,
    "submemory": lambda n: DESC.submemory((n, 1), (0, 0)),
    "reshape": lambda n: DESC.reshape((6, n)),
    "perm": lambda n: DESC.permute_axes((n, 0)),
    "mask": lambda n: Extra(s8s8_mask=n),
}


@pytest.mark.parametrize("take", NUMBERS.values(), ids=NUMBERS)
def test_only_integers_are_taken_as_integers(take: Take) -> None:
    take(1)
    take(np.uint8(1))
    for given in (True, np.True_, "1", b"1", 1.0, (None,), 1 << 63, {1}):
        with pytest.raises(MemdescError, match=r"integer|not in|sequence"):
            take(given)


@pytest.mark.parametrize("given", [1, 0, None, "True", np.array([True, False]), []])
def test_a_flag_is_true_or_false(given: Any) -> None:
    assert checked_flag("padded", np.False_) is False
    with pytest.raises(MemdescError, match=r"^padded must be True or False, not"):
        checked_flag("padded", given)
