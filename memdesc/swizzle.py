"""XOR terms, the swizzle of a layout: `offset = base ^ (base >> shift & mask) ^ ...`.

The base is the offset that blocks and strides give, `offset0` included. All terms read the base,
and a negative shift goes left. Over bits, with XOR as the sum, this is a linear map. Source:
CUTLASS 4.7, `include/cute/swizzle.hpp`, whose `Swizzle<B,M,S>` is one term.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from memdesc.errors import MemdescError, short_repr
from memdesc.int64 import checked_ints, entries_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    # an index or an offset, or an array of them
    Int = TypeVar("Int", int, NDArray[np.int64])

# the shift and the mask of each term
Terms = tuple[tuple[int, int], ...]

# bits of an offset; the last one is the sign
_BITS = 63
# Masks end below this bit: the last offset of a layout is searched for in a range of this many
# bits.
_MAX_TARGET = 20


def swizzled(terms: Terms, base: Int) -> Int:
    """Return the offset that terms make of a base.

    >>> swizzled(((3, 0b111000),), 64)
    72
    """
    offset = base
    for shift, mask in terms:
        offset = offset ^ ((base >> shift if shift > 0 else base << -shift) & mask)
    return offset


def xor_expression(base: str, terms: Terms) -> str:
    """Write `swizzled` of a name, in the syntax of Python and C.

    What is shifted left is masked first, because C does not allow that for negative or large
    numbers.
    """
    parts = (
        f"{base} >> {shift} & {mask}" if shift > 0 else f"({base} & {mask >> -shift}) << {-shift}"
        for shift, mask in terms
    )
    return "".join([base, *(f" ^ ({part})" for part in parts)])


def unswizzled(terms: Terms, offset: Int) -> Int:
    """Return the base of an offset: the inverse of `swizzled`."""
    base = offset >> _length(terms) << _length(terms)
    for bit, source in enumerate(_inverse(terms) or ()):
        base = base ^ (offset >> bit & 1) * source
    return base


def is_own_inverse(terms: Terms) -> bool:
    """Whether the same terms map an offset back to its base, as those of one swizzle do."""
    bits = [1 << bit for bit in range(_length(terms))]
    return all(swizzled(terms, swizzled(terms, bit)) == bit for bit in bits)


def inverted(columns: Sequence[int]) -> tuple[int, ...] | None:
    """Return the inverse of a map that is linear over bits; None if it has none.

    `columns` has the image of each bit, and the result the source of each bit.
    """
    pairs = [(image, 1 << bit) for bit, image in enumerate(columns)]
    for bit in range(len(pairs)):
        k = next((k for k in range(bit, len(pairs)) if pairs[k][0] >> bit & 1), None)
        if k is None:
            return None
        pairs[bit], pairs[k] = pairs[k], pairs[bit]
        image, source = pairs[bit]
        for j, (other, others_source) in enumerate(pairs):
            if j != bit and other >> bit & 1:
                pairs[j] = other ^ image, others_source ^ source
    return tuple(source for _, source in pairs)


@lru_cache(maxsize=256)
def _inverse(terms: Terms) -> tuple[int, ...] | None:
    return inverted([swizzled(terms, 1 << bit) for bit in range(_length(terms))])


def concerned(terms: Terms) -> tuple[int, int]:
    """Return the bits that terms read, and the bits that they change."""
    sources = targets = 0
    for shift, mask in terms:
        sources |= mask << shift if shift > 0 else mask >> -shift
        targets |= mask
    return sources, targets


def period_of(terms: Terms) -> int:
    """Return after how many elements the pattern of terms repeats; 1 without terms."""
    sources, targets = concerned(terms)
    return 1 << (sources | targets).bit_length()


def _length(terms: Terms) -> int:
    """Return how many of the lowest bits terms read or change."""
    return period_of(terms).bit_length() - 1


def exact_terms(terms: object) -> Terms:
    """Return terms sorted by shift, equal shifts joined; refuse what is not one-to-one."""
    masks: dict[int, int] = {}
    try:
        pairs = [checked_ints("numbers of an XOR term", term) for term in entries_of("xor", terms)]
    except TypeError:
        pairs = [()]
    for pair in pairs:
        shift, mask = pair if len(pair) == 2 else (0, 0)  # noqa: PLR2004 - a pair
        if not 0 < abs(shift) < _BITS or not 0 <= mask < 1 << _MAX_TARGET:
            raise MemdescError(
                f"xor must be a tuple of (shift, mask), the shift not 0, the mask below "
                f"2**{_MAX_TARGET}, not {short_repr(terms)}"
            )
        masks[shift] = masks.get(shift, 0) ^ mask & _reachable(shift, (1 << _BITS) - 1)
    joined = tuple(sorted((shift, mask) for shift, mask in masks.items() if mask))
    if _inverse(joined) is None:
        raise MemdescError(
            f"xor {short_repr(terms)} gives two bases the same offset, so elements would overlap"
        )
    return joined


def terms_of_bytes(count: int, low: int, shift: int, bits: int = 8) -> Terms:
    """Return the term of CuTe's `Swizzle<count,low,shift>` of bytes, for elements of some bits.

    What swaps bits inside an element is dropped. For a swizzle of elements, whatever their width,
    `bits` stays 8.
    """
    low += (8).bit_length() - bits.bit_length()
    mask = (1 << max(count + min(low, 0), 0)) - 1 << max(low, 0)
    return exact_terms(((shift, mask if shift > 0 else mask << -shift),) if mask else ())


def _reachable(shift: int, bits: int) -> int:
    """Return the bits that a term of this shift may change in bases made of the given bits."""
    return bits >> shift if shift > 0 else bits << -shift & (1 << _BITS) - 1


def terms_within(terms: Terms, bits: int) -> Terms:
    """Return terms without the bits that they read beyond the given ones, which are always 0."""
    if len({shift > 0 for shift, _ in terms}) > 1:
        return terms  # fewer bits might not be one-to-one
    kept = ((shift, mask & _reachable(shift, bits)) for shift, mask in terms)
    return tuple((shift, mask) for shift, mask in kept if mask)
