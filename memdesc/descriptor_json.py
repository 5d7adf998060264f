"""Descriptors as JSON, written and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar, cast

from memdesc.desc import MemoryDesc, desc_of, memory_desc
from memdesc.dtypes import data_type
from memdesc.errors import MemdescError, UnsupportedFormatError, short_repr
from memdesc.extra import Extra
from memdesc.image import ImageDesc
from memdesc.int64 import check_length, checked_int, checked_ints
from memdesc.layout import Axis, Block, Layout
from memdesc.written import Written

_Read = TypeVar("_Read", bound=Written)
_SIDES = ("width", "height", "channels", "depth")
_ONEDNN = ("padded_dims", "strides", "inner_blks", "inner_idxs")
# version of the JSON form; a different form gets a different number
SCHEMA = 1
# the form with XOR terms, which a reader of schema 1 would skip
_SWIZZLED = 2


def written(value: Written) -> str:
    """Return the text of a descriptor, or of an image: a line of JSON."""
    import json  # slow to load

    return json.dumps(_fields(value) if isinstance(value, MemoryDesc) else _image_fields(value))


def _image_fields(image: Any) -> dict[str, Any]:
    sides = {side: getattr(image, side) for side in _SIDES}
    names = {"schema": SCHEMA, "image": image.name, "kind": image.kind}
    return {**names, **sides, "desc": _fields(image.desc)}


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
        fields |= {name: getattr(desc, name) for name in _ONEDNN}
    except MemdescError:
        axes = [[axis.dims, axis.padded] for axis in layout.axes]
        fields |= {"axes": axes, "blocks": layout.blocks}
    return fields | ({"xor": layout.xor} if layout.xor else {})


def read(text: str, kind: type[_Read]) -> _Read:
    """Return the descriptor, or the image, of a text that `written` made; refuse other texts."""
    import json  # slow to load

    made: Callable[[Any], Any] = _desc_of if issubclass(kind, MemoryDesc) else _image_of
    try:
        return cast("_Read", made(json.loads(text)))
    except MemdescError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"the key {error} is missing" if isinstance(error, KeyError) else error
        raise MemdescError(f"not a descriptor: {reason}; to_json() shows the form") from error


def _image_of(fields: Any) -> ImageDesc:
    _check_schema(fields)
    desc = _desc_of(fields["desc"])
    width, height, channels, depth = (fields[side] for side in _SIDES)
    return ImageDesc(desc, width, height, channels, fields["image"], depth, fields["kind"])


def _desc_of(fields: Any) -> MemoryDesc:
    _check_schema(fields)
    # the order decides which of several missing keys the message names
    dims, dtype = checked_ints("dims", fields["dims"]), data_type(fields["dtype"])
    offset0 = checked_int("offset0", fields["offset0"])
    offsets = checked_ints("padded_offsets", fields["padded_offsets"])
    check_length("padded_offsets", offsets, len(dims))
    if any(offsets):
        raise UnsupportedFormatError(f"padded_offsets {offsets} are not supported; only 0 is")
    if "axes" in fields:
        axes = [Axis(*axis) for axis in fields["axes"]]
        blocks = [Block(*block) for block in fields["blocks"]]
        xor = fields["xor"] if fields["schema"] == _SWIZZLED else ()
        layout = Layout(dims, axes, blocks, offset0, xor)  # type: ignore[arg-type] # it checks
    else:
        given = {name: checked_ints(name, fields[name]) for name in _ONEDNN}
        layout = memory_desc(dims, dtype, offset0=offset0, **given).layout  # type: ignore[arg-type] # by keyword
    extra = fields["extra"]
    extra = Extra(**extra) if isinstance(extra, dict) else extra
    return desc_of(dtype, layout, extra, fields.get("letters"))


def _check_schema(fields: Any) -> None:
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
