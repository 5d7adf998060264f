"""XLA's shapes with layouts, `bf16[64,32]{1,0:T(8,128)(2,1)}`.

`{1,0}` lists dims from the most minor one. A tile `T(t1,..,tn)` replaces the last n physical dims
d by ceil(d / t), and adds n dims of sizes t behind them; a further tile divides the last dims of
the result. In a tile, `*` joins a dim with the next more minor one. Sources: OpenXLA,
`docs/tiled_layout.md` and `xla/layout.h`; jaxlib 0.8 parses and prints the same strings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memdesc.create import memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import UnsupportedFormatError, excerpt, short_repr
from memdesc.exchange.system import System, not_understood, tag_of
from memdesc.exchange.tiles import NAME, PhysicalDim, check_tag, tag_of_dims, tiled, tiles_of

if TYPE_CHECKING:
    from memdesc.desc import MemoryDesc
    from memdesc.dtypes import DataType
    from memdesc.exchange.system import Given

__all__ = ["SYSTEM"]

# data type -> XLA's name, where it is another one (xla_data.proto)
_TYPES = {
    "f8_e5m2": "f8e5m2",
    "f8_e4m3": "f8e4m3fn",
    "f8_e5m2fnuz": "f8e5m2fnuz",
    "f8_e4m3fnuz": "f8e4m3fnuz",
    "e8m0": "f8e8m0fnu",
    "f4_e2m1": "f4e2m1fn",
    "boolean": "pred",
}
_XLA_TYPES = {_TYPES.get(name, name): dtype for name, dtype in DATA_TYPES.items()}

_SHAPE = r"\s*(?P<type>[a-z][a-z0-9]*)\[(?P<dims>[^\]]*)\]\s*(?:\{(?P<layout>.*)\})?\s*"
_INTS = r"\s*[0-9]{1,18}\s*(?:,\s*[0-9]{1,18}\s*)*"
_SUFFIX = r"\s*(?P<kind>SC|[DTL#*ESPM])(?P<groups>(?:\s*\((?:[^()]|\([^()]*\))*\))+)"

# suffix -> why a shape that has it is no descriptor
_REFUSED = {
    "D": "dim level types (D) other than dense are of sparse arrays",
    "#": "an index type (#) is of sparse arrays",
    "*": "a pointer type (*) is of sparse arrays",
    "P": "a physical shape (P) is of sparse arrays",
    "SC": "a split configuration (SC) spreads the array over several memories",
}


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    tag = tag_of(NAME, desc)
    check_tag(desc, tag)
    outer = [digit.axis for digit in tag.digits if not digit.extent]
    minor_to_major = [dim for axis in reversed(outer) for dim in reversed(tag.axes[axis])]
    tiles = "".join(f"({','.join(tile)})" for tile in tiles_of(desc, tag, outer))
    suffix = f"T{tiles}" if tiles else ""
    suffix += f"E({desc.dtype.bits})" if desc.dtype.is_packed else ""
    kind = _TYPES.get(desc.dtype.name, desc.dtype.name)
    sizes, order = (",".join(map(str, values)) for values in (desc.dims, minor_to_major))
    return (f"{kind}[{sizes}]{{{order}{':' if suffix else ''}{suffix}}}",)


def _read(given: Given) -> MemoryDesc:
    text = given.text
    match = re.fullmatch(_SHAPE, text)
    if match is None:
        example = "f32[2,17,5,4]{3,2,1,0:T(16,1,1)}"
        raise not_understood(NAME, text, f"it is one array shape, such as {example}")
    dtype = _type(text, match["type"])
    dims = given.sizes(_sizes(text, match["dims"]))
    order, _, suffixes = (match["layout"] or "").partition(":")
    physical = list(range(len(dims)))
    if match["layout"] is not None:
        minor_to_major = _ints(text, order) if order.strip() else ()
        if sorted(minor_to_major) != physical:
            reason = f"{{{order}}} is no order of dims 0 to {len(dims) - 1}, the most minor first"
            raise not_understood(NAME, text, reason)
        physical = list(reversed(minor_to_major))
    found = [PhysicalDim((dim,), 1, dims[dim], is_outer=True) for dim in physical]
    tail, bits = 1, 0
    for kind, groups in _suffixes(text, suffixes):
        if kind == "T":
            for tile in groups:
                found = tiled(text, found, tile.split(","))
        elif kind == "L":
            tail = _one(text, groups)
        elif kind == "E":
            bits = _one(text, groups)
        else:
            _check_suffix(text, kind, groups)
    _check_bits(text, dtype, bits)
    desc = memory_desc(dims, given.type(dtype), tag_of_dims(found))
    if tail > 1 and desc.padded_nelems % tail:
        msg = (
            f"{short_repr(text)} cannot be described: L({tail}) pads the whole buffer of "
            f"{desc.padded_nelems} elements behind its end"
        )
        raise UnsupportedFormatError(msg)
    return desc


def _type(text: str, name: str) -> DataType:
    if name not in _XLA_TYPES:
        msg = (
            f"{short_repr(text)} has the type {short_repr(name)}; the types that can be described "
            f"are {', '.join(_XLA_TYPES)}"
        )
        raise UnsupportedFormatError(msg)
    return _XLA_TYPES[name]


def _sizes(text: str, part: str) -> tuple[int, ...]:
    if "<=" in part or "?" in part:
        msg = f"{short_repr(text)} cannot be described: the sizes of dynamic dims are not known"
        raise UnsupportedFormatError(msg)
    if not part.strip():
        msg = f"{short_repr(text)} cannot be described: a scalar has no dims, a descriptor 1 to 12"
        raise UnsupportedFormatError(msg)
    return _ints(text, part)


def _ints(text: str, part: str) -> tuple[int, ...]:
    if not re.fullmatch(_INTS, part):
        raise not_understood(NAME, text, f"expected integers and commas, found {excerpt(part)}")
    return tuple(map(int, part.split(",")))


def _suffixes(text: str, part: str) -> list[tuple[str, list[str]]]:
    """Split what follows the order of dims: each suffix with the insides of its parentheses."""
    found: list[tuple[str, list[str]]] = []
    at = 0
    part = part.rstrip()
    while at < len(part):
        match = re.compile(_SUFFIX).match(part, at)
        if match is None:
            raise not_understood(NAME, text, f"expected a suffix, found {excerpt(part[at:])}")
        groups = re.findall(r"\(((?:[^()]|\([^()]*\))*)\)", match["groups"])
        if len(groups) > 1 and match["kind"] != "T":
            raise not_understood(NAME, text, f"suffix {match['kind']} has several values")
        if match["kind"] in dict(found):
            raise not_understood(NAME, text, f"it has suffix {match['kind']} twice")
        found.append((match["kind"], groups))
        at = match.end()
    return found


def _one(text: str, groups: list[str]) -> int:
    values = _ints(text, groups[0])
    if len(values) > 1:
        raise not_understood(NAME, text, f"expected one integer, found {excerpt(groups[0])}")
    return values[0]


def _check_suffix(text: str, kind: str, groups: list[str]) -> None:
    """Refuse suffixes that are no layout; a memory space (S) says where, not how, data lie."""
    if kind in {"S", "M"}:
        value = _one(text, groups)
        if kind == "M" and value:
            msg = (
                f"{short_repr(text)} cannot be described: {value} bytes of metadata (M) lie in "
                "front of the elements"
            )
            raise UnsupportedFormatError(msg)
        return
    if kind == "D" and set(groups[0].replace(" ", "").split(",")) == {"D"}:
        return
    msg = f"{short_repr(text)} cannot be described: {_REFUSED[kind]}"
    raise UnsupportedFormatError(msg)


def _check_bits(text: str, dtype: DataType, bits: int) -> None:
    """Refuse elements that are stored in another width; without E, 4-bit ones take a byte each."""
    stored = bits or max(dtype.bits, 8)
    if stored != dtype.bits:
        hint = "; packed ones have E(4)" if dtype.is_packed else ""
        msg = (
            f"{short_repr(text)} cannot be described: its elements of {dtype.bits} bits are stored "
            f"in {stored} bits each{hint}"
        )
        raise UnsupportedFormatError(msg)


SYSTEM = System("xla", "XLA's shapes with layouts", _write, _read)
