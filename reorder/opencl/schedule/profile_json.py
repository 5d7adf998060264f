"""Profiles as JSON, and back: a file that was cut or edited by hand is no profile."""

from __future__ import annotations

import json
from typing import Any

from reorder.opencl.schedule.profile import (
    BUFFER,
    COLUMN,
    GPU,
    ROW,
    CopyShape,
    ImageGroups,
    Profile,
    Share,
    TileShape,
)

__all__ = ["profile_from_json", "profile_to_json"]

# A schedule takes any numbers up to this; larger ones would make kernels that no device builds.
_MOST = 1 << 20
_GROUPS = ("pack", "unpack", "pack_narrow", "unpack_narrow")


def profile_to_json(profile: Profile) -> str:
    """Return a profile as JSON.

    *Law*: `profile_from_json` returns it.
    """
    data = profile._asdict()
    return json.dumps(data | {name: data[name]._asdict() for name in _GROUPS}, indent=1)


def profile_from_json(text: str) -> Profile | None:
    """Return a profile from JSON; None if the text is none."""
    try:
        data = json.loads(text)
        profile = Profile(
            tiles=_all(TileShape, data["tiles"], len(GPU.tiles)),
            copies=_all(CopyShape, data["copies"], len(GPU.copies)),
            **{name: _groups(data[name]) for name in _GROUPS},
            min_tiled=_number(data["min_tiled"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return profile


def _all(kind: Any, rows: Any, count: int) -> Any:
    if len(rows) != count:
        raise ValueError
    return tuple(kind(*map(_number, row)) for row in rows)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError
    return value


def _groups(data: Any) -> ImageGroups:
    return ImageGroups(**{name: tuple(map(_share, shares)) for name, shares in data.items()})


def _share(row: Any) -> Share:
    role, shift, steps = row
    if role not in {COLUMN, ROW, BUFFER} or steps < 1:
        raise ValueError
    return Share(role, _number(shift), _number(steps))
