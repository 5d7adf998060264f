"""Attributes of what is measured: options of the command line to an Attr."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from memdesc import MemdescError
from reorder.values.attr import Attr

__all__ = ["ATTRIBUTES", "attr_of"]

# Options, and the parameters of an Attr that they set.
ATTRIBUTES = {
    "scale": "dst_scale",
    "zero-point": "dst_zero_point",
    "src-scale": "src_scale",
    "src-zero-point": "src_zero_point",
    "beta": "beta",
}


def attr_of(dims: tuple[int, ...], options: dict[str, str]) -> Attr | None:
    """Return the attributes that options ask for.

    A value is a number, or (except for beta) ``mask:M`` for generated values along the dims of
    the mask, ``mask:M:GxH`` for one value for each G x H elements of the last two dims.

    Raises
    ------
    MemdescError
        If a value is neither.
    """
    given: dict[str, Any] = {}
    for option, text in options.items():
        role = ATTRIBUTES[option]
        try:
            if text.startswith("mask:") and role != "beta":
                mask, groups = _mask_and_groups(text)
                sizes = list(dims)
                for k, group in enumerate(reversed(groups), 1):
                    sizes[-k] = -(-dims[-k] // group)
                count = prod(size for dim, size in enumerate(sizes) if mask >> dim & 1)
                spread = np.arange(count) % 7
                given |= {
                    role: spread if "zero" in role else (0.5 + spread / 8).astype(np.float32),
                    f"{role}_mask": mask,
                }
                given |= {f"{role}_groups": groups} if groups else {}
            else:
                given[role] = int(text) if "zero" in role else float(text)
        except ValueError:
            what = (
                "no number"
                if role == "beta"
                else "neither a number nor mask:M, such as mask:2 for one along dim b, nor "
                "mask:M:GxH, such as mask:3:1x32"
            )
            msg = f"--{option} {text!r} is {what}"
            raise MemdescError(msg) from None
    return Attr(**given) if given else None


def _mask_and_groups(text: str) -> tuple[int, tuple[int, ...]]:
    _, mask, *groups = text.split(":")
    return int(mask), tuple(int(size) for size in groups[0].split("x")) if groups else ()
