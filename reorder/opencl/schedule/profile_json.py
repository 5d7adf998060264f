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
    PixelShape,
    Profile,
    Share,
    TileShape,
)

__all__ = ["profile_from_json", "profile_to_json"]

# A schedule takes any numbers up to these; larger ones would make kernels that no device builds.
_MOST, _MOST_SHIFT, _MOST_STEPS = 1 << 20, 12, 64
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
        chunk = _number(data.get("chunk", 0), 0)
        profile = Profile(
            tiles=tuple(_tile(row) for row in data["tiles"]),  # type: ignore[arg-type] # counted below
            copies=tuple(_copy(row) for row in data["copies"]),  # type: ignore[arg-type] # likewise
            pack=_groups(data["pack"]),
            unpack=_groups(data["unpack"]),
            pack_narrow=_groups(data["pack_narrow"]),
            unpack_narrow=_groups(data["unpack_narrow"]),
            # profiles were kept without tiles of pixels before there were some
            pack_pixels=_pixels(data.get("pack_pixels", GPU.pack_pixels)),
            unpack_pixels=_pixels(data.get("unpack_pixels", GPU.unpack_pixels)),
            min_tiled=_number(data["min_tiled"], 0),
            chunk=chunk,
            # profiles of processors were kept without it before there was a choice
            maps_images=_number(data.get("maps_images", int(chunk > 0)), 0, 1),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    is_whole = len(profile.tiles) == len(GPU.tiles) and len(profile.copies) == len(GPU.copies)
    return profile if is_whole else None


def _number(value: Any, least: int = 1, most: int = _MOST) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError
    return value


def _tile(row: Any) -> TileShape:
    src_run, dst_run, nbytes, work_items, order, is_realigned = row
    sizes = _number(src_run), _number(dst_run), _number(nbytes), _number(work_items)
    return TileShape(*sizes, _number(order, 0, 1), _number(is_realigned, 0, 1))


def _pixels(row: Any) -> PixelShape:
    run, columns, rows, nbytes, work_items = map(_number, row)
    return PixelShape(run, columns, rows, nbytes, work_items)


def _copy(row: Any) -> CopyShape:
    work_items, steps = row
    return CopyShape(_number(work_items), _number(steps, 1, _MOST_STEPS))


def _groups(data: Any) -> ImageGroups:
    return ImageGroups(**{name: tuple(map(_share, shares)) for name, shares in data.items()})


def _share(row: Any) -> Share:
    role, shift, steps = row
    if role not in {COLUMN, ROW, BUFFER}:
        raise ValueError
    return Share(role, _number(shift, 0, _MOST_SHIFT), _number(steps, 1, _MOST_STEPS))
