from __future__ import annotations

import pytest

from memdesc import MemdescError
from memdesc.tags import Digit, FormatTag


@pytest.mark.parametrize(
    ("axes", "digits", "align"),
    [
        (((0,),), (), (1,)),
        ((), (), ()),
        (((0,),), (Digit(0, 1, 0),), ()),
        (((0,),), (Digit(0, 1, 0),), (0,)),
        (((0,),), (Digit(0, 0, 0),), (1,)),
        (((0,),), (Digit(0, 2, 0),), (1,)),
        (((0,),), (Digit(1, 1, 0),), (1,)),
        (((0,),), (Digit(0, 1, 0), Digit(0, 1, 0)), (1,)),
        (((0,),), (Digit(0, 1, 4),), (1,)),
        (((0,),), (Digit(0, 4, 0), Digit(0, 1, 2)), (1,)),
        (((0,),), (Digit(0, 4, 0), Digit(0, 2, 2)), (1,)),
        (((0,),), (Digit(0, 1, 0), Digit(0, 1, 1)), (1,)),
        (((0,), (2,)), (Digit(0, 1, 0), Digit(1, 1, 0)), (1, 1)),
        (((1,), (0,)), (Digit(0, 1, 0), Digit(1, 1, 0)), (1, 1)),
        (((0,), ()), (Digit(0, 1, 0), Digit(1, 1, 0)), (1, 1)),
        ((tuple(range(13)),), (Digit(0, 1, 0),), (1,)),
    ],
)
def test_a_tag_by_hand_that_breaks_a_rule_is_refused(
    axes: tuple[tuple[int, ...], ...], digits: tuple[Digit, ...], align: tuple[int, ...]
) -> None:
    with pytest.raises(
        MemdescError,
        match=(
            r"^not a tag: axes .* must be a sorted partition of the dims, "
            r"and digits .* must divide each down to step 1$"
        ),
    ):
        FormatTag(axes, digits, align)
