"""A short search for the profile of a device: each part alone, over the reorders that use it.

Two reorders of a part choose a few of its values, all of them choose the best of these: a kernel of
an NVIDIA H200 takes a quarter of a second to build.
"""

from __future__ import annotations

from itertools import permutations, product
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import pyopencl as cl

from memdesc import MemdescError, data_type
from memdesc.names import is_image
from reorder.bench.device_cases import (
    CONVERSIONS,
    COPIES,
    IMAGES,
    TRANSPOSES,
    DeviceCase,
    resized,
)
from reorder.bench.report import geometric_mean
from reorder.opencl.schedule.profile import (
    BUFFER,
    COLUMN,
    ROW,
    CopyShape,
    PixelShape,
    Profile,
    Share,
    TileShape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reorder.bench.device import DeviceBench, Loaded

__all__ = ["Part", "profile_parts", "tune"]

_RUNS = 5
# Values of a part that all of its reorders are measured with; seconds after which no part begins.
_KEPT, _MOST_SECONDS = 3, 480
# bytes of the elements that tiles realign
_WORD = 4
_KIB = 1024
_TILES = tuple(
    TileShape(src, dst, nbytes, items, 1, is_realigned)
    for src, dst, nbytes, items in (
        (64, 64, 4 * _KIB, 64),
        (128, 64, 8 * _KIB, 128),
        (128, 128, 8 * _KIB, 128),
        (128, 128, 16 * _KIB, 128),
        (128, 128, 16 * _KIB, 256),
        (256, 128, 16 * _KIB, 256),
        (256, 256, 8 * _KIB, 128),
        (256, 256, 16 * _KIB, 128),
        (256, 256, 16 * _KIB, 256),
        (256, 256, 16 * _KIB, 512),
        (64, 64, 4 * _KIB, 1),
        (128, 128, 16 * _KIB, 1),
        (64, 64, 4 * _KIB, 16),
    )
    for is_realigned in (0, 1)
)
# Bytes that a work item of a processor moves by itself.
_CHUNKS = tuple(_KIB << k for k in (2, 4, 6, 8, 10))
_COPIES = tuple(CopyShape(items, steps) for items in (64, 128, 256) for steps in (1, 2, 4, 8))
# Pixels that a group covers along columns and rows, and elements along the buffer, as log2.
_COVERED = {COLUMN: (1, 3, 4, 6), ROW: (1, 3, 4), BUFFER: (3, 4, 5)}
# log2 of the work items of a group, and of the most steps of one.
_ITEMS, _MOST_STEPS = 7, 1
# Runs, rectangles, tiles and groups of tiles of pixels.
_PIXELS = tuple(
    PixelShape(run, columns, rows, nbytes, items)
    for run in (128, 256)
    for columns, rows in ((2, 4), (4, 2))
    for nbytes in (4608, 9216)
    for items in (128, 256)
)
# What of the groups of images a reorder that converts uses, by the layouts of the buffer and of
# the image, where the lanes of a pixel are contiguous; others go through tiles of pixels.
_FIELDS = {
    ("nhwc", "in_out_channel"): "vector_separate",
    ("nChw16c", "in_out_channel"): "vector_short",
}


class Part(NamedTuple):
    """A part of a profile: what it may be, how it is set, and the reorders that use it."""

    name: str
    values: tuple[Any, ...]
    replaced: Callable[[Profile, Any], Profile]
    cases: tuple[DeviceCase, ...]


def tune(
    bench: DeviceBench,
    profile: Profile,
    parts: Sequence[Part],
    nbytes: int,
    report: Callable[[str, int], None],
) -> Profile:
    """Return the profile with which a device is fastest.

    Parameters
    ----------
    bench : DeviceBench
        The device.
    profile : Profile
        Where the search starts; a part changes only where something is faster.
    parts : sequence of Part
        What is searched, of `profile_parts`.
    nbytes : int
        Most bytes of a tensor.
    report : function of str and int
        Called for each part with what was found, and 1.
    """
    end = monotonic() + _MOST_SECONDS
    for part in parts:
        if monotonic() > end:
            report(f"{part.name}: not searched, since {_MOST_SECONDS} seconds are over", 1)
            continue
        cases = [resized(case, nbytes) for case in part.cases]
        loaded = [bench.load(case) for case in cases if bench.fits(case)]
        if not loaded:
            continue
        tried = [profile, *(part.replaced(profile, value) for value in part.values)]
        kept = _best(bench, loaded[:1] + loaded[1:][-1:], tried)[:_KEPT]
        found = _best(bench, loaded, dict.fromkeys((profile, *(one for _, one in kept))))
        score, profile = found[0] if found else (0.0, profile)
        report(f"{part.name}: {score:.2f} of the copy", 1)
        for one in loaded:
            one.src.release()
            one.dst.release()
    return profile


def _best(
    bench: DeviceBench, loaded: Iterable[Loaded], profiles: Iterable[Profile]
) -> list[tuple[float, Profile]]:
    """Return the mean ratio to the copy of each profile that works, and the profile; best first."""
    found: list[tuple[float, Profile]] = []
    for profile in profiles:
        ratios = []
        try:
            for one in loaded:
                copy = bench.copy_seconds(one.case.nbytes)
                ratios.append(copy / bench.seconds(one, profile, _RUNS))
        except (cl.Error, MemdescError):
            # larger than the local memory, or the registers, of the device
            continue
        score = geometric_mean(ratios)
        if score <= max((best for best, _ in found), default=0) or all(map(bench.is_right, loaded)):
            found.append((score, profile))
    return sorted(found, key=lambda one: -one[0])


def profile_parts(profile: Profile) -> tuple[Part, ...]:
    """Return the parts of a profile that are searched: those that kernels of its kind use."""
    return tuple(_serial_parts() if profile.chunk else _parts())


def _serial_parts() -> Iterator[Part]:
    # a work item has its tiles alone, and images are mapped
    sizes = dict.fromkeys((shape.src_run, shape.dst_run, shape.nbytes) for shape in _TILES)
    yield from _tiles(tuple(TileShape(*size, 1) for size in sizes))
    cases = (*COPIES, *(case for case in CONVERSIONS if case.src == case.dst))
    yield Part("bytes of a work item", _CHUNKS, _field("chunk"), cases)


def _tiles(shapes: tuple[TileShape, ...]) -> Iterator[Part]:
    for k, nbytes in enumerate((1, 2, 4, 8)):
        cases = tuple(case for case in TRANSPOSES if data_type(case.dtype).bits == 8 * nbytes)
        tried = tuple(shape for shape in shapes if nbytes == _WORD or not shape.is_realigned)
        yield Part(f"tiles of {nbytes} bytes", tried, _row("tiles", k), cases)


def _parts() -> Iterator[Part]:
    yield from _tiles(_TILES)
    for k, case in enumerate(COPIES[:5]):
        yield Part(f"copies of {1 << k} bytes", _COPIES, _row("copies", k), (case,))
    # pixels of 8 bytes depend on the tiles most
    halves = [case for case in IMAGES if case.dtype == "f16"]
    for field, packs in (("pack_pixels", True), ("unpack_pixels", False)):
        cases = tuple(case for case in halves if is_image(case.dst) == packs)
        yield Part(f"tiles of {field.replace('_', 'ed ')}", _PIXELS, _field(field), cases)
    cases_of: dict[tuple[str, str], tuple[DeviceCase, ...]] = {}
    for case in IMAGES:
        is_pack = is_image(case.dst)
        narrow = case.dtype == "f16"
        group = ("pack" if is_pack else "unpack") + ("_narrow" if narrow else "")
        layouts = (case.src, case.dst) if is_pack else (case.dst, case.src)
        if layouts not in _FIELDS:
            continue
        field = _FIELDS[layouts]
        converted = case._replace(dtype="f32" if narrow else "f16", to_dtype=case.dtype)
        cases_of[group, field] = (*cases_of.get((group, field), ()), converted)
    for (group, field), cases in cases_of.items():
        yield Part(f"{group} {field}", tuple(_shares()), _shares_of(group, field), cases)


def _field(field: str) -> Callable[[Profile, Any], Profile]:
    """Return what replaces a field."""

    def replaced(profile: Profile, value: Any) -> Profile:
        fields: dict[str, Any] = {field: value}
        return profile._replace(**fields)

    return replaced


def _row(field: str, k: int) -> Callable[[Profile, Any], Profile]:
    """Return what replaces one row of a field."""

    def replaced(profile: Profile, value: Any) -> Profile:
        rows = getattr(profile, field)
        fields: dict[str, Any] = {field: (*rows[:k], value, *rows[k + 1 :])}
        return profile._replace(**fields)

    return replaced


def _shares_of(group: str, field: str) -> Callable[[Profile, Any], Profile]:
    """Return what replaces the shares of one field of a group."""

    def replaced(profile: Profile, value: Any) -> Profile:
        groups = getattr(profile, group)._replace(**{field: value})
        fields: dict[str, Any] = {group: groups}
        return profile._replace(**fields)

    return replaced


def _shares() -> Iterator[tuple[Share, ...]]:
    """Yield the shares to try: what a group covers, the steps of a work item, and orders."""
    roles = COLUMN, ROW, BUFFER
    # two of the orders: columns of the image are contiguous
    orders = list(permutations(roles))[:2]
    for covered in product(*(_COVERED[role] for role in roles)):
        for steps in product(range(3), repeat=len(roles)):
            items = sum(covered) - sum(steps)
            if (
                sum(steps) > _MOST_STEPS
                or items != _ITEMS
                or any(step > cover for step, cover in zip(steps, covered, strict=True))
            ):
                continue
            shares = {
                role: Share(role, cover - step, 1 << step)
                for role, cover, step in zip(roles, covered, steps, strict=True)
            }
            for order in orders:
                yield tuple(shares[role] for role in order)
