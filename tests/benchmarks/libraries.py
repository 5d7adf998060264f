"""Other libraries as peers: oneDNN, and HPTT, which only permutes dense tensors."""

import ctypes
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memdesc import MemdescError, MemoryDesc
from reorder import Attr
from reorder.bench.cases import Case
from reorder.bench.peers import Buffers, MakePeer, Peer, known_peers
from reorder.logs.reorders import is_generated
from tests.differential.libdnnl import (
    DATA_TYPES,
    Desc,
    DnnlError,
    Library,
    Parameters,
    Primitive,
    find_libraries,
)
from tests.tables import ONEDNN_CANONICAL

# What HPTT's C++ functions are called in a library: they make a plan, and execute it.
_CREATE = "_ZN4hptt11create_planEPKii{0}PK{0}S1_S1_{0}P{0}S1_NS_15SelectionMethodEiS1_b"
_EXECUTE = "_ZN4hptt9TransposeI{0}E7executeEv"
# The types of HPTT by the bits of an element.
_HPTT = {32: ("f", ctypes.c_float), 64: ("d", ctypes.c_double)}


def all_peers(libraries: Iterable[str] = ()) -> dict[str, "MakePeer | None"]:
    """Return all peers by name, those of `memdesc bench` too; None for those not installed.

    `libraries` are files of libraries that contain HPTT, as the package `cytnx` does.
    """
    cytnx = cytnx_library()
    return {
        **known_peers(),
        **{f"onednn {each}": partial(onednn_peer, version=each) for each in find_libraries()},
        "cytnx": partial(hptt_peer, path=cytnx) if cytnx else None,
        **{_stem(path): partial(hptt_peer, path=path) for path in libraries},
    }


@cache
def _onednn(version: str) -> Library | None:
    """Return one oneDNN, None if it has no CPU engine."""
    with suppress(OSError, DnnlError):
        library = Library(find_libraries()[version])
        if library.stream:
            return library
    return None


def onednn_peer(case: Case, buffers: Buffers, _threads: int, version: str) -> Peer | None:
    """Return the reorder of one oneDNN; its name says whether the code is generated."""
    library = _onednn(version)
    if library is None:
        return None
    src, dst = (_theirs(library, desc) for desc in (case.src, case.dst))
    if src is None or dst is None:
        return None
    try:
        primitive = Primitive(library, (src, dst), buffers, _parameters(case.attr))
        kind = "generated" if is_generated(primitive.implementation) else "reference"
    except DnnlError:
        return None
    return Peer(f"onednn {version} {kind}", primitive, owner=primitive, spins=True)


def _theirs(library: Library, desc: MemoryDesc) -> Desc | None:
    """Return a descriptor of oneDNN's; None if it has no such tag or dtype."""
    dtype = desc.dtype.name
    if dtype not in DATA_TYPES:
        return None
    if len(desc.blocks) == desc.ndims:
        made = library.by_strides(desc.dims, dtype, desc.strides)
    else:
        tags = ONEDNN_CANONICAL
        tag = next((tags.index(name.text) for name in desc.names() if name.text in tags), None)
        if tag is None:
            return None
        made = library.by_tag(desc.dims, dtype, tag + 2)
    return made if isinstance(made, Desc) else None


def _parameters(attr: Attr | None) -> Parameters | None:
    if attr is None:
        return None
    given: dict[str, Any] = {
        each.role: (
            each.values.reshape(-1).astype(np.int32 if "zero" in each.role else np.float32),
            each.mask,
        )
        for each in attr.parameters
    }
    return Parameters(**given, beta=attr.beta)


class Permutation(NamedTuple):
    """A permutation of a dense tensor: extents in the order of src, and their order in dst."""

    extents: tuple[int, ...]
    order: tuple[int, ...]


def dense_permutation(case: Case) -> Permutation | None:
    """Return the permutation that a case is, outermost dim first; None if it is something else."""
    src, dst = case.src, case.dst
    if src.dtype != dst.dtype or src.dtype.is_packed or case.attr is not None:
        return None
    if not (_is_dense(src) and _is_dense(dst)):
        return None
    from_src, from_dst = _dims_by_stride(src), _dims_by_stride(dst)
    return Permutation(
        tuple(src.dims[dim] for dim in from_src), tuple(from_src.index(dim) for dim in from_dst)
    )


def _is_dense(desc: MemoryDesc) -> bool:
    """Whether elements lie without gaps and in the order of dims, from the first byte on."""
    size = 1
    for dim in reversed(_dims_by_stride(desc)):
        if desc.dims[dim] > 1 and desc.strides[dim] != size:
            return False
        size *= desc.dims[dim]
    return not desc.inner_blks and not desc.offset0 and not desc.has_padding


def _dims_by_stride(desc: MemoryDesc) -> list[int]:
    """Return the dims, those of the largest stride first; a dim of extent 1 is outermost."""
    keys = [desc.strides[dim] if desc.dims[dim] > 1 else 1 << 63 for dim in range(desc.ndims)]
    return sorted(range(desc.ndims), key=lambda dim: (-keys[dim], dim))


def cytnx_library() -> str | None:
    """Return the library of the package `cytnx`, which is not imported; None if not installed."""
    spec = find_spec("cytnx")
    folders = (spec and spec.submodule_search_locations) or ()
    return next((str(path) for each in folders for path in Path(each).glob("cytnx.*.so")), None)


def open_library(path: str) -> ctypes.CDLL:
    """Load a library that contains HPTT.

    Raises
    ------
    MemdescError
        If it cannot be loaded, or lacks HPTT's functions.
    """
    try:
        library = ctypes.CDLL(str(Path(path).resolve()))
        for letter, _ in _HPTT.values():
            _functions(library, letter)
    except (OSError, AttributeError) as error:
        msg = f"{path!r} is not a library with HPTT's hptt::create_plan: {error}"
        raise MemdescError(msg) from None
    return library


def _functions(library: ctypes.CDLL, letter: str) -> tuple[Any, Any]:
    """Return the functions of a type that make a plan and execute it."""
    return library[_CREATE.format(letter)], library[_EXECUTE.format(letter)]


def hptt_peer(case: Case, buffers: Buffers, threads: int, path: str) -> Peer | None:
    """Return HPTT's default plan, made beforehand, named after the file of the library."""
    moved = dense_permutation(case)
    bits = case.src.dtype.bits
    if moved is None or bits not in _HPTT:
        return None
    letter, number = _HPTT[bits]
    create, execute = _functions(open_library(path), letter)
    address, integer = ctypes.c_void_p, ctypes.c_int
    create.argtypes = [address, address, integer, number, address, address, address, number]
    create.argtypes += [address, address, integer, integer, address, ctypes.c_bool]
    execute.argtypes, execute.restype = [address], None
    integers = integer * len(moved.order)
    order, extents = integers(*moved.order), integers(*moved.extents)
    src, dst = (buffer.ctypes.data for buffer in buffers)
    # a shared_ptr, which is never released: the plan, and who counts its owners
    plan = (address * 2)()
    # src is multiplied by 1, dst by 0; the method is ESTIMATE, and dims are in row-major order
    create(
        *(plan, order, len(order), 1.0, src, extents, None),
        *(0.0, dst, None, 0, threads, None, True),
    )
    return Peer(
        _stem(path), lambda: execute(plan[0]), owner=(plan, order, extents, buffers), spins=True
    )


def _stem(path: str) -> str:
    return Path(path).name.partition(".")[0].removeprefix("lib")
