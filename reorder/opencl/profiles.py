"""The profile of a device: what a user measured for it, else what suits devices of its kind."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pyopencl as cl

from reorder.opencl.schedule.profile import CPU, GPU
from reorder.opencl.schedule.profile_json import profile_from_json, profile_to_json
from reorder.opencl.user_cache import cache_folder

if TYPE_CHECKING:
    from pathlib import Path

    from reorder.opencl.schedule.profile import Profile

__all__ = ["default_profile", "profile_of", "save_profile"]


@cache
def profile_of(device: cl.Device) -> Profile:
    """Return the saved profile of a device; the default one if there is none, or it is damaged."""
    path = _path(device)
    try:
        text = "" if path is None else path.read_text(encoding="utf-8")
    except OSError:
        text = ""
    return (text and profile_from_json(text)) or default_profile(device)


def default_profile(device: cl.Device) -> Profile:
    """Return what suits devices of its kind."""
    return CPU if device.type & cl.device_type.CPU else GPU


def save_profile(device: cl.Device, profile: Profile) -> Path | None:
    """Write the profile of a device for later processes; return the file, None without a folder."""
    path = _path(device)
    if path is None:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(profile_to_json(profile), encoding="utf-8")
    return path


def _path(device: cl.Device) -> Path | None:
    folder = cache_folder()
    name = re.sub("[^A-Za-z0-9]+", "-", f"{device.platform.name} {device.name}").strip("-")
    return None if folder is None else folder / "profiles" / f"{name}.json"
