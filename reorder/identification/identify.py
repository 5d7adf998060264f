"""Find which known layouts some bytes may have: by comparing values, or by size and padding."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, reduce
from hashlib import blake2b
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memdesc import (
    DataType,
    MemdescError,
    MemoryDesc,
    UnsupportedFormatError,
    data_type,
    image_desc,
    memory_desc,
)
from memdesc.desc import desc_of
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.errors import allocates
from memdesc.immutable import immutable
from memdesc.int64 import checked_ints
from memdesc.layout import check_dims, layout_by_tag
from memdesc.names import Name, known_images, names_for, resolve_image
from memdesc.tags import LETTERS, FormatTag, parse_tag
from memdesc.tuples import NamedTuple
from reorder.api import reorder
from reorder.comparison import check_amount, widened
from reorder.memory.arrays import bits_of
from reorder.memory.buffers import address_of, bytes_over
from reorder.memory.dlpack import is_exporter
from reorder.memory.inputs import as_memory
from reorder.memory.memory import Memory
from reorder.memory.padding import find_nonzero
from reorder.messages import first_of
from reorder.values.formats import FLOATS, INTEGERS
from reorder.values.masked import refuse_masked

# How many further names of a layout, and how many layouts or sizes, a sentence lists.
_MAX_NAMES = 3
_MAX_LISTED = 3
# The alignment that any type needs, in bytes.
_ALIGNMENT = 8
# How many elements are compared first: layouts that differ in these are not compared further.
_SAMPLES = 4096
# A layout that puts this share of the samples in the right place is reported as near.
_NEAR = 0.75
_MAX_NEAR = 3
# How far elements may be apart, relative to the reference, for a hint that values were rounded.
_LOOSE = 1e-3
# Integer types that a reference may be stored as, the narrowest first.
_NARROWER = ("u4", "s4", "u8", "s8")
# The widest codes that packings of weights pack.
_CODE_BITS = 8
# few files have these types: they are tried only if a caller names them
_RARE = ("f8_e5m2fnuz", "f8_e4m3fnuz", "f4_e2m1")
_USUAL = [DATA_TYPES[name] for name in (*FLOATS, *INTEGERS) if name not in _RARE]
# One type of each width, for bytes whose type is unknown.
_WIDTHS = ("u4", "u8", "u16", "u32", "u64")
# All orders of at most this many dims are tried for every name: 24 of them.
_MAX_ORDERED = 4
# The most elements of a matrix that swizzles are tried for: tiles are small.
_MAX_SWIZZLED = 1 << 16
_MATRIX = 2
# All permutations of at most this many dims are tried: 120 of them.
_MAX_PERMUTED = 5


@immutable
class Candidate(NamedTuple):
    """A layout that bytes may have.

    Parameters
    ----------
    desc : MemoryDesc
        The layout, by the dims of the caller.
    order : tuple of int
        Dim k of `names` is dim ``order[k]`` of the caller: ``(1, 0)`` if the names describe the
        transposed matrix.
    names : tuple of Name
        Every known name: the shortest tag, packings of weights if elements have up to 8 bits, names
        of activations, all others.
    agreement : float
        Share of the elements that equal those of the reference, 0 to 1; 1 without a reference.
    is_padding_zero : bool
        Whether all padding is zero.
    is_type_known : bool
        Whether the caller tells the type of `desc`. If not, all types of this width are possible,
        and `desc` has unsigned integers.

    Examples
    --------
    >>> x = np.arange(1, 33, dtype=np.float32).reshape(4, 8)
    >>> dump = reorder.reorder(x, "ba").data
    >>> (candidate,) = reorder.identify(dump, dtype="f32", like=x).candidates
    >>> candidate.desc, candidate.order, candidate.agreement
    (memory_desc((4, 8), 'f32', 'ba'), (0, 1), 1.0)
    """

    desc: MemoryDesc
    order: tuple[int, ...]
    names: tuple[Name, ...]
    agreement: float
    is_padding_zero: bool
    is_type_known: bool = True


@immutable
class Identification(NamedTuple):
    """What `identify` found.

    Parameters
    ----------
    candidates : tuple of Candidate
        Every known layout that the bytes may have; without a reference, those with most padding
        (all of it zero) come first, then those with fewest blocks. Of these the row-major one is
        first, then those that most systems have a name for.
    near : tuple of Candidate
        If there are no candidates: up to three layouts that put most elements (at least 3 of 4)
        in the right place, or all of them in another type.
    verdict : str
        The answer in one sentence.

    Examples
    --------
    >>> x = np.arange(1, 129, dtype=np.float32).reshape(2, 4, 4, 4)
    >>> answer = reorder.identify(reorder.reorder(x, "nhwc").data, dtype="f32", like=x)
    >>> len(answer.candidates), answer.candidates[0].desc
    (1, memory_desc((2, 4, 4, 4), 'f32', 'acdb'))
    """

    candidates: tuple[Candidate, ...]
    near: tuple[Candidate, ...]
    verdict: str


def _title(candidate: Candidate) -> str:
    """Return the names of a layout, the order of its dims, and whether its padding is not zero."""
    first, *others = [name.text for name in candidate.names] or [repr(candidate.desc)]
    text = f"{first} ({first_of(others, _MAX_NAMES)})" if others else first
    text += dims_in_order(candidate.order)
    return text if candidate.is_padding_zero else f"{text}, with padding that is not zero"


def dims_in_order(order: tuple[int, ...]) -> str:
    """Return what follows names for the dims in another order; empty for the caller's order."""
    if order == tuple(sorted(order)):
        return ""
    return f" of the dims in the order {' '.join(LETTERS[dim] for dim in order)}"


def _titles(candidates: Sequence[Candidate]) -> str:
    shown = "; ".join(_title(candidate) for candidate in candidates[:_MAX_LISTED])
    return f"{shown}; ..." if len(candidates) > _MAX_LISTED else shown


def _no_layout(nbytes: int, what: str, sizes: Collection[int]) -> str:
    if nbytes in sizes or not sizes:
        return f"no known layout of {what} {'gives these bytes' if sizes else 'fits int64'}"
    nearest = sorted(sorted(sizes, key=lambda size: abs(size - nbytes))[:_MAX_LISTED])
    listed = ", ".join(map(str, nearest))
    return f"no known layout of {what} takes {nbytes} bytes; the nearest sizes are {listed}"


@allocates
def identify(
    data: Any,
    like: Any = None,
    *,
    dims: Iterable[int] | None = None,
    dtype: Any = None,
    atol: float = 0.0,
    rtol: float = 0.0,
) -> Identification:
    """Find the known layouts that bytes may have.

    With a reference, a layout fits if it puts each element where the bytes have it. If none does,
    up to 4 dims are tried in every other order, and then the other types that make this size; what
    fits in one of these is reported, but it is not a candidate. Without a reference, the size must
    fit and the padding must be zero, which may be true of several layouts.

    Parameters
    ----------
    data : ndarray, Memory, or object with the buffer protocol
        The bytes; for an array, its bytes in C order.
    like : ndarray, Memory, or tensor with DLPack, optional
        The same values by their logical dims.
    dims : iterable of int, optional
        The logical sizes, instead of `like`.
    dtype : DataType, str or numpy dtype, optional
        Type of the elements in the bytes. By default that of `like`, or for integers a 4-bit or
        8-bit type that holds all its values. Without `like`, that of `data` if it is a tensor; for
        plain bytes (uint8), and for integers that are fewer than the elements, any type.
    atol, rtol : float
        How far an element may be from that of `like`: ``atol + rtol * abs(like)``, as in
        `compare_values`. By default the bits must be equal.

    Raises
    ------
    MemdescError
        If neither or both of `like` and `dims` are given, or a tolerance without `like`; if there
        are no elements, or `dtype` does not hold the integers of `like`.

    Examples
    --------
    >>> w = np.random.default_rng(0).integers(0, 16, (64, 64), np.uint8)
    >>> packed = reorder.reorder(w, "marlin", dtype="u4").data
    >>> reorder.identify(packed, w).verdict
    'one layout gives these bytes: AB8b/1.4a/2.4b/16.2a/1.2b/8.2a/8 (marlin)'
    >>> reorder.identify(packed, w.T).candidates[0].order
    (1, 0)
    """
    raw = _bytes_of(data)
    check_amount("atol", atol)
    check_amount("rtol", rtol)
    if (like is None) == (dims is None):
        raise MemdescError("give like=, a tensor of the same values, or dims=, the logical sizes")
    if like is None and (atol or rtol):
        raise MemdescError(
            "a tolerance is for values: give like=, a tensor of the same values, or leave it out"
        )
    wanted = None if dtype is None else data_type(dtype)
    if dims is not None:
        sizes = checked_ints("dims", dims)
        return _by_padding(raw, sizes, wanted or _type_of(data, prod(sizes)))
    plain = as_memory(like, None)
    plain = reorder(plain, memory_desc(plain.desc.dims, plain.desc.dtype))
    answer = _by_values(raw, plain, wanted, (atol, rtol))
    if not answer.candidates and not answer.near:
        answer = answer._replace(verdict=answer.verdict + _if_swapped(raw, plain, wanted))
    is_exact = plain.desc.dtype.name in INTEGERS or atol or rtol
    if answer.candidates or answer.near or is_exact:
        return answer
    # another kernel may round differently
    loose = _by_values(raw, plain, wanted, (0.0, _LOOSE))
    if not loose.candidates:
        return answer
    hint = f"; with rtol={_LOOSE:g} {_titles(loose.candidates)} does: values were rounded"
    return answer._replace(near=loose.candidates[:_MAX_NEAR], verdict=answer.verdict + hint)


def _bytes_of(data: Any) -> NDArray[np.uint8]:
    """Return flat bytes, aligned for any type; for an array, its elements in C order."""
    if isinstance(data, Memory):
        return data.data
    refuse_masked("data", data)
    if not isinstance(data, np.ndarray) and is_exporter(data):
        data = as_memory(data, None).numpy(copy=None)
    if not isinstance(data, np.ndarray):
        data = bytes_over("data", data, "pass bytes")
    if data.dtype.hasobject:
        raise MemdescError(f"data is an array of {data.dtype}, which holds references; pass bytes")
    flat: NDArray[np.uint8] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return flat.copy() if address_of(flat) % _ALIGNMENT else flat


def _type_of(data: Any, nelems: int) -> DataType | None:
    """Return the type of a tensor; None for bytes, and for words that may pack several elements."""
    if isinstance(data, Memory):
        held, count = data.desc.dtype, data.desc.nelems
    elif isinstance(data, np.ndarray) and data.dtype.name != "uint8":
        try:
            held, count = data_type(data.dtype), data.size
        except MemdescError:  # a dtype that memdesc does not have
            return None
    else:
        return None
    return None if held.name in INTEGERS and count < nelems else held


def _by_values(
    data: NDArray[np.uint8], plain: Memory, dtype: DataType | None, allowed: tuple[float, float]
) -> Identification:
    dims = plain.desc.dims
    _check_elements(dims)
    references = [_Reference(data, memory, allowed) for memory in _references(plain, dtype)]
    orders = permutations(range(len(dims))) if len(dims) <= _MAX_ORDERED else [range(len(dims))]
    sizes: set[int] = set()
    compared: dict[tuple[object, ...], Candidate] = {}
    for order in orders:
        for reference in references:
            own = reference.desc.dtype
            layouts, of_all = _known_layouts(dims, own, tuple(order), len(data))
            sizes |= of_all
            for known in layouts:
                if known.key not in compared:
                    compared[known.key] = reference.compare(known)
        exact = tuple(candidate for candidate in compared.values() if candidate.agreement == 1)
        if exact:
            break
    if len(exact) == 1:
        return Identification(exact, (), f"one layout gives these bytes: {_titles(exact)}")
    if exact:
        why = "since the values do not tell them apart"
        return Identification(
            exact, (), f"{len(exact)} layouts give these bytes, {why}: {_titles(exact)}"
        )
    types = [reference.desc.dtype for reference in references]
    others = _in_other_types(data, plain, types)
    near = sorted((*compared.values(), *others), key=lambda x: -x.agreement)[:_MAX_NEAR]
    near = [candidate for candidate in near if candidate.agreement >= _NEAR]
    what = f"{dims} elements of {' or '.join(map(str, types))}"
    verdict = _nearest(near, types, what) if near else _no_layout(len(data), what, sizes)
    return Identification((), tuple(near), verdict)


def _if_swapped(data: NDArray[np.uint8], plain: Memory, dtype: DataType | None) -> str:
    """Return the text about 4-bit elements whose bytes have the first one in the high half."""
    types = [memory.desc.dtype for memory in _references(plain, dtype)]
    for own in (own for own in types if own.is_packed):
        swapped = (data >> 4 | data << 4).astype(np.uint8)
        candidates = _by_values(swapped, plain, own, (0.0, 0.0)).candidates
        if candidates:
            return f"; with the halves of each byte swapped, as {own}, {_titles(candidates)} does"
    return ""


def _nearest(near: Sequence[Candidate], types: Sequence[DataType], what: str) -> str:
    """Return how near the bytes are to a layout, in these types or in another one."""
    desc, agreement = near[0].desc, near[0].agreement
    named = _title(near[0])
    if agreement == 1:
        alike = [x for x in near if x.desc.layout == desc.layout and x.agreement == 1]
        fitting = " or ".join(str(candidate.desc.dtype) for candidate in alike)
        return f"no known layout of {what} gives these bytes; as {fitting}, {named} does"
    as_type = "" if desc.dtype in types else f", as {desc.dtype}"
    share = f"{agreement:.2%} of the elements are where {named} has them{as_type}"
    return f"no known layout gives these bytes; {share}"


def _in_other_types(
    data: NDArray[np.uint8], plain: Memory, tried: Sequence[DataType]
) -> list[Candidate]:
    """Compare with the layouts of this size in all other types, in the caller's order of dims.

    A type of floats may round the values of the reference; integers must be equal to them.
    """
    own, dims = plain.desc.dtype, plain.desc.dims
    order = tuple(range(len(dims)))
    by_width: dict[int, list[_Known]] = {}
    candidates: list[Candidate] = []
    for dtype in _USUAL:
        if dtype in tried:
            continue
        if dtype.bits not in by_width:
            by_width[dtype.bits], _ = _known_layouts(dims, dtype, order, len(data))
        if not by_width[dtype.bits]:
            continue
        memory = reorder(plain, plain.desc.with_dtype(dtype))
        if {own.name, dtype.name} & INTEGERS.keys() and not _holds(memory, plain):
            continue
        reference = _Reference(data, memory, (0.0, 0.0))
        candidates += [reference.compare(known.with_dtype(dtype)) for known in by_width[dtype.bits]]
    return candidates


class _Reference:
    """A tensor of the values that the bytes hold, in one of the types that they may have."""

    def __init__(
        self, data: NDArray[np.uint8], plain: Memory, allowed: tuple[float, float]
    ) -> None:
        self.desc = plain.desc
        self._data = data
        self._allowed = allowed
        self._values = self._read(plain.data)
        self._elements = self._read(data)
        count = self.desc.nelems
        places = np.random.default_rng(0).integers(0, count, _SAMPLES)
        self._at = np.arange(count) if count <= _SAMPLES else places
        self._indices = np.unravel_index(self._at, self.desc.dims)

    def _read(self, data: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the elements of bytes: their bits, or numbers where these may differ."""
        if not any(self._allowed):
            return bits_of(data, self.desc)
        dtype = self.desc.dtype
        desc = memory_desc((len(data) * 8 // dtype.bits,), dtype)
        memory = Memory(desc, data[: desc.nbytes], zero_pad=False)
        return widened([memory.numpy()])[0]

    def _agreement(self, elements: NDArray[Any], values: NDArray[Any]) -> float:
        """Return the share of elements that are equal, or near enough."""
        is_equal = elements == values
        if any(self._allowed):
            atol, rtol = self._allowed
            with np.errstate(invalid="ignore"):  # infinities
                is_near = np.abs(elements - values) <= atol + rtol * np.abs(values)
            is_equal |= is_near & np.isfinite(values)
            is_equal |= np.isnan(elements) & np.isnan(values)
        return float(is_equal.mean())

    def compare(self, known: _Known) -> Candidate:
        """Compare a sample of the elements and, if all of it agrees, all elements."""
        desc = known.by_caller
        sample = self._elements[desc.offset(self._indices)]
        agreement = self._agreement(sample, self._values[self._at])
        is_padding_zero = True
        if agreement == 1:
            memory = Memory(desc, self._data, zero_pad=False)
            whole = reorder(memory, self.desc)
            agreement = self._agreement(self._read(whole.data), self._values)
            is_padding_zero = _is_padding_zero(self._data, desc)
        names = _names(known) if agreement >= _NEAR else ()
        return Candidate(desc, known.order, names, agreement, is_padding_zero)


def _by_padding(
    data: NDArray[np.uint8], dims: tuple[int, ...], dtype: DataType | None
) -> Identification:
    _check_elements(dims)
    types = [dtype] if dtype else [DATA_TYPES[name] for name in _WIDTHS]
    order = tuple(range(len(dims)))
    known = [_known_layouts(dims, own, order, len(data)) for own in types]
    fitting = [layout for layouts, _ in known for layout in layouts]
    candidates = [
        Candidate(
            layout.by_caller,
            order,
            _names(layout),
            1.0,
            is_padding_zero=True,
            is_type_known=dtype is not None,
        )
        for layout in fitting
        if _is_padding_zero(data, layout.by_caller)
    ]
    candidates.sort(key=_likelihood)
    if not fitting:
        what = f"{dims} elements of {dtype or 'any type'}"
        verdict = _no_layout(len(data), what, {size for _, sizes in known for size in sizes})
    elif not candidates:
        verdict = f"all {len(fitting)} layouts of this size have padding that is not zero here"
    elif len(candidates) == 1:
        verdict = f"the size and zero padding leave one layout: {_titles(candidates)}"
    else:
        why = "" if candidates[0].desc.has_padding else ", none of which has padding"
        verdict = (
            f"the size and zero padding leave {len(candidates)} layouts{why}; a tensor of the same "
            "values tells them apart"
        )
    return Identification(tuple(candidates), (), verdict)


def _likelihood(candidate: Candidate) -> tuple[int, ...]:
    """Return a key by which likely layouts come first: zero padding is not a coincidence."""
    desc = candidate.desc
    systems = {name.vocabulary for name in candidate.names if name.domain == "data"}
    is_permuted = desc != memory_desc(desc.dims, desc.dtype)
    return desc.nelems - desc.padded_nelems, len(desc.layout.blocks), is_permuted, -len(systems)


def _names(known: _Known) -> tuple[Name, ...]:
    """Return the shortest tag, then packings if the elements may be codes, then activations."""
    shortest, *others = dict.fromkeys(
        name for desc in known.descs for name in (*desc.names(), *_images(desc))
    )
    holds_codes = known.descs[0].dtype.bits <= _CODE_BITS
    others.sort(
        key=lambda name: (not (holds_codes and name.vocabulary == "weights"), name.domain != "data")
    )
    return shortest, *others


def _images(desc: MemoryDesc) -> Iterator[Name]:
    """Yield the image types whose pixels, row by row, are this layout."""
    for name in known_images():
        with suppress(MemdescError):  # a name for other dims
            if image_desc(desc.dims, desc.dtype, name.text).desc == desc:
                yield name


def _check_elements(dims: tuple[int, ...]) -> None:
    check_dims(dims)
    if 0 in dims:
        raise MemdescError(f"dims {dims} have no elements, so every layout gives the same bytes")


def _references(plain: Memory, dtype: DataType | None) -> Iterator[Memory]:
    """Yield a reference for each type that the bytes may have."""
    own = plain.desc.dtype
    if dtype is not None:
        reference = reorder(plain, plain.desc.with_dtype(dtype))
        if own.name in INTEGERS and not _holds(reference, plain):
            raise MemdescError(f"the reference has {own} values that do not fit {dtype}")
        yield reference
        return
    yield plain
    for name in _NARROWER:
        narrow = DATA_TYPES[name]
        if own.name in INTEGERS and narrow.bits < own.bits:
            reference = reorder(plain, plain.desc.with_dtype(narrow))
            if _holds(reference, plain):
                yield reference


def _holds(converted: Memory, plain: Memory) -> bool:
    return bool((reorder(converted, plain.desc).data == plain.data).all())


def _is_padding_zero(data: NDArray[np.uint8], desc: MemoryDesc) -> bool:
    count, _ = find_nonzero(data, desc, 0)
    return not count


# Known layouts.


class _Known(NamedTuple):
    """Descriptors that put every element at the same offset.

    Dim k of `descs` is dim ``order[k]`` of the caller; those without fused dims come first, then
    those with fewest blocks. `key` identifies the offsets in terms of the caller's dims.
    """

    order: tuple[int, ...]
    descs: list[MemoryDesc]
    key: tuple[object, ...]

    @property
    def by_caller(self) -> MemoryDesc:
        """The layout in terms of the caller's dims."""
        return self.descs[0].permute_axes(self.order)

    def with_dtype(self, dtype: DataType) -> _Known:
        """Return the same layouts of elements of another type of the same width."""
        key = (dtype.name, *self.key[1:])
        return _Known(self.order, [desc.with_dtype(dtype) for desc in self.descs], key)


def _known_layouts(
    dims: tuple[int, ...], dtype: DataType, order: tuple[int, ...], nbytes: int
) -> tuple[list[_Known], set[int]]:
    """Return every known layout of a size once: named ones, and row-major ones in any order.

    `dims` are the logical sizes in the caller's order; dim k of a name is dim ``order[k]`` of the
    caller. Some names exist only for some widths of the type.

    Returns the layouts of `nbytes`, and the sizes of all known layouts, in bytes.
    """
    ordered = tuple(dims[k] for k in order)
    layouts: dict[tuple[object, ...], list[MemoryDesc]] = {}
    sizes = set()
    for tag in _known_tags(ordered, dtype.bits):
        try:
            layout = layout_by_tag(tag, ordered)
        except MemdescError:  # padded beyond int64
            continue
        sizes.add(dtype.nbytes(layout.span))
        if dtype.nbytes(layout.span) == nbytes:
            desc = desc_of(dtype, layout)
            layouts.setdefault(_key(desc.permute_axes(order)), []).append(desc)
    for desc in _swizzled_tiles(ordered, dtype):
        sizes.add(desc.nbytes)
        if desc.nbytes == nbytes:
            layouts.setdefault(_key(desc.permute_axes(order)), []).append(desc)
    for descs in layouts.values():
        descs.sort(key=lambda desc: (-len(desc.layout.axes), len(desc.layout.blocks)))
    return [_Known(order, descs, key) for key, descs in layouts.items()], sizes


# enough for one tensor with its dims in any order, in several widths
@lru_cache(maxsize=32)
def _known_tags(dims: tuple[int, ...], bits: int) -> tuple[FormatTag, ...]:
    """Return the tags of all names that exist for these sizes and this width, without repeats."""
    letters = LETTERS[: len(dims)]
    plain = map("".join, permutations(letters)) if len(dims) <= _MAX_PERMUTED else [letters]
    tags = dict.fromkeys(parse_tag(text) for text in plain)
    for known, parsed in names_for(len(dims), bits):
        with suppress(UnsupportedFormatError):  # a name for other sizes
            parsed.vocabulary.check_dims(known.text, dims, parsed.tag)
            tags[parsed.tag] = None
    for name in known_images():
        with suppress(MemdescError):  # a name for other dims
            tag = resolve_image(name.text, dims).tag
            if tag.ndims == len(dims):
                tags[tag] = None
    return tuple(tags)


def _swizzled_tiles(dims: tuple[int, ...], dtype: DataType) -> Iterator[MemoryDesc]:
    """Yield the usual swizzles of a matrix: CUTLASS's atoms and Triton's tiles."""
    if len(dims) != _MATRIX or not 0 < prod(dims) <= _MAX_SWIZZLED or dtype.bits < BYTE_BITS:
        return
    chunk = 128 // dtype.bits
    texts = [f"{major}_SW{width}" for major in ("K", "MN") for width in (32, 64, 128)]
    texts += [f"NVMMASharedLayout({width}, {dtype.bits})" for width in (32, 64, 128)]
    texts += [
        f"SwizzledSharedLayout({chunk}, {per}, {most}, {order})"
        for per, most in ((1, 8), (2, 4), (4, 2))
        for order in ([1, 0], [0, 1])
    ]
    for text in texts:
        with suppress(MemdescError):  # dims that are not whole tiles
            desc = memory_desc(dims, dtype, text)
            if desc.layout.xor:
                yield desc


def _key(desc: MemoryDesc) -> tuple[object, ...]:
    """Return a value that descriptors of the same dims and dtype share if all offsets are equal."""
    layout = desc.layout
    if layout.xor:
        tables = {tuple(range(layout.ndims)): layout.offsets()}
    else:
        tables = {}
        for axis, offsets in zip(layout.axes, layout.tables(), strict=True):
            tables |= _along_dims(axis.dims, offsets.reshape([layout.dims[k] for k in axis.dims]))
    parts = sorted(tables)
    data = b"".join(tables[part].tobytes() for part in parts)
    return (desc.dtype.name, desc.nbytes, *parts, blake2b(data, digest_size=16).digest())


def _along_dims(
    dims: tuple[int, ...], offsets: NDArray[np.int64]
) -> dict[tuple[int, ...], NDArray[np.int64]]:
    """Return the offsets along each dim; those of a fused index, unless they are a sum of these."""
    if len(dims) == 1:
        return {dims: offsets}
    along = [
        np.moveaxis(offsets, k, 0).reshape(size, -1)[:, 0] for k, size in enumerate(offsets.shape)
    ]
    if np.array_equal(reduce(np.add.outer, along), offsets):
        return {(dim,): dim_offsets for dim, dim_offsets in zip(dims, along, strict=True)}
    return {dims: offsets}
