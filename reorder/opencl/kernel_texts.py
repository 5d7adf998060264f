"""The text of the kernels of a reorder, without a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyopencl as cl

from memdesc import ImageDesc, MemdescError, MemoryDesc
from memdesc.errors import short_repr
from reorder.opencl.execution import device_traits
from reorder.opencl.image_formats import channel_type_of, image_format
from reorder.opencl.kernel.launch import DeviceTraits, kernel_source
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from reorder.opencl.operands import DeviceOperand, check_desc, check_operands
from reorder.opencl.process import check_process

if TYPE_CHECKING:
    from reorder.values.attr import Attr

# limits that nearly all devices meet
_COMMON = DeviceTraits(max_work_items=256, max_local=32 << 10)


def kernel_texts(
    src: MemoryDesc | ImageDesc,
    dst: MemoryDesc | ImageDesc,
    attr: Attr | None = None,
    *,
    device: cl.Device | None = None,
) -> tuple[str, ...]:
    """Return the OpenCL C of each kernel that a reorder runs, in the order of its launches.

    A kernel takes src, dst, the scales and zero points that differ along the dims, indirection
    tables, and a struct with extents, strides and offsets. The texts of tiles of pixels contain
    extents too.

    Parameters
    ----------
    src, dst : MemoryDesc or ImageDesc
        With the same dims. Images have the default channel type of their data type.
    attr : Attr, optional
        Scales, zero points, accumulation.
    device : pyopencl.Device, optional
        The device to generate kernels for; its largest work-group and its arithmetic matter. By
        default a device with work-groups of 256 work items, f64, and IEEE 754 arithmetic.

    Returns
    -------
    tuple of str
        Texts of programs, each with one kernel named ``reorder``. Empty if nothing is moved, or if
        the runtime copies the pixels.

    Raises
    ------
    MemdescError
        If no such reorder is possible on a device.

    Notes
    -----
    *Law*: these texts are what `enqueue_reorder` builds for that device.

    Examples
    --------
    >>> src = memdesc.memory_desc((3, 2), "s8", "ab")
    >>> (text,) = opencl.kernel_texts(src, memdesc.memory_desc((3, 2), "s8", "ba"))
    >>> print(text[text.index("void") : text.index("{", text.index("void"))])
    void reorder(__global const uchar *restrict src, __global uchar *restrict dst, const params_t p)
    <BLANKLINE>
    """
    if device is not None and not isinstance(device, cl.Device):
        raise MemdescError(f"device must be a pyopencl.Device, not {short_repr(device)}")
    if device is not None:
        check_process()
    one, other = _operand(src, "src"), _operand(dst, "dst")
    check_operands(one, other, attr)
    traits = _COMMON if device is None else device_traits(device)
    transfers = plan_transfers(one.spec, other.spec, traits, attr, is_aligned=True)
    patterns = [launch.pattern for transfer in transfers for launch in transfer.launches]
    return tuple(dict.fromkeys(map(kernel_source, patterns)))


def _operand(desc: MemoryDesc | ImageDesc, name: str) -> DeviceOperand:
    """Return an operand without memory."""
    check_desc(desc, name)
    of_pixels = ""
    if isinstance(desc, ImageDesc):
        of_pixels = channel_type_of(desc, image_format(desc), name)
    return DeviceOperand(OperandSpec.of(desc, of_pixels))
