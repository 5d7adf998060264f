"""What is checked of arguments, copies and pickles: all go through constructors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from memdesc import RUNTIME, Extra, MemdescError, image_desc, memory_desc, runtime_desc
from memdesc.checked import remade
from memdesc.errors import OutOfMemoryError, allocates
from memdesc.int64 import checked_flag
from memdesc.verbose import from_verbose, to_verbose

DESC = memory_desc((2, 17, 5, 4), "f32", "nChw8c")


def test_only_values_are_made_and_only_by_their_constructors() -> None:
    make, arguments = remade(type(DESC), DESC.dtype, DESC.layout)
    assert make(*arguments) == DESC
    with pytest.raises(MemdescError, match="'pathlib:Path' is a value of memdesc, which it is not"):
        make("pathlib:Path", "x")
    with pytest.raises(MemdescError, match="sets fields without its constructor: it is damaged"):
        DESC.layout.__setstate__((None, {"offset0": -1}))


def test_too_little_memory_says_so_once() -> None:
    @allocates
    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(
        OutOfMemoryError, match=r"fail\(\) needs more memory than is available: 9 EiB"
    ):
        fail(MemoryError("9 EiB"))
    with pytest.raises(OutOfMemoryError, match=r"^all is taken$"):
        fail(OutOfMemoryError("all is taken"))


Take = Callable[[Any], object]

PLAIN = memory_desc((2, 3), "f32", "ab")
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
    "dims of a string": lambda n: from_verbose(to_verbose(PLAIN.reshape((1, 6))), (n, 6)),
    "dims of a runtime_desc": lambda n: runtime_desc((n, RUNTIME), "f32", "ab"),
    "offset": lambda n: PLAIN.offset((n, 0)),
    "index": PLAIN.index,
    "submemory": lambda n: PLAIN.submemory((n, 1), (0, 0)),
    "reshape": lambda n: PLAIN.reshape((6, n)),
    "perm": lambda n: PLAIN.permute_axes((n, 0)),
    "mask": lambda n: Extra(s8s8_mask=n),
}


@pytest.mark.parametrize("take", NUMBERS.values(), ids=NUMBERS)
def test_only_integers_are_taken_as_integers(take: Take) -> None:
    take(1)
    take(np.uint8(1))
    for given in (True, np.True_, "1", b"1", 1.0, (None,), 1 << 63, {1}):
        with pytest.raises(MemdescError, match=r"integer|not in|sequence"):
            take(given)


def test_a_flag_is_true_or_false() -> None:
    assert checked_flag("padded", np.False_) is False
    wrong: tuple[Any, ...] = (1, 0, None, "True", np.array([True, False]), [])
    for given in wrong:
        with pytest.raises(MemdescError, match=r"^padded must be True or False, not"):
            checked_flag("padded", given)
