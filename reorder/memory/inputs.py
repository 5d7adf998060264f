"""What callers pass as x and out (arrays, bytes, pixels) as memory with a descriptor."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import (
    ImageDesc,
    MemdescError,
    MemoryDesc,
    array_desc,
    data_type,
    image_desc,
    memory_desc,
)
from memdesc.errors import short_repr
from memdesc.layout_names import tag_of
from memdesc.names.images import is_image
from memdesc.tags import FormatTag
from reorder.memory.arrays import write_back
from reorder.memory.dlpack import from_dlpack, is_exporter
from reorder.memory.memory import Memory
from reorder.values.masked import refuse_masked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import DataType


def as_memory(x: Any, src: str | FormatTag | MemoryDesc | None) -> Memory:
    """Return a tensor as memory; only arrays of 4-bit elements and blocked arrays are copied.

    `src` describes what the array or the bytes hold; a Memory must come without it.
    """
    if isinstance(x, Memory):
        if src is not None:
            raise MemdescError("src describes an ndarray; a Memory already has a descriptor")
        return x
    refuse_masked("x", x)
    if isinstance(src, MemoryDesc):
        return Memory(src, x, zero_pad=False)
    if not isinstance(x, np.ndarray) and is_exporter(x):
        x = from_dlpack(x, "x")
    if not isinstance(x, np.ndarray):
        raise MemdescError(
            f"x must be a Memory, a numpy array or a tensor with DLPack, not {type(x).__name__}; "
            f"{_way_out(x)}"
        )
    x = np.asarray(x)  # a numpy.matrix always has two axes
    dtype = data_type(x.dtype)
    if src is not None:
        x = _logical(x, src, dtype)
    if dtype.is_packed:
        packed = Memory(memory_desc(x.shape, dtype))
        bits = np.zeros(2 * packed.nbytes, np.uint8)
        bits[: x.size] = np.ascontiguousarray(x).view(np.uint8).reshape(-1) & 15
        write_back(bits, packed.data, packed.desc)
        return packed
    return _attached(x)


def _way_out(x: Any) -> str:
    if type(x).__module__.startswith("dask."):
        return "pass x.compute(), or reorder its chunks with reorder.dask.reorder(x, dst)"
    if isinstance(x, str | FormatTag | MemoryDesc | ImageDesc):
        return "in reorder(x, dst) the layout comes second"
    if isinstance(x, np.generic):
        return "pass np.atleast_1d(x)"
    if isinstance(x, list | tuple) or hasattr(x, "__array__"):
        return "pass np.asarray(x)"
    if isinstance(x, bytes | bytearray | memoryview):
        return "to describe raw bytes, pass src=, a MemoryDesc"
    return "pass its elements as a numpy array"


def result_desc(
    dst: str | FormatTag | MemoryDesc | ImageDesc | None,
    dtype: Any,
    src: MemoryDesc | ImageDesc,
    out: MemoryDesc | ImageDesc | None = None,
) -> MemoryDesc | ImageDesc:
    """Return the descriptor of the result of a reorder; `out` is that of the output, or None.

    A name takes the dims of src, and the data type of `out` or of src. Without dst, the layout is
    that of `out`, or that of src (row-major if a stride of 0 repeats elements of src).
    """
    if dst is None:
        if out is None and dtype is None:
            raise MemdescError(
                "pass dst, the layout to move into ('plain' is row-major), or out, the memory to "
                "write, or dtype, the type to convert to"
            )
        dst = src if out is None else out
        if out is None and isinstance(dst, MemoryDesc) and dst.has_broadcast:
            dst = memory_desc(dst.dims, dst.dtype)
    if isinstance(dst, MemoryDesc):
        desc: MemoryDesc | ImageDesc = dst if dtype is None else dst.with_dtype(dtype)
    elif isinstance(dst, ImageDesc):
        desc = dst if dtype is None else image_desc(dst.dims, dtype, dst.name)
    else:
        wanted = (src if out is None else out).dtype if dtype is None else dtype
        if isinstance(dst, str) and is_image(dst):
            desc = image_desc(src.dims, wanted, dst)
        else:
            desc = memory_desc(src.dims, wanted, dst)
    if out is not None and out != desc:
        way = "leave them out, or pass an out with that descriptor"
        if out.dims != desc.dims:
            way = (
                "pass an out with that descriptor, or pass it as dst to write a contiguous out as "
                "raw bytes"
            )
        raise MemdescError(f"out is {out!r}, but dst and dtype describe {desc!r}; {way}")
    return desc


def as_output(out: Any, dst: object) -> Memory:
    """Return the output that a caller passes, as memory, without a copy.

    It is an array over the dims, with any strides, or a contiguous buffer that a MemoryDesc
    describes.
    """
    refuse_masked("out", out)
    if isinstance(out, np.ndarray):
        array = out
    elif is_exporter(out):
        array = from_dlpack(out, "out", write=True)
    else:
        try:
            array = np.asarray(memoryview(out))
        except (TypeError, ValueError):
            raise MemdescError(
                "out must be a Memory, a writable array or buffer, or a tensor with DLPack, not "
                f"{short_repr(out)}"
            ) from None
    if not array.flags.writeable:
        raise MemdescError(
            f"out is a read-only {type(out).__name__}; pass a writable array, or leave it out"
        )
    if isinstance(dst, MemoryDesc) and array.flags.c_contiguous:
        return Memory(dst, array, zero_pad=False)
    if data_type(array.dtype).is_packed:
        raise MemdescError(
            f"out is an array of {array.dtype}, one element per byte; pass a Memory, which holds "
            "two"
        )
    return _attached(np.asarray(array))


def _attached(x: NDArray[Any]) -> Memory:
    """Return an array as memory that starts at the lowest address of its elements."""
    desc = array_desc(x)
    if x.flags.c_contiguous:
        return Memory.attached(desc, x.reshape(-1).view(np.uint8))
    x = x.view(desc.dtype.bits_dtype)  # as_strided fails for some types of ml_dtypes
    # memory starts at the lowest address that x touches; gaps between elements are not read
    lowest = x[
        tuple(
            slice(-1 if step < 0 else 0, None) if size else slice(None)
            for size, step in zip(x.shape, x.strides, strict=True)
        )
    ]
    count = desc.layout.last + 1 if desc.nelems else 0
    return Memory(
        desc,
        np.lib.stride_tricks.as_strided(
            lowest, (count,), (x.itemsize,), writeable=x.flags.writeable
        ),
        zero_pad=False,
    )


def check_axes(x: NDArray[Any], src: str | FormatTag) -> None:
    """Refuse an array whose axes are in another order in memory than `src` says."""
    axes = [k for k in range(x.ndim) if x.size and x.shape[k] > 1 and x.strides[k]]
    for outer, inner in pairwise(axes):
        if abs(x.strides[outer]) < abs(x.strides[inner]):
            strides = tuple(step // x.itemsize for step in x.strides)
            raise MemdescError(
                f"src {str(src)!r} says that the axes of x are in memory order, but x of shape "
                f"{x.shape} has the strides {strides}: axis {inner} is outside axis {outer}. If "
                f"the axes of x are the dims, leave src out; if they are in the order of "
                f"{str(src)!r}, pass np.ascontiguousarray(x), or x.contiguous() of torch"
            )


def _logical(x: NDArray[Any], src: str | FormatTag, dtype: DataType) -> NDArray[Any]:
    """Return an array whose axes are the logical dims: a view, or for blocked layouts a copy."""
    # each block adds an axis to those of the dims; callers without type checkers pass anything
    text = str(src) if isinstance(src, str | FormatTag) else ""
    tag = tag_of(src, x.ndim - len(re.findall("[0-9]+[a-z]", text)), dtype.bits)
    if x.ndim != len(tag.digits):
        raise MemdescError(
            f"src '{src}' spells {len(tag.digits)} axes in memory order, but x has {x.ndim}: "
            f"{x.shape}; for a flat buffer give src=memory_desc(dims, dtype, '{src}')"
        )
    check_axes(x, src)
    for digit, size in zip(tag.digits, x.shape, strict=True):
        if digit.extent and digit.extent != size:
            raise MemdescError(
                f"src '{src}' has a block of {digit.extent}, but that axis of x has {size}: "
                f"{x.shape}"
            )
    if any(len(dims) > 1 for dims in tag.axes):
        raise MemdescError(
            f"src '{src}' fuses several dims into one index, and x does not have their sizes; "
            "pass a MemoryDesc as src"
        )
    order = sorted(range(x.ndim), key=lambda k: (tag.digits[k].axis, -tag.digits[k].step))
    sizes = [1] * len(tag.axes)
    for digit, size in zip(tag.digits, x.shape, strict=True):
        sizes[digit.axis] *= size
    return x.transpose(order).reshape(sizes)


def to_pixels(memory: Memory, image: ImageDesc) -> NDArray[Any]:
    """Return memory of `image.desc` as its pixels, an array of `image.shape`, without copying."""
    flat = memory.elements[: image.desc.padded_nelems]
    return flat.view(image.dtype.numpy).reshape(image.shape)


def from_pixels(pixels: Any, image: ImageDesc, name: str = "x") -> Memory:
    """Return pixels, which messages call `name`, as memory; larger images and views are copied."""
    refuse_masked(name, pixels)
    shape = image.shape
    if not isinstance(pixels, np.ndarray) or pixels.dtype not in {
        image.dtype.numpy,
        image.dtype.bits_dtype,
    }:
        given = (
            f"an array of {pixels.dtype}"
            if isinstance(pixels, np.ndarray)
            else type(pixels).__name__
        )
        raise MemdescError(
            f"{name} is {given}, but {image!r} has pixels of {image.dtype}: an array of shape "
            f"{shape}"
        )
    if (
        pixels.ndim != len(shape)
        or pixels.shape[-1] != shape[-1]
        or any(size < least for size, least in zip(pixels.shape, shape, strict=True))
    ):
        sides = (
            "height, width, channels" if image.kind == "2d" else "depth, height, width, channels"
        )
        raise MemdescError(
            f"{name} has shape {pixels.shape}, but {image!r} has pixels of ({sides}) {shape}, or "
            "larger"
        )
    # padding lanes are not read, so they need not be zero
    return Memory(
        image.desc, np.ascontiguousarray(pixels[tuple(map(slice, shape))]), zero_pad=False
    )
