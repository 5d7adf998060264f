"""Quantised tensors: choose scales and zero points, convert, and convert back."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from memdesc import MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.checked import Checked
from memdesc.errors import allocates
from memdesc.immutable import immutable
from memdesc.int64 import checked_flag, checked_ints
from memdesc.layout import check_dims
from memdesc.tuples import NamedTuple
from reorder.api import is_on_device, reorder
from reorder.memory.allocation import zeroed_bytes
from reorder.memory.inputs import as_memory
from reorder.memory.memory import Memory
from reorder.values.attr import Attr
from reorder.values.formats import INTEGERS
from reorder.values.masked import refuse_masked
from reorder.values.scales import (
    axes_of,
    check_quantized_types,
    choose_scales,
    find_ranges,
    split_dims,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyopencl as cl
    from numpy.typing import NDArray

    from memdesc.tags import FormatTag
    from reorder.api import OnDevice
    from reorder.records.record import Record


# whether x is on a device is known when it runs, so no signature of `reorder` fits
_reorder: Any = reorder


class StoredWeight(Protocol):
    """A tensor of a checkpoint, which knows the weight that it is a part of."""

    def weight(self) -> Memory | Record | Quantized:
        """Return the weight."""


class _Values(NamedTuple):
    """The tuple that a `Quantized` is."""

    memory: Memory
    scales: NDArray[Any]
    zero_points: NDArray[np.int32]


@immutable
class Quantized(_Values, Checked):
    """A quantised tensor, which represents `scales * (memory - zero_points)`.

    A tuple of `memory`, `scales` and `zero_points`. Scales and zero points are arrays over the dims
    of `axis`, divided by `groups` (two further attributes); without axes their shape is ().

    Parameters
    ----------
    memory : Memory
        The codes, in any layout.
    scales : ndarray
        The scales, over the dims of `axis`.
    zero_points : ndarray of int32
        The zero points, over the same dims.
    axis : int or iterable of int, optional
        The dims along which scales differ.
    groups : tuple of int, optional
        How many adjacent elements along each dim of `axis` share a scale.

    Examples
    --------
    >>> x = np.array([[0.5, -127.0], [254.0, 2.0]], np.float32)
    >>> codes, scales, _ = q = reorder.quantize(x, "s8", axis=0)
    >>> codes.numpy().tolist(), scales.tolist(), q.axis
    ([[0, -127], [127, 1]], [1.0, 2.0], (0,))
    """

    axis: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()

    def __new__(
        cls,
        memory: Memory,
        scales: NDArray[Any],
        zero_points: NDArray[np.int32],
        axis: int | Iterable[int] | None = (),
        groups: tuple[int, ...] = (),
    ) -> Self:
        """Make one from what `quantize` or another library chose."""
        made = super().__new__(cls, memory, scales, zero_points)
        object.__setattr__(made, "axis", axes_of(axis))
        object.__setattr__(made, "groups", checked_ints("groups", groups))
        return made

    def _arguments(self) -> tuple[Any, ...]:
        return *self, self.axis, self.groups

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, axis={self.axis}, groups={self.groups})"

    def _repr_html_(self) -> str:
        shapes = f"scales: {self.scales.dtype} {self.scales.shape}, zero points: "
        shapes += f"{self.zero_points.dtype} {self.zero_points.shape}"
        summary = f"Quantized, axis {self.axis}, groups {self.groups}; {shapes}"
        from html import escape  # slow to load

        return f"<p>{escape(summary)}</p>{self.memory._repr_html_()}"

    def _replace(self, **changes: Any) -> Self:
        return type(self)(**self._asdict() | vars(self) | changes)

    __replace__ = _replace  # for copy.replace, since Python 3.13


@allocates
def quantize(  # noqa: PLR0913 - most are keywords
    x: NDArray[Any] | Memory | OnDevice,
    dtype: Any,
    axis: int | Iterable[int] | None = None,
    dst: str | FormatTag | MemoryDesc | None = None,
    *,
    groups: tuple[int, ...] = (),
    symmetric: bool | None = None,
    threads: int | None = None,
    queue: cl.CommandQueue | None = None,
) -> Quantized:
    """Convert a tensor of floats to a narrow type, with the scales that use its range best.

    Parameters
    ----------
    x : ndarray, Memory, reorder.opencl.DeviceMemory or pyopencl.array.Array
        Floats; the axes of an array are its logical dims. A tensor on a device is converted there;
        its scales are chosen on the host, from a copy.
    dtype : DataType, str or numpy dtype
        A signed integer, an unsigned one of 4 to 16 bits (zero points are s32), or an f8 or f4.
    axis : int or iterable of int, optional
        Dims with one scale per index; by default one scale applies to all elements.
    dst : str, FormatTag or MemoryDesc, optional
        The layout to write; by default row-major.
    groups : (int, int), optional
        How many adjacent elements along each of the last two dims share a scale; both dims must
        be among the axes.
    symmetric : bool, optional
        Whether zero points are 0, so that the range is as wide below 0 as above it; by default
        for all but unsigned types.
    threads : int, optional
        As for `reorder`.
    queue : pyopencl.CommandQueue, optional
        Where to convert on an OpenCL device; by default the CPU, or the queue of x.

    Returns
    -------
    Quantized
        The memory, its scales and its zero points. On a device the memory is a
        `reorder.opencl.DeviceMemory`; scales and zero points are arrays of numpy.

    Raises
    ------
    MemdescError
        If x holds anything but finite floats, or the axes or groups do not fit its dims.

    Examples
    --------
    >>> w = np.random.default_rng(0).standard_normal((32, 16, 3, 3), np.float32)
    >>> q = reorder.quantize(w, "s8", axis=0, dst="OIhw4i16o4i")
    >>> q.memory.desc.dtype, q.scales.shape
    (data_type('s8'), (32,))
    >>> back = reorder.dequantize(q).numpy()
    >>> bool((abs(back - w) <= q.scales[:, None, None, None] / 2 * 1.001).all())
    True
    """
    wanted = data_type(dtype)
    if symmetric is not None:
        symmetric = checked_flag("symmetric", symmetric)
    letters: str | None = None
    if is_on_device(x):
        from reorder.opencl.device_memory import as_device_memory  # loads pyopencl

        # scales are chosen on the host
        values = as_device_memory(x).get().numpy()
    elif isinstance(x, np.ndarray):
        values = np.asarray(x)
    else:
        x = as_memory(x, None)
        values, letters = x.numpy(), x.desc.letters
    dims, given = values.shape, data_type(values.dtype)
    check_dims(dims)
    check_quantized_types(given, wanted)
    mask, counts, sizes = split_dims(dims, axis, groups, letters)
    # fail before reading x: a broadcast array may have more elements than fit into memory
    zeroed_bytes(wanted.nbytes(prod(dims)))
    low, high = find_ranges(values, counts, sizes)
    form = INTEGERS.get(wanted.name)
    if form is None and symmetric is False:
        raise MemdescError(f"{wanted} has no zero points; leave symmetric out, or pass True")
    is_unsigned = form is not None and not form.is_signed
    is_symmetric = not is_unsigned if symmetric is None else symmetric
    if is_symmetric and is_unsigned and (low < 0).any():
        raise MemdescError(
            f"symmetric {wanted} codes cannot represent negative values, but x goes down to "
            f"{low.min()}; leave symmetric out, or use s{wanted.bits}"
        )
    wide = np.float64 if given.name == "f64" else np.float32
    scales, points = choose_scales(low, high, wanted.name, wide, is_symmetric=is_symmetric)
    target = memory_desc(dims, wanted) if dst is None else dst
    used = None if is_symmetric else points
    # a tensor without elements may have no scales
    attr = _attr("dst", (scales, used), mask, groups, saturate=True) if prod(dims) else None
    memory: Memory = _reorder(x, target, dtype=wanted, attr=attr, threads=threads, queue=queue)
    shape = [count for dim, count in enumerate(counts) if mask >> dim & 1]
    stored = scales.reshape(shape), points.reshape(shape).astype(np.int32)
    axes = tuple(dim for dim in range(len(dims)) if mask >> dim & 1)
    return Quantized(memory, *stored, axes, groups)


def _attr(
    side: str,
    numbers: tuple[Any, Any],
    mask: int,
    groups: tuple[int, ...],
    *,
    saturate: bool = False,
) -> Attr:
    """Return the scales, and zero points unless they are None, as attributes of one side."""
    given: dict[str, Any] = {"saturate": saturate}
    for role, values in zip((f"{side}_scale", f"{side}_zero_point"), numbers, strict=True):
        if values is not None:
            given[role] = values
            if _shape(values):  # a single number applies to all elements
                given |= {f"{role}_mask": mask, f"{role}_groups": groups}
    return Attr(**given)


def _shape(values: Any) -> tuple[int, ...]:
    """Return the shape of an array or of nested sequences; empty for anything else."""
    try:
        return tuple(np.shape(values))
    except (TypeError, ValueError, RuntimeError):  # `Attr` refuses it
        return ()


def _is_zero(values: Any) -> bool:
    """Whether all zero points are 0; false if they are not numbers, which `Attr` refuses."""
    try:
        held = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        return False
    return held.size > 0 and held.dtype.kind not in "OSU" and not held.any()


def dequantize(  # noqa: PLR0913 - most are keywords
    memory: Memory | Quantized | Record | OnDevice | StoredWeight,
    scales: Any = None,
    zero_points: Any = None,
    axis: int | Iterable[int] | None = None,
    *,
    groups: tuple[int, ...] = (),
    dtype: Any = None,
    dst: str | FormatTag | MemoryDesc | None = None,
    threads: int | None = None,
    queue: cl.CommandQueue | None = None,
) -> Memory:
    """Convert a quantised tensor back: `scales * (memory - zero_points)`, or by a record's rule.

    *Law*: a record becomes what its rule gives in f32, bit for bit, rounded once to `dtype`.

    Parameters
    ----------
    memory : Memory, Quantized, Record, StoredTensor or reorder.opencl.DeviceMemory
        Of any type. A `Quantized` already carries the next four arguments; a record contains its
        scales and zero points. The codes of a weight in a checkpoint stand for the whole weight.
    scales, zero_points : array or number, optional
        As `quantize` returns them; a single number applies to all elements.
    axis, groups, threads, queue
        As for `quantize`.
    dtype : DataType, str or numpy dtype, optional
        What to convert to; by default the type of `dst` if that is a MemoryDesc, else f32.
    dst : str, FormatTag or MemoryDesc, optional
        The layout to write; by default row-major.

    Returns
    -------
    Memory or reorder.opencl.DeviceMemory
        The floats; on a device if the codes are on one, or if a queue is given.

    Raises
    ------
    MemdescError
        If scales or zero points do not fit the axes, or they or a queue are given with a record.

    Examples
    --------
    >>> q = reorder.quantize(np.array([[1.0, -127.0]], np.float32), "s8", axis=0)
    >>> reorder.dequantize(q).numpy()
    array([[   1., -127.]], dtype=float32)
    """
    if dtype is None:
        dtype = dst.dtype if isinstance(dst, MemoryDesc) else "f32"
    if callable(weight := getattr(memory, "weight", None)):  # a tensor in a checkpoint has one
        memory = weight()
    if not isinstance(memory, (Memory, Quantized)) and not is_on_device(memory):
        from reorder.records import decode, record  # most programs have no records

        if isinstance(memory, record.Record):
            if groups or any(given is not None for given in (scales, zero_points, axis, queue)):
                raise MemdescError(
                    f"{memory!r} contains its scales and zero points; do not pass others, nor a "
                    "queue: it is decoded on the CPU"
                )
            return decode.dequantize_record(memory, dtype, dst, threads)
    if isinstance(memory, Quantized):
        given = memory
        memory = given.memory
        scales = given.scales if scales is None else scales
        zero_points = given.zero_points if zero_points is None else zero_points
        axis = given.axis if axis is None else axis
        groups = groups or given.groups
    if is_on_device(memory):
        from reorder.opencl.device_memory import as_device_memory  # loads pyopencl

        desc = as_device_memory(memory).desc
        stored = desc if isinstance(desc, MemoryDesc) else desc.desc
    elif isinstance(memory, Memory):
        stored = memory.desc
    else:
        raise MemdescError(
            "dequantize takes a Memory, what quantize() returned, or a Record, not "
            f"{type(memory).__name__}"
        )
    if scales is None:
        raise MemdescError("pass the scales that quantize() returned; a Memory has none")
    refuse_masked("zero_points", zero_points)
    mask, _, _ = split_dims(stored.dims, axis, groups, stored.letters)
    for name, values in (("scales", scales), ("zero points", zero_points)):
        if not mask and prod(_shape(values)) > 1:
            raise MemdescError(
                f"{name} of shape {_shape(values)} differ along dims; pass these dims as axis, as "
                "to quantize()"
            )
    target = memory_desc(stored.dims, dtype) if dst is None else dst
    used = None if zero_points is None or _is_zero(zero_points) else zero_points
    attr = _attr("src", (scales, used), mask, groups) if stored.nelems else None
    made: Memory = _reorder(memory, target, dtype=dtype, attr=attr, threads=threads, queue=queue)
    return made
