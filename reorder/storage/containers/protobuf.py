"""Messages of protobuf, read field by field where they lie in a file; nothing is unpacked.

Source: the encoding of protobuf, https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memdesc.errors import MemdescError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

__all__ = ["Part", "field_bytes", "fields", "message_field", "varints"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# a number has 64 bits, in at most ten bytes; a field has a number of 29
_MAX_VARINT, _MAX_NUMBER, _MAX_FIELD = 10, 2**64, 2**29


class Part(NamedTuple):
    """A field of a message: its number, and where it lies."""

    number: int
    # of the tag in front of it, of what it holds, and behind it
    start: int
    content: int
    end: int
    is_number: bool
    # of a number
    value: int

    @property
    def nbytes(self) -> int:
        """Bytes of what it holds."""
        return self.end - self.content


def fields(file: BinaryIO, start: int, end: int) -> Iterator[Part]:
    """Return the fields of a message that lies at some bytes of a file.

    Fails if one ends behind the message, or is not a field.
    """
    at = start
    while at < end:
        file.seek(at)
        tag, content = _varint(file, at, end)
        number, kind = tag >> 3, tag & 7
        value = 0
        if kind == _VARINT:
            value, stop = _varint(file, content, end)
        elif kind == _BYTES:
            nbytes, content = _varint(file, content, end)
            stop = content + nbytes
        elif kind in {_FIXED32, _FIXED64}:
            stop = content + (8 if kind == _FIXED64 else 4)
        else:
            msg = f"byte {at} does not start a field of a protobuf message"
            raise MemdescError(msg)
        if stop > end or not 0 < number < _MAX_FIELD:
            msg = (
                f"field {number} at byte {at} ends at byte {stop} of a message that ends at {end}; "
                f"fields have numbers from 1 to {_MAX_FIELD - 1}"
            )
            raise MemdescError(msg)
        yield Part(number, at, content, stop, kind == _VARINT, value)
        at = stop


def _varint(file: BinaryIO, at: int, end: int) -> tuple[int, int]:
    value = 0
    for k in range(min(_MAX_VARINT, end - at)):
        byte = file.read(1)
        if not byte:
            break
        value |= (byte[0] & 127) << 7 * k
        if byte[0] < 128 and value < _MAX_NUMBER:  # noqa: PLR2004 - the bit that says that more follow
            return value, at + k + 1
    msg = f"a number at byte {at} does not end within {_MAX_VARINT} bytes and 64 bits"
    raise MemdescError(msg)


def field_bytes(file: BinaryIO, part: Part, most: int) -> bytes:
    """Return what a field holds; refuse more than some bytes."""
    if part.nbytes > most:
        msg = f"a field at byte {part.start} has {part.nbytes} bytes; at most {most} are read"
        raise MemdescError(msg)
    file.seek(part.content)
    return file.read(part.nbytes)


def varints(file: BinaryIO, part: Part) -> Iterator[int]:
    """Return the numbers that a field holds: one, or several packed one behind the other.

    Fails if one does not end.
    """
    if part.is_number:
        yield part.value
        return
    at = part.content
    while at < part.end:
        file.seek(at)
        value, at = _varint(file, at, part.end)
        yield value


def message_field(number: int, content: bytes | bytearray) -> bytes:
    """Write a field that is a message, or bytes."""
    return _varint_bytes(number << 3 | _BYTES) + _varint_bytes(len(content)) + content


def _varint_bytes(value: int) -> bytes:
    raw = bytearray()
    while value > 127:  # noqa: PLR2004 - seven bits a byte
        raw.append(value & 127 | 128)
        value >>= 7
    return bytes([*raw, value])
