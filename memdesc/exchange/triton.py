"""Triton's layouts in shared memory: reprs of Gluon, attributes of TTGIR, and `!ttg.memdesc<...>`.

All of them are linear over bits: each bit of an index XORs some bits into the offset. So a layout
is read as these *columns*; one bit of each column becomes its digit, and the others become XOR
terms. Sizes are powers of two. Source: Triton 3.9, Gluon's `language/_layouts.py` and what
`to_linear_layout` returns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import accumulate, chain, pairwise, product
from math import prod
from typing import Any

from memdesc.desc import MemoryDesc, desc_of
from memdesc.errors import MemdescError, short_repr
from memdesc.exchange.expressions import values_of_call
from memdesc.exchange.system import Given, System, impossible, unclear
from memdesc.layout import Layout, fused, layout_by_digits
from memdesc.swizzle import Terms, inverted, terms_of_bytes
from memdesc.tuples import NamedTuple

# for each dim, the offset of each bit of its index
Columns = list[list[int]]

# what TTGIR calls parameters of Gluon
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
# the last of what follows the attribute may be the sizes of the allocation that it is a part of
_TENSOR = (
    r"!ttg\.memdesc<((?:\d{1,19}x)+)(\w+),\s*(#.*?>|#\w+)\s*"
    r"(?:,\s*(?!\d)[#\w.]+\s*)*(?:,\s*(\d{1,19}(?:x\d{1,19})*)\s*)?>"
)
# the fewest rows of NVMMA's tiles, and TMA's limit on a size; larger sizes are cut into tiles
_ROWS, _BOX = 8, 256
_MATRIX = 2


def _read(given: Given) -> MemoryDesc:
    text = re.sub(r"#\w+\s*=\s*(?=#ttg)", "", given.text)
    if refused := re.search(_REGISTERS, text):
        impossible(f"{refused[0]} maps registers, lanes and warps to indices; it has no addresses")
    if "amd_rotating_shared" in text:
        impossible("the formula of amd_rotating_shared is not confirmed")
    sizes, type_name = None, None
    if tensor := re.fullmatch(_TENSOR, text):
        sizes, type_name, text = tuple(map(int, tensor[1][:-1].split("x"))), tensor[2], tensor[3]
        if tensor[4] and tuple(map(int, tensor[4].split("x")))[-len(sizes) :] != sizes:
            impossible(f"it is a part of an allocation of {tensor[4]}, which has its strides")
    layout = _layout(text)
    for key in ("cga_layout", "block_bases"):
        if getattr(layout, key, None):
            impossible(f"{key} spreads it over the memories of several blocks")
    dtype = given.type(type_name)
    try:
        dims = given.sizes(sizes or _shape_of(layout), has_type=type_name is not None)
        if not _are_powers_of_two(dims):
            impossible(f"Triton's sizes are powers of two, and dims are {dims}")
        bits = getattr(layout, "element_bitwidth", dtype.bits)
        if bits != dtype.bits:
            impossible(f"its elements have {bits} bits, and {dtype} has {dtype.bits}; give dtype")
        return desc_of(dtype, layout.layout(dims))
    except MemdescError:
        raise
    except (TypeError, ValueError, IndexError, ArithmeticError, AttributeError):
        impossible("its parameters have the wrong types or lengths")


def _layout(text: str) -> _Class:
    call = re.fullmatch(r"(?:\w+\.)*(\w+Layout)\((.*)\)", text, re.DOTALL)
    name, part = (call[1], call[2]) if call else ("", "")
    if attribute := re.fullmatch(r"#ttg\.(\w+)<(.*)>", text, re.DOTALL):
        name = attribute[1]
        part = re.sub(r"(\d+)\s*:\s*\+\s*(\d+)", r"[\1,\2]", attribute[2])
        part = re.sub(r"\]\s*\{", "], ", part).replace("{", "").replace("}", "")
        part = re.sub(r"\b(true|false)\b", lambda word: word[0].title(), part)
    cls = (_ATTRIBUTES if attribute else _CLASSES).get(name)
    if cls is None:
        if re.fullmatch(r"#\w+", text):
            unclear(f"{text} stands for an attribute of the module; write that in its place")
        known = [*_CLASSES, *(f"#ttg.{key}<..>" for key in _ATTRIBUTES)]
        unclear(f"the layouts in shared memory are {', '.join(known)}")
    positional, named = values_of_call(part)
    keys = [_KEYS.get(key, key) for key in named]
    names = [*cls._fields[: len(positional)], *keys]
    missing = [key for key in cls._fields if key not in {*names, *cls._field_defaults}]
    if (
        missing
        or len(positional) > len(cls._fields)
        or sorted(names) != sorted({*names} & {*cls._fields})
    ):
        lacking = f", and {', '.join(missing)} are missing" if missing else ""
        unclear(f"its parameters are {', '.join(cls._fields)}, each at most once{lacking}")
    return cls(*positional, **dict(zip(keys, named.values(), strict=True)))


def _are_powers_of_two(dims: Iterable[int]) -> bool:
    return all(size.bit_count() == 1 for size in dims)


def _lg(number: int) -> int:
    if type(number) is not int or number < 1 or number & (number - 1):
        impossible(f"{short_repr(number)} must be a power of two")
    return number.bit_length() - 1


def _row_major(dims: tuple[int, ...], order: Sequence[int]) -> Columns:
    """Return the columns of a dense layout; `order` has the fastest dim first."""
    if sorted(order) != list(range(len(dims))):
        impossible(
            f"order {short_repr(order)} must have each of the dims 0 to {len(dims) - 1} once"
        )
    bits = accumulate((_lg(dims[dim]) for dim in order), initial=0)
    spans = dict(zip(order, pairwise(bits), strict=True))
    return [[1 << bit for bit in range(*spans[dim])] for dim in range(len(dims))]


class _SwizzledSharedLayout(NamedTuple):
    """Gluon's class: the phase of a row decides where each of its vectors is."""

    vec: int
    per_phase: int
    max_phase: int
    order: Sequence[int]
    cga_layout: Any = None

    def layout(self, dims: tuple[int, ...]) -> Layout:
        vec, per, most = (1 << _lg(value) for value in self[:3])
        columns = _row_major(dims, self.order)
        if len(dims) > 1:
            fast, row = self.order[:2]
            columns[row] = [
                column ^ ((1 << bit) // per % most * vec % dims[fast])
                for bit, column in enumerate(columns[row])
            ]
        return layout_of_columns(dims, columns)


class _NVMMASharedLayout(NamedTuple):
    """Gluon's class: tiles as wide as a swizzle of TMA."""

    swizzle_byte_width: int
    element_bitwidth: int
    rank: int | None = None
    transposed: bool = False
    fp4_padded: bool = False
    cga_layout: Any = None

    def layout(self, dims: tuple[int, ...]) -> Layout:
        width, nbytes = self.swizzle_byte_width, self.element_bitwidth // 8
        if self.rank not in {None, len(dims)} or (self.transposed and len(dims) > _MATRIX):
            impossible("dims must have its rank, which is 2 if it is transposed")
        if width not in {0, 32, 64, 128} or (self.fp4_padded and (width, nbytes) != (128, 1)):
            impossible(
                "a swizzle has 0, 32, 64 or 128 bytes; fp4_padded needs 128 and elements of 8 bits"
            )
        many = sum(size > _BOX for size in dims)
        if many > 1 or (many and len(dims) > _MATRIX):
            impossible(f"dims {dims} are cut into tiles of {_BOX}, whose order is not described")
        *outer, last = dims[::-1] if self.transposed else dims
        size, rows = last * (1 + self.fp4_padded), prod(outer)
        length = width // nbytes if width else min(size, _BOX)
        if size % length or rows < _ROWS:
            impossible(
                f"dims {dims} are not whole tiles of {length} columns and at least {_ROWS} rows"
            )
        terms = terms_of_bytes(_lg(width // 16), 4, 3, self.element_bitwidth) if width else ()
        columns = _row_major((*outer, length), range(len(dims))[::-1])
        inner = [1 << bit for bit in range(_lg(size))]
        if self.fp4_padded:  # the upper 8 of every 16 bytes are unused
            inner = [*inner[:3], *inner[4:]]
        columns[-1] = [column if column < length else column * rows for column in inner]
        return _layout_of(dims, columns[::-1] if self.transposed else columns, terms)


class _SharedLinearLayout(NamedTuple):
    """Gluon's class: the index of each bit of the offset."""

    offset_bases: Sequence[Sequence[int]]
    block_bases: Any = None
    alignment: int = 16

    def layout(self, dims: tuple[int, ...]) -> Layout:
        return layout_of_columns(dims, _columns_of_bases(dims, self.offset_bases))


class _PaddedSharedLayout(NamedTuple):
    """Gluon's class: some elements are left out after every interval."""

    interval_padding_pairs: Sequence[tuple[int, int]]
    offset_bases: Sequence[Sequence[int]] | None = None
    cga_layout: Any = None
    shape: Sequence[int] = ()
    order: Sequence[int] | None = None

    def layout(self, dims: tuple[int, ...]) -> Layout:
        if self.offset_bases:
            columns = _columns_of_bases(dims, self.offset_bases)
        else:
            columns = _row_major(dims, self.order or range(len(dims))[::-1])
        if any(column & (column - 1) for column in chain(*columns)):
            impossible("its bases add up bits before the padding, which XOR terms cannot")
        pairs = [(1 << _lg(every), gap) for every, gap in self.interval_padding_pairs]
        for _, gap in pairs:
            if type(gap) is not int or gap < 1:
                impossible(f"a padding of {short_repr(gap)} must be an integer of 1 or more")
        weights = [
            [column + sum(column // every * gap for every, gap in pairs) for column in own]
            for own in columns
        ]
        return _layout_of(dims, weights)


_Class = _SwizzledSharedLayout | _NVMMASharedLayout | _SharedLinearLayout | _PaddedSharedLayout
# what TTGIR calls the classes
_ATTRIBUTES: dict[str, type[_Class]] = {
    "swizzled_shared": _SwizzledSharedLayout,
    "nvmma_shared": _NVMMASharedLayout,
    "shared_linear": _SharedLinearLayout,
    "padded_shared": _PaddedSharedLayout,
}
_CLASSES = {cls.__name__[1:]: cls for cls in _ATTRIBUTES.values()}


def _shape_of(layout: _Class) -> tuple[int, ...] | None:
    """Return the sizes that a layout's own parameters give."""
    if isinstance(layout, _PaddedSharedLayout):
        if not layout.shape:
            unclear("its shape is missing")
        return tuple(layout.shape)
    if isinstance(layout, _SharedLinearLayout) and layout.offset_bases:
        sides = zip(*layout.offset_bases, strict=True)
        return tuple(1 << max(side).bit_length() for side in sides)
    return None


def _columns_of_bases(dims: tuple[int, ...], bases: Sequence[Sequence[int]]) -> Columns:
    """Return the offset of each bit of an index, given the index of each bit of the offset."""
    starts = [sum(_lg(size) for size in dims[:dim]) for dim in range(len(dims) + 1)]
    rows = [sum(i << start for i, start in zip(base, starts, strict=False)) for base in bases]
    if len(rows) != starts[-1] or any(len(base) != len(dims) for base in bases):
        impossible(f"dims {dims} take {starts[-1]} bases of {len(dims)} numbers")
    offsets = inverted(rows)
    if offsets is None:
        impossible("two offsets have the same index, so one element has several places")
    return [[*offsets[start:stop]] for start, stop in pairwise(starts)]


def layout_of_columns(dims: tuple[int, ...], columns: Columns) -> Layout:
    """Return the layout in which each bit of an index adds, by XOR, some bits of the offset.

    >>> layout_of_columns((4, 4), [[4, 8 ^ 2], [1, 2]]).xor
    ((2, 2),)
    """
    flat = [*chain(*columns)]
    heads = _heads(flat)
    terms: dict[int, int] = {}
    for column, head in zip(flat, heads, strict=True):
        for bit in _bits(column ^ 1 << head):
            terms[head - bit] = terms.get(head - bit, 0) | 1 << bit
    weights = iter([1 << head for head in heads])
    return _layout_of(dims, [[next(weights) for _ in bits] for bits in columns], (*terms.items(),))


def _bits(number: int) -> list[int]:
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]


def _heads(columns: list[int]) -> list[int]:
    """Return one of its own bits for each column, a different one for each.

    These are the highest bits if they differ: then all terms shift one way.
    """
    owner: dict[int, int] = {}

    def place(k: int, tried: set[int]) -> bool:
        for bit in reversed(_bits(columns[k])):
            if bit not in tried:
                tried.add(bit)
                if bit not in owner or place(owner[bit], tried):
                    owner[bit] = k
                    return True
        return False

    if not all(place(k, set()) for k in range(len(columns))):
        impossible("two indices have the same offset")
    return sorted(owner, key=owner.__getitem__)


def _layout_of(dims: tuple[int, ...], weights: Columns, xor: Terms = ()) -> Layout:
    """Return the layout of dims whose index bits have these strides, neighbours fused."""
    digits = [fused((2, stride) for stride in reversed(own)) or [(1, 1)] for own in weights]
    return layout_by_digits(dims, digits, 0, xor)


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    if not _are_powers_of_two(desc.dims) or desc.has_padding:
        impossible("its layouts have sizes that are powers of two, and no padding")
    return tuple(text for candidate in _candidates(desc) for text in _texts(candidate))


def _texts(layout: _Class) -> Iterator[str]:
    name, defaults = type(layout).__name__[1:], layout._field_defaults
    values = {
        key: value
        for key, value in layout._asdict().items()
        if key not in defaults or value != defaults[key]
    }
    yield f"{name}({', '.join(f'{key}={own!r}' for key, own in values.items())})"
    keys = {ours: theirs for theirs, ours in _KEYS.items()}
    shown = ", ".join(f"{keys.get(key, key)} = {str(own).lower()}" for key, own in values.items())
    attribute = next(key for key, cls in _ATTRIBUTES.items() if isinstance(layout, cls))
    after = ", alignment = 16" if isinstance(layout, _SharedLinearLayout) else ""
    yield f"#ttg.{attribute}<{{{shown}}}{after}>"


def _candidates(desc: MemoryDesc) -> Iterator[_Class]:
    """Yield layouts that may be a descriptor, the best known class first."""
    # the offset of each bit of an index
    offsets = [
        [
            desc.offset([1 << bit if k == dim else 0 for k in range(desc.ndims)])
            for bit in range(_lg(size))
        ]
        for dim, size in enumerate(desc.dims)
    ]
    # dims of size 1 may be anywhere
    moving = sorted(
        (dim for dim, own in enumerate(offsets) if own), key=lambda dim: offsets[dim][0]
    )
    order = list(merge(moving, (dim for dim, own in enumerate(offsets) if not own)))
    (shift, mask), *_ = (*desc.layout.xor, (0, 0))
    vec = mask & -mask or 1
    per_phase = max((vec << max(shift, 0)) // desc.dims[order[0]], 1) if mask else 1
    yield _SwizzledSharedLayout(vec, per_phase, mask // vec + 1, order)
    bits = desc.dtype.bits
    rank = desc.ndims if desc.ndims != _MATRIX else None
    if bits in {8, 16, 32, 64} and desc.ndims > 1:
        for width, is_transposed in product((128, 64, 32, 0), (False, True)):
            yield _NVMMASharedLayout(width, bits, rank, is_transposed)
        yield _NVMMASharedLayout(128, bits, rank, fp4_padded=True)
    if desc.is_dense and not desc.offset0:
        starts = accumulate(map(len, offsets), initial=0)
        digits = list(zip(starts, desc.dims, strict=False))
        yield _SharedLinearLayout(
            [
                [index >> at & size - 1 for at, size in digits]
                for index in inverted([*chain(*offsets)]) or ()
            ]
        )


_SPELLING = (
    r"\s*(?:!ttg\.memdesc<|(?:#\w+\s*=\s*)?#ttg\.|"
    r"(?:\w+\.)*(?!Tile|Compose|Fixed|Flexible)\w+Layout\().*"
)

SYSTEM = System(
    "triton",
    "Triton",
    _write,
    _read,
    _SPELLING,
    writes_xor=True,
    refusal="none of its layouts is equal; the blocks may need merging",
)
