"""Damaged files are refused with the rule and the numbers: a table for each container."""

import io
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from tests.headers import gguf_bytes as _gguf
from tests.headers import gguf_info as _info
from tests.headers import gguf_text as _text
from tests.headers import initializer as _initializer
from tests.headers import message_field, pair
from tests.headers import number_field as _number
from tests.headers import safetensors_bytes as _safetensors

_HUGE = 2**42


def _tensor(shape: Any = (2,), offsets: Any = (0, 8), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def _described(text: str) -> bytes:
    return _safetensors({"__metadata__": {"memdesc.a": text}, "a": _tensor()}, bytes(8))


_RECORD = '{"schema": 1, "record": %s, "dims": %s}'
_SAFETENSORS: list[tuple[bytes, str]] = [
    (b"\x02", "its header would have 2 bytes, and the file has 1"),
    *(
        (_safetensors(b"{}", length=length), f"{length} bytes|not JSON")
        for length in (3, 2**40, 2**63, 100_000_001)
    ),
    (_safetensors([]), r"not an object of JSON, but \[\]"),
    *(
        (_safetensors(header), "not JSON")
        for header in (
            *(b"{", b"[" * 100_000, b'{"a": {}} {}', b'{"a": {},}', b'{"a" {}}', b'{"a": {1}}'),
            *(b'{"\\x": {}}', b'{"\xff": {}}', b'{"a\n": {}}', "{}".encode("utf-16")),
        )
    ),
    *(
        (_safetensors(header), "the key 'a' twice")
        for header in (b'{"a": {}, "a": {}}', b'{"b":{"a":1,"a":1}}')
    ),
    (_safetensors({"__metadata__": {"a": 1}}), "not an object of strings, but {'a': 1}"),
    (_safetensors({"__metadata__": []}), r"not an object of strings, but \[\]"),
    *(
        (_safetensors({"a": fields}), "other fields than data_offsets, dtype, shape")
        for fields in (1, {}, _tensor() | {"more": 1}, {"dtype": "F32"})
    ),
    (_safetensors({"a": _tensor(dtype="F99")}), "'F99' is not a data type of safetensors"),
    (_safetensors({"a": _tensor(dtype=[])}), "is not a data type of safetensors"),
    *(
        (_safetensors({"a": _tensor(shape)}), "not a list of at most 64 sizes")
        for shape in ((-2,), (True, 2), (1.0,), 2, "", (1,) * 65)
    ),
    *(
        (_safetensors({"a": _tensor(offsets=offsets)}), "not a range")
        for offsets in ((8, 0), (-8, 0), (0, 4, 8), (0, 8.0), 8)
    ),
    (_safetensors({"a": _tensor((2**62, 2**62, 4))}), "bits, but its data_offsets span 8"),
    (_safetensors({"a": _tensor((2**40,), (0, _HUGE))}, bytes(8)), "takes bytes"),
    (_safetensors({"a": _tensor(), "b": _tensor()}, bytes(8)), "overlap"),
    (_safetensors({"a": _tensor(offsets=(8, 16))}, bytes(16)), "no gaps"),
    (_safetensors({"a": _tensor()}, bytes(9)), "no gaps"),
    (_safetensors({"": _tensor()}, bytes(8)), "the name of a tensor"),
    (_safetensors({"\ud800": _tensor()}, bytes(8)), "the name of a tensor"),
    (
        _safetensors({"__metadata__": {"memdesc.b": '{"schema": 1}'}, "a": _tensor()}, bytes(8)),
        "a descriptor of 'b', which it does not have",
    ),
    *(
        (_described(text), reason)
        for text, reason in (
            ("{}", "the key 'schema'"),
            ("[" * 9999, "not a descriptor"),
            ("1" * 2**21, "characters"),
            (_RECORD % ('"awq"', "[128, 8]"), "of several tensors"),
            ('{"schema": 2, "record": "q4_0", "dims": [32]}', "of schema 1"),
            ('{"schema": 1, "record": "q4_0", "options": {"dims": 1}}', "options of a record"),
            ('{"schema": 1, "record": "q4_0", "options": 1}', "options of a record"),
            ('{"schema": 1, "record": "q4_0"}', "dims"),
            ('{"schema": 1, "record": "q4_0", "dims": [32], "options": {"a": 1}}', "option"),
            (_RECORD % ("1", "[32]"), "name of a record must be a string"),
            (_RECORD % ('"q4_0"', "[32]"), "has 8 bytes, but its descriptor .* takes 18"),
            (_RECORD % ('"q4_0"', "[0, 32]"), "has 8 bytes, but its descriptor .* takes 0"),
            (_RECORD % ('"q4_0"', "[9223372036854775776]"), "more than int64|has 8 bytes, but"),
        )
    ),
]

_DEEP = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 99 + bytes(99)


def _array(kind: int, count: int) -> bytes:
    return _text("a") + struct.pack("<IIQ", 9, kind, count)


def _alignment(form: str, kind: int, value: float) -> bytes:
    return _gguf([_text("general.alignment") + struct.pack(f"<I{form}", kind, value)], [])


_GGUF: list[tuple[bytes, str]] = [
    (b"GGUF", "takes 4 bytes, but 0 are left"),
    (_gguf([], [], version=1), "version 1"),
    (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little-endian"),
    (
        b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0),
        "the name of a tensor at byte 24 takes 8 bytes, but 0",
    ),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "a key at byte 24 takes 8 bytes"),
    (_gguf([_text("a") + struct.pack("<I", 99)], []), "type 99"),
    (_gguf([_text("a") + _DEEP], []), "nested too deep"),
    (_gguf([_array(0, 2**60)], []) + bytes(64), "an array at byte"),
    (_gguf([_array(8, _HUGE)], []), "a string at byte"),
    (_gguf([_text("a") + struct.pack("<IQ", 8, 2**62)], []), "a string at byte"),
    (_gguf([_text("a") + struct.pack("<IB", 0, 1)] * 2, []), "two values"),
    (_gguf([_text(b"\xff") + struct.pack("<IB", 0, 1)], []), "not UTF-8"),
    (_alignment("I", 4, 0), "not a power of 2"),
    (_alignment("I", 4, 48), "not a power of 2"),
    (_alignment("f", 6, 2), "not an integer"),
    (
        _gguf([_text("memdesc.a") + struct.pack("<I", 8) + _text('{"schema": 1}')], []),
        "does not have",
    ),
    (_gguf([], [_info("a", (2**62,) * 4)], bytes(8)), "takes bytes"),
    (_gguf([], [_info("a", (2,))], bytes(7)), "takes bytes"),
    (_gguf([], [_info("a", (2**63,))], bytes(8)), "not a list of at most"),
    (_gguf([], [_info("a", (2,) * 99)], bytes(8)), "not a list of at most"),
    (
        _gguf([], [_text("a") + struct.pack("<I", 2**31)], bytes(64)),
        "dims at byte .* takes 17179869184 bytes",
    ),
    (_gguf([], [_info("a", (33,), 2)], bytes(99)), "do not divide its rows of 33"),
    (_gguf([], [_info("a", (2,), offset=2**63)], bytes(8)), "takes bytes"),
    (_gguf([], [_info("a", (2,)), _info("a", (2,), offset=32)], bytes(40)), "two tensors"),
    (_gguf([], [_info("a", (9,)), _info("b", (2,), offset=32)], bytes(40)), "overlap"),
    (_gguf([], [_info("a", (2,), offset=4)], bytes(16)), "not a multiple of the alignment, 32"),
    (
        _gguf([], [_info("a", (2,), offset=32), _info("b", (2,))], bytes(40)),
        "'a' starts at byte 32 of the data, but the next, 'b', before it",
    ),
    (_gguf([], [_info("a", (2,), 99, offset=2**63)], bytes(8)), "it has no bytes"),
    (_gguf([], [_info("a", (2,), 99)]), "ends there: it has no bytes"),
    (_gguf([], [_info("a", (2,), 99), _info("b", (2,))], bytes(8)), "it has no bytes"),
    (_gguf([], [_info("a", (2,), 99, offset=8)], bytes(16)), "not a multiple"),
    (_gguf([], [_info("a", (2,), 99), _info("b", (2,), offset=64)], bytes(32)), "takes bytes"),
    (_gguf([], [_info("a", (9,)), _info("b", (2,), 99, offset=32)], bytes(64)), "overlap"),
    (_gguf([], [_info("a", (2**62,) * 4, 99)]), "it has no bytes"),
    (_gguf([], [_info("", (2,))], bytes(8)), "the name of a tensor"),
]

_HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n"


def _npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + data


def _changed(old: str, new: str, data: bytes = b"") -> bytes:
    return _npy(_HEADER.replace(old, new), data)


_NPY: list[tuple[bytes, str]] = [
    (b"", "it starts with b'', not with"),
    (b"\1\0", r"it starts with b'\\x01\\x00', not with b'\\x93NUMPY'"),
    (b"hello world, 744 MB?", "it starts with b'hello wo', not with"),
    (b"\x93NUMPX\1\0", "not with b'.x93NUMPY' and version 1 or 2"),
    (_npy(_HEADER, bytes(12), 3), r"x03.x00', not with .* version 1 or 2"),
    (b"\x93NUMPY\1\0", "EOF: reading array header length"),
    (b"\x93NUMPY\1\0\xff\x00{", "EOF: reading array header"),
    (b"\x93NUMPY\2\0\xff\xff\xff\xff{", "4294967295 bytes, more than the 10000 allowed"),
    *(
        (_npy(header), "its header is not one of numpy")
        for header in (
            *("-" * 900, "(" * 900, "{" * 900, "{'descr': " + "[" * 900, "1+" * 400 + "1"),
            *("{1: 2, 'descr': '<f4', 'shape': (3,)}", "{'descr': '<f4', 'shape': (3,)}"),
        )
    ),
    *(
        (_changed(old, new), "its header is not one of numpy")
        for old, new in (
            *(("}", "}}"), ("False", "0"), ("False", "'x'"), ("(3,)", "'3'"), ("(3,)", "(3)")),
            *(("(3,)", "(3 4,)"), ("(3,)", "(,)"), ("(3,)", f"({'9' * 5000},)")),
            *(("<f4", "<f5"), ("<f4", "M8[xx]"), ("'<f4'", "None")),
        )
    ),
    *(
        (_changed("(3,)", shape), "not a list of at most 64 sizes")
        for shape in ("(-3,)", f"({'1,' * 65})", f"({10**20},)", "(True,)")
    ),
    *(
        (_changed(old, new), "not elements of one type")
        for old, new in (
            *(("<f4", "f4,f4"), ("<f4", "(9999999,)f4"), ("<f4", "|S0")),
            ("'<f4'", "[('a', '<f4')]"),
        )
    ),
    (_changed("<f4", "|O"), "Object arrays cannot be loaded when allow_pickle"),
    (_npy(_HEADER, bytes(11)), r"means 12 bytes, float32 of shape \(3,\), but 11 follow"),
    (_npy(_HEADER, bytes(13)), r"1 bytes follow its data, float32 of shape \(3,\)"),
    (_changed("(3,)", f"({_HUGE},)"), f"means {4 * _HUGE} bytes"),
]


def _zip(*members: tuple[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


_F4 = _npy(_HEADER, bytes(12))
_ONE, _TWO = _zip(("a.npy", _F4)), _zip(("a.npy", _F4), ("b.npy", _F4))
# where the list of members says where the second one starts
_AT = _TWO.rindex(b"PK\1\2") + 42
# what the list of members says of the first one: its flags, and the size that it unpacks to
_FLAGS, _UNPACKED = _ONE.index(b"PK\1\2") + 8, _ONE.index(b"PK\1\2") + 24


def _beside(text: bytes) -> bytes:
    return _zip(("a.npy", _F4), ("a.npy.json", text))


_NPZ: list[tuple[bytes, str]] = [
    (_ONE[:50], "damaged one"),
    (_ONE.replace(b"PK\3\4", b"PK\3\5"), "damaged one: Bad magic number"),
    (_ONE.replace(b"NUMPY", b"NUMPX"), "Bad CRC-32"),
    (_zip(("a.npy", _F4.replace(b"NUMPY", b"NUMPX"))), "'a' is not a .npy file"),
    (_zip(("a.npy", _F4.replace(b"(3,)", b"(9,)"))), "its header means 36 bytes.* but 12 follow"),
    (_zip(("a.npy", _changed("(3,)", f"({_HUGE},)"))), f"means {4 * _HUGE}"),
    (_zip(("a.txt", b"")), r"none of its 1 members is a \.npy"),
    (_beside(b"{}"), "'schema'"),
    (_beside(b"\xff"), "damaged one"),
    (_beside(b"1" * 2**21), "more than 1048576"),
    (
        _beside((_RECORD % ('"q4_0"', "[32]")).encode()),
        "'a' has 12 bytes, but its descriptor record_desc.* takes 18",
    ),
    (_TWO[:_AT] + bytes(4) + _TWO[_AT + 4 :], "overlap|differ"),
    (_TWO.replace(b"b.npy", b"a.npy"), "2 members called 'a.npy'"),
    (_ONE[:_FLAGS] + b"\1" + _ONE[_FLAGS + 1 :], "compressed|password"),
    (_ONE[:_UNPACKED] + b"\xff" * 8 + _ONE[_UNPACKED + 8 :], r"x\.npz"),
]


def _model(*initializers: bytes) -> bytes:
    node = message_field(1, message_field(4, b"Relu"))
    return _number(1, 10) + message_field(7, node + b"".join(initializers))


def _raw(nbytes: int) -> bytes:
    return message_field(9, bytes(nbytes))


def _external(**values: object) -> bytes:
    pairs = [message_field(13, pair(key, str(value))) for key, value in values.items()]
    return _initializer("a", 1, (2,), b"".join(pairs) + _number(14, 1))


_ONNX: list[tuple[bytes, str]] = [
    *((data, "no graph") for data in (b"", b"\x08\x01", b"\x09" + bytes(8) + b"\x0d" + bytes(4))),
    (b"\xff" * 20, "does not end"),
    (b"\x3a", "does not end"),
    (b"\x08" + b"\x80" * 10 + b"\1", "does not end within 10 bytes and 64 bits"),
    (b"\x08" + b"\xff" * 9 + b"\2", "does not end within 10 bytes and 64 bits"),
    (message_field(7, message_field(5, message_field(1, b"\x80" * 9))), "does not end"),
    (_number(2**29, 0), "fields have numbers from 1 to 536870911"),
    (b"\x3a\x7f\x00", "ends at byte"),
    (message_field(7, b"\x0a\x14") + message_field(14, bytes(99)), "of a message that ends at 4"),
    (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "ends at byte"),
    (b"\x00\x01", "ends at byte"),
    (b"\x0b", "does not start a field"),
    (message_field(14, message_field(1, b"\xff")), "not UTF-8"),
    (message_field(14, message_field(1, b"a" * 2**21)), "at most 1048576 are read"),
    (_model(_initializer("a", 1, (2,), _raw(9))), "takes 8 bytes, but 9 are stored"),
    (_model(_initializer("a", 1, (2**62, 2**62), _raw(9))), "takes 8507"),
    (_model(_initializer("a", 1, (_HUGE,), _raw(1))), "but 1 are stored"),
    (_model(_initializer("a", 1, (-1,), _raw(8))), "not a list of at most 64 sizes"),
    (_model(_initializer("a", 1, (1,) * 65, _raw(4))), "not a list of at most 64 sizes"),
    (_model(*[_initializer("a", 1, (2,), _raw(8))] * 2), "2 initializers are called 'a'"),
    (_model(_initializer("", 1, (2,), _raw(8))), "the name of a tensor"),
    (_model(_external()), "not the name of a file: None"),
    (_model(_external(location="../w")), "leads out of"),
    (_model(_external(location="/etc/passwd")), "leads out of"),
    (_model(_external(location="out")), "a link out of"),
    (_model(_external(location="no")), "No such file"),
    (_model(_external(location="w", offset=-1)), "offset is not a number"),
    (_model(_external(location="w", offset="1" * 99)), "not a number"),
    (_model(_external(location="w", offset=9)), "w': 'a' takes bytes 9 to 17 of 12"),
    (
        _model(
            _external(location="w"), _external(location="w", offset=4).replace(b"\1a", b"\1b", 1)
        ),
        "overlap",
    ),
]

_TABLE = {"safetensors": _SAFETENSORS, "gguf": _GGUF, "npy": _NPY, "npz": _NPZ, "onnx": _ONNX}
# the most bytes of memory that a damaged file takes, as a multiple of its own and in any case
_TIMES, _ALWAYS = 40, 1 << 22
_MAX_MESSAGE = 400


@pytest.fixture(scope="module", autouse=True)
def _modules_are_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    for ending in _TABLE:
        _refused(tmp_path_factory.mktemp("empty") / f"x.{ending}", b"\x93")


def _refused(path: Path, data: bytes) -> tuple[str, int]:
    """Return why a file is refused, and the most memory that this took."""
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(MemdescError) as caught:
            (reorder.load_all if path.suffix == ".npz" else reorder.open_checkpoint)(path)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return str(caught.value), peak


@pytest.mark.parametrize(
    ("ending", "row"), [(ending, k) for ending, rows in _TABLE.items() for k in range(len(rows))]
)
def test_a_damaged_file_is_refused_with_its_name_and_takes_no_memory(
    tmp_path: Path, ending: str, row: int
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for home in (tmp_path, folder):
        (home / "w").write_bytes(bytes(12))
    (folder / "out").symlink_to("../w")
    data, reason = _TABLE[ending][row]
    said, peak = _refused(folder / f"x.{ending}", data)
    assert said.startswith(repr(str(folder / f"x.{ending}")))
    assert re.search(reason, said), said
    assert len(said.replace(str(folder), "")) < _MAX_MESSAGE
    assert peak <= _ALWAYS + _TIMES * len(data)


# Laws over all containers


def _saved(folder: Path, ending: str) -> bytes:
    path = folder / f"saved.{ending}"
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    if ending == "onnx":
        return _model(_initializer("a", 1, (4, 6), message_field(9, x.tobytes())))
    tensors = {"a": x, "b": x[1]} if ending != "npy" else x
    reorder.save(path.with_suffix(".npz" if ending == "gguf" else f".{ending}"), tensors)
    if ending == "gguf":
        reorder.convert(path.with_suffix(".npz"), path)
    return path.read_bytes()


@pytest.mark.parametrize("ending", _TABLE)
def test_a_file_that_is_cut_anywhere_is_refused(tmp_path: Path, ending: str) -> None:
    whole = _saved(tmp_path, ending)
    path = tmp_path / f"x.{ending}"
    path.write_bytes(whole)
    assert any(tensor.shape == (4, 6) for tensor in reorder.open_checkpoint(path).values())
    # the last tensor of a GGUF may end without padding
    for end in range(0, len(whole) - (32 if ending == "gguf" else 0), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(MemdescError, match=rf"x\.{ending}"):
            reorder.open_checkpoint(path)


@pytest.mark.parametrize("ending", _TABLE)
def test_a_file_with_a_flipped_bit_is_read_or_refused(tmp_path: Path, ending: str) -> None:
    whole = _saved(tmp_path, ending)
    path = tmp_path / f"x.{ending}"
    for at in range(0, len(whole), 7):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            found = reorder.load_all(path, reorder.Memory)
        except MemdescError as error:
            assert f"x.{ending}" in str(error)
            continue
        assert all(each.nbytes <= len(whole) for each in found.values())
        # a .npz has checksums of all of its bytes
        is_equal = all(each.numpy().tobytes() in whole for each in found.values())
        assert is_equal or ending != "npz"


def test_a_shape_beyond_all_memory_is_refused_without_elements_too(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(_changed("(3,)", f"(0, {2**62}, {2**62})"))
    with pytest.raises(MemdescError, match=r"x\.npy"):
        reorder.load(tmp_path / "x.npy")
