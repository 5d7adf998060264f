"""The profile of a device: what a user measured for it, else what suits devices of its kind."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import pyopencl as cl

from memdesc import MemdescError
from memdesc.disk import read_if_exists, write_files
from reorder.opencl.schedule.profile import CPU, GPU
from reorder.opencl.schedule.profile_json import profile_from_json, profile_to_json
from reorder.opencl.user_cache import cache_folder

if TYPE_CHECKING:
    from pathlib import Path

    from reorder.opencl.schedule.profile import Profile

__all__ = ["default_profile", "profile_of", "profile_path", "save_profile"]


_LOG = logging.getLogger("reorder")


_MAX_NBYTES = 1 << 20


@cache
def profile_of(device: cl.Device) -> Profile:
    """Return the saved profile of a device; the default one if there is none.

    A file that holds no profile is refused, with a warning of the logger ``reorder``.
    """
    path = profile_path(device)
    try:
        data = None if path is None else read_if_exists(path, _MAX_NBYTES)
        if data is not None:
            return profile_from_json(data.decode("utf-8", "replace"))
    except MemdescError as error:
        said = "the profile %s is not used: %s; `memdesc bench --device NAME --tune` replaces it"
        _LOG.warning(said, path, error)
    return default_profile(device)


def default_profile(device: cl.Device) -> Profile:
    """Return what suits devices of its kind."""
    return CPU if device.type & cl.device_type.CPU else GPU


def save_profile(device: cl.Device, profile: Profile) -> Path | None:
    """Write the profile of a device for later processes; return the file.

    None if none is kept: there is no folder, or it is the default one, which replaces a file.

    Raises
    ------
    MemdescError
        If it cannot be written, or the file that the default replaces cannot be removed.
    """
    path = profile_path(device)
    if path is None:
        return None
    if profile == default_profile(device):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            msg = f"{path} cannot be removed: {error.strerror}; its profile stays in use"
            raise MemdescError(msg) from None
        return None
    text = profile_to_json(profile).encode()
    # a folder that cannot be made is named by the next line
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_files({path: lambda out: out.write(text)})
    return path


def profile_path(device: cl.Device) -> Path | None:
    """Return the file of the profile of a device, which may not exist; None without a folder."""
    folder = cache_folder()
    name = re.sub("[^A-Za-z0-9]+", "-", f"{device.platform.name} {device.name}").strip("-")
    return None if folder is None else folder / "profiles" / f"{name}.json"
