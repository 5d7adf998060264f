from itertools import product

from hypothesis import given, settings

from memdesc import MemoryDesc
from tests.pictures import cells, check
from tests.strategies import descs


# A picture is slow to draw and to read back, so a third of the examples is enough.
@settings(max_examples=settings().max_examples // 3)
@given(desc=descs())
def test_every_number_of_a_picture_is_the_offset_of_its_index(desc: MemoryDesc) -> None:
    picture = desc.show()
    grid, memory = cells(picture.svg)
    check(desc, grid, memory)
    assert picture == desc.show()
    if max(desc.padded_dims) <= 4 and desc.padded_nelems <= 64:
        shown = {seen.index for seen in grid if not seen.is_hatched}
        assert shown == set(product(*map(range, desc.dims)))
