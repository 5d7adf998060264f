from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given

from tests.pictures import cells
from tests.strategies import descs
from tests.unit.memdesc.picture.test_show import check

if TYPE_CHECKING:
    from memdesc import MemoryDesc


@given(desc=descs())
def test_every_number_of_a_picture_is_the_offset_of_its_index(desc: MemoryDesc) -> None:
    picture = desc.show()
    check(desc, *cells(picture.svg))
    assert picture == desc.show()
