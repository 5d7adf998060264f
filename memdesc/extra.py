"""Extra: the compensation for int8 convolutions, stored after the elements of the weights.

It consists of sums of stored int8 weights, as int32, one for each padded index of the dims in a
mask, in the order of the weights. It starts at the first multiple of 4 bytes after the elements:
first the sums for s8s8 convolutions, then those for asymmetric sources. Source: oneDNN 3.13,
`memory_extra_desc_t`.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from math import prod
from operator import index as to_int

import numpy as np

from memdesc.checked import Checked
from memdesc.dtypes import DataType
from memdesc.errors import MemdescError, UnsupportedFormatError, short_repr
from memdesc.immutable import value_class
from memdesc.int64 import checked_int, checked_ints
from memdesc.layout import Layout, dim_name
from memdesc.tags import MAX_NDIMS

_INT32_BYTES = 4
# bits of `flags`, as in dnnl_memory_extra_flags_t
_S8S8, _ADJUST, _ASYMMETRIC = 1, 2, 8
_FLAGS = {"s8s8": _S8S8, "asymmetric": _ASYMMETRIC}
# what oneDNN 2.0 to 2.2 leave out, by the bit of the flag
_NEEDED = {_S8S8: "s8m1", _ASYMMETRIC: "zpm1", _ADJUST: "sa0.5"}
# prefix of each number in the verbose form -> field
_VERBOSE_FIELDS = {"s8m": "s8s8_mask", "zpm": "asymmetric_mask", "sa": "scale_adjust"}


@value_class
class Extra(Checked):
    """The compensation stored after the elements of int8 weights.

    Parameters
    ----------
    s8s8_mask : int, optional
        Dims, bit d for dim d. For each index of these dims, -128 times the sum of the weights is
        stored, which corrects convolutions of signed data that use unsigned instructions.
    asymmetric_mask : int, optional
        The same for the negated sum, for sources with a zero point.
    scale_adjust : float
        A further factor of the weights when they are quantised, so that sums of products fit
        saturating instructions: 0.5, or 1 for no adjustment.

    Raises
    ------
    MemdescError
        If a mask or the factor is not valid, or nothing is given.

    Examples
    --------
    >>> d = memdesc.memory_desc((3, 5, 2, 2), "s8", "ABcd4b16a4b")
    >>> d.nbytes, d.with_extra(memdesc.Extra(s8s8_mask=1, asymmetric_mask=1)).nbytes
    (1024, 1152)
    """

    s8s8_mask: int | None = None
    asymmetric_mask: int | None = None
    scale_adjust: float = 1.0

    def __post_init__(self) -> None:
        for name in ("s8s8_mask", "asymmetric_mask"):
            if (mask := getattr(self, name)) is None:
                continue
            bits = checked_int(name, mask)
            object.__setattr__(self, name, bits)
            if not 0 < bits < 1 << MAX_NDIMS:
                raise MemdescError(
                    f"{name} must be an integer of 1 to {(1 << MAX_NDIMS) - 1}, "
                    f"with bit d set for dim d, not {short_repr(mask)}"
                )
        adjust = self.scale_adjust
        scale = adjust.item() if isinstance(adjust, np.generic) else adjust
        is_number = isinstance(scale, int | float) and not isinstance(scale, bool)
        if not is_number or not 0 < scale <= sys.float_info.max:
            raise MemdescError(f"scale_adjust must be a positive number, not {short_repr(adjust)}")
        # equal numbers of other types would be shown differently
        object.__setattr__(self, "scale_adjust", float(scale))
        if not self.flags:
            raise MemdescError(
                "an Extra needs a mask or scale_adjust; use None for no compensation"
            )

    @property
    def flags(self) -> int:
        """OneDNN's bits: 1 s8s8 compensation, 2 scale adjust, 8 asymmetric source."""
        flags = _ADJUST if self.scale_adjust != 1 else 0
        return flags | sum(_FLAGS[name] for name in self.masks)

    @property
    def masks(self) -> dict[str, int]:
        """The given masks by the name of the compensation, in memory order."""
        masks = {"s8s8": self.s8s8_mask, "asymmetric": self.asymmetric_mask}
        return {name: mask for name, mask in masks.items() if mask is not None}

    def spans(
        self, nbytes: int, padded_dims: tuple[int, ...]
    ) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Return the first byte and the shape of each compensation, after elements of `nbytes`."""
        spans = {}
        padded_dims = checked_ints("padded_dims", padded_dims)
        at = -(-to_int(nbytes) // _INT32_BYTES) * _INT32_BYTES
        for name, mask in self.masks.items():
            shape = tuple(size for dim, size in enumerate(padded_dims) if mask >> dim & 1)
            spans[name] = at, shape
            at += _INT32_BYTES * prod(shape)
        return spans

    def nbytes(self, nbytes: int, padded_dims: tuple[int, ...]) -> int:
        """Return the bytes of elements and compensation together."""
        total = to_int(nbytes)
        for at, shape in self.spans(nbytes, padded_dims).values():
            total = at + _INT32_BYTES * prod(shape)
        return total

    def to_verbose(self) -> str:
        """Write it as oneDNN's verbose mode does: ``f9:s8m1:zpm1``."""
        text = f"f{self.flags}"
        text += "" if self.s8s8_mask is None else f":s8m{self.s8s8_mask}"
        text += "" if self.asymmetric_mask is None else f":zpm{self.asymmetric_mask}"
        return text + ("" if self.scale_adjust == 1 else f":sa{self.scale_adjust:g}")

    @staticmethod
    def from_verbose(text: str) -> Extra | None:
        """Read what `to_verbose` wrote; ``f0`` is None.

        Raises
        ------
        MemdescError
            If the string does not have this form, or the flags do not match it.
        UnsupportedFormatError
            If the flags stand for other compensation, such as that of RNN weights.
        """
        if not isinstance(text, str):
            raise MemdescError(f"an Extra is read from a string, not {short_repr(text)}")
        head, *parts = text.split(":")
        flags = int(head[1:]) if re.fullmatch("f[0-9]{1,9}", head) else 0
        if flags & ~(_S8S8 | _ADJUST | _ASYMMETRIC):
            raise UnsupportedFormatError(
                f"{short_repr(text)}: flags {flags} mean other compensation, such as that of RNN "
                "weights; an Extra has 1 (s8m), 2 (sa) and 8 (zpm)"
            )
        if flags & (_S8S8 | _ASYMMETRIC) and not parts:
            masks = "".join(f":{name}" for bit, name in _NEEDED.items() if flags & bit)
            raise UnsupportedFormatError(
                f"{short_repr(text)}: the masks of the compensation are missing, as in logs of "
                f"oneDNN 2.0 to 2.2, so its size is not known; add them, such as "
                f"{text + masks!r} for weights without groups (mask 3 with groups)"
            )
        numbers: dict[str, float] = {}
        for part in parts:
            prefix = next((prefix for prefix in _VERBOSE_FIELDS if part.startswith(prefix)), "")
            digits = part[len(prefix) :]
            with suppress(ValueError):
                number = float(digits) if prefix == "sa" else int(digits)
                if prefix and _VERBOSE_FIELDS[prefix] not in numbers:
                    numbers[_VERBOSE_FIELDS[prefix]] = number
                    continue
            raise MemdescError(
                f"{short_repr(text)}: {short_repr(part)} must be s8mMASK, zpmMASK or saFACTOR, "
                "each at most once"
            )
        extra = Extra(**numbers) if numbers else None  # type: ignore[arg-type] # masks are integers
        said = extra.flags if extra else 0
        # a factor of 1 is flagged but not printed
        if head not in {f"f{said}", f"f{said | _ADJUST}" if "scale_adjust" not in numbers else ""}:
            raise MemdescError(
                f"{short_repr(text)}: the flags do not match what follows them; "
                "known are 1 (s8m), 2 (sa) and 8 (zpm)"
            )
        return extra


def check_extra(extra: object, dtype: DataType, layout: Layout, letters: str | None = None) -> None:
    """Refuse compensation that does not fit a data type and a layout."""
    if not isinstance(extra, Extra):
        raise MemdescError(f"extra must be an Extra or None, not {short_repr(extra)}")
    if dtype.name != "s8":
        raise MemdescError(
            f"{extra} is for s8 weights, not for {dtype}; leave it out: with_extra(None)"
        )
    layout.strides(letters)  # refuses fused dims, for which oneDNN has no padded dims
    for mask in extra.masks.values():
        if mask >> layout.ndims:
            dim = dim_name(mask.bit_length() - 1, letters)
            raise MemdescError(f"{extra} names {dim}, but the dims are {layout.dims}")
