from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from memdesc import image_desc, memory_desc
from reorder.opencl.kernel.launch import DeviceTraits
from reorder.opencl.kernel.placement import ImageShape
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from tests.opencl.test_laws import image_cases

if TYPE_CHECKING:
    from memdesc import ImageDesc, MemoryDesc


@given(image_cases(max_nelems=256), st.booleans())
def test_there_are_transfers_for_every_reorder(
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc], is_aligned: bool
) -> None:
    src, image, dst = case
    pixels = OperandSpec(image.desc, ImageShape.of(image))
    for one, other in (
        (OperandSpec(src), pixels),
        (pixels, OperandSpec(dst)),
    ):
        transfers = plan_transfers(one, other, DeviceTraits(256), is_aligned=is_aligned)
        assert transfers[-1].dst == other
        assert len(transfers) <= 3


def test_blocks_that_cut_pixels_apart_go_through_a_buffer() -> None:
    image = image_desc((1, 7, 2, 2), "f32", "in_out_channel")
    threes = memory_desc((1, 7, 2, 2), "f32", "aBcd3b")
    twos = memory_desc((1, 7, 2, 2), "f32", "aBcd2b")
    shape = ImageShape.of(image)
    for desc in (threes, twos):
        transfers = plan_transfers(
            OperandSpec(desc),
            OperandSpec(image.desc, shape),
            DeviceTraits(256),
            is_aligned=True,
        )
        assert [transfer.dst.image for transfer in transfers] == [None, shape]
