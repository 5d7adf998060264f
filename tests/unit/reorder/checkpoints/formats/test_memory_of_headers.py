"""Headers of any content take a few times their bytes in memory, and some more for each tensor.

Nothing is timed: bytes of objects and calls of functions are counted, for inputs of two sizes.
"""

from __future__ import annotations

import struct
import sys
import tracemalloc
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from tests.headers import gguf_bytes as _gguf
from tests.headers import gguf_info, initializer, message_field
from tests.headers import gguf_text as _text
from tests.headers import number_field as _number
from tests.headers import safetensors_bytes as _safetensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


# how many tensors or values of metadata there are, and how much there is of anything else
_COUNT, _AMOUNT = 800, 4000
# times the bytes, bytes for each tensor or value of metadata, and for anything else
_TIMES, _EACH, _ALWAYS = 4, 2048, 1 << 15


def _initializer(name: str, *more: bytes) -> bytes:
    return initializer(name, 1, (0,), *more)


def _onnx(*graph: bytes, more: bytes = b"") -> bytes:
    return message_field(7, b"".join(graph)) + more


def _array(kind: int, count: int, data: bytes) -> bytes:
    return _text("a") + struct.pack("<IIQ", 9, kind, count) + data


def _npz(count: int) -> bytes:
    file = BytesIO()
    np.savez(file, **{f"t{k}": np.zeros(0, np.uint8) for k in range(count)})  # type: ignore[arg-type] # numpy's stubs take them for `allow_pickle`
    return file.getvalue()


def _npy(shape: tuple[int, ...]) -> bytes:
    file = BytesIO()
    head = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, head)
    return file.getvalue()


_EMPTY = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
_GGUF_EMPTY = struct.pack("<IQIQ", 1, 0, 0, 0)
# what grows: tensors and values of metadata, of which each may take memory of its own
_MANY: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "tensors": ("onnx", lambda n: _onnx(*(_initializer(f"t{k}") for k in range(n)))),
    "properties": (
        "onnx",
        lambda n: _onnx(
            more=b"".join(message_field(14, message_field(1, b"%d" % k)) for k in range(n))
        ),
    ),
    "fields": ("safetensors", lambda n: _safetensors({f"t{k}": _EMPTY for k in range(n)})),
    "metadata": (
        "safetensors",
        lambda n: _safetensors({"__metadata__": {f"{k}": "" for k in range(n)}}),
    ),
    "infos": ("gguf", lambda n: _gguf([], [_text(f"t{k}") + _GGUF_EMPTY for k in range(n)])),
    "values": (
        "gguf",
        lambda n: _gguf([_text(f"{k}") + struct.pack("<IB", 0, 1) for k in range(n)], []),
    ),
    "members": ("npz", _npz),
}
# of these there are one or two, whatever else grows
_FEW: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "unknown fields of a model": ("onnx", lambda n: _onnx(more=_number(99, 1) * n)),
    "unknown fields of a graph": ("onnx", lambda n: _onnx(_number(99, 1) * n)),
    "unknown fields of a tensor": (
        "onnx",
        lambda n: _onnx(_initializer("a", *(_number(100 + k % 9000, 1) for k in range(n)))),
    ),
    "dims": ("onnx", lambda n: _onnx(_initializer("a", _number(1, 300) * n))),
    "packed dims": ("onnx", lambda n: _onnx(_initializer("a", message_field(1, b"\xac\x02" * n)))),
    "keys of external data": (
        "onnx",
        lambda n: _onnx(
            _initializer(
                "a",
                *(message_field(13, message_field(1, b"%d" % k)) for k in range(n)),
            )
        ),
    ),
    "a property with many keys": (
        "onnx",
        lambda n: _onnx(more=message_field(14, message_field(1, b"a") * n)),
    ),
    "a long property": (
        "onnx",
        lambda n: _onnx(more=message_field(14, message_field(2, b"a" * 9 * n))),
    ),
    "a long name": ("onnx", lambda n: _onnx(_initializer("a" * 9 * n))),
    "lists": ("safetensors", lambda n: _safetensors(b'{"a":[' + b"[]," * n + b"[]]}")),
    "objects": ("safetensors", lambda n: _safetensors(b'{"a":[' + b"{}," * n + b"{}]}")),
    "numbers": ("safetensors", lambda n: _safetensors(b'{"a":[' + b"0.1," * n + b"1]}")),
    "sizes": ("safetensors", lambda n: _safetensors({"a": _EMPTY | {"shape": [999] * n}})),
    "equal keys": ("safetensors", lambda n: _safetensors(b"{" + b'"a":{},' * n + b'"a":{}}')),
    "keys of a tensor": (
        "safetensors",
        lambda n: _safetensors({"a": {f"{k}": 0 for k in range(n)}}),
    ),
    "equal keys of a tensor": (
        "safetensors",
        lambda n: _safetensors(b'{"a":{' + b'"a":0,' * n + b'"a":0}}'),
    ),
    "depth": ("safetensors", lambda n: _safetensors(b'{"a":' + b"[" * n + b"]" * n + b"}")),
    "depth of objects": ("safetensors", lambda n: _safetensors(b'{"a":' * n + b"}" * n)),
    "digits": ("safetensors", lambda n: _safetensors(b'{"a":' + b"1" * 9 * n + b"}")),
    "white space": ("safetensors", lambda n: _safetensors(b"{" + b" " * 9 * n + b"}")),
    "escapes": (
        "safetensors",
        lambda n: _safetensors(b'{"__metadata__":{"a":"' + b"\\n" * n + b'"}}'),
    ),
    "no end of a string": ("safetensors", lambda n: _safetensors(b'{"' + b"\\n" * n)),
    "a long key": ("safetensors", lambda n: _safetensors({"a" * 9 * n: _EMPTY})),
    "strings": ("gguf", lambda n: _gguf([_array(8, n, _text("") * n)], [])),
    "arrays": ("gguf", lambda n: _gguf([_array(9, n, struct.pack("<IQ", 0, 0) * n)], [])),
    "bytes": ("gguf", lambda n: _gguf([_array(0, 9 * n, bytes(9 * n))], [])),
    "a long string": (
        "gguf",
        lambda n: _gguf([_text("a") + struct.pack("<I", 8) + _text("a" * 9 * n)], []),
    ),
    "a long name of a tensor": ("gguf", lambda n: _gguf([], [_text("a" * 9 * n) + _GGUF_EMPTY])),
}


@pytest.fixture(scope="module", autouse=True)
def _modules_are_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    for ending in _CLAIMS:
        _peak(tmp_path_factory.mktemp("empty") / f"x.{ending}", b"")


def _peak(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with suppress(MemdescError):
            reorder.open_checkpoint(path)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("case", _MANY)
def test_each_tensor_and_each_value_takes_some_memory(tmp_path: Path, case: str) -> None:
    ending, make = _MANY[case]
    data = make(_COUNT)
    peak = _peak(tmp_path / f"x.{ending}", data)
    assert peak <= _ALWAYS + _TIMES * len(data) + _EACH * _COUNT
    reorder.open_checkpoint(tmp_path / f"x.{ending}")


@pytest.mark.parametrize("case", _FEW)
def test_whatever_else_grows_takes_a_few_times_its_bytes(tmp_path: Path, case: str) -> None:
    ending, make = _FEW[case]
    data = make(_AMOUNT)
    assert _peak(tmp_path / f"x.{ending}", data) <= _ALWAYS + _TIMES * len(data)


def _calls(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(counted)
    try:
        with suppress(MemdescError):
            reorder.open_checkpoint(path)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("case", [*_MANY, *_FEW])
def test_ten_times_as_much_takes_about_ten_times_the_calls(tmp_path: Path, case: str) -> None:
    ending, make = (_MANY | _FEW)[case]
    few, many = (_calls(tmp_path / f"x.{ending}", make(count)) for count in (60, 600))
    assert many <= 500 + 11 * few


_HUGE = 2**42
_CLAIM = b"\x80\x80\x80\x80\x80\x80\x01"
# headers that claim 4 TiB, or as many items
_CLAIMS = {
    "onnx": [
        _onnx(initializer("a", 1, (_HUGE,), message_field(9, b"a"))),
        _onnx(message_field(5, _number(2, 2) + message_field(8, b"a") + b"\x4a" + _CLAIM)),
        b"\x3a" + _CLAIM,
    ],
    "safetensors": [
        bytes([255, 255, 255, 5, 0, 0, 0, 0]) + b"{",
        _HUGE.to_bytes(8, "little") + b"{}",
        _safetensors({"a": {"dtype": "U8", "shape": [_HUGE], "data_offsets": [0, _HUGE]}}),
    ],
    "gguf": [
        b"GGUF" + struct.pack("<IQQ", 3, _HUGE, 0) + bytes(64),
        b"GGUF" + struct.pack("<IQQ", 3, 0, _HUGE) + bytes(64),
        _gguf([], [gguf_info("a", (_HUGE, 1))]) + bytes(64),
        _gguf([_array(0, _HUGE, b"")], []) + bytes(64),
        _gguf([_array(8, _HUGE, b"")], []),
        _gguf([_text("a") + struct.pack("<IQ", 8, _HUGE)], []),
    ],
    "npz": [_npz(1).replace(b"(0,)", b"(9,)"), _npz(1)[:-12] + b"\xff" * 8 + bytes(4)],
    "npy": [
        b"\x93NUMPY\2\0\xff\xff\xff\x7f{",
        b"\x93NUMPY\1\0\x0a\0",
        _npy((_HUGE,)),
    ],
}


@pytest.mark.parametrize("ending", _CLAIMS)
def test_large_numbers_in_small_files_take_no_memory(tmp_path: Path, ending: str) -> None:
    for data in _CLAIMS[ending]:
        path = tmp_path / f"x.{ending}"
        assert _peak(path, data) <= 4 * _ALWAYS
        with pytest.raises(MemdescError):
            reorder.open_checkpoint(path)
