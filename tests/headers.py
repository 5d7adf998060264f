"""Hand-made files of each format, byte by byte, so that tests can damage them; and GGUF by gguf."""

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def message_field(number: int, content: bytes) -> bytes:
    """Return a field of protobuf that is a message, or bytes."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    """Return a field of protobuf that is a number of 64 bits."""
    return _varint(number << 3) + _varint(value & 2**64 - 1)


def _varint(value: int) -> bytes:
    raw = bytearray()
    while value > 127:
        raw.append(value & 127 | 128)
        value >>= 7
    return bytes([*raw, value])


def pair(key: str, value: str) -> bytes:
    """Return an entry of a map of protobuf."""
    return message_field(1, key.encode()) + message_field(2, value.encode())


def initializer(name: str, kind: int, dims: tuple[int, ...], *more: bytes) -> bytes:
    """Return an initializer of an ONNX graph: its name, type and dims, and other fields."""
    head = b"".join(number_field(1, size) for size in dims) + number_field(2, kind)
    return message_field(5, head + message_field(8, name.encode()) + b"".join(more))


def safetensors_bytes(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """Return a safetensors file of a header; `length` is the length that it claims to have."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def gguf_text(text: str | bytes) -> bytes:
    """Return a string of GGUF."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def gguf_info(name: str | bytes, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    """Return what the header of a GGUF says about a tensor."""
    return gguf_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf_bytes(
    values: Sequence[bytes], infos: Sequence[bytes], data: bytes = b"", version: int = 3
) -> bytes:
    """Return a GGUF file of values of metadata and tensors, with data from a multiple of 32 on."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(values))
    head += b"".join(values) + b"".join(infos)
    return head + bytes(-len(head) % 32) + data


@contextmanager
def gguf_file(path: Path, **options: Any) -> Iterator[Any]:
    """Yield the package's GGUF writer; the file is written on exit."""
    import gguf  # not installed everywhere

    writer = gguf.GGUFWriter(path, "llama", **options)
    yield writer
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
