"""What of a profile is searched: for each part, what it may be, and the reorders that use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import data_type
from memdesc.names import is_image
from reorder.bench.device_cases import (
    CONVERSIONS,
    COPIES,
    FOUR_BITS,
    IMAGES,
    TRANSPOSES,
    DeviceCase,
)
from reorder.opencl.schedule.profile import CopyShape, PixelShape, Profile, SkewedShape, TileShape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Part", "profile_parts"]

_KIB = 1024
_TILES = tuple(
    TileShape(*sizes)
    for sizes in (
        (64, 64, 4 * _KIB, 64),
        (128, 64, 8 * _KIB, 128),
        (128, 128, 8 * _KIB, 128),
        (128, 128, 16 * _KIB, 256),
        (256, 128, 16 * _KIB, 256),
        (256, 256, 8 * _KIB, 128),
        (256, 256, 16 * _KIB, 256),
        (256, 256, 16 * _KIB, 512),
    )
)
# Of processors a work item has a tile alone.
_ALONE = tuple(
    TileShape(*sizes, 1)
    for sizes in (
        (64, 64, 4 * _KIB),
        (128, 64, 8 * _KIB),
        (128, 128, 8 * _KIB),
        (256, 128, 16 * _KIB),
        (256, 256, 8 * _KIB),
        (256, 256, 16 * _KIB),
    )
)
# Bytes that a work item of a processor moves by itself.
_CHUNKS = tuple(_KIB << k for k in (2, 3, 5, 6, 8))
_COPIES = tuple(CopyShape(*sizes) for sizes in ((64, 4), (128, 2), (128, 4), (256, 1), (256, 8)))
_ROWS = tuple(CopyShape(*sizes) for sizes in ((64, 2), (128, 1), (256, 1), (256, 2), (512, 1)))
# Pixels of an image that are stored together, and sizes of tiles.
_PIXELS = tuple(
    PixelShape(run, columns, rows, *sizes)
    for columns, rows in ((4, 2), (2, 4), (8, 1))
    for run, sizes in ((128, (4608, 128)), (256, (9216, 256)))
)
# By the bytes of an element: rows that end at a half, one or two sectors of 32 bytes.
_SKEWED: dict[int, tuple[SkewedShape, ...]] = {
    1: tuple(
        SkewedShape(*sizes)
        for sizes in (
            (128, 96, 128, 32),
            (128, 112, 256, 16),
            (128, 192, 256, 64),
            (64, 96, 128, 32),
        )
    ),
    2: tuple(
        SkewedShape(*sizes)
        for sizes in ((64, 48, 128, 32), (128, 112, 256, 32), (128, 64, 256, 16), (64, 96, 256, 64))
    ),
    4: tuple(
        SkewedShape(*sizes)
        for sizes in ((64, 64, 256, 32), (32, 64, 256, 32), (64, 48, 256, 16), (64, 48, 256, 64))
    ),
}


class Part(NamedTuple):
    """A part of a profile: what else it may be, how it is set, and the reorders that use it.

    The first reorder chooses what the others are measured with.
    """

    name: str
    values: tuple[Any, ...]
    replaced: Callable[[Profile, Any], Profile]
    cases: tuple[DeviceCase, ...]


def profile_parts(profile: Profile) -> tuple[Part, ...]:
    """Return the parts of a profile that are searched: those that kernels of its kind use."""
    parts = tuple(_serial_parts() if profile.chunk else _parts())
    # what the profile has is measured anyway
    return tuple(
        part._replace(values=tuple(v for v in part.values if part.replaced(profile, v) != profile))
        for part in parts
    )


def _serial_parts() -> Iterator[Part]:
    # images are mapped
    for k, nbytes in enumerate((1, 2, 4, 8)):
        cases = (*_transposes(nbytes, is_odd=False), *_transposes(nbytes, is_odd=True))
        yield Part(f"tiles of {nbytes} bytes", _ALONE, _row("tiles", k), cases)
    cases = (*COPIES, *(case for case in CONVERSIONS if case.src == case.dst))
    yield Part("bytes of a work item", _CHUNKS, _field("chunk"), cases)


def _parts() -> Iterator[Part]:
    for k, nbytes in enumerate((1, 2, 4, 8)):
        cases = _transposes(nbytes, is_odd=False)
        # squares of 4 bits have the tiles of a byte
        cases += FOUR_BITS[:1] if nbytes == 1 else ()
        yield Part(f"tiles of {nbytes} bytes", _TILES, _row("tiles", k), cases)
    for k, (nbytes, shapes) in enumerate(_SKEWED.items()):
        cases = _transposes(nbytes, is_odd=True)
        yield Part(f"tiles of odd rows of {nbytes} bytes", shapes, _row("skewed", k), cases)
    yield Part("copies of odd rows", _ROWS, _field("rows"), COPIES[:3])
    for k in (3, 4):
        yield Part(f"copies of {1 << k} bytes", _COPIES, _row("copies", k), (COPIES[k],))
    # pixels of 8 bytes depend on the tiles most
    halves = [case for case in IMAGES if case.dtype == "f16"]
    for field, packs in (("pack_pixels", True), ("unpack_pixels", False)):
        cases = tuple(case for case in halves if is_image(case.dst) == packs)
        yield Part(f"tiles of {field.replace('_', 'ed ')}", _PIXELS, _field(field), cases)


def _transposes(nbytes: int, *, is_odd: bool) -> tuple[DeviceCase, ...]:
    """Return the transposes of elements of some bytes whose rows start anywhere, or do not."""
    return tuple(
        case
        for case in TRANSPOSES
        if data_type(case.dtype).bits == 8 * nbytes and any(d % 16 for d in case.dims[:2]) == is_odd
    )


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
