"""A reorder to measure: how it is spelled, and its two layouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from memdesc import ImageDesc, MemdescError, MemoryDesc, parse_layout
from memdesc.tuples import NamedTuple
from reorder.values.attr import Attr

# Options, and the parameters of an `Attr` that they set.
ATTRIBUTES = MappingProxyType(
    {
        "scale": "dst_scale",
        "zero-point": "dst_zero_point",
        "src-scale": "src_scale",
        "src-zero-point": "src_zero_point",
        "beta": "beta",
    }
)
_MASK = re.compile(r"mask:(?P<mask>[0-9]{1,4})(:(?P<groups>[0-9]{1,19}(x[0-9]{1,19})*))?")


class Case(NamedTuple):
    """One reorder: its name, its two layouts, of which src may be a view of a larger tensor."""

    name: str
    src: MemoryDesc
    dst: MemoryDesc
    attr: Attr | None = None

    @property
    def nbytes(self) -> int:
        """Bytes read plus bytes written, including padding."""
        return self.src.dtype.nbytes(self.src.nelems) + self.dst.dtype.nbytes(
            self.dst.padded_nelems
        )


class Problem(NamedTuple):
    """A reorder as it is spelled: dims, layouts and types, strides, and options of an `Attr`.

    Without a type it is the one in the layout; if that has none, f32 or the type of src.
    """

    dims: tuple[int, ...]
    src: str
    dst: str
    dtype: str | None = None
    to_dtype: str | None = None
    # SRC:DST, either of which may be empty, instead of layouts
    strides: str = ""
    options: Mapping[str, str] = {}
    name: str = ""

    @property
    def descs(self) -> tuple[MemoryDesc | ImageDesc, MemoryDesc | ImageDesc]:
        """Descriptors of src and dst."""
        one, _, other = self.strides.partition(":")
        layouts = f"strides:{one}" if one else self.src, f"strides:{other}" if other else self.dst
        src = parse_layout(layouts[0], self.dims, self.dtype, default="f32")
        return src, parse_layout(layouts[1], self.dims, self.to_dtype, default=src.dtype)

    @property
    def attr(self) -> Attr | None:
        """The attributes that the options ask for."""
        return attr_of(self.dims, self.options)

    @property
    def mean_nbytes(self) -> int:
        """The mean of the bytes of the elements of src and of dst."""
        return prod(self.dims) * sum(desc.dtype.bits for desc in self.descs) // 16

    def case(self) -> Case:
        """Return the case; fails if a side is an image, or something does not fit."""
        sides = zip(self.descs, (self.src, self.dst), strict=True)
        src, dst = (_checked_buffer(desc, layout) for desc, layout in sides)
        types = f"{src.dtype}" if src.dtype == dst.dtype else f"{src.dtype}->{dst.dtype}"
        one, _, other = (f"[{part}]" if part else "" for part in self.strides.partition(":"))
        suffix = "".join(f" {option} {text}" for option, text in self.options.items())
        dims = "x".join(map(str, self.dims))
        name = self.name or f"{types} {dims} {self.src}{one} -> {self.dst}{other}{suffix}"
        return Case(name, src, dst, self.attr)


def _checked_buffer(desc: MemoryDesc | ImageDesc, layout: str) -> MemoryDesc:
    if isinstance(desc, ImageDesc):
        raise MemdescError(
            f"{layout!r} is an image type, not a linear buffer; `memdesc reorder IN.npy "
            f"OUT.safetensors --to {layout}` makes its pixels"
        )
    return desc


def attr_of(dims: tuple[int, ...], options: Mapping[str, str]) -> Attr | None:
    """Return the attributes that options ask for: numbers, or values along the dims of a mask.

    ``mask:M`` generates values, ``mask:M:GxH`` one for each G x H elements of the last two dims.
    """
    given: dict[str, Any] = {}
    for option, text in options.items():
        role = ATTRIBUTES[option]
        if (match := _MASK.fullmatch(text)) and role != "beta":
            given |= _generated(dims, role, int(match["mask"]), match["groups"])
            continue
        try:
            given[role] = int(text) if "zero" in role else float(text)
        except ValueError:
            what = (
                "not a number"
                if role == "beta"
                else "neither a number nor mask:M, such as mask:2 for one value per index of dim "
                "b, nor mask:M:GxH, such as mask:3:1x32"
            )
            raise MemdescError(f"--{option} {text!r} is {what}") from None
    return Attr(**given) if given else None


def _generated(dims: tuple[int, ...], role: str, mask: int, groups: str | None) -> dict[str, Any]:
    widths = tuple(map(int, groups.split("x"))) if groups else ()
    if len(widths) > len(dims) or 0 in widths:
        raise MemdescError(f"groups {groups} do not fit dims {dims}")
    widths_of_all = (*(1,) * (len(dims) - len(widths)), *widths)
    counts = [-(-dim // width) for dim, width in zip(dims, widths_of_all, strict=True)]
    count = prod(n for dim, n in enumerate(counts) if mask >> dim & 1)
    spread = np.arange(7, dtype=np.int32)
    period = spread if "zero" in role else (0.5 + spread / 8).astype(np.float32)
    values = np.tile(period, -(-count // period.size))[:count]
    given: dict[str, Any] = {role: values, f"{role}_mask": mask}
    return given | ({f"{role}_groups": widths} if widths else {})
