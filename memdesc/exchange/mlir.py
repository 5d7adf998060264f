"""MLIR's layouts: `linalg.pack`, affine maps, and memrefs with strides.

A packed tensor and the results of a map are row-major arrays. In `linalg.pack` outer dim k of the
result counts the whole tiles of dim `outer_dims_perm[k]`; the tiles `inner_tiles` of the dims
`inner_dims_pos` follow, outermost first. Sources: LLVM, `mlir/docs/Dialects/Builtin.md` and
`mlir/include/mlir/Dialect/Linalg/IR/LinalgRelayoutOps.td`; IREE 3.13 compiles and runs what is
written here.
"""

from __future__ import annotations

import ast
import re
from contextlib import suppress

from memdesc.desc import MemoryDesc, memory_desc
from memdesc.dtypes import DATA_TYPES, DataType
from memdesc.errors import excerpt
from memdesc.exchange.expressions import linear, outputs_of, parse, tag_of_outputs
from memdesc.exchange.system import (
    MLIR_TYPES,
    Given,
    Impossible,
    System,
    Types,
    Unclear,
    impossible,
    integers,
    strides_of,
    tag_of,
    unclear,
)
from memdesc.tags import FormatTag, tag_of_digits

# the attributes of linalg.pack
_Pack = dict[str, tuple[int, ...]]

# types that are read; si8 is also spelled i8
_SIGNED = {f"si{bits}": DATA_TYPES[f"s{bits}"] for bits in (4, 8, 16, 32, 64)}
_NAMES = Types({**MLIR_TYPES.names, **_SIGNED})

_SHAPE = r"(?P<shape>(?:[0-9?]{1,19}x)*)(?P<type>[a-zA-Z][a-zA-Z0-9]*)"
_STRIDED = r"strided<\[(?P<strides>[^\]]*)\](?:\s*,\s*offset\s*:\s*(?P<offset>[-0-9?]+))?\s*>"
_MAP = r"(?:#\w+\s*=\s*)?affine_map<\s*\((?P<names>[^()]*)\)\s*->\s*\((?P<outputs>.*)\)\s*>"
# where the memory is, which does not change the layout; an attribute may also be a layout
_SPACE = r"(?:[0-9]+(?:\s*:\s*\w+)?|\"\w*\"|#\w+\.(?:address_space|storage_class)<\w+>)"
_MEMREF = rf"memref<\s*{_SHAPE}\s*(?:,\s*(?:{_STRIDED}|{_MAP})\s*)?(?:,\s*{_SPACE}\s*)?>"

_ATTRIBUTES = ("outer_dims_perm", "inner_dims_pos", "inner_tiles")
# as printed, and in the generic form, which has static_inner_tiles
_LIST = r"=\s*(?:\[(?P<list>[^\]]*)\]|array<i64(?::(?P<array>[^>]*))?>)"


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    texts: list[str] = []
    reasons = []
    for form in (_packed, _memref):
        try:
            texts += form(desc)
        except Impossible as refused:
            reasons.append(refused)
    if not texts:
        raise reasons[0]
    return tuple(texts)


def _packed(desc: MemoryDesc) -> tuple[str, ...]:
    """Return a dense layout as attributes, as an operation and as a map."""
    names = [f"d{dim}" for dim in range(desc.ndims)]
    tag = tag_of(desc, "a map has no sizes")
    outputs = ", ".join(outputs_of(tag, desc.dims, names))
    outputs = outputs.replace(" // ", " floordiv ").replace(" % ", " mod ")
    affine_map = f"affine_map<({', '.join(names)}) -> ({outputs})>"
    pack = _pack_of_tag(tag, desc.dims)
    if pack is None:
        return (affine_map,)
    attributes = " ".join(f"{name} = {list(value)}" for name, value in pack.items())
    try:
        type_name = MLIR_TYPES.name_of(desc.dtype)
    except Impossible:
        return attributes, affine_map
    padding = f"padding_value(%zero : {type_name}) " if desc.has_padding else ""
    shapes = desc.dims, _pack_of(pack, desc.dims)[1]
    types = " -> ".join(_tensor(dims, type_name) for dims in shapes)
    operation = f"%packed = linalg.pack %source {padding}{attributes} into %dest : {types}"
    return attributes, operation, affine_map


def _tensor(sizes: tuple[int, ...], type_name: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in sizes)}{type_name}>"


def _memref(desc: MemoryDesc) -> tuple[str, ...]:
    """Return a layout without blocks as a memref, if MLIR has a name for its data type."""
    strides = list(strides_of(desc))
    type_name = MLIR_TYPES.name_of(desc.dtype)
    offset = f", offset: {desc.offset0}" if desc.offset0 else ""
    shape = _tensor(desc.dims, type_name)[:-1].replace("tensor", "memref")
    return (f"{shape}, strided<{strides}{offset}>>",)


def _read(given: Given) -> MemoryDesc:
    text = given.text
    if match := re.fullmatch(_MEMREF, text, re.DOTALL):
        return _read_memref(given, match)
    if match := re.fullmatch(_MAP, text, re.DOTALL):
        dims = given.sizes()
        names, outputs = _map_of(match)
        return memory_desc(dims, given.type(), tag_of_outputs(outputs, names, dims))
    values = _attributes(text)
    if not values:
        if text.startswith("memref"):
            _refuse_unknown(text)
        unclear(
            "it is affine_map<(d0, d1) -> (..)>, memref<2x3xf32, strided<[3, 1]>>, or the "
            "attributes or the operation linalg.pack or linalg.unpack"
        )
    types = _types(text)
    sizes, stated = types[0] if types else (None, None)
    dims, dtype = given.sizes(sizes), given.type(stated)
    tag, packed = _pack_of(values, dims)
    if types and types[1] != (packed, dtype):
        unclear(
            f"the type of the packed tensor must be {_tensor(packed, MLIR_TYPES.name_of(dtype))}"
        )
    return memory_desc(dims, dtype, tag)


def _refuse_unknown(text: str) -> None:
    """Refuse a memref of vectors, or one that an alias describes in part."""
    if re.search(r"x\s*vector\s*<", text):
        impossible("its elements are vectors, which are not a data type here")
    if alias := re.search(r"#\w+(?![\w.<])", text):
        impossible(f"{alias[0]} is defined elsewhere; write what it stands for")


def _types(text: str) -> list[tuple[tuple[int, ...], DataType]]:
    """Return the shapes and types of the unpacked and the packed tensor, if the string has them."""
    types = []
    for tensor_type in re.findall(r"\btensor<([^<>]*)>", text):
        match = re.fullmatch(rf"\s*{_SHAPE}\s*", tensor_type)
        if match is None:
            unclear(f"{excerpt(tensor_type)} is not a shape and type, such as 9x3xf32")
        if "?" in match["shape"]:
            impossible("sizes given as '?' are not known")
        sizes = tuple(map(int, match["shape"].split("x")[:-1]))
        types.append((sizes, _NAMES.named(match["type"])))
    if len(types) == 3 and types[1] == types[2]:  # noqa: PLR2004 - the generic form has two operands
        types.pop()
    if len(types) not in {0, 2}:
        unclear("an operation has two types, such as tensor<9x3xf32> -> tensor<3x3x4xf32>")
    return types[::-1] if re.search(r"\bunpack\b", text) else types


def _read_memref(given: Given, match: re.Match[str]) -> MemoryDesc:
    dtype = given.type(match["type"], _NAMES)
    shape = match["shape"].split("x")[:-1]
    if given.dims is not None and len(given.dims) == len(shape):
        sides = zip(shape, given.dims, strict=True)
        shape = [str(own) if size == "?" else size for size, own in sides]
    dims = given.sizes(None if "?" in shape else tuple(map(int, shape)))
    if match["outputs"] is not None:
        names, outputs = _map_of(match)
        if len(outputs) != 1 or len(names) != len(dims):
            return memory_desc(dims, dtype, tag_of_outputs(outputs, names, dims))
        factors, offset0 = linear(outputs[0], names)
        return memory_desc(dims, dtype, strides=factors, offset0=offset0)
    steps, offset = match["strides"], match["offset"] or "0"
    if "?" in f"{steps}{offset}":
        impossible("numbers given as '?' are not known")
    if not re.fullmatch(r"-?[0-9]{1,19}", offset):
        unclear(f"the offset {offset!r} is not an integer")
    strides = None if steps is None else integers(steps, "-?[0-9]{1,19}")
    return memory_desc(dims, dtype, strides=strides, offset0=int(offset))


def _map_of(match: re.Match[str]) -> tuple[list[str], list[ast.expr]]:
    outputs = re.sub(r"\bfloordiv\b", "//", match["outputs"])
    outputs = re.sub(r"\bmod\b", "%", outputs)
    results = parse(f"[{outputs}]")
    names = [name.strip() for name in match["names"].split(",")]
    return names, results.elts if isinstance(results, ast.List) else []


def _pack_of_tag(tag: FormatTag, dims: tuple[int, ...]) -> _Pack | None:
    """Return the attributes that make a layout; None if a single operation cannot make it."""
    outer = tuple(digit.axis for digit in tag.digits if not digit.extent)
    inner = tag.digits[len(outer) :]
    lists = outer, tuple(digit.axis for digit in inner), tuple(digit.extent for digit in inner)
    pack = dict(zip(_ATTRIBUTES, lists, strict=True))
    with suppress(Unclear):
        if _pack_of(pack, dims)[0] == tag:
            return pack
    return None


def _attributes(text: str) -> _Pack:
    values = {}
    for name in _ATTRIBUTES:
        lists = list(re.finditer(rf"\b(?:static_)?{name}\s*{_LIST}", text))
        if len(lists) > 1:
            unclear(f"it has {name} twice")
        if lists:
            values[name] = integers(lists[0]["list"] or lists[0]["array"] or "")
    return values


def _pack_of(values: _Pack, dims: tuple[int, ...]) -> tuple[FormatTag, tuple[int, ...]]:
    """Return the tag that attributes describe, and the shape of the packed tensor.

    The shape is the number of tiles of each dim, then the tiles. Illegal attributes are refused.
    """
    everyone = tuple(range(len(dims)))
    perm = values.get("outer_dims_perm") or everyone
    positions, sizes = (values.get(name) for name in _ATTRIBUTES[1:])
    if positions is None or sizes is None:
        unclear("inner_dims_pos and inner_tiles must be given together")
    if tuple(sorted(perm)) != everyone:
        unclear(f"outer_dims_perm {list(perm)} are not the dims 0 to {len(dims) - 1}, each once")
    tiles = dict(zip(positions, sizes, strict=False))
    is_each_once = len(tiles) == len(positions) == len(sizes)
    if not is_each_once or not {*tiles} <= {*everyone} or min(sizes, default=1) < 1:
        unclear(
            f"inner_dims_pos {list(positions)} and inner_tiles {list(sizes)} must be dims of 0 to "
            f"{len(dims) - 1}, each once, with a tile of 1 or more for each"
        )
    digits = [((dim,), tiles.get(dim, 1), 0) for dim in perm]
    digits += [((dim,), 1, tile) for dim, tile in tiles.items()]
    shape = (*(-(-dims[dim] // tiles.get(dim, 1)) for dim in perm), *sizes)
    return tag_of_digits(digits), shape


_SPELLING = (
    r"\s*(?:memref\s*<|tensor<[0-9?]|affine_map\s*<|#\w+\s*=).*|.*(?:inner_tiles\b|\blinalg\.).*"
)

SYSTEM = System("mlir", "MLIR", _write, _read, _SPELLING)
