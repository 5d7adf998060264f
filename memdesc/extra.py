"""Extra: the compensation of int8 convolutions, which lies behind the elements of a tensor.

Sums of stored int8 weights, as int32, for each index of the dims of a mask: behind the elements, from a
multiple of 4 bytes on, first that of s8s8 convolutions, then that of asymmetric sources; one number for each
padded index, row-major. Source: oneDNN 3.13, `memory_extra_desc_t`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, prod

from memdesc.errors import MemdescError, short_repr
from memdesc.tags import MAX_NDIMS

__all__ = ["Extra"]

_ALIGNMENT = 4
_S8S8, _ADJUST, _ASYMMETRIC = 1, 2, 8
_MASK_BITS = MAX_NDIMS


@dataclass(frozen=True, slots=True)
class Extra:
    """What lies behind the elements of int8 weights.

    Parameters
    ----------
    s8s8_mask : int, optional
        Dims, bit d for dim d, for each index of which there is -128 times the sum of the
        weights: what a convolution of signed data on unsigned instructions corrects.
    asymmetric_mask : int, optional
        Likewise minus the sum, for sources with a zero point.
    scale_adjust : float
        What weights are multiplied with when they are quantised, besides scales, so that
        sums of products fit instructions that saturate; 0.5, or 1 for nothing.

    Raises
    ------
    MemdescError
        If a mask is none, or the factor is none.

    Examples
    --------
    >>> import memdesc
    >>> d = memdesc.memory_desc((3, 5, 2, 2), "s8", "ABcd4b16a4b")
    >>> d.nbytes, d.with_extra(memdesc.Extra(s8s8_mask=1, asymmetric_mask=1)).nbytes
    (1024, 1152)
    """

    s8s8_mask: int | None = None
    asymmetric_mask: int | None = None
    scale_adjust: float = 1.0

    def __post_init__(self) -> None:
        for name, mask in (
            ("s8s8_mask", self.s8s8_mask),
            ("asymmetric_mask", self.asymmetric_mask),
        ):
            if mask is not None and (
                not isinstance(mask, int)
                or isinstance(mask, bool)
                or not 0 < mask < 1 << _MASK_BITS
            ):
                msg = (
                    f"{name} must be an integer of 1 to {(1 << _MASK_BITS) - 1}, "
                    f"with bit d set for dim d, not {short_repr(mask)}"
                )
                raise MemdescError(msg)
        if (
            not isinstance(self.scale_adjust, int | float)
            or not isfinite(self.scale_adjust)
            or self.scale_adjust <= 0
        ):
            msg = f"scale_adjust must be a positive number, not {short_repr(self.scale_adjust)}"
            raise MemdescError(msg)
        if not self.flags:
            msg = "an Extra without masks and scale_adjust says nothing; use None"
            raise MemdescError(msg)

    @property
    def flags(self) -> int:
        """OneDNN's bits: 1 s8s8 compensation, 2 scale adjust, 8 asymmetric source."""
        flags = _S8S8 if self.s8s8_mask is not None else 0
        flags |= _ADJUST if self.scale_adjust != 1 else 0
        return flags | (_ASYMMETRIC if self.asymmetric_mask is not None else 0)

    @property
    def masks(self) -> dict[str, int]:
        """The masks that are given, by the name of the compensation, in the order in which these lie behind the elements."""
        masks = {"s8s8": self.s8s8_mask, "asymmetric": self.asymmetric_mask}
        return {name: mask for name, mask in masks.items() if mask is not None}

    def spans(
        self, nbytes: int, padded_dims: tuple[int, ...]
    ) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Return where each compensation lies: its first byte, and its shape.

        Parameters
        ----------
        nbytes : int
            Bytes of the elements.
        padded_dims : tuple of int
            Sizes with padding.
        """
        found = {}
        at = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        for name, mask in self.masks.items():
            shape = tuple(size for dim, size in enumerate(padded_dims) if mask >> dim & 1)
            found[name] = at, shape
            at += _ALIGNMENT * prod(shape)
        return found

    def nbytes(self, nbytes: int, padded_dims: tuple[int, ...]) -> int:
        """Return the bytes of elements and what lies behind them."""
        total = nbytes
        for at, shape in self.spans(nbytes, padded_dims).values():
            total = at + _ALIGNMENT * prod(shape)
        return total

    def to_verbose(self) -> str:
        """Return it as oneDNN's verbose mode prints it: ``f9:s8m1:zpm1``."""
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
            If the text has another form, or other flags than those above.
        """
        head, *parts = text.split(":")
        given: dict[str, float] = {}
        names = {"s8m": "s8s8_mask", "zpm": "asymmetric_mask", "sa": "scale_adjust"}
        for part in parts:
            prefix = next((prefix for prefix in names if part.startswith(prefix)), "")
            digits = part[len(prefix) :]
            try:
                given[names[prefix]] = float(digits) if prefix == "sa" else int(digits)
            except (KeyError, ValueError):
                msg = f"{short_repr(text)}: {part!r} is none of s8mMASK, zpmMASK, saFACTOR"
                raise MemdescError(msg) from None
        found = Extra(**given) if given else None  # type: ignore[arg-type] # masks are integers
        if head != f"f{found.flags if found else 0}":
            msg = (
                f"{short_repr(text)}: the flags are none of what follows them; "
                "known are 1 (s8m), 2 (sa) and 8 (zpm)"
            )
            raise MemdescError(msg)
        return found
