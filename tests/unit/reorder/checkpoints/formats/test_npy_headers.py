from __future__ import annotations

import io
import struct
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memdesc import MemdescError
from reorder import load
from reorder.checkpoints.formats.npy import header_of, read_data, read_header

if TYPE_CHECKING:
    from pathlib import Path


def _bytes(header: str, data: bytes = b"", version: int = 1) -> bytes:
    text = header.encode("utf-8" if version == 3 else "latin1")
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def _read(whole: bytes) -> np.ndarray[Any, Any]:
    file = io.BytesIO(whole)
    header = read_header(file)
    data = read_data(file, header, len(whole))
    return np.ndarray(header.shape, header.dtype, data, order="F" if header.is_fortran else "C")


_ARRAYS = [
    np.zeros((), np.float64),
    np.arange(3, dtype=np.int8),
    np.arange(6, dtype=">f4").reshape(2, 3),
    np.asfortranarray(np.arange(24, dtype=np.uint16).reshape(2, 3, 4)),
    np.zeros((0, 5), np.float16),
    np.ones((1,) * 20, np.bool_),
    np.array(["a", "bcd"]),
    np.array([b"a", b"bcd"]),
    np.zeros(3, "M8[ns]"),
    np.zeros(3, "m8"),
    np.zeros(3, "V5"),
    np.zeros(3, np.complex64),
    np.zeros(2, np.longdouble),
]


@pytest.mark.parametrize("array", _ARRAYS, ids=lambda x: f"{x.dtype.str}{x.shape}")
def test_what_numpy_writes_is_read_as_numpy_reads_it(array: np.ndarray[Any, Any]) -> None:
    for version in ((1, 0), (2, 0), (3, 0)):
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy says which of its versions read these
            np.lib.format.write_array(file, array, version)
        found = _read(file.getvalue())
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert found.flags.f_contiguous == array.flags.f_contiguous
        assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("array", _ARRAYS[:6], ids=lambda x: f"{x.dtype.str}{x.shape}")
def test_headers_are_those_that_numpy_writes(array: np.ndarray[Any, Any]) -> None:
    file = io.BytesIO()
    np.save(file, array)
    header = header_of(array.dtype, array.shape, is_fortran=array.flags.fnc)
    assert file.getvalue() == header.raw + array.tobytes("A")
    assert read_header(io.BytesIO(header.raw)) == header


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }\n",
        """ {"shape":(2,3),"descr":"<f4","fortran_order":False}""",
        "{'shape': (2, 3,), 'fortran_order': False, 'descr': 'f4'}  \n",
    ],
)
def test_headers_as_other_programs_write_them_are_read(header: str) -> None:
    assert _read(_bytes(header, bytes(24))).shape == (2, 3)


_GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n"


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        (b"", "it starts with b''"),
        (b"\x93NUMPX\1\0", "it starts with"),
        (b"\x93NUMPY\4\0", "version"),
        (b"\x93NUMPY\1\0", "ends within its header"),
        (b"\x93NUMPY\1\0\xff\x00{", "ends within its header"),
        (b"\x93NUMPY\2\0\xff\xff\xff\xff{", "4294967295 bytes, more than the 10000 allowed"),
        (b"\x93NUMPY\3\0\1\0\0\0\xff", "not UTF-8"),
        (_bytes("-" * 9000), "its header is not"),
        (_bytes("(" * 9000), "its header is not"),
        (_bytes("{" * 9000), "its header is not"),
        (_bytes("{'descr': " + "[" * 9000), "it holds records"),
        (_bytes("{1: 2, 'descr': '<f4', 'shape': (3,)}"), "its header is not"),
        (_bytes("{'descr': '<f4', 'shape': (3,)}"), "its header is not"),
        (_bytes(_GOOD.replace("'shape'", "'descr': '<f4', 'shape'")), "its header is not"),
        (_bytes(_GOOD.replace("}", "}}")), "its header is not"),
        (_bytes(_GOOD.replace("False", "0")), "its header is not"),
        (_bytes(_GOOD.replace("False", "'x'")), "neither True nor False"),
        (_bytes(_GOOD.replace("(3,)", "'3'")), "gives no shape"),
        (_bytes(_GOOD.replace("(3,)", "(3)")), "gives no shape"),
        (_bytes(_GOOD.replace("(3,)", "(-3,)")), "its header is not"),
        (_bytes(_GOOD.replace("(3,)", "(3 4,)")), "gives no shape"),
        (_bytes(_GOOD.replace("(3,)", "(,)")), "gives no shape"),
        (_bytes(_GOOD.replace("(3,)", f"({'1,' * 65})")), "gives no shape"),
        (_bytes(_GOOD.replace("(3,)", f"({'9' * 5000},)")), "gives no shape"),
        (_bytes(_GOOD.replace("<f4", "<f5")), "names no data type"),
        (_bytes(_GOOD.replace("<f4", "f4,f4")), "names no data type"),
        (_bytes(_GOOD.replace("<f4", "(9999999,)f4")), "names no data type"),
        (_bytes(_GOOD.replace("<f4", "|S0")), "names no data type"),
        (_bytes(_GOOD.replace("<f4", "M8[xx]")), "names no data type"),
        (_bytes(_GOOD.replace("<f4", "|O")), "Object arrays cannot be loaded when allow_pickle"),
        (_bytes(_GOOD.replace("'<f4'", "[('a', '<f4')]")), "it holds records"),
        (_bytes(_GOOD, bytes(11)), r"means 12 bytes, float32 of shape \(3,\), but 11 follow"),
        (_bytes(_GOOD.replace("3", "1" + "0" * 20)), "means 400000000000000000000 bytes"),
        (_bytes(_GOOD.replace("(3,)", "(1099511627776,)")), "means 4398046511104 bytes"),
        (_bytes(_GOOD.replace("(3,)", f"(0, {2**62}, 2**62)")), "its header is not"),
    ],
    ids=lambda x: ascii(x)[:40],
)
def test_a_damaged_or_hostile_file_is_refused_before_memory_is_taken(
    tmp_path: Path, whole: bytes, reason: str
) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(whole)
    with pytest.raises(MemdescError, match=reason) as caught:
        load(path)
    assert len(str(caught.value).removeprefix(repr(str(path)))) < 300


def test_a_file_that_ends_while_it_is_read_is_refused() -> None:
    whole = _bytes(_GOOD, bytes(8))
    file = io.BytesIO(whole)
    header = read_header(file)
    with pytest.raises(MemdescError, match="it ended after 8 of 12 bytes"):
        read_data(file, header, len(whole) + 4)


def test_a_shape_beyond_all_memory_is_refused_without_elements_too(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(_bytes(_GOOD.replace("(3,)", f"(0, {2**62}, {2**62})")))
    with pytest.raises(MemdescError, match=r"x\.npy"):
        load(path)
