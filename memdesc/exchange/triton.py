"""Triton's layouts in shared memory: reprs of Gluon, attributes of TTGIR, and `!ttg.memdesc<...>`.

All of them are linear over bits: each bit of an index adds, by XOR, some bits of the offset. So a
layout is read as these *columns*, of which each gets a bit of the offset as its digit, and the rest
become XOR terms. Sizes are powers of two. Source: Triton 3.9, Gluon's `language/_layouts.py` and
what `to_linear_layout` returns.
"""

from __future__ import annotations

import ast
import re
from itertools import chain, pairwise, permutations, product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc.desc import MemoryDesc, desc_of
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError, short_repr
from memdesc.exchange.system import (
    MLIR_TYPES,
    Given,
    System,
    indescribable,
    inexpressible,
    type_named,
    unclear,
)
from memdesc.layout import Block, Layout, single_axes
from memdesc.swizzle import Terms, exact_terms, swizzled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    # for each dim, the offset of each bit of its index
    Columns = list[list[int]]

# The parameters of each class, in order, with their defaults; TTGIR's names follow.
_REQUIRED = object()
_CLASSES: dict[str, dict[str, Any]] = {
    "SwizzledSharedLayout": dict.fromkeys(("vec", "per_phase", "max_phase", "order"), _REQUIRED)
    | {"cga_layout": []},
    "NVMMASharedLayout": {
        "swizzle_byte_width": _REQUIRED,
        "element_bitwidth": _REQUIRED,
        "rank": None,
        "transposed": False,
        "fp4_padded": False,
        "cga_layout": [],
    },
    "SharedLinearLayout": {"offset_bases": _REQUIRED, "block_bases": [], "alignment": 16},
    "PaddedSharedLayout": {
        "interval_padding_pairs": _REQUIRED,
        "offset_bases": None,
        "cga_layout": [],
        "shape": _REQUIRED,
        "order": None,
    },
}
_ATTRIBUTES = {
    "swizzled_shared": "SwizzledSharedLayout",
    "nvmma_shared": "NVMMASharedLayout",
    "shared_linear": "SharedLinearLayout",
    "padded_shared": "PaddedSharedLayout",
}
_KEYS = {
    "perPhase": "per_phase",
    "maxPhase": "max_phase",
    "swizzlingByteWidth": "swizzle_byte_width",
    "elementBitWidth": "element_bitwidth",
    "fp4Padded": "fp4_padded",
    "CGALayout": "cga_layout",
    "offset": "offset_bases",
    "block": "block_bases",
}
_REGISTERS = (
    "AutoLayout|BlockedLayout|SliceLayout|DistributedLinearLayout|DotOperandLayout|"
    r"NVMMADistributedLayout|AMD\w+Layout|ttg\.(?:blocked|linear|slice|dot_op|nvidia_mma|amd_\w*mma)\b"
)
# the names of MLIR, and ours
_TYPES = {**DATA_TYPES, **MLIR_TYPES}
# the least rows of NVMMA's tiles, and TMA's limit on a size, beyond which tiles of it count
_ROWS, _BOX = 8, 256
_MATRIX = 2


class _Request(NamedTuple):
    """A layout's class and parameters, and the tensor of a `!ttg.memdesc`."""

    name: str
    values: dict[str, Any]
    dims: tuple[int, ...] | None = None
    kind: str | None = None


def _read(given: Given) -> MemoryDesc:
    text = given.text.strip()
    if found := re.search(_REGISTERS, text):
        indescribable(f"{found[0]} maps registers, lanes and warps to indices; it has no addresses")
    if "amd_rotating_shared" in text:
        indescribable("the formula of amd_rotating_shared is not confirmed")
    request = _request(text)
    for key in ("cga_layout", "block_bases"):
        if request.values.get(key):
            indescribable(
                f"{key} {request.values[key]} spreads it over the memories of several blocks"
            )
    dtype = given.type(type_named(request.kind, _TYPES) if request.kind else None)
    dims = given.sizes(request.dims or _shape_of(request), has_type=request.kind is not None)
    if any(size < 1 or size & (size - 1) for size in dims):
        indescribable(f"Triton's sizes are powers of two, and dims are {dims}")
    bits = request.values.get("element_bitwidth", dtype.bits)
    if bits != dtype.bits:
        indescribable(f"its elements have {bits} bits, and {dtype} has {dtype.bits}; give dtype")
    try:
        return desc_of(dtype, _READERS[request.name](dims, request.values))
    except (ValueError, TypeError, IndexError) as error:
        indescribable(str(error))


def _request(text: str) -> _Request:
    """Read a class or an attribute with its parameters."""
    tensor = re.fullmatch(r"!ttg\.memdesc<((?:\d+x)+)(\w+),\s*(#.*?>)\s*(?:,\s*[#\w.]+\s*)*>", text)
    if tensor:
        dims = tuple(map(int, tensor[1][:-1].split("x")))
        return _request(tensor[3])._replace(dims=dims, kind=tensor[2])
    call = re.fullmatch(r"(?:\w+\.)*(\w+Layout)\((.*)\)", text, re.DOTALL)
    name, arguments = (call[1], call[2]) if call else ("", "")
    if attribute := re.fullmatch(r"#ttg\.(\w+)<(.*)>", text, re.DOTALL):
        name, arguments = _ATTRIBUTES.get(attribute[1], attribute[1]), attribute[2]
        arguments = re.sub(r"(\d+)\s*:\s*\+\s*(\d+)", r"[\1,\2]", arguments)
        arguments = re.sub(r"\]\s*\{", "], ", arguments).replace("{", "").replace("}", "")
        arguments = re.sub(r"\b(true|false)\b", lambda found: found[0].title(), arguments)
    if name not in _CLASSES:
        known = ", ".join([*_CLASSES, *(f"#ttg.{each}<..>" for each in _ATTRIBUTES)])
        unclear(f"the layouts in shared memory are {known}")
    try:
        node = ast.parse(f"f({arguments})", mode="eval").body
        assert isinstance(node, ast.Call)  # noqa: S101 - f(..) is one
        values = dict(zip(_CLASSES[name], map(ast.literal_eval, node.args), strict=False))
        values |= {
            _KEYS.get(each.arg or "", each.arg or ""): ast.literal_eval(each.value)
            for each in node.keywords
        }
    except (SyntaxError, ValueError, MemoryError):
        unclear("its parameters are numbers and lists of these")
    parameters = _CLASSES[name]
    missing = [key for key, value in parameters.items() if value is _REQUIRED and key not in values]
    if missing or not {*values} <= {*parameters}:
        unclear(f"{missing} are missing" if missing else f"its parameters are {[*parameters]}")
    return _Request(name, parameters | values)


def _shape_of(request: _Request) -> tuple[int, ...] | None:
    """Return the sizes that a layout's own parameters give."""
    values = request.values
    if values.get("shape"):
        return tuple(values["shape"])
    if request.name == "SharedLinearLayout" and values["offset_bases"]:
        return tuple(
            1 << max(each).bit_length() for each in zip(*values["offset_bases"], strict=True)
        )
    return None


def _lg(number: int) -> int:
    if type(number) is not int or number < 1 or number & (number - 1):
        raise ValueError(f"{short_repr(number)} must be a power of two")
    return number.bit_length() - 1


def _row_major(dims: tuple[int, ...], order: Sequence[int]) -> Columns:
    """Return the columns of a dense layout; `order` has the fastest dim first."""
    if sorted(order) != list(range(len(dims))):
        raise ValueError(
            f"order {short_repr(order)} must have each of the dims 0 to {len(dims) - 1} once"
        )
    columns: Columns = [[] for _ in dims]
    at = 0
    for dim in order:
        columns[dim] = [1 << at + bit for bit in range(_lg(dims[dim]))]
        at += _lg(dims[dim])
    return columns


def _swizzled_shared(dims: tuple[int, ...], values: dict[str, Any]) -> Layout:
    vec, per, most = (1 << _lg(values[key]) for key in ("vec", "per_phase", "max_phase"))
    columns = _row_major(dims, values["order"])
    if len(dims) > 1:
        fast, row = values["order"][:2]
        columns[row] = [
            column ^ ((1 << bit) // per % most * vec % dims[fast])
            for bit, column in enumerate(columns[row])
        ]
    return layout_of_columns(dims, columns)


def _nvmma_shared(dims: tuple[int, ...], values: dict[str, Any]) -> Layout:
    width, nbytes = values["swizzle_byte_width"], values["element_bitwidth"] // 8
    is_transposed, is_padded = values["transposed"], values["fp4_padded"]
    if values["rank"] not in {None, len(dims)} or (is_transposed and len(dims) > _MATRIX):
        raise ValueError("dims must have its rank, which is 2 if it is transposed")
    if width not in {0, 32, 64, 128} or (is_padded and (width, nbytes) != (128, 1)):
        raise ValueError(
            "a swizzle has 0, 32, 64 or 128 bytes, and 128 of 8-bit elements for fp4_padded"
        )
    many = sum(size > _BOX for size in dims)
    if many > 1 or (many and len(dims) > _MATRIX):
        raise ValueError(f"of dims {dims}, tiles of {_BOX} count, whose order is not described")
    *outer, last = dims[::-1] if is_transposed else dims
    size, rows = last * (1 + is_padded), prod(outer)
    length = width // nbytes if width else min(size, _BOX)
    if size % length or rows < _ROWS:
        raise ValueError(
            f"dims {dims} are not whole tiles of {length} columns and at least {_ROWS} rows"
        )
    terms: Terms = ()
    if width:
        low, bits = _lg(16 // nbytes), _lg(width // 16)
        terms = exact_terms(((3, (1 << bits) - 1 << low),))
    columns = _row_major((*outer, length), range(len(dims))[::-1])
    inner = [1 << bit for bit in range(_lg(size))]
    if is_padded:  # of every 16 bytes the upper 8 are unused
        inner = [*inner[:3], *inner[4:]]
    columns[-1] = [column if column < length else column * rows for column in inner]
    columns = [[swizzled(terms, column) for column in each] for each in columns]
    return layout_of_columns(dims, columns[::-1] if is_transposed else columns)


def _shared_linear(dims: tuple[int, ...], values: dict[str, Any]) -> Layout:
    return layout_of_columns(dims, _columns_of_bases(dims, values["offset_bases"]))


def _columns_of_bases(dims: tuple[int, ...], bases: list[list[int]]) -> Columns:
    """Return the offset of each bit of an index, given the index of each bit of the offset."""
    starts = [sum(_lg(size) for size in dims[:dim]) for dim in range(len(dims) + 1)]
    rows = [sum(i << start for i, start in zip(base, starts, strict=False)) for base in bases]
    if len(rows) != starts[-1] or any(len(base) != len(dims) for base in bases):
        raise ValueError(f"dims {dims} take {starts[-1]} bases of {len(dims)} numbers")
    # eliminated over bits: pairs of an index and its offset
    pairs = [(row, 1 << bit) for bit, row in enumerate(rows)]
    for bit in range(starts[-1]):
        k = next((k for k in range(bit, len(pairs)) if pairs[k][0] >> bit & 1), None)
        if k is None:
            raise ValueError("two offsets have the same index, so one element has several places")
        pairs[bit], pairs[k] = pairs[k], pairs[bit]
        index, offset = pairs[bit]
        pairs = [
            (row ^ index, at ^ offset) if j != bit and row >> bit & 1 else (row, at)
            for j, (row, at) in enumerate(pairs)
        ]
    offsets = [offset for _, offset in pairs]
    return [offsets[start:stop] for start, stop in pairwise(starts)]


def _padded_shared(dims: tuple[int, ...], values: dict[str, Any]) -> Layout:
    if values["offset_bases"]:
        columns = _columns_of_bases(dims, values["offset_bases"])
    else:
        columns = _row_major(dims, values["order"] or range(len(dims))[::-1])
    if any(column & (column - 1) for column in chain(*columns)):
        raise ValueError("its bases add up bits before the padding, which XOR terms cannot")
    pairs = [(1 << _lg(every), int(gap)) for every, gap in values["interval_padding_pairs"]]
    weights = [
        [column + sum(column // every * gap for every, gap in pairs) for column in each]
        for each in columns
    ]
    return Layout(dims, single_axes(dims), tuple(_blocks(weights)))


_READERS: dict[str, Callable[[tuple[int, ...], dict[str, Any]], Layout]] = {
    "SwizzledSharedLayout": _swizzled_shared,
    "NVMMASharedLayout": _nvmma_shared,
    "SharedLinearLayout": _shared_linear,
    "PaddedSharedLayout": _padded_shared,
}


def layout_of_columns(dims: tuple[int, ...], columns: Columns) -> Layout:
    """Return the layout in which each bit of an index adds, by XOR, some bits of the offset.

    >>> layout_of_columns((4, 4), [[4, 8 ^ 2], [1, 2]]).xor
    ((2, 2),)
    """
    flat = [column for each in columns for column in each]
    heads = _digits(flat)
    terms: dict[int, int] = {}
    for column, head in zip(flat, heads, strict=True):
        for bit in range(column.bit_length()):
            if column >> bit & 1 and bit != head:
                terms[head - bit] = terms.get(head - bit, 0) | 1 << bit
    weights = iter([1 << head for head in heads])
    blocks = tuple(_blocks([[next(weights) for _ in each] for each in columns]))
    return Layout(dims, single_axes(dims), blocks, 0, tuple(terms.items()))


def _digits(columns: list[int]) -> list[int]:
    """Return a bit of the offset for each column, each another one of its own bits.

    The highest or the lowest bits are taken if they differ: then all terms shift one way.
    """
    highest = [column.bit_length() - 1 for column in columns]
    lowest = [(column & -column).bit_length() - 1 for column in columns]
    for heads in (highest, lowest):
        if len({*heads}) == len(heads) and min(heads, default=0) >= 0:
            return heads
    owner: dict[int, int] = {}

    def place(k: int, tried: set[int]) -> bool:
        for bit in range(columns[k].bit_length()):
            if columns[k] >> bit & 1 and bit not in tried:
                tried.add(bit)
                if bit not in owner or place(owner[bit], tried):
                    owner[bit] = k
                    return True
        return False

    if not all(place(k, set()) for k in range(len(columns))):
        raise ValueError("two indices have the same offset")
    return [next(bit for bit, k in owner.items() if k == wanted) for wanted in range(len(columns))]


def _blocks(weights: Columns) -> Iterator[Block]:
    """Yield the blocks of dims whose index bits have these strides, the largest step first."""
    for dim, strides in enumerate(weights):
        found: list[Block] = []
        for bit, stride in enumerate(strides):
            last = found[-1] if found else None
            if last and stride == last.stride * last.extent:
                found[-1] = last._replace(extent=2 * last.extent)
            else:
                found.append(Block(dim, 1 << bit, 2, stride))
        yield from found[::-1] or [Block(dim, 1, 1, 1)]


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    if any(size < 1 or size & (size - 1) for size in desc.dims) or desc.has_padding:
        inexpressible("its layouts have sizes that are powers of two, and no padding")
    texts: list[str] = []
    for name, values in _candidates(desc):
        try:
            layout = _READERS[name](desc.dims, _CLASSES[name] | values)
        except (MemdescError, ValueError):
            continue
        if layout.key() == desc.layout.key():
            texts += _texts(name, values)
    if not texts:
        inexpressible("none of its layouts is equal; the blocks may need merging")
    return tuple(texts)


def _texts(name: str, values: dict[str, Any]) -> Iterator[str]:
    """Yield the repr of a class, and the attribute of TTGIR."""
    yield f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})"
    keys = {ours: theirs for theirs, ours in _KEYS.items()}
    shown = ", ".join(
        f"{keys.get(key, key)} = {str(value).lower()}" for key, value in values.items()
    )
    attribute = next(key for key, each in _ATTRIBUTES.items() if each == name)
    after = ", alignment = 16" if name == "SharedLinearLayout" else ""
    yield f"#ttg.{attribute}<{{{shown}}}{after}>"


def _candidates(desc: MemoryDesc) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield layouts that may be a descriptor, the best known class first."""
    (shift, mask), *_ = (*desc.layout.xor, (0, 0))
    vec = mask & -mask or 1
    phases = {"vec": vec, "per_phase": 1, "max_phase": mask // vec + 1}
    for order in permutations(range(desc.ndims)):
        if mask:
            phases["per_phase"] = max((vec << max(shift, 0)) // desc.dims[order[0]], 1)
        yield "SwizzledSharedLayout", phases | {"order": list(order)}
    bits = desc.dtype.bits
    rank = {"rank": desc.ndims} if desc.ndims != _MATRIX else {}
    if bits in {8, 16, 32, 64} and desc.ndims > 1:
        for width, is_transposed in product((128, 64, 32, 0), (False, True)):
            values = {"swizzle_byte_width": width, "element_bitwidth": bits}
            turned = {"transposed": True} if is_transposed else {}
            yield "NVMMASharedLayout", values | rank | turned
        yield "NVMMASharedLayout", values | rank | {"swizzle_byte_width": 128, "fp4_padded": True}
    if desc.is_dense and not desc.offset0:
        unit = [0] * desc.ndims
        offsets = [
            desc.offset((*unit[:dim], 1 << bit, *unit[dim + 1 :]))
            for dim, size in enumerate(desc.dims)
            for bit in range(_lg(size))
        ]
        # indices are found from offsets as offsets are from indices
        try:
            (indices,) = _columns_of_bases((1 << len(offsets),), [[each] for each in offsets])
        except ValueError:
            return
        starts = [_lg(prod(desc.dims[:dim])) for dim in range(desc.ndims)]
        each = list(zip(starts, desc.dims, strict=True))
        bases = [[index >> at & size - 1 for at, size in each] for index in indices]
        yield "SharedLinearLayout", {"offset_bases": bases}


_SPELLING = r"\s*(?:!ttg\.memdesc<|#ttg\.|(?:\w+\.)*(?!Tile|Compose|Fixed|Flexible)\w+Layout\().*"

SYSTEM = System(
    "triton",
    "Triton",
    "Triton's layouts in shared memory: Gluon's classes and TTGIR's attributes",
    _write,
    _read,
    _SPELLING,
    writes_xor=True,
)
