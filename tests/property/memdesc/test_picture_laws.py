from hypothesis import given, settings

from memdesc import MemoryDesc
from tests.pictures import cells, check
from tests.strategies import descs


# A picture is slow to draw and to read back, so a third of the examples is enough.
@settings(max_examples=settings().max_examples // 3)
@given(desc=descs())
def test_every_number_of_a_picture_is_the_offset_of_its_index(desc: MemoryDesc) -> None:
    picture = desc.show()
    check(desc, *cells(picture.svg))
    assert picture == desc.show()
