"""Fields of records: the bits of their elements, in numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, PaddingError
from memdesc.dtypes import BYTE_BITS
from memdesc.record import BIT_PLANES, Field
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_field(data: NDArray[np.uint8], field: Field) -> NDArray[Any]:
    """Return the bits of the elements of a field over its dims, as unsigned integers."""
    if not field.layout.nelems:  # the other dims may be too large for a table of offsets
        return np.empty(field.layout.dims, f"u{max(field.bits, BYTE_BITS) // BYTE_BITS}")
    offsets = field.layout.offsets()
    if field.bits < BYTE_BITS:
        at = offsets * field.bits
        mask = np.uint8((1 << field.bits) - 1)
        found: NDArray[Any] = data[at >> 3] >> (at & 7).astype(np.uint8) & mask
        return found
    nbytes = field.bits // BYTE_BITS
    each = data[offsets[..., None] * nbytes + np.arange(nbytes)]
    return np.ascontiguousarray(each).view(f"u{nbytes}").reshape(offsets.shape)


def field_bits(field: Field, values: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of values over the dims of a field, as unsigned integers."""
    nbytes = max(field.bits, BYTE_BITS) // BYTE_BITS
    mask = np.dtype(f"u{nbytes}").type((1 << field.bits) - 1)
    is_plane = field.kind in BIT_PLANES
    if not is_plane and values.dtype == field.desc.dtype.numpy:
        bits: NDArray[Any] = np.ascontiguousarray(values).view(f"u{nbytes}").copy()
        bits &= mask
        return bits
    if values.dtype.kind not in "iu" or not (is_plane or field.kind in INTEGERS):
        raise MemdescError(
            f"field {field.name} holds {field.kind}, not {values.dtype}; convert the values"
        )
    low, high = (0, int(mask)) if is_plane else INTEGERS[field.kind]
    wrong = np.argwhere((values < low) | (values > high))
    if len(wrong):
        at = tuple(int(i) for i in wrong[0])
        raise MemdescError(
            f"field {field.name} holds {field.kind}, {low} to {high}, but at {at} is {values[at]}"
        )
    bits = values.astype(np.int64).astype(f"u{nbytes}")
    bits &= mask
    return bits


def write_field(data: NDArray[np.uint8], field: Field, bits: NDArray[Any]) -> None:
    """Write the bits of the elements of a field, and nothing else."""
    offsets = field.layout.offsets()
    if field.bits < BYTE_BITS:
        at = offsets * field.bits
        mask = np.uint8((1 << field.bits) - 1)
        # elements that start at the same bit of a byte are in different bytes
        for phase in range(0, BYTE_BITS, field.bits):
            here = at % BYTE_BITS == phase
            where = at[here] >> 3
            kept = data[where] & ~(mask << np.uint8(phase))
            data[where] = kept | bits[here].astype(np.uint8) << np.uint8(phase)
        return
    nbytes = field.bits // BYTE_BITS
    each = np.ascontiguousarray(bits.astype(f"u{nbytes}")).view(np.uint8)
    data[offsets[..., None] * nbytes + np.arange(nbytes)] = each.reshape(*offsets.shape, nbytes)


def check_plane(data: NDArray[np.uint8], field: Field) -> None:
    """Refuse nonzero padding in a plane of 1 or 2 bits.

    The `PaddingError` names the first byte that is not zero.
    """
    offsets = np.setdiff1d(field.layout.offsets(padded=True), field.layout.offsets())
    at = offsets * field.bits
    mask = np.uint8((1 << field.bits) - 1)
    wrong = np.flatnonzero(data[at >> 3] >> (at & 7).astype(np.uint8) & mask)
    if len(wrong):
        raise PaddingError(f"padding of {field.bits} bits is not zero at byte {at[wrong[0]] >> 3}")
