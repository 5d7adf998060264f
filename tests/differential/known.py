"""Where oneDNN and memdesc are known to differ: a name, a reason and an example for each.

Numbers in brackets are those of the list of defects in the project's notes on oneDNN; "new"
ones were found by these tests.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc, data_type
from memdesc.dtypes import DATA_TYPES
from memdesc.tags import parse_tag
from reorder.plan import ReorderPlan

from .cases import Start, Step
from .compare import differing_fields, is_padding, offsets_of, where_bytes_differ
from .libdnnl import Fields, Status

INT64_MAX: Final = 2**63 - 1
UINT64_MAX: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What each library returned for one question."""

    version: tuple[int, int, int]
    ours: MemoryDesc | MemdescError
    theirs: Fields | Status

    def agrees(self) -> bool:
        """Whether both refuse, or both accept with the same fields."""
        is_refused = isinstance(self.ours, MemdescError), isinstance(self.theirs, Status)
        return all(is_refused) or not (any(is_refused) or self.differences())

    def differences(self) -> dict[str, tuple[object, object]]:
        """Return the fields that differ where both accept."""
        if isinstance(self.ours, MemoryDesc) and isinstance(self.theirs, Fields):
            return differing_fields(self.ours, self.theirs)
        return {}

    def only_the_size_is_0(self) -> bool:
        """Whether oneDNN counts no bytes, and nothing else differs."""
        differences = self.differences()
        return {*differences} == {"size"} and differences["size"][1] == 0

    def __str__(self) -> str:
        if found := self.differences().items():
            return "; ".join(f"{name}: ours {pair[0]}, theirs {pair[1]}" for name, pair in found)
        ours = repr(self.ours) if isinstance(self.ours, MemoryDesc) else f"refused ({self.ours})"
        theirs = self.theirs.name if isinstance(self.theirs, Status) else str(self.theirs)
        return f"ours {ours}, theirs {theirs}"


@dataclass(frozen=True, slots=True)
class StepAnswer(Answer):
    """What each library returned for a step, and the descriptor before it."""

    parent: MemoryDesc
    parent_fields: Fields
    step: Step


@dataclass(frozen=True, slots=True)
class StartAnswer(Answer):
    """What each library returned for a tag or for strides."""

    start: Start


def counts_no_bytes_of_what_is_read(answer: Answer) -> bool:
    """Size 0 although an element is read (12, 13; also of views smaller than every block).

    oneDNN multiplies the blocks of each dim by its stride: all strides 0, or no whole block
    in any dim, make 0. 3.2 also answers 0 wherever offset0 is not 0. Memdesc counts to the last
    element.
    """
    return answer.only_the_size_is_0()


def drops_a_blocked_unit_dim(answer: StepAnswer) -> bool:
    """A reshape that drops a blocked, unpadded dim of size 1 keeps its inner blocks (2).

    Their inner_idxs then name a dim that is gone, or another one. Memdesc drops the blocks too.
    """
    if answer.step.name != "reshape" or not isinstance(answer.theirs, Fields):
        return False
    units = zip(answer.parent_fields.dims, answer.parent_fields.padded_dims, strict=True)
    dropped = {dim for dim, (size, padded) in enumerate(units) if size == padded == 1}
    return not dropped.isdisjoint(answer.parent_fields.inner_idxs)


def merges_a_blocked_dim_as_if_it_were_plain(answer: StepAnswer) -> bool:
    """A reshape merges a blocked dim when its outer stride happens to fit (new).

    oneDNN asks of the first dim of a group only whether it is blocked. (2, 4, 31, 2) by
    aCdB32c2b becomes (8, 31, 2), and most elements change places. Memdesc keeps the blocks.
    """
    before, after = answer.parent_fields, answer.theirs
    if answer.step.name != "reshape" or not isinstance(after, Fields):
        return False
    moved = not np.array_equal(
        offsets_of(before, before.dims).ravel(), offsets_of(after, after.dims).ravel()
    )
    refuses = isinstance(answer.ours, MemdescError)
    return bool(before.inner_blks) and moved and (refuses or _keeps_its_offsets(answer))


def regroups_only_plain_dims(answer: StepAnswer) -> bool:
    """A reshape of dims that are blocked or not contiguous is refused; memdesc cuts the blocks."""
    is_refused = answer.step.name == "reshape" and isinstance(answer.theirs, Status)
    return is_refused and _keeps_its_offsets(answer)


def _keeps_its_offsets(answer: StepAnswer) -> bool:
    """Whether our reshape leaves each element, in row-major order, where it was."""
    return isinstance(answer.ours, MemoryDesc) and np.array_equal(
        answer.ours.layout.offsets().ravel(), answer.parent.layout.offsets().ravel()
    )


def needs_more_bytes_than_int64_holds(answer: StartAnswer) -> bool:
    """Memdesc counts bytes in int64, 3.13 in unsigned 64 bits (3.2 wraps, and is not compared)."""
    dims, dtype, _, strides = answer.start
    if not isinstance(answer.ours, MemdescError) or strides is None:
        return False
    spans = [size * stride for size, stride in zip(dims, strides, strict=True) if size > 1]
    nbytes = max(spans, default=1) * data_type(dtype).bits // 8 if all(dims) else 0
    return INT64_MAX < nbytes <= UINT64_MAX


def counts_broadcasts_as_bytes(answer: StartAnswer) -> bool:
    """3.13 counts bytes for indices that a stride of 0 sends to one element."""
    dims, dtype, _, strides = answer.start
    if not isinstance(answer.ours, MemoryDesc) or strides is None or answer.version < (3, 13):
        return False
    return 0 in strides and prod(dims) * data_type(dtype).bits // 8 > UINT64_MAX


def counts_the_outermost_extent_twice(answer: StartAnswer) -> bool:
    """3.13 refuses a tag whose element count times one more extent exceeds 64 bits.

    Memdesc refuses bytes beyond int64, so it accepts more.
    """
    ours = answer.ours
    if not isinstance(answer.theirs, Status) or not isinstance(ours, MemoryDesc):
        return False
    extent = max(block.extent for block in ours.blocks)
    nbytes = count_padded(answer.start) * extent * max(ours.dtype.bits // 8, 1)
    return answer.version >= (3, 13) and nbytes > UINT64_MAX


def fits_unsigned_64_bits_only(answer: StartAnswer) -> bool:
    """A tag whose elements or bytes exceed int64: memdesc refuses, oneDNN may not."""
    nbytes = count_padded(answer.start) * data_type(answer.start.dtype).bits // 8
    return isinstance(answer.ours, MemdescError) and nbytes > INT64_MAX


def wraps_strides_of_no_elements(answer: StartAnswer) -> bool:
    """A tag with a dim of 0 whose strides exceed int64: oneDNN wraps them, memdesc refuses."""
    tile = prod(parse_tag(answer.start.tag or "").block_sizes)
    wraps = 0 in answer.start.dims and count_padded(answer.start) * tile > INT64_MAX
    return wraps and isinstance(answer.ours, MemdescError)


def divides_by_zero(start: Start) -> bool:
    """3.13 ends the process where the padded elements of a tag wrap to a multiple of 2^64 (1).

    Asked beforehand, and about everything that could wrap.
    """
    return count_padded(start) > INT64_MAX


def count_padded(start: Start) -> int:
    """Count the padded elements of a tag in exact integers; a dim of 0 counts as 1."""
    blocks = zip(start.dims, parse_tag(start.tag or "").block_sizes, strict=True)
    return prod(-(-size // block) * block or 1 for size, block in blocks)


def pads_a_view_inside_a_block(dst: Fields) -> bool:
    """oneDNN zeroes other data than the padding where dst is a view smaller than a block (new).

    With two dims blocked alike by 4, 8 or 16, one of them ending inside its first block and the
    other one padded, the fast zero padding clears the tail of block number -1: data in front
    of the view, or memory outside the buffer. Also in 3.13. Asked beforehand.
    """
    blocked = [dim for dim, block in enumerate(dst.blocks) if block > 1]
    sizes = {dst.blocks[dim] for dim in blocked}
    if len(blocked) != 2 or len(sizes) != 1 or not sizes <= {4, 8, 16} or 0 in dst.dims:
        return False
    is_part = any(dst.padded_dims[dim] < block for dim in blocked for block in sizes)
    return is_part and dst.dims != dst.padded_dims


def zeroes_padding_in_six_dims_only(
    dst: Fields, ours: NDArray[np.uint8], theirs: NDArray[np.uint8], width: int
) -> bool:
    """OneDNN's fast zero padding visits six dims: padding in a later dim keeps its content (new).

    Seen where the generic reorder leaves the padding to that function: f16 and bf16 on machines
    without instructions for them, and loops too many for generated code; also in 3.13.
    (1, 2, 2, 2, 2, 2, 3) by Abcdefg8a leaves 448 of 672 elements.
    """
    if dst.ndims <= 6 or set(where_bytes_differ(dst, ours, theirs, width)) != {"padding"}:
        return False
    offsets = offsets_of(dst, dst.padded_dims)
    visited = offsets.reshape(*dst.padded_dims[:6], -1)[..., 0]
    written = ours.view(f"u{width}")
    differ = np.flatnonzero(written != theirs.view(f"u{width}"))
    return not np.isin(differ, visited).any() and not written[offsets[is_padding(dst)]].any()


def takes_outer_loops_for_dense(plan: ReorderPlan) -> bool:
    """An f32 transposition of 8 or 16 in two or more loops with gaps has wrong results (new).

    With offset0 0 and loops of the same strides on both sides oneDNN runs them as one: half of
    (2, 32, 3, 3) comes out wrong in the first 32 channels of (2, 64, 3, 3), from abcd to
    aBcd8b. Also in 3.13.
    """
    if plan.dst.dtype.name != "f32" or plan.src.offset0 or plan.dst.offset0:
        return False
    if len(plan.boxes) != 1 or len(plan.boxes[0].nodes) < 4:
        return False
    *outer, columns, rows = plan.boxes[0].nodes
    crossed = columns.strides[0] == rows.strides[1] == 1
    crossed = crossed and not {columns.extent, rows.extent}.isdisjoint({8, 16})
    return crossed and all(node.strides[0] == node.strides[1] for node in outer)


def may_divide_by_no_elements(fields: Fields) -> bool:
    """3.2 ends the process in some reorders of no elements: (0,) with strides 1 and 2 (new).

    Asked beforehand; memdesc must leave all bytes as they are.
    """
    return 0 in fields.dims


def has_more_loops_than_3_2_holds(fields: Fields) -> bool:
    """3.2 writes past an array of 12 loops: dims and inner blocks of one side (new).

    No tag of its enum has as many. Asked beforehand: it ends the process.
    """
    return fields.ndims + len(fields.inner_blks) > 12


def lays_sums_out_over_the_padding_of_src(src: MemoryDesc, dst: MemoryDesc) -> bool:
    """3.13 takes the strides of the sums after weights from dims that src pads (new).

    Seen with masks over several dims of which src pads one further than dst. (5, 20, 17, 2) from
    ABcd4b16a4b to abdc with mask 3 has sums in rows of 32, as src pads b, and the last of them are
    cut off. Where several threads take part, 24 of the 100 sums are wrong in some calls and right
    in others. The elements are right.
    """
    masks = () if dst.extra is None else dst.extra.masks.values()
    padded = zip(src.padded_dims, dst.padded_dims, strict=True)
    further = sum((one > other) << dim for dim, (one, other) in enumerate(padded))
    return any(mask & (mask - 1) and mask & further for mask in masks)


def is_unimplemented(status: Status) -> bool:
    """oneDNN has no code for this reorder: that depends on the processor."""
    return status is Status.UNIMPLEMENTED


def ignores_masks_of_zero_points(side: str) -> bool:
    """The reference of 3.13 applies the first zero point of a mask to all elements of dst (new)."""
    return side == "dst"


# Where the reference of 3.13 stores another value: which elements, by name.

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
