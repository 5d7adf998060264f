"""The stages of a reorder on a device: launches, and the buffers between them. Pure functions.

Most reorders are one stage. Where boxes do not move whole pixels, elements go through a
linear buffer of the image's pixels. Images of one half channel are copied by the runtime
alone: PoCL 3.1 has them, but its kernels neither read nor write them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError
from reorder.opencl.schedule.lower import lower
from reorder.opencl.schedule.placement import place_box
from reorder.plan.passes import pack_elements
from reorder.plan.plan import plan_reorder

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.opencl.schedule.lower import Launch
    from reorder.opencl.schedule.placement import Raster

__all__ = ["Side", "Stage", "plan_stages"]

# Bits of the widest element that a work item moves.
_BYTE, _WIDEST = 8, 128


class Side(NamedTuple):
    """What launches depend on of one side: its linear descriptor, its pixels, its elements."""

    desc: MemoryDesc
    image: Raster | None
    element: str

    @property
    def is_copied(self) -> bool:
        """Whether only the runtime itself reads and writes the pixels."""
        return self.image is not None and self.image.channels == 1 and self.desc.dtype.name == "f16"

    def as_buffer(self, like: Side) -> Side:
        """Return the same layout as a linear buffer, of the elements of another side."""
        return Side(self.desc.with_dtype(like.desc.dtype), None, like.element)


class Stage(NamedTuple):
    """Launches that may run at the same time, and what they write.

    Or none, where the runtime copies `region`, (width, height) pixels, as they are.
    """

    launches: tuple[Launch, ...]
    dst: Side
    region: tuple[int, int] | None = None


@lru_cache(maxsize=1024)
def plan_stages(src: Side, dst: Side, max_items: int, *, is_aligned: bool) -> tuple[Stage, ...]:
    """Plan the stages of a reorder.

    Parameters
    ----------
    src, dst : Side
        Of the same dims.
    max_items : int
        The largest group of work items of the device.
    is_aligned : bool
        Whether buffers start at multiples of 16 bytes.

    Raises
    ------
    MemdescError
        If 4-bit elements do not move as whole bytes.
    """
    first = [Stage((), src.as_buffer(src), _region(src))] if src.is_copied else []
    last = [Stage((), dst, _region(dst))] if dst.is_copied else []
    source = first[-1].dst if first else src
    target = dst.as_buffer(dst) if last else dst
    direct = _launches(source, target, max_items, is_aligned=is_aligned)
    if direct is not None:
        return (*first, Stage(direct, target), *last)
    sides = [source]
    # images convert, so what lies beside a buffer is of the buffer's type
    if source.image is not None:
        sides.append(source.as_buffer(source if target.image is not None else target))
    if target.image is not None and (
        source.image is None or sides[-1].desc.layout != target.desc.layout
    ):
        sides.append(target.as_buffer(sides[-1]))
    stages = []
    for one, other in pairwise([*sides, target]):
        launches = _launches(one, other, max_items, is_aligned=is_aligned)
        if launches is None:
            msg = f"no pixels of {one} lead to those of {other}"
            raise AssertionError(msg)
        stages.append(Stage(launches, other))
    return (*first, *stages, *last)


def _region(side: Side) -> tuple[int, int]:
    """Return width and height of an image of one channel."""
    assert side.image is not None  # noqa: S101 - for the type checker
    return side.image.width, side.desc.padded_nelems // side.image.width


def _launches(
    src: Side, dst: Side, max_items: int, *, is_aligned: bool
) -> tuple[Launch, ...] | None:
    """Return the launches of one stage, or None where boxes do not move whole pixels."""
    plan = plan_reorder(src.desc.with_dtype(dst.desc.dtype), dst.desc)
    is_image = src.image is not None, dst.image is not None
    launches: list[Launch] = []
    for box in plan.boxes:
        is_linear = is_image == (False, False) or (dst.image is None and box.is_zero)
        own, elements = box, (src.element, dst.element)
        if is_linear and (src.element == dst.element or box.is_zero):
            bits = dst.desc.dtype.bits
            own, bits = pack_elements(
                box, bits, widest=_WIDEST if is_aligned else max(bits, _BYTE), packs_long_runs=True
            )
            if bits < _BYTE:
                msg = f"{dst.desc.dtype} elements of {dst.desc!r} do not move as whole bytes; reorder them on the CPU"
                raise MemdescError(msg)
            elements = f"b{bits}", f"b{bits}"
        tasks = place_box(own, (None, None) if is_linear else (src.image, dst.image))
        if tasks is None:
            return None
        launches += [
            lower(task, *elements, max_items, is_image=is_image, is_aligned=is_aligned)
            for task in tasks
        ]
    return tuple(launches)
