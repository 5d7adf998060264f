"""Layout: the offset of each element, as data: axes and a flat list of blocks.

`offset(index) = offset0 + sum over blocks of (i // step) % extent * stride`, where i is the index
of the block's axis. Each axis adds its own part, `block_offset`, to the offset. If the layout is
swizzled, this sum is only the base, and `xor` maps it to the offset. A layout has neither a dtype
nor a name; all numbers count elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from math import lcm, prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc.checked import Checked
from memdesc.diophantine import SearchLimitError, Term, solve
from memdesc.errors import (
    MemdescError,
    NotBlockedError,
    OutOfRangeError,
    allocates,
    counted,
    short_repr,
)
from memdesc.immutable import field, immutable, value_class
from memdesc.int64 import INT64_MAX, checked_flag, checked_int, checked_ints, exact_rows
from memdesc.lazy import cached_property
from memdesc.swizzle import (
    Terms,
    concerned,
    exact_terms,
    period_of,
    swizzled,
    terms_within,
    unswizzled,
)
from memdesc.tags import LETTERS, MAX_NDIMS, FormatTag, is_partition
from memdesc.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc.swizzle import Int


@immutable
class Axis(NamedTuple):
    """Dims indexed as one, row-major over them, and their padded extent.

    Parameters
    ----------
    dims : tuple of int
        The logical dims, nearly always one.
    padded : int
        The extent including padding, in elements.

    Examples
    --------
    >>> memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c").axes[1]
    Axis(dims=(1,), padded=24)
    """

    dims: tuple[int, ...]
    padded: int


@immutable
class Block(NamedTuple):
    """One loop of a layout: index i of `axis` adds (i // step) % extent * stride to the offset.

    A negative stride reverses the elements of a block, such as two codes of a byte.

    Parameters
    ----------
    axis : int
        Which of the layout's axes.
    step : int
        How many elements of the axis one step covers.
    extent : int
        Number of steps.
    stride : int
        Elements of memory from one step to the next.

    Examples
    --------
    >>> memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c").blocks[1:3]
    (Block(axis=1, step=8, extent=3, stride=160), Block(axis=1, step=1, extent=8, stride=1))
    """

    axis: int
    step: int
    extent: int
    stride: int


def single_axes(sizes: Sequence[int]) -> tuple[Axis, ...]:
    """Return an axis of one dim for each padded size."""
    return tuple(Axis((dim,), size) for dim, size in enumerate(sizes))


# The most offsets that are searched for the last one of a swizzled layout.
_MAX_BASES = 1 << 20

_FIELDS = ("dims", "axes", "blocks", "offset0", "xor")
_set = object.__setattr__  # sets fields of a frozen value while it is made


def dim_name(dim: int, letters: str | None = None) -> str:
    """Return the letter and the index of a dim, as messages show them.

    `letters` are what the caller's name of the layout calls the dims, if it calls them anything.
    """
    called = letters if letters and dim < len(letters) else LETTERS
    return f"{called[dim]} (dim {dim})"


def dim_names(dims: Iterable[int], letters: str | None = None) -> str:
    """Return the names of several dims, separated by commas."""
    return ", ".join(dim_name(dim, letters) for dim in dims)


def axis_index(
    axis: Axis,
    sizes: tuple[int, ...] | Mapping[int, int],
    index: tuple[Int, ...] | Mapping[int, Int],
) -> Int:
    """Return the index along an axis, row-major over its dims, from sizes and indices of dims."""
    first, *others = axis.dims
    i = index[first]
    for dim in others:
        i = i * sizes[dim] + index[dim]
    return i


def block_offset(blocks: tuple[Block, ...], i: Int) -> Int:
    """Return what an index of an axis adds to the offset: the sum of (i // step) % extent * stride.

    `blocks` are those of one axis, the largest step first. The first has no end, so that an index
    beyond the axis has an offset too. `i` is an index, or an array of many.
    """
    _, step, _, stride = blocks[0]
    offset = i // step * stride
    for _, step, extent, stride in blocks[1:]:
        offset += i // step % extent * stride
    return offset


def memory_order(block: Block) -> tuple[int, int, int, int]:
    """Return the key that sorts blocks by their order in memory, outermost first.

    Of equal strides the larger extent comes first, because a block with a single step may have any
    stride; then axes are in order.
    """
    return -abs(block.stride), -block.extent, block.axis, -block.step


def without_gaps(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return blocks in the same order in memory, with the strides of a dense layout."""
    strides, stride = {}, 1
    for block in sorted(blocks, key=memory_order, reverse=True):
        strides[block] = stride
        stride *= block.extent or 1  # like oneDNN: a dim of 0 does not multiply those outside it
    return tuple(block._replace(stride=strides[block]) for block in blocks)


@value_class
class Layout(Checked):
    """Axes and blocks over the logical dims.

    Parameters
    ----------
    dims : tuple of int
        Logical sizes, 1 to 12 of them.
    axes : tuple of Axis
        A partition of the dims, ordered by their first dims.
    blocks : tuple of Block
        Axis by axis, the largest step first. The steps of an axis start at 1, and each is the
        product of the blocks inside it, so an index is a mixed-radix number with a digit for
        each block. The block with the largest step counts whole blocks of the padded extent.
    offset0 : int
        Offset of the element at index 0, or its base if there are XOR terms.
    xor : tuple of (shift, mask)
        A swizzle: ``offset = base ^ (base >> shift & mask) ^ ...``, where all terms read the base,
        which the blocks and `offset0` give. A negative shift goes left. Bits that no base sets are
        dropped from the masks. `strides`, `axis_blocks` and everything else that describes blocks
        refuse a swizzled layout; `base` returns it without the terms.

    Raises
    ------
    MemdescError
        If a rule above is broken or a number exceeds int64.

    Examples
    --------
    >>> axes = memdesc.Axis((0,), 2), memdesc.Axis((1,), 24)
    >>> memdesc.Layout((2, 17), axes, ((0, 1, 2, 24), (1, 8, 3, 8), (1, 1, 8, 1))).strides()
    (24, 8)
    """

    dims: tuple[int, ...]
    axes: tuple[Axis, ...]
    blocks: tuple[Block, ...]
    offset0: int = 0
    xor: Terms = ()
    # the highest offset of an element, padding included
    last: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set(self, "dims", checked_ints("dims", self.dims))
        _set(self, "axes", exact_rows("axes", Axis, self.axes))
        _set(self, "blocks", exact_rows("blocks", Block, self.blocks))
        _set(self, "offset0", checked_int("offset0", self.offset0))
        _set(self, "xor", exact_terms(self.xor))
        self._check()

    def __repr__(self) -> str:
        shown = _FIELDS if self.xor else _FIELDS[:-1]
        return f"Layout({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @classmethod
    def computed(
        cls,
        dims: tuple[int, ...],
        axes: tuple[Axis, ...],
        blocks: tuple[Block, ...],
        offset0: int = 0,
        xor: Terms = (),
    ) -> Layout:
        """Make a layout from numbers that this package computed: they are Python ints already."""
        layout = object.__new__(cls)
        for name, value in zip(_FIELDS, (dims, axes, blocks, offset0, xor), strict=True):
            _set(layout, name, value)
        layout._check()
        return layout

    def _check(self) -> None:
        check_dims(self.dims)
        self._check_axes()
        self._check_blocks()
        low = high = 0
        if self.nelems:
            low, high = _free(self.blocks)
            # the digits of an axis that ends inside a block are not independent
            if prod([block.extent for block in self.blocks]) > self.padded_nelems:
                ends = [_bounds(blocks, axis.padded - 1) for axis, blocks in self.parts]
                low, high = map(sum, zip(*ends, strict=True))
        low, high = self.offset0 + low, self.offset0 + high
        if low < 0:
            raise MemdescError(
                f"the layout reaches offset {low}, before its buffer; offset0 must be at "
                f"least {self.offset0 - low}"
            )
        if high > INT64_MAX:
            raise MemdescError(
                f"the layout reaches offset {high}, more than int64 holds ({INT64_MAX})"
            )
        _set(self, "last", high)
        if self.xor:
            _set(self, "xor", terms_within(self.xor, (1 << high.bit_length()) - 1))
            _set(self, "last", self._last_swizzled())

    def _last_swizzled(self) -> int:
        """Return the highest offset: the bits above all masks are those of the highest base."""
        if not self.nelems:
            return self.last
        base = self.base()
        bits = concerned(self.xor)[1].bit_length()
        first = self.last >> bits << bits
        is_short = self.last - first < _MAX_BASES
        if self.offset0 + _free(self.blocks)[0] >= 0 and is_short and do_nest(moving_blocks(self)):
            bases = np.arange(first, self.last + 1)
            bases = bases[indices_at(base, bases)[1]]
        elif self.padded_nelems <= _MAX_BASES:
            bases = base.offsets(padded=True)
        else:
            raise MemdescError(
                f"xor {self.xor} moves bits of more than {_MAX_BASES} offsets, of strides that do "
                "not nest or of bits too high, so the last offset is not known"
            )
        return int(swizzled(self.xor, bases).max())

    def base(self) -> Layout:
        """Return the layout without its XOR terms.

        >>> tile = memdesc.parse_layout("Sw<3,3,3> o (64,64):(64,1)", dtype="f16").layout
        >>> tile.offset((1, 0)), tile.base().offset((1, 0)), tile.base().strides()
        (72, 64, (64, 1))
        """
        return self.with_xor(())

    def with_xor(self, xor: Terms) -> Layout:
        """Return this layout with the XOR terms of another one."""
        if xor == self.xor:
            return self
        return Layout.computed(self.dims, self.axes, self.blocks, self.offset0, xor)

    def shifted(self, elements: int) -> Layout:
        """Return the layout of a buffer that starts `elements` earlier; refuse to cut a swizzle."""
        period = period_of(self.xor)
        if elements % period:
            raise MemdescError(
                f"the swizzle repeats every {period} elements, so it cannot start {elements} "
                "elements later; copy the buffer"
            )
        return Layout.computed(self.dims, self.axes, self.blocks, self.offset0 + elements, self.xor)

    def _refuse_xor(self, lacks: str) -> None:
        """Refuse to describe a swizzled layout by its blocks alone."""
        if self.xor:
            raise NotBlockedError(
                f"offsets are swizzled, by XOR terms {self.xor}, so {lacks}; .base() is the layout "
                "before the swizzle"
            )

    def _check_axes(self) -> None:
        groups = [axis.dims for axis in self.axes]
        if not is_partition(groups, self.ndims):
            raise MemdescError(
                f"axes {short_repr(groups)} are not a partition of dims 0 to {self.ndims - 1}, "
                "ordered by their first dims"
            )
        total = 1
        for axis_dims, padded in self.axes:
            size = prod([self.dims[dim] for dim in axis_dims])
            total *= padded or 1
            if padded < size or (padded and not size):
                need = f"at least its size {size}" if size else "0, as its size is"
                raise MemdescError(
                    f"padded extent {padded} of {dim_names(axis_dims)} must be {need}"
                )
        if total > INT64_MAX:
            raise MemdescError(
                f"dims {self.dims} padded to {self.padded_dims()} make {total} elements, more than "
                f"int64 holds ({INT64_MAX})"
            )

    def _check_blocks(self) -> None:
        """Check that the blocks of each axis divide its padded extent down to step 1."""
        at = -1
        step = 1
        for block in self.blocks:
            axis, inner, extent, stride = block
            if axis == at:
                legal = extent >= 2 and stride and inner * extent == step  # noqa: PLR2004 - 1 is not a block
            else:
                legal = axis == at + 1 < len(self.axes) and step == 1 and inner >= 1
                legal = legal and extent == -(-self.axes[axis].padded // inner)
            if not legal:
                raise MemdescError(
                    f"{block} breaks a rule: blocks go axis by axis, divide the step before them "
                    f"exactly, and count the padded extents of {self.axes}; only the first of an "
                    "axis may have extent 1 or stride 0"
                )
            if not -INT64_MAX <= stride <= INT64_MAX:
                raise MemdescError(
                    f"stride {stride} of {dim_name(self.axes[axis].dims[0])} exceeds the range of "
                    "int64"
                )
            at, step = axis, inner
        if at != len(self.axes) - 1 or step != 1:
            raise MemdescError(
                f"blocks {self.blocks} must lead down to step 1 in each of the axes {self.axes}"
            )

    @cached_property
    def parts(self) -> tuple[tuple[Axis, tuple[Block, ...]], ...]:
        """Each axis with its blocks, the largest step first."""
        return tuple(
            (axis, tuple(block for block in self.blocks if block.axis == k))
            for k, axis in enumerate(self.axes)
        )

    @property
    def ndims(self) -> int:
        """Number of logical dims."""
        return len(self.dims)

    @property
    def nelems(self) -> int:
        """Number of logical elements."""
        return prod(self.dims)

    @property
    def padded_nelems(self) -> int:
        """Number of elements including padding."""
        return prod(axis.padded for axis in self.axes)

    @property
    def has_padding(self) -> bool:
        """Whether there is padding in addition to the logical elements."""
        return self.padded_nelems != self.nelems

    @property
    def has_broadcast(self) -> bool:
        """Whether a stride of 0 lets several indices read one element."""
        repeats = any(block.stride == 0 and block.extent > 1 for block in self.blocks)
        return repeats and self.nelems > 0

    @property
    def has_partial_blocks(self) -> bool:
        """Whether an axis ends inside a block, so that its digits are not independent."""
        return any(axis.padded % blocks[0].step for axis, blocks in self.parts)

    @property
    def span(self) -> int:
        """Elements from the first to the end of the last row, where each row counts in full.

        This is oneDNN's `get_size` in elements, except where `get_size` omits bytes that are
        read: if all strides are 0, or a view is smaller than every block.
        """
        if not self.nelems:
            return 0
        rows = [block.extent * block.stride for block in self.blocks if block.extent > 1]
        return max(self.last - self.offset0 + 1, *rows, 0)

    def _known_axis(self, axis: int) -> int:
        axis = checked_int("axis", axis)
        if not 0 <= axis < len(self.axes):
            raise OutOfRangeError(
                f"axis {short_repr(axis)} is not in 0 to {len(self.axes) - 1}: {self.axes}"
            )
        return axis

    def axis_size(self, axis: int) -> int:
        """Return the logical extent of an axis."""
        return prod(self.dims[dim] for dim in self.axes[self._known_axis(axis)].dims)

    def axis_blocks(self, axis: int) -> tuple[Block, ...]:
        """Return the blocks of an axis, the largest step first."""
        self._refuse_xor("the blocks of an axis do not add up to its part of an offset")
        return self.parts[self._known_axis(axis)][1]

    def outer(self, axis: int) -> Block:
        """Return the outer block of an axis, which counts its whole blocks."""
        self._refuse_xor("no block has a stride")
        return self.parts[self._known_axis(axis)][1][0]

    def inner(self) -> tuple[Block, ...]:
        """Return all blocks except the outer ones, axis by axis."""
        self._refuse_xor("no block has a stride")
        return tuple(block for _, blocks in self.parts for block in blocks[1:])

    def fused(self) -> Axis | None:
        """Return an axis of several dims; None if there is none."""
        return next((axis for axis in self.axes if len(axis.dims) > 1), None)

    def padded_dims(self) -> tuple[int, ...]:
        """Return the padded size of each dim; dims of a fused axis are padded together."""
        padded = {axis.dims: axis.padded for axis in self.axes}
        return tuple(padded.get((dim,), size) for dim, size in enumerate(self.dims))

    def extents(self) -> tuple[int, ...]:
        """Return how many padded indices each dim has; the first of fused dims has the padding."""
        extents = [*self.dims]
        for axis in self.axes:
            inside = prod(self.dims[dim] for dim in axis.dims[1:])
            if inside:
                extents[axis.dims[0]] = -(-axis.padded // inside)
        return tuple(extents)

    def strides(self, letters: str | None = None) -> tuple[int, ...]:
        """Return the stride of each dim's outer block; refuse fused dims and swizzles.

        Messages call the dims by `letters`.
        """
        self._refuse_xor("no dim has a stride")
        if axis := self.fused():
            raise NotBlockedError(
                f"dims {dim_names(axis.dims, letters)} are fused into one index, so they have no "
                "strides; see .blocks"
            )
        return tuple(blocks[0].stride for _, blocks in self.parts)

    def tile(self, letters: str | None = None) -> tuple[Block, ...]:
        """Return the inner blocks, outermost in memory first, if they are a dense nested tile.

        Messages call the dims by `letters`.
        """
        self.strides(letters)
        inner = sorted(self.inner(), key=memory_order)
        dense = 1
        steps = [0] * len(self.axes)
        for block in reversed(inner):
            if block.step < steps[block.axis]:
                raise NotBlockedError(
                    f"the blocks of {dim_name(block.axis, letters)} are swizzled: block {block} "
                    "lies outside one of a larger step; see .blocks"
                )
            if block.stride != dense:
                raise NotBlockedError(
                    f"the inner blocks are not a dense tile: block {block} has stride "
                    f"{block.stride}, not {dense}; see .blocks"
                )
            steps[block.axis] = block.step
            dense *= block.extent
        return tuple(inner)

    def offset(self, index: tuple[Int, ...]) -> Int:
        """Return the offset of a logical index, or of arrays of them, which must be in range."""
        at: Any = index
        if any([type(i) is not int for i in index]):  # noqa: C419 - a list is faster here
            # narrow integers of numpy would wrap
            is_of_numpy = (np.ndarray, np.generic)
            at = [i.astype(np.int64, copy=False) if isinstance(i, is_of_numpy) else i for i in at]
        offset: Int = self._offset(at, self.dims)
        return offset

    def _offset(self, index: tuple[Int, ...], sizes: tuple[int, ...]) -> Int:
        """Return the offset of an index over dims of some sizes."""
        base: Any = self.offset0
        for axis, blocks in self.parts:
            base = base + block_offset(blocks, axis_index(axis, sizes, index))
        offset: Int = swizzled(self.xor, base)
        return offset

    @allocates
    def offsets(self, *, padded: bool = False) -> NDArray[np.int64]:
        """Return the offsets of all logical indices as an array over the dims.

        With `padded`, return those of all padded indices; each axis is one array axis, at its first
        dim.
        """
        extents = {axis.dims[0]: axis.padded for axis in self.axes}
        shape = self.dims
        if checked_flag("padded", padded):
            shape = tuple(extents.get(dim, 1) for dim in range(self.ndims))
        # a padded index has the first dim of each axis alone, so the others have size 1
        sizes = (1,) * self.ndims if padded else self.dims
        try:
            if 0 in shape:
                return np.empty(shape, np.int64)
            return self._offset(np.indices(shape, np.int64, sparse=True), sizes)
        except ValueError:  # the product of the sizes is too large, even if one is 0
            raise MemdescError(f"numpy has no array of dims {shape}") from None

    def tables(self, *, padded: bool = False) -> list[NDArray[np.int64]]:
        """Return the offsets of the logical or padded indices of each axis, whose outer sum it is.

        Swizzled layouts are refused: their offsets are not such a sum.
        """
        self._refuse_xor("they are not sums over axes")
        padded = checked_flag("padded", padded)
        sizes = (axis.padded if padded else self.axis_size(k) for k, axis in enumerate(self.axes))
        indices = (np.arange(size, dtype=np.int64) for size in sizes)
        return [block_offset(blocks, i) for (_, blocks), i in zip(self.parts, indices, strict=True)]

    def unit_strides(self) -> tuple[int, ...] | str:
        """Return the strides of unit dims, which `key` ignores; an empty string for none."""
        if 1 not in self.dims:
            return ""
        return tuple([stride for axis, _, _, stride in self.blocks if self.axes[axis].padded == 1])

    def key(self) -> tuple[object, ...]:
        """Return what equality compares; like oneDNN, it ignores the stride of a unit dim."""
        blocks = self.blocks
        if 1 in self.dims:
            units = {k for k, axis in enumerate(self.axes) if axis.padded == 1}
            blocks = tuple(b._replace(stride=0) if b.axis in units else b for b in blocks)
        return self.dims, self.axes, blocks, self.offset0, self.xor


def check_dims(dims: tuple[int, ...], letters: str | None = None) -> None:
    """Refuse dims that no layout can have: none, too many, or of a negative or too large size."""
    if not 1 <= len(dims) <= MAX_NDIMS:
        way_out = "" if dims else "; describe a scalar as dims (1,)"
        raise MemdescError(
            f"dims {short_repr(dims)} have {counted(len(dims), 'size')}; a descriptor has 1 to "
            f"{MAX_NDIMS}{way_out}"
        )
    if min(dims) < 0 or max(dims) > INT64_MAX:
        dim = next(dim for dim, size in enumerate(dims) if not 0 <= size <= INT64_MAX)
        raise MemdescError(
            f"dim {dim_name(dim, letters)} has size {dims[dim]}; sizes are 0 to {INT64_MAX}"
        )


def _free(blocks: Sequence[Block]) -> tuple[int, int]:
    """Return the lowest and the highest sum of digits that do not depend on each other."""
    ends = [(extent - 1) * stride for _, _, extent, stride in blocks]
    return sum([end for end in ends if end < 0]), sum([end for end in ends if end > 0])


def _bounds(blocks: tuple[Block, ...], last: int) -> tuple[int, int]:
    """Return the lowest and the highest offset of the indices 0 to `last` of an axis.

    An index either has the first digit of `last`, or a smaller one, and all others are then free.
    """
    if not blocks:
        return 0, 0
    (_, step, _, stride), *inner = blocks
    digit = last // step
    low, high = (digit * stride + bound for bound in _bounds(tuple(inner), last % step))
    if digit:
        below, above = _free(inner)
        low = min(low, min((digit - 1) * stride, 0) + below)
        high = max(high, max((digit - 1) * stride, 0) + above)
    return low, high


_AXIS, _STEP = itemgetter(0), itemgetter(1)  # of a Block


def layout_by_tag(tag: FormatTag, dims: tuple[int, ...], name: str = "") -> Layout:
    """Make the dense layout of a tag, with dims padded to whole blocks and alignments.

    `name` is the caller's name for the tag, for messages.
    """
    if len(dims) != tag.ndims:
        check_dims(dims)
        raise MemdescError(
            f"dims {dims} have {counted(len(dims), 'size')}, "
            f"but {short_repr(name or str(tag))} is for {counted(tag.ndims, 'dim')}"
        )
    axes = []
    for axis_dims, size, align in zip(tag.axes, tag.block_sizes, tag.align, strict=True):
        whole = size if align == 1 else lcm(size, align)
        extent = dims[axis_dims[0]] if len(axis_dims) == 1 else prod(dims[dim] for dim in axis_dims)
        axes.append(Axis(axis_dims, -(-extent // whole) * whole))
    blocks = []
    stride = 1
    for axis, step, extent in reversed(tag.digits):
        count = extent or axes[axis][1] // step
        blocks.append(Block(axis, step, count, stride))
        stride *= count or 1  # like oneDNN: a dim of 0 does not multiply the strides outside it
    return Layout.computed(dims, tuple(axes), _in_order(blocks))


def layout_by_strides(
    dims: tuple[int, ...],
    strides: tuple[int, ...],
    inner: tuple[tuple[int, int], ...] = (),
    padded_dims: tuple[int, ...] | None = None,
    offset0: int = 0,
) -> Layout:
    """Make a layout from the strides of its outer blocks around a dense inner tile.

    Strides are elements from one outer block of a dim to the next. `inner` has the size and the dim
    of each inner block, outermost first; `padded_dims` are by default the dims rounded up to whole
    blocks.
    """
    steps = [1] * len(dims)
    blocks = []
    dense = 1
    for size, dim in reversed(inner):
        blocks.append(Block(dim, steps[dim], size, dense))
        steps[dim] *= size
        dense *= size
    if padded_dims is None:
        padded_dims = tuple(-(-size // step) * step for size, step in zip(dims, steps, strict=True))
    for dim, stride in enumerate(strides):
        blocks.append(Block(dim, steps[dim], -(-padded_dims[dim] // steps[dim]), stride))
    return Layout.computed(dims, single_axes(padded_dims), _in_order(blocks), offset0)


def layout_by_digits(
    dims: tuple[int, ...],
    digits: Iterable[Sequence[tuple[int, int]]],
    offset0: int = 0,
    xor: Terms = (),
) -> Layout:
    """Make a layout from the extents and strides of the digits of each dim, outermost first.

    A dim is padded to the product of its extents; inner digits of extent 1 are left out.
    """
    blocks: list[Block] = []
    sizes = []
    for axis, ((count, outer), *inner) in enumerate(digits):
        step = prod(extent for extent, _ in inner)
        sizes.append(count * step)
        blocks.append(Block(axis, step, count, outer))
        for extent, stride in inner:
            step //= extent
            if extent > 1:
                blocks.append(Block(axis, step, extent, stride))
    return Layout(dims, single_axes(sizes), tuple(blocks), offset0, xor)


def fused(digits: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Fuse adjacent digits that count on as one: extents and strides, outermost first."""
    joined: list[tuple[int, int]] = []
    for extent, stride in digits:
        if joined and joined[-1][1] == extent * stride:
            joined[-1] = joined[-1][0] * extent, stride
        elif extent > 1:
            joined.append((extent, stride))
    return joined


def _in_order(blocks: list[Block]) -> tuple[Block, ...]:
    """Sort blocks into the order of `Layout.blocks`: axis by axis, the largest step first."""
    # the second sort is stable, so it keeps the order of steps within each axis
    blocks.sort(key=_STEP, reverse=True)
    blocks.sort(key=_AXIS)
    return tuple(blocks)


def indices_at(
    layout: Layout, offsets: NDArray[np.int64]
) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.bool_]]:
    """Return the padded indices at offsets, and which offsets have one that a bounded search finds.

    The indices are an array for each dim, with 0 where no index has the offset. They are beyond the
    dims if the offset is in the padding.

    *Law*: the index at the offset of an index is this index.
    """
    if layout.xor:
        return indices_at(layout.base(), unswizzled(layout.xor, offsets))
    if not layout.nelems:
        return (np.zeros_like(offsets),) * layout.ndims, np.zeros(offsets.shape, np.bool_)
    loops = moving_blocks(layout)
    lowest = layout.offset0 + _free(loops)[0]
    if lowest >= 0 and do_nest(loops):
        exists = (offsets >= lowest) & (offsets <= layout.last)
        rest = np.where(exists, offsets - lowest, 0)
        digits = []
        for _, _, extent, stride in loops:
            digit = rest // abs(stride)  # numpy vectorises this, but not divmod
            rest -= digit * abs(stride)
            exists &= digit < extent
            digits.append(digit if stride > 0 else extent - 1 - digit)
        exists &= rest == 0
    else:
        digits, exists = _searched(loops, offsets - layout.offset0)
    along, index = index_of_digits(layout, loops, digits)
    for axis, i in zip(layout.axes, along, strict=True):
        exists &= i < axis.padded
    return tuple(np.where(exists, i, 0) for i in index), exists


def index_of_digits(
    layout: Layout, blocks: Sequence[Block], digits: Sequence[Int]
) -> tuple[list[Int], list[Int]]:
    """Return the index along each axis, and each dim, that some blocks have; others add 0."""
    along: list[Any] = [0] * len(layout.axes)
    # a digit is index // step % extent, so an axis has the index sum of digit * step
    for block, digit in zip(blocks, digits, strict=True):
        along[block.axis] = along[block.axis] + digit * block.step
    index: list[Any] = [0] * layout.ndims
    for axis, i in zip(layout.axes, along, strict=True):
        first, *others = axis.dims
        for dim in reversed(others):
            index[dim] = i % layout.dims[dim]
            i = i // layout.dims[dim]  # noqa: PLW2901 - what is left for the dims outside
        index[first] = i
    return along, index


def moving_blocks(layout: Layout) -> list[Block]:
    """Return the blocks with several elements and a stride, largest absolute stride first."""
    moving = [block for block in reversed(layout.blocks) if block.extent > 1 and block.stride]
    moving.sort(key=lambda block: (abs(block.stride), block.extent), reverse=True)
    return moving


def do_nest(blocks: list[Block]) -> bool:
    """Whether the stride of each block spans the blocks after it, which are inside it."""
    return all(
        abs(outer.stride) >= abs(inner.stride) * inner.extent for outer, inner in pairwise(blocks)
    )


def _searched(
    loops: list[Block], distances: NDArray[np.int64]
) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
    """Return the digits of loops that add up to some distances, and which distances have any."""
    different, back = np.unique(distances, return_inverse=True)
    terms = [Term(block.stride, 0, block.extent - 1) for block in loops]
    rows: list[tuple[int, ...] | None] = []
    for distance in different.tolist():
        rows.append(None)
        with suppress(SearchLimitError):
            rows[-1] = solve(terms, distance)
    exists = np.array([row is not None for row in rows], np.bool_)
    table = np.array([row or (0,) * len(loops) for row in rows], np.int64)
    back = back.reshape(distances.shape)
    return [column[back] for column in table.reshape(-1, len(loops)).T], exists[back]
