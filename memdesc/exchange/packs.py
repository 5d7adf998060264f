"""The attributes of MLIR's `linalg.pack` as a tag, and back.

Outer dim k of the result counts the whole tiles of dim `outer_dims_perm[k]`; the tiles
`inner_tiles` of the dims `inner_dims_pos` follow, the outermost first. Source: LLVM,
`mlir/include/mlir/Dialect/Linalg/IR/LinalgRelayoutOps.td`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from memdesc.errors import excerpt
from memdesc.exchange.system import not_understood
from memdesc.tags import Digit, FormatTag

if TYPE_CHECKING:
    from memdesc.exchange.system import Given

__all__ = ["Pack", "checked_pack", "pack_of", "pack_of_tag", "packed_shape", "tag_of_pack"]

_NAMES = ("outer_dims_perm", "inner_dims_pos", "inner_tiles")
# as printed, and in the generic form
_VALUE = r"=\s*(?:\[(?P<list>[^\]]*)\]|array<i64(?::(?P<array>[^>]*))?>)"


class Pack(NamedTuple):
    """The attributes of an operation."""

    outer_dims_perm: tuple[int, ...]
    inner_dims_pos: tuple[int, ...]
    inner_tiles: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join(f"{name} = {list(value)}" for name, value in zip(_NAMES, self, strict=True))


def pack_of_tag(tag: FormatTag) -> Pack | None:
    """Return the attributes that make a layout; None if one operation makes no such layout."""
    outer = [digit.axis for digit in tag.digits if not digit.extent]
    inner = [digit for digit in tag.digits if digit.extent]
    positions = tuple(digit.axis for digit in inner)
    is_packed = (
        tag.digits[len(outer) :] == tuple(inner)
        and len(tag.axes) == tag.ndims
        and len(set(positions)) == len(positions)
        and max(tag.align) == 1
    )
    return Pack(tuple(outer), positions, tuple(d.extent for d in inner)) if is_packed else None


def pack_of(system: str, given: Given) -> Pack | None:
    """Read the attributes in a string; None if it has none of them."""
    text = given.text
    values = {}
    for name in _NAMES:
        found = list(re.finditer(rf"\b{name}\s*{_VALUE}", text))
        if len(found) > 1:
            raise not_understood(system, text, f"it has {name} twice")
        if found:
            part = (found[0]["list"] or found[0]["array"] or "").strip()
            if not re.fullmatch(r"([0-9]{1,18}(\s*,\s*[0-9]{1,18})*)?", part):
                raise not_understood(
                    system, text, f"{name} are not known integers: {excerpt(part)}"
                )
            values[name] = tuple(int(number) for number in part.split(",")) if part else ()
    if not values:
        return None
    if not {"inner_dims_pos", "inner_tiles"} <= {*values}:
        raise not_understood(system, text, "inner_dims_pos and inner_tiles belong together")
    return Pack(values.get("outer_dims_perm", ()), values["inner_dims_pos"], values["inner_tiles"])


def checked_pack(system: str, given: Given, pack: Pack, ndims: int) -> Pack:
    """Return attributes with the order of all outer dims; refuse those that break a rule."""
    everyone = tuple(range(ndims))
    perm = pack.outer_dims_perm or everyone
    positions, tiles = pack.inner_dims_pos, pack.inner_tiles
    if tuple(sorted(perm)) != everyone:
        reason = f"outer_dims_perm {list(perm)} are not the dims 0 to {ndims - 1}, each once"
        raise not_understood(system, given.text, reason)
    if (
        len(positions) != len(tiles)
        or len(set(positions)) < len(positions)
        or not {*positions} <= {*everyone}
        or min(tiles, default=1) < 1
    ):
        reason = (
            f"inner_dims_pos {list(positions)} and inner_tiles {list(tiles)} must be dims of 0 to "
            f"{ndims - 1}, each once, with a tile of 1 or more for each"
        )
        raise not_understood(system, given.text, reason)
    return Pack(perm, positions, tiles)


def tag_of_pack(pack: Pack) -> FormatTag:
    """Return the tag of attributes."""
    ndims = len(pack.outer_dims_perm)
    tiles = dict(zip(pack.inner_dims_pos, pack.inner_tiles, strict=True))
    digits = [Digit(dim, tiles.get(dim, 1), 0) for dim in pack.outer_dims_perm]
    digits += [Digit(dim, 1, tile) for dim, tile in tiles.items() if tile > 1]
    return FormatTag(tuple((dim,) for dim in range(ndims)), tuple(digits), (1,) * ndims)


def packed_shape(pack: Pack, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a packed tensor: whole tiles of each dim, then the tiles."""
    tiles = dict(zip(pack.inner_dims_pos, pack.inner_tiles, strict=True))
    return (
        *(-(-dims[dim] // tiles.get(dim, 1)) for dim in pack.outer_dims_perm),
        *pack.inner_tiles,
    )
