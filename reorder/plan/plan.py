"""ReorderPlan: a reorder as a value; `plan_reorder` makes those of equal descriptors once."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.checked import Checked
from memdesc.desc import checked_desc
from memdesc.immutable import field, value_class
from memdesc.tags import FormatTag
from reorder.plan.boxes import planned_boxes
from reorder.values.attr import Attr, check_attr
from reorder.values.binding import BoundAttr, bind

if TYPE_CHECKING:
    from memdesc.picture import Picture
    from reorder.plan.nodes import Box


@value_class
class ReorderPlan(Checked):
    """A reorder as data: two descriptors, attributes, and the boxes that follow from them.

    `plan_reorder` makes the same plan, and keeps it for later calls. Operands of the boxes are src,
    dst, then the scales and zero points that differ along the dims, in the order of `attr.ROLES`.

    *Law*: every padded element of dst is written exactly once, with the element of
    src at the same logical index, or with zero where dst is padding.

    Parameters
    ----------
    src, dst, attr
        As for `plan_reorder`.

    Attributes
    ----------
    boxes : tuple of Box
        The loop nests that read src and write dst.

    Raises
    ------
    MemdescError
        As for `plan_reorder`.

    Examples
    --------
    >>> src = memdesc.memory_desc((8, 17, 56, 56), "f32", "nchw")
    >>> print(reorder.plan_reorder(src, memdesc.memory_desc((8, 17, 56, 56), "f32", "nChw16c")))
    f32 (8, 17, 56, 56), 2 boxes of extent(valid):src:dst
      @0:0 8:53312:100352 3136:1:16 16:3136:1
      @50176:50176 8:53312:100352 3136:1:16 16(1):3136:1
    """

    src: MemoryDesc
    dst: MemoryDesc
    attr: Attr | None = None
    boxes: tuple[Box, ...] = field(init=False)
    bound_attr: BoundAttr = field(init=False, repr=False)
    # what a backend prepared from the plan, by the limit on threads
    prepared: dict[int | None, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        src, dst = check_types(self.src, self.dst, self.attr)
        check_pair(src, dst)
        bound = bind(self.attr, src, dst)
        boxes = planned_boxes(src, dst, bound.varying)
        values = {"src": src, "dst": dst, "boxes": boxes, "bound_attr": bound, "prepared": {}}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        # equal plans must give equal text, so what descriptors ignore in equality counts here
        if self is other:
            return True
        if not isinstance(other, ReorderPlan):
            return NotImplemented
        mine, theirs = (
            (plan.src, plan.dst, plan.attr, plan.src.spelling, plan.dst.spelling)
            for plan in (self, other)
        )
        return mine == theirs

    def __hash__(self) -> int:
        return hash((self.src, self.dst, self.attr))

    @property
    def converts(self) -> bool:
        """Whether elements are computed, not only moved."""
        return self.src.dtype != self.dst.dtype or self.bound_attr.is_arithmetic

    def __str__(self) -> str:
        count = f"{len(self.boxes)} box{'es' if len(self.boxes) != 1 else ''}"
        types = (
            f"{self.dst.dtype}"
            if self.src.dtype == self.dst.dtype
            else f"{self.src.dtype} -> {self.dst.dtype}"
        )
        suffix = "" if self.attr is None else f", {self.attr}"
        roles = (operand.role for operand in self.bound_attr.varying)
        fields = ":".join(["extent(valid):src:dst", *roles])
        head = f"{types} {self.dst.dims}{suffix}, {count} of {fields}"
        return "\n  ".join([head, *map(str, self.boxes)])

    def show(self) -> Picture:
        """Draw src beside dst, with the src offset and the box of each element of dst.

        Examples
        --------
        >>> src, dst = (memdesc.memory_desc((3, 2), "f32", tag) for tag in ("ab", "Ab2a"))
        >>> print(reorder.plan_reorder(src, dst).show())
        f32 (3, 2), 2 boxes of extent(valid):src:dst
          @0:0 2:1:2 2:2:1
          @4:4 2:1:2 2(1):2:1
        <BLANKLINE>
        dst: each offset shows where in src its element comes from, and the box
             0 |  0   2   1   3   4 [0]   5 [0]
        """
        from reorder.plan.picture import draw_plan  # planning needs no pictures

        return draw_plan(self.src, self.dst, self.boxes, str(self))

    def _repr_html_(self) -> str | None:
        try:
            return self.show().fragment
        except MemdescError:  # indirection tables too large for a picture: the plan is printed
            return None

    def source(self, lang: str = "c", name: str = "tensor") -> str:
        """Write the reorder as one function: a loop nest for each box, tails as conditions.

        `NAME_reorder(src, dst)` takes arrays of the elements; types that the language lacks are
        passed as bits. Scalar attributes are constants in the code; parameters that differ along
        the dims are further arrays, which a comment describes. dst and src must not overlap.
        A conversion is a separate function, which keeps compilers from rounding differently.

        *Law*: the compiled function writes the bits that the reorder writes.

        Parameters
        ----------
        lang : {"c", "c++", "opencl", "cuda", "python"}
            As for `MemoryDesc.source`. Conversions are available in C and C++ only.
        name : str
            The prefix of function names.

        Raises
        ------
        MemdescError
            If the language is unknown or cannot compute exactly what the reorder computes, or the
            name is not an identifier.

        Examples
        --------
        >>> src, dst = (memdesc.memory_desc((3, 2), "s8", tag) for tag in ("ab", "Ab2a"))
        >>> source = reorder.plan_reorder(src, dst).source("c")
        >>> print(source[source.index("void") :])
        void tensor_reorder(const int8_t *src, int8_t *dst)
        {
            for (int64_t i0 = 0; i0 < 2; ++i0) {
                for (int64_t i1 = 0; i1 < 2; ++i1) {
                    dst[i0 * 2 + i1] = src[i0 + i1 * 2];
                }
            }
            for (int64_t i0 = 0; i0 < 2; ++i0) {
                for (int64_t i1 = 0; i1 < 2; ++i1) {
                    dst[4 + i0 * 2 + i1] = i1 < 1 ? src[4 + i0 + i1 * 2] : 0;
                }
            }
        }
        <BLANKLINE>
        """
        from reorder.plan.source import plan_source  # planning needs no code generator

        attr = "" if self.attr is None else str(self.attr)
        return plan_source((self.src, self.dst), self.boxes, self.bound_attr, attr, (lang, name))


def plan_reorder(
    src: str | FormatTag | MemoryDesc,
    dst: str | FormatTag | MemoryDesc,
    attr: Attr | None = None,
) -> ReorderPlan:
    """Plan how to move, and convert, the elements of one descriptor into another.

    The most recent plans are cached, so equal arguments with the same spelling
    (`MemoryDesc.spelling`) usually give the same object. A plan is not cached if the arrays of
    `attr` exceed 64 KiB, because the cache would keep them in memory.

    Parameters
    ----------
    src, dst : MemoryDesc, str or FormatTag
        With the same dims. One of them may be a name, which then gets the dims and the data type of
        the other.
    attr : Attr, optional
        Scales, zero points, accumulation.

    Raises
    ------
    MemdescError
        If dims differ, a stride of 0 makes dst write one element twice, or the
        attributes do not fit.

    Examples
    --------
    >>> src = memdesc.memory_desc((8, 17, 56, 56), "f32", "nchw")
    >>> (box,) = reorder.plan_reorder(src, "nhwc").boxes
    >>> for node in box.nodes:
    ...     print(node)
    8:53312:53312
    3136:1:17
    17:3136:1
    >>> box.offsets, box.nodes[0]
    ((0, 0), Node(extent=8, valid=8, strides=(53312, 53312)))
    """
    src, dst = check_types(src, dst, attr)
    if attr is not None and attr.is_large:
        return ReorderPlan(src, dst, attr)
    return _plan(src, dst, attr, (src.spelling, dst.spelling))


@lru_cache(maxsize=4096)
def _plan(
    src: MemoryDesc, dst: MemoryDesc, attr: Attr | None, _spelling: tuple[str, str]
) -> ReorderPlan:
    """Return the plan of two descriptors; equal descriptors may be shown differently."""
    return ReorderPlan(src, dst, attr)


def checked_plan(plan: object) -> ReorderPlan:
    """Return a plan, whose constructor made its boxes; refuse anything else, even subclasses."""
    if type(plan) is not ReorderPlan:
        raise MemdescError(
            f"plan must be a ReorderPlan, not {type(plan).__name__}; see plan_reorder"
        )
    return plan


def check_types(src: object, dst: object, attr: object) -> tuple[MemoryDesc, MemoryDesc]:
    """Return two descriptors, of which one may be given by name; refuse any other argument."""
    if isinstance(src, MemoryDesc) and isinstance(dst, str | FormatTag):
        dst = memory_desc(src.dims, src.dtype, dst)
    elif isinstance(dst, MemoryDesc) and isinstance(src, str | FormatTag):
        src = memory_desc(dst.dims, dst.dtype, src)
    pair = checked_desc("src", src), checked_desc("dst", dst)
    check_attr(attr)
    return pair


def check_same_dims(src: MemoryDesc, dst: MemoryDesc) -> None:
    """Refuse different dims; the message may name the argument that is missing."""
    if src.dims == dst.dims:
        return
    hint = ""
    if sorted(src.dims) == sorted(dst.dims):
        hint = (
            "; if the axes are in memory order, give src=, such as src='nhwc'; if those of out "
            "are, pass its MemoryDesc as dst"
        )
    elif 1 in {src.ndims, dst.ndims}:
        flat = "src" if src.ndims == 1 else "dst"
        hint = f"; if {flat} is a flat buffer, pass the MemoryDesc of its bytes as {flat}"
    raise MemdescError(
        f"src has dims {src.dims}, dst has dims {dst.dims}; a reorder keeps the dims (see "
        f"permute_axes, reshape, submemory){hint}"
    )


def check_pair(src: MemoryDesc, dst: MemoryDesc) -> None:
    """Refuse two descriptors if no reorder between them is possible."""
    check_same_dims(src, dst)
    if dst.has_broadcast:
        raise MemdescError(
            f"dst {dst!r} has a stride of 0, so several indices would write one element; only src "
            "may have one"
        )
