"""Record: the buffers of a block-quantised tensor, with their descriptor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, PaddingError, memory_desc
from memdesc.checked import Checked, remade
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.errors import about, short_repr
from memdesc.immutable import immutable
from memdesc.record import BIT_PLANES, Field, RecordDesc
from reorder.memory.allocation import zeroed_bytes
from reorder.memory.buffers import BufferCheck, pickled_bytes
from reorder.memory.dlpack import from_dlpack, is_exporter
from reorder.memory.padding import check_padding
from reorder.values.formats import INTEGERS
from reorder.values.masked import refuse_masked


@immutable
class Record(Checked):
    """A block-quantised tensor, stored as several fields: its descriptor and its buffers.

    Parameters
    ----------
    desc : RecordDesc
        What the buffers hold, see `memdesc.record.record_desc`.
    buffers : buffer, or mapping of str to buffer, optional
        C-contiguous memory of each tensor of `desc.tensors`, used without a copy: raw bytes,
        integers of any width, or the data type of a field. A record of one tensor takes its
        buffer alone. By default zeroed bytes are allocated.

    Raises
    ------
    MemdescError
        If a tensor is missing, unknown, not contiguous or too small, has another type than its
        fields, or differs from a constant of `desc`.

    Examples
    --------
    >>> block = np.arange(18, dtype=np.uint8)
    >>> block[:2] = np.array([0.5], np.float16).view(np.uint8)
    >>> r = reorder.records.Record(memdesc.record.record_desc((1, 32), "q4_0"), block)
    >>> r.field("d"), r.field("qs")[0, :4]
    (array([[0.5]], dtype=float16), array([2, 3, 4, 5], dtype=uint4))
    >>> reorder.dequantize(r).numpy()[0, :4].tolist()
    [-3.0, -2.5, -2.0, -1.5]
    """

    __slots__ = ("_desc", "_tensors")

    _desc: RecordDesc
    _tensors: dict[str, NDArray[np.uint8]]
    _another = "Record(desc, buffers) makes another"

    def __init__(self, desc: RecordDesc, buffers: Any = None) -> None:
        if not isinstance(desc, RecordDesc):
            raise MemdescError(
                f"desc must be a RecordDesc, see record_desc(); not {short_repr(desc)}"
            )
        by_name = None if buffers is None else _by_name(desc, buffers)
        tensors = {}
        for name, nbytes in desc.tensors.items():
            if by_name is None:
                tensors[name] = zeroed_bytes(nbytes)
            else:
                data, whole = _as_bytes(desc, name, by_name[name]), memory_desc((nbytes,), "u8")
                tensors[name] = BufferCheck(whole, name, write=False)(data)
        object.__setattr__(self, "_desc", desc)
        object.__setattr__(self, "_tensors", tensors)
        for constant in desc.constants:
            held = tensors[constant.tensor][: len(constant.data)]
            if buffers is None:
                held[:] = np.frombuffer(constant.data, np.uint8)
            elif held.tobytes() != constant.data:
                values = held.view(DATA_TYPES[constant.kind].numpy).tolist()
                raise MemdescError(
                    f"{constant.tensor} of {desc!r} must hold {[*constant.values]}, not {values}"
                )

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        held = {name: pickled_bytes(data, protocol) for name, data in self._tensors.items()}
        return remade(Record, self._desc, held)

    @property
    def desc(self) -> RecordDesc:
        """The descriptor."""
        return self._desc

    @property
    def tensors(self) -> dict[str, NDArray[np.uint8]]:
        """The tensors as flat bytes, by name."""
        return dict(self._tensors)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes of a record of one tensor.

        Raises
        ------
        MemdescError
            If it has several tensors.
        """
        if len(self._tensors) > 1:
            raise MemdescError(
                f"{self.desc!r} has several tensors, {', '.join(self._tensors)}; see .tensors"
            )
        return next(iter(self._tensors.values()))

    def field(self, name: str) -> NDArray[Any]:
        """Return a copy of the elements of a field, as an array over its dims.

        Raises
        ------
        MemdescError
            If the record does not have this field.

        Examples
        --------
        >>> r = reorder.records.Record(memdesc.record.record_desc((1, 32), "q4_0"))
        >>> r.field("d"), r.field("qs").shape
        (array([[0.]], dtype=float16), (1, 32))
        """
        field = self.desc.field(name)
        bits = read_field(self._tensors[field.tensor], field)
        return bits if field.kind in BIT_PLANES else bits.view(field.desc.dtype.numpy)

    def set_field(self, name: str, values: Any) -> None:
        """Write the elements of a field, and nothing else.

        *Law*: `field` then returns them.

        Parameters
        ----------
        name : str
            A field of the descriptor.
        values : array
            An array over the dims of the field, of the type that `field` returns; for an integer
            field, of any integer type if the values fit.

        Raises
        ------
        MemdescError
            If the record does not have this field, the array has other dims or another type, a
            value does not fit, or the buffer is read-only.

        Examples
        --------
        >>> r = reorder.records.Record(memdesc.record.record_desc((1, 32), "q4_0"))
        >>> r.set_field("d", np.full((1, 1), 0.5, np.float16))
        >>> r.set_field("qs", np.arange(32).reshape(1, 32) % 16)
        >>> reorder.dequantize(r).numpy()[0, 14:18].tolist()
        [3.0, 3.5, -4.0, -3.5]
        """
        field, who = self.desc.field(name), f"field {name} of {self.desc!r}"
        refuse_masked("values", values)
        data = self._tensors[field.tensor]
        try:
            array = np.asarray(values)
        except (ValueError, MemoryError) as error:
            raise MemdescError(f"{who} takes an array: {error}") from None
        if array.shape != field.layout.dims:
            raise MemdescError(f"{who} has dims {field.layout.dims}, not {array.shape}")
        if not data.flags.writeable:
            raise MemdescError(f"the tensor of {who} is read-only; pass a copy of it to Record")
        write_field(data, field, field_bits(field, array))

    def check_padding(self) -> None:
        """Check that the padding of each field holds zeros.

        Raises
        ------
        PaddingError
            With the field, the first byte of its tensor that is not zero, and its position.
        """
        for field in self.desc.fields:
            if not field.layout.has_padding:
                continue
            data = self._tensors[field.tensor]
            with about(f"field {field.name} of {self.desc!r}"):
                if field.kind not in BIT_PLANES:
                    check_padding(data, field.desc)
                    continue
                padding = np.setdiff1d(field.layout.offsets(padded=True), field.layout.offsets())
                wrong = padding[np.flatnonzero(_bits_at(data, padding, field.bits))]
                if len(wrong):
                    at = f"byte {wrong[0] * field.bits >> 3}"
                    raise PaddingError(f"padding of {field.bits} bits is not zero at {at}")

    def __repr__(self) -> str:
        return f"Record({self.desc!r})"


def _by_name(desc: RecordDesc, buffers: Any) -> Mapping[str, Any]:
    """Return the buffers by tensor name; there must be one for each tensor, and no others."""
    sizes = desc.tensors
    if not hasattr(buffers, "keys"):
        if len(sizes) > 1:
            way = f"pass a dict of {', '.join(sizes)}, not {short_repr(buffers)}"
            raise MemdescError(f"{desc!r} has several tensors; {way}")
        return {next(iter(sizes)): buffers}
    by_name: Mapping[str, Any] = buffers
    if set(by_name) != set(sizes):
        names = f"{', '.join(sizes)}, not {', '.join(map(str, by_name))}"
        raise MemdescError(f"{desc!r} has the tensors {names}")
    return by_name


def _as_bytes(desc: RecordDesc, name: str, buffer: Any) -> Any:
    """Return an array of words, or of the type of a field, as flat bytes; others as they are."""
    refuse_masked(name, buffer)
    if not isinstance(buffer, np.ndarray) and is_exporter(buffer):
        buffer = from_dlpack(buffer, name)
    if not isinstance(buffer, np.ndarray):
        return buffer
    kinds = [field.kind for field in desc.fields if field.tensor == name]
    whole = [DATA_TYPES[kind] for kind in kinds if kind not in BIT_PLANES]
    legal = [dtype.numpy for dtype in whole if not dtype.is_packed]
    is_raw = buffer.dtype.kind in "iu" or (buffer.dtype.type is np.void and not buffer.dtype.names)
    if not buffer.dtype.isnative or not (is_raw or buffer.dtype in legal):
        raise MemdescError(
            f"{name} of {desc!r} holds {', '.join(dict.fromkeys(kinds))}, but the array is of "
            f"{buffer.dtype} ({buffer.dtype.str}); convert it, or pass its bytes as uint8"
        )
    if not buffer.flags.c_contiguous:
        said = f"is an array with strides {buffer.strides}; pass one from numpy.ascontiguousarray"
        raise MemdescError(f"{name} of {desc!r} {said}")
    return np.asarray(buffer).reshape(-1).view(np.uint8)


# --- the bits of the elements of a field, in numpy ---


def first_index(wrong: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the first index at which an array is true."""
    return tuple(np.argwhere(wrong)[0].tolist())


def read_field(data: NDArray[np.uint8], field: Field) -> NDArray[Any]:
    """Return the bits of the elements of a field over its dims, as unsigned integers."""
    if not field.layout.nelems:  # the other dims may be too large for a table of offsets
        return np.empty(field.layout.dims, f"u{max(field.bits, BYTE_BITS) // BYTE_BITS}")
    offsets = field.layout.offsets()
    if field.bits < BYTE_BITS:
        return _bits_at(data, offsets, field.bits)
    nbytes = field.bits // BYTE_BITS
    elements = data[offsets[..., None] * nbytes + np.arange(nbytes)]
    return np.ascontiguousarray(elements).view(f"u{nbytes}").reshape(offsets.shape)


def _bits_at(data: NDArray[np.uint8], offsets: NDArray[Any], bits: int) -> NDArray[Any]:
    at = offsets * bits
    codes: NDArray[Any] = data[at >> 3] >> (at & 7).astype(np.uint8) & np.uint8((1 << bits) - 1)
    return codes


def field_bits(field: Field, values: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of values over the dims of a field, as unsigned integers."""
    nbytes = max(field.bits, BYTE_BITS) // BYTE_BITS
    mask = np.dtype(f"u{nbytes}").type((1 << field.bits) - 1)
    is_plane, bits = field.kind in BIT_PLANES, np.ascontiguousarray(values)
    if not is_plane and values.dtype == field.desc.dtype.numpy:
        masked: NDArray[Any] = bits.view(f"u{nbytes}") & mask
        return masked
    if values.dtype.kind not in "iu" or not (is_plane or field.kind in INTEGERS):
        raise MemdescError(
            f"field {field.name} holds {field.kind}, not {values.dtype}; convert the values"
        )
    low, high = (0, int(mask)) if is_plane else INTEGERS[field.kind]
    wrong = (values < low) | (values > high)
    if wrong.any():
        at = first_index(wrong)
        raise MemdescError(
            f"field {field.name} holds {field.kind}, {low} to {high}, but at {at} is {values[at]}"
        )
    masked = values.astype(np.int64).astype(f"u{nbytes}")
    masked &= mask
    return masked


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
    elements = np.ascontiguousarray(bits.astype(f"u{nbytes}")).view(np.uint8)
    data[offsets[..., None] * nbytes + np.arange(nbytes)] = elements.reshape(*offsets.shape, nbytes)
