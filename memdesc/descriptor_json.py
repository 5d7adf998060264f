"""Descriptors as JSON, written and read."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from memdesc.desc import MemoryDesc, desc_of, memory_desc
from memdesc.dtypes import DataType, data_type
from memdesc.errors import MemdescError, UnsupportedFormatError, short_repr
from memdesc.extra import Extra
from memdesc.image import ImageDesc
from memdesc.int64 import check_length, checked_int, checked_ints
from memdesc.layout import Axis, Block, Layout

if TYPE_CHECKING:
    from collections.abc import Callable

_Read = TypeVar("_Read", MemoryDesc, ImageDesc)
_SIDES = ("width", "height", "channels", "depth")
# version of the JSON form; a different form gets a different number
SCHEMA = 1
# the form with XOR terms, which a reader of schema 1 would skip
_SWIZZLED = 2


def written(desc: MemoryDesc) -> str:
    """Return the text of a descriptor: a line of JSON."""
    import json  # slow to load

    return json.dumps(_fields(desc))


def _fields(desc: MemoryDesc) -> dict[str, Any]:
    layout = desc.layout
    fields: dict[str, Any] = {
        "schema": _SWIZZLED if layout.xor else SCHEMA,
        "dtype": desc.dtype.name,
        "dims": desc.dims,
        "offset0": desc.offset0,
        "padded_offsets": desc.padded_offsets,
        "extra": None if desc.extra is None else asdict(desc.extra),
    }
    if desc.letters is not None:
        fields["letters"] = desc.letters
    try:
        fields |= {
            "padded_dims": desc.padded_dims,
            "strides": desc.strides,
            "inner_blks": desc.inner_blks,
            "inner_idxs": desc.inner_idxs,
        }
    except MemdescError:
        fields |= {
            "axes": [[axis.dims, axis.padded] for axis in layout.axes],
            "blocks": layout.blocks,
        }
    if layout.xor:
        fields["xor"] = layout.xor
    return fields


def read(text: str) -> MemoryDesc:
    """Return the descriptor of a text that `written` made; refuse other texts."""
    return _read(text, _desc_of)


def written_image(image: ImageDesc) -> str:
    """Return the text of an image: the descriptor of its pixels, its sides, its kind and name."""
    import json  # slow to load

    sides = {side: getattr(image, side) for side in _SIDES}
    return (
        json.dumps({"schema": SCHEMA, "image": image.name, "kind": image.kind, **sides})[:-1]
        + f', "desc": {written(image.desc)}}}'
    )


def read_image(text: str) -> ImageDesc:
    """Return the image of a text that `written_image` made; refuse other texts."""
    return _read(text, _image_of)


def _image_of(fields: dict[str, Any]) -> ImageDesc:
    _check_schema(fields)
    desc = _desc_of(fields["desc"])
    width, height, channels, depth = (fields[side] for side in _SIDES)
    return ImageDesc(desc, width, height, channels, fields["image"], depth, fields["kind"])


def _read(text: str, made: Callable[[Any], _Read]) -> _Read:
    """Return what a function makes of the JSON of a text; refuse other texts."""
    import json  # slow to load

    try:
        return made(json.loads(text))
    except MemdescError:
        raise
    except KeyError as error:
        raise MemdescError(
            f"not a descriptor: the key {error} is missing; to_json() shows the form"
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise MemdescError(f"not a descriptor: {error}; to_json() shows the form") from error


def _desc_of(fields: dict[str, Any]) -> MemoryDesc:
    _check_schema(fields)
    # the order decides which of several missing keys the message names
    dims, dtype = checked_ints("dims", fields["dims"]), data_type(fields["dtype"])
    offset0 = checked_int("offset0", fields["offset0"])
    _check_padded_offsets(checked_ints("padded_offsets", fields["padded_offsets"]), len(dims))
    layout = _layout_of(fields, dims, dtype, offset0)
    extra = fields["extra"]
    extra = Extra(**extra) if isinstance(extra, dict) else extra
    return desc_of(dtype, layout, extra, fields.get("letters"))


def _layout_of(
    fields: dict[str, Any], dims: tuple[int, ...], dtype: DataType, offset0: int
) -> Layout:
    """Read the layout: axes and blocks, or oneDNN's fields."""
    if "axes" in fields:
        axes = tuple(
            Axis(checked_ints("axes", axis_dims), checked_int("axes", padded))
            for axis_dims, padded in fields["axes"]
        )
        blocks = tuple(Block(*checked_ints("blocks", block)) for block in fields["blocks"])
        is_swizzled = fields["schema"] == _SWIZZLED
        terms = fields["xor"] if is_swizzled else ()
        xor = tuple(checked_ints("xor", term) for term in terms)
        return Layout(dims, axes, blocks, offset0, xor)  # type: ignore[arg-type] # it checks
    return memory_desc(
        dims,
        dtype,
        strides=checked_ints("strides", fields["strides"]),
        inner_blks=fields["inner_blks"],
        inner_idxs=fields["inner_idxs"],
        padded_dims=checked_ints("padded_dims", fields["padded_dims"]),
        offset0=offset0,
    ).layout


def _check_padded_offsets(offsets: tuple[int, ...], ndims: int) -> None:
    check_length("padded_offsets", offsets, ndims)
    if any(offsets):
        raise UnsupportedFormatError(f"padded_offsets {offsets} are not supported; only 0 is")


def _check_schema(fields: object) -> None:
    if not isinstance(fields, dict):
        raise MemdescError(
            f"a descriptor is a JSON object, not {short_repr(fields)}; to_json() shows the form"
        )
    schema = fields["schema"]
    if not isinstance(schema, int) or schema is True or schema not in {SCHEMA, _SWIZZLED}:
        raise MemdescError(
            f"descriptor of schema {short_repr(schema)}; this version reads schema {SCHEMA} and "
            f"{_SWIZZLED}"
        )
    if schema == _SWIZZLED and "axes" not in fields:
        raise MemdescError(f"a descriptor of schema {_SWIZZLED} has axes, blocks and xor")
