"""Reorders whose dims are known only at execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memdesc import RUNTIME, MemdescError, MemoryDesc, RuntimeDesc
from memdesc.checked import Checked
from memdesc.errors import short_repr
from memdesc.immutable import value_class
from memdesc.int64 import checked_ints
from memdesc.layout import dim_name
from reorder.api import is_on_device, reorder
from reorder.memory.memory import Memory
from reorder.plan.plan import plan_reorder
from reorder.values.attr import Attr, check_attr

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reorder.opencl import DeviceMemory
    from reorder.plan.plan import ReorderPlan


@value_class
class RuntimePlan(Checked):
    """A reorder that is planned when it is called, with the memory of src and dst.

    Parameters
    ----------
    src, dst, attr
        As for `plan_runtime`.

    Raises
    ------
    MemdescError
        As for `plan_runtime`.

    Examples
    --------
    >>> unknown = (memdesc.RUNTIME, 20)
    >>> plan = reorder.plan.plan_runtime(
    ...     memdesc.runtime_desc(unknown, "f32", "ab"), memdesc.runtime_desc(unknown, "s8", "aB8b")
    ... )
    >>> src = reorder.reorder(np.ones((3, 20), np.float32), "ab")
    >>> dst = reorder.Memory(plan.dst.resolve(src.desc.dims))
    >>> plan(src, dst)
    >>> int(dst.numpy().sum())
    60
    """

    src: RuntimeDesc
    dst: RuntimeDesc
    attr: Attr | None = None

    def __post_init__(self) -> None:
        for desc, side in ((self.src, "src"), (self.dst, "dst")):
            if not isinstance(desc, RuntimeDesc):
                raise MemdescError(
                    f"{side} must be a RuntimeDesc, not {short_repr(desc)}; see "
                    "memdesc.runtime_desc"
                )
            if desc.tag is None:
                raise MemdescError(
                    f"the order of the dims of {side}, {desc!r}, is not known; pass a tag to "
                    "runtime_desc"
                )
        if self.src.ndims != self.dst.ndims:
            raise MemdescError(
                f"src has {self.src.ndims} dims, dst has {self.dst.ndims}; a reorder keeps the dims"
            )
        for dim, sizes in enumerate(zip(self.src.dims, self.dst.dims, strict=True)):
            if sizes[0] != sizes[1]:
                shown = ["RUNTIME" if size == RUNTIME else str(size) for size in sizes]
                name = dim_name(dim, self.src.letters or self.dst.letters)
                raise MemdescError(
                    f"{name} is {shown[0]} in src and {shown[1]} in dst; both must be "
                    "the same, known or not"
                )
        check_attr(self.attr)

    def resolve(self, dims: Iterable[int]) -> ReorderPlan:
        """Return the plan for the given sizes, as `plan_reorder` does.

        Raises
        ------
        MemdescError
            If they differ from sizes that were known already.
        """
        sizes = checked_ints("dims", dims)
        return plan_reorder(self.src.resolve(sizes), self.dst.resolve(sizes), self.attr)

    def __call__(
        self, x: Memory | DeviceMemory, out: Memory | DeviceMemory, *, threads: int | None = None
    ) -> None:
        """Reorder x into out; their descriptors have all sizes.

        If `out` is on an OpenCL device, the reorder runs there, after the `event` of `out`.
        `threads` is as for `reorder`.

        Raises
        ------
        MemdescError
            If a memory does not fit the plan, or `threads` is not an integer of 1 or more; nothing
            is written then.
        """
        for memory, desc, side in ((x, self.src, "x"), (out, self.dst, "out")):
            if not isinstance(memory, Memory) and not is_on_device(memory):
                raise MemdescError(
                    f"{side} must be a Memory, whose descriptor says the sizes, not "
                    f"{type(memory).__name__}"
                )
            # device arrays and images have none
            held = getattr(memory, "desc", None)
            if not isinstance(held, MemoryDesc):
                raise MemdescError(
                    "a plan with runtime dims takes Memory and reorder.opencl.DeviceMemory in "
                    f"buffers, not {type(memory).__name__}"
                )
            if held != desc.resolve(held.dims):
                raise MemdescError(f"{side} is {held!r}, but the plan is for {desc!r}")
        options: Any = {"out": out, "attr": self.attr, "threads": threads}
        reorder(x, **options)


def plan_runtime(src: RuntimeDesc, dst: RuntimeDesc, attr: Attr | None = None) -> RuntimePlan:
    """Prepare a reorder whose sizes are not known yet; it is planned when it is called.

    Parameters
    ----------
    src, dst : RuntimeDesc
        Both must know the sizes of the same dims.
    attr : Attr, optional
        Scales, zero points, accumulation.

    Raises
    ------
    MemdescError
        If sizes differ, a size is known on one side only, or a tag is not known.

    Examples
    --------
    >>> src, dst = (memdesc.runtime_desc((memdesc.RUNTIME, 20), "f32", t) for t in ("ab", "aB8b"))
    >>> reorder.plan.plan_runtime(src, dst).resolve((3, 20)).dst.padded_dims
    (3, 24)
    """
    return RuntimePlan(src, dst, attr)
