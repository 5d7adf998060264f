"""Generated sources against the layouts that they were made from."""

import ctypes
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memdesc import MemoryDesc, memory_desc
from tests.compiled import COMPILERS, address, compile_library, run_python
from tests.indices import index_at
from tests.oracles import offsets
from tests.strategies import descs, swizzled_descs

_MANY = st.lists(descs(max_nelems=384), min_size=3, max_size=12)


def _indices(desc: MemoryDesc) -> list[tuple[int, ...]]:
    return list(product(*map(range, desc.dims)))


def _row_major(desc: MemoryDesc, fill: int) -> tuple[list[int], list[int], list[int]]:
    """Return an array of the dims, memory before it is filled, and after it."""
    values = [k % 15 + 1 for k in range(desc.nelems)]
    before = [fill] * desc.dtype.nbytes(desc.layout.last + 1)
    if desc.dtype.is_packed:
        wanted = [nibble for byte in before for nibble in (byte & 15, byte >> 4)]
    else:
        wanted = [fill] * (desc.layout.last + 1)
    if desc.nelems:
        for at in offsets(desc).values():
            wanted[at] = 0
    for value, index in zip(values, _indices(desc), strict=True):
        wanted[desc.offset(index)] = value
    return values, before, wanted


@example(memory_desc((0, 5), "f32", strides=(0, 0)))
@given(descs(max_nelems=384) | swizzled_descs())
def test_a_source_in_python_is_the_layout(desc: MemoryDesc) -> None:
    names = run_python(desc.source("python"))
    for index in _indices(desc)[:64]:
        assert names["tensor_offset"](*index) == desc.offset(index)
    if "tensor_index" in names:
        for at in range(-2, min(desc.layout.last, 100) + 3):
            assert names["tensor_index"](at) == (index_at(desc.layout, at) if desc.nelems else None)
    if desc.has_broadcast:
        assert "tensor_fill" not in names
    elif not desc.dtype.is_packed:
        values, _, wanted = _row_major(desc, 77)
        found = [77] * len(wanted)
        names["tensor_fill"](values, found)
        assert found == wanted


def check(descs_: list[MemoryDesc], compiler: tuple[str, str]) -> None:
    """Compile the sources of descriptors as one, and compare each with its layout."""
    lang = compiler[1]
    source = "\n".join(desc.source(lang, f"t{k}") for k, desc in enumerate(descs_))
    if lang == "c++":
        # functions that compute are constexpr, and have no symbol
        source += "".join(_exports(desc, k) for k, desc in enumerate(descs_))
    with tempfile.TemporaryDirectory() as folder:
        library = compile_library(source, Path(folder), compiler)
        for k, desc in enumerate(descs_):
            _check_one(library, desc, f"{'x' if lang == 'c++' else 't'}{k}", source)


def _exports(desc: MemoryDesc, k: int) -> str:
    letters = "abcdefghijkl"[: desc.ndims]
    text = f'extern "C" std::int64_t x{k}_offset('
    text += ", ".join(f"std::int64_t {letter}" for letter in letters)
    text += f") {{ return t{k}_offset({', '.join(letters)}); }}\n"
    if f" t{k}_index(" in desc.source("c", f"t{k}"):
        text += f'extern "C" int x{k}_index(std::int64_t at, std::int64_t *index) '
        text += f"{{ return t{k}_index(at, index); }}\n"
    if not desc.has_broadcast:
        text += f'extern "C" void x{k}_fill(const void *src, void *dst) {{ '
        kind = desc.source("c++", f"t{k}").partition(f"t{k}_fill(const ")[2].partition(" *")[0]
        text += f"t{k}_fill(static_cast<const {kind} *>(src), static_cast<{kind} *>(dst)); }}\n"
    return text


def _check_one(library: ctypes.CDLL, desc: MemoryDesc, name: str, source: str) -> None:
    offset = getattr(library, f"{name}_offset")
    offset.restype, offset.argtypes = ctypes.c_int64, [ctypes.c_int64] * desc.ndims
    for index in _indices(desc)[:64]:
        assert offset(*index) == desc.offset(index), source
    if hasattr(library, f"{name}_index"):
        inverse = getattr(library, f"{name}_index")
        found = (ctypes.c_int64 * desc.ndims)()
        for at in range(-2, min(desc.layout.last, 60) + 3):
            wanted = index_at(desc.layout, at) if desc.nelems else None
            status = inverse(ctypes.c_int64(at), found)
            if wanted is None:
                assert status == -1
            else:
                assert tuple(found) == wanted
                inside = all(i < size for i, size in zip(wanted, desc.dims, strict=True))
                assert status == inside
    if not desc.has_broadcast:
        values, before, wanted_elements = _row_major(desc, 0xA5)
        unit = desc.dtype.bits_dtype
        if desc.dtype.is_packed:
            src = np.array([*values, 0, 0], np.uint8)
            src = src[: len(src) // 2 * 2]
            src = (src[0::2] | src[1::2] << 4).astype(np.uint8)
            dst = np.array(before, np.uint8)
        else:
            src = np.array(values, unit)
            dst = np.full(len(wanted_elements), 0xA5, unit)
        getattr(library, f"{name}_fill")(address(src), address(dst))
        moved = np.stack([dst & 15, dst >> 4], axis=1).reshape(-1) if desc.dtype.is_packed else dst
        assert moved.tolist() == wanted_elements, source


@settings(max_examples=settings().max_examples // 13)
@given(_MANY)
@pytest.mark.parametrize("compiler", COMPILERS, ids="-".join)
def test_a_compiled_source_is_the_layout(
    compiler: tuple[str, str], descs_: list[MemoryDesc]
) -> None:
    check(descs_, compiler)
