"""Profiles as JSON, and back: what was cut or edited by hand is refused, with its place."""

from __future__ import annotations

import json
from math import prod
from typing import Any, TypeVar

from memdesc import MemdescError
from memdesc.errors import short_repr
from reorder.opencl.schedule.profile import (
    BUFFER,
    COLUMN,
    GPU,
    ROW,
    CopyShape,
    ImageGroups,
    PixelShape,
    Profile,
    Share,
    SkewedShape,
    TileShape,
)

__all__ = ["profile_from_json", "profile_to_json"]

_MOST, _MOST_NBYTES, _MOST_ITEMS, _MOST_SHIFT, _MOST_STEPS = 1 << 20, 1 << 16, 1 << 12, 12, 64
# Most elements of a tile for each work item: its loads are written one by one.
_MOST_LOADS = 128
# Whole vectors of bytes, for elements of any width.
_VECTOR = 16
# What the numbers of a shape may be: larger ones would make kernels that no device builds.
_ANY, _NBYTES, _ITEMS = range(1, _MOST + 1), range(1, _MOST_NBYTES + 1), range(1, _MOST_ITEMS + 1)
_VECTORS = range(_VECTOR, _MOST + 1, _VECTOR)
_LIMITS: dict[type, tuple[range, ...]] = {
    TileShape: (_ANY, _ANY, _NBYTES, _ITEMS, range(2)),
    CopyShape: (_ITEMS, range(1, _MOST_STEPS + 1)),
    PixelShape: (_ANY, _ANY, _ANY, _NBYTES, _ITEMS),
    SkewedShape: (_VECTORS, _VECTORS, _ITEMS, range(_VECTOR, 256, _VECTOR)),
}
# Fields that are tables of shapes, and those that are one shape.
_TABLES: dict[str, type] = {"tiles": TileShape, "copies": CopyShape, "skewed": SkewedShape}
_ROWS: dict[str, type] = {
    "rows": CopyShape,
    "pack_pixels": PixelShape,
    "unpack_pixels": PixelShape,
}
_GROUPS = ("pack", "unpack", "pack_narrow", "unpack_narrow")
_T = TypeVar("_T")


def profile_to_json(profile: Profile) -> str:
    """Return a profile as JSON.

    *Law*: `profile_from_json` returns it.
    """
    data = profile._asdict()
    return json.dumps(data | {name: data[name]._asdict() for name in _GROUPS}, indent=1)


def profile_from_json(text: str) -> Profile:
    """Return a profile from JSON.

    Raises
    ------
    MemdescError
        If the text is none; it names the field.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"it is no JSON: {error}"
        raise MemdescError(msg) from None
    if not isinstance(data, dict):
        msg = f"it is {short_repr(data)}: a profile has fields by name"
        raise MemdescError(msg)
    # fields that profiles did not have from the first on
    later: dict[str, Any] = {name: getattr(GPU, name) for name in ("skewed", *_ROWS)}
    later["chunk"] = 0
    later["maps_images"] = int(bool(data.get("chunk")))
    fields: dict[str, Any] = {}
    for name in Profile._fields:
        if name not in data and name not in later:
            msg = f"it has no {name}"
            raise MemdescError(msg)
        fields[name] = _field(name, data.get(name, later.get(name)))
    return Profile(**fields)


def _field(name: str, value: Any) -> Any:
    """Return the field of a profile from what JSON has."""
    if name in _GROUPS:
        return _groups(name, value)
    if name in _ROWS:
        return _shape(name, value, _ROWS[name])
    if name in _TABLES:
        rows = _sequence(name, value, len(getattr(GPU, name)))
        return tuple(_shape(f"{name}[{k}]", row, _TABLES[name]) for k, row in enumerate(rows))
    return _number(name, value, range(2 if name == "maps_images" else _MOST + 1))


def _number(name: str, value: Any, limits: range) -> int:
    if type(value) is not int or value not in limits:
        steps = f", in steps of {limits.step}" if limits.step > 1 else ""
        numbers = f"an integer from {limits.start} to {limits[-1]}{steps}"
        msg = f"{name} is {short_repr(value)}: give {numbers}"
        raise MemdescError(msg)
    return value


def _sequence(name: str, value: Any, count: int) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or len(value) != count:
        msg = f"{name} is {short_repr(value)}: give {count} values"
        raise MemdescError(msg)
    return value


def _shape(name: str, row: Any, kind: type[_T]) -> _T:
    """Return a shape of some kind, whose numbers are within their limits."""
    limits = _LIMITS[kind]
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined] # of a NamedTuple
    values = _sequence(name, row, len(limits))
    numbers = [
        _number(f"{name}.{field}", value, limit)
        for field, value, limit in zip(fields, values, limits, strict=True)
    ]
    if kind is SkewedShape:
        width, height, work_items, _ = numbers
        if width * height > _MOST_LOADS * work_items:
            msg = (
                f"{name} has {width} x {height} elements for {work_items} work items: give "
                f"{_MOST_LOADS} for each at most"
            )
            raise MemdescError(msg)
    return kind(*numbers)


def _groups(name: str, data: Any) -> ImageGroups:
    if not isinstance(data, dict) or data.keys() != set(ImageGroups._fields):
        msg = f"{name} is {short_repr(data)}: give {', '.join(ImageGroups._fields)}"
        raise MemdescError(msg)
    return ImageGroups(
        **{field: _shares(f"{name}.{field}", shares) for field, shares in data.items()}
    )


def _shares(name: str, rows: Any) -> tuple[Share, ...]:
    if not isinstance(rows, (list, tuple)):
        msg = f"{name} is {short_repr(rows)}: give a list of shares"
        raise MemdescError(msg)
    shares = tuple(_share(f"{name}[{k}]", row) for k, row in enumerate(rows))
    steps = prod(share.steps for share in shares)
    if steps > _MOST_STEPS:
        msg = f"{name} gives a work item {steps} steps: give {_MOST_STEPS} at most"
        raise MemdescError(msg)
    return shares


def _share(name: str, row: Any) -> Share:
    role, shift, steps = _sequence(name, row, len(Share._fields))
    if role not in (COLUMN, ROW, BUFFER):
        msg = f"{name} has role {short_repr(role)}: give {COLUMN}, {ROW} or {BUFFER}"
        raise MemdescError(msg)
    return Share(
        role,
        _number(f"{name}.shift", shift, range(_MOST_SHIFT + 1)),
        _number(f"{name}.steps", steps, range(1, _MOST_STEPS + 1)),
    )
