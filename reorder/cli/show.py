"""`memdesc show`: a layout, where its elements are, and its picture."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import memdesc
from memdesc import ImageDesc, MemdescError, MemoryDesc
from memdesc.errors import counted
from memdesc.layout_names import tag_of
from memdesc.names import dim_letters
from memdesc.names.weights import VOCABULARY as WEIGHTS
from memdesc.record import known_records
from memdesc.tags import LETTERS
from reorder.cli.command import Command, Facts, Options, drawn, lines, save, table
from reorder.cli.layouts import buffer_of, layout_facts, layout_of, normal_form

if TYPE_CHECKING:
    from memdesc.picture import Picture

# a record with the name of a packing is shown as that packing of codes
_RECORDS = {*known_records()} - {*WEIGHTS.rows}


def _answer(options: Options) -> tuple[Facts, int]:
    dims = options.dims
    if options.layout.lower() in _RECORDS:
        return _record(options, dims), 0
    if dims is None and (answer := _without_dims(options)):
        return answer, 0
    layout = normal_form(layout_of(options))
    desc = buffer_of(layout)
    indices = [*options.at]
    indices += [desc.index(offset) for byte in options.byte for offset in _offsets_in(desc, byte)]
    for pixel in options.pixel:
        flag = f"--pixel {','.join(map(str, pixel))}"
        if not isinstance(layout, ImageDesc):
            raise MemdescError(
                f"{flag} asks for a pixel of an image, but {layout!r} is a buffer; use --byte"
            )
        sides = "xy" if layout.kind == "2d" else "xyz"
        if len(pixel) != len(sides):
            raise MemdescError(f"{flag} must be {','.join(sides)} of {layout!r}")
        indices += [layout.index(*pixel, lane) for lane in range(layout.channels)]
    facts = layout_facts(layout)
    if options.banks:
        facts["banks"] = _banks(desc)
    if indices:
        facts["elements"] = [_element(layout, index) for index in indices]
    marked = [tuple(element["index"]) for element in facts.get("elements", ())]
    _draw(options, partial(layout.show, highlight=marked), facts)
    return facts, 0


def _banks(desc: MemoryDesc) -> list[Facts]:
    """Return the bank conflicts of 32 lanes along each dim, by the bytes that each moves."""
    banks = []
    refused = None
    for dim, nbytes in product(range(desc.ndims), (16, 8, 4, 2, 1)):
        try:
            conflicts = desc.bank_conflicts(dim, nbytes)
        except MemdescError as error:  # usually, this many bytes are not adjacent
            refused = refused or error
            continue
        letter = (desc.letters or LETTERS)[dim]
        banks.append({"lanes_along": letter, "bytes": nbytes, "conflicts": conflicts})
    if refused and not banks and desc.nelems:
        raise refused
    return banks


def _without_dims(options: Options) -> Facts | None:
    """Return the facts of a name for dims of any size; None if other text or options need them."""
    if options.at or options.byte or options.pixel or options.svg is not None or options.draw:
        return None
    try:
        tag = tag_of(options.layout, 0, 32)
    except MemdescError:
        return None
    letters = dim_letters(options.layout) or LETTERS[: tag.ndims]
    return {
        "layout": options.layout,
        "dims": ", ".join(letters),
        "tag": str(tag),
        "memory_order": f"outermost first: {tag.memory_order(letters)}",
        "note": f"give {counted(tag.ndims, 'size')}, as in 2x17x5x4, to see strides and bytes",
    }


def _offsets_in(desc: MemoryDesc, byte: int) -> list[int]:
    """Return the offsets of the elements in a byte: up to two if they have 4 bits."""
    if not desc.dtype.is_packed:
        return [byte // (desc.dtype.bits // 8)]
    halves = [2 * byte, 2 * byte + 1]
    offsets = []
    for offset in halves:
        with suppress(MemdescError):  # in a gap, or after an odd number of elements
            desc.index(offset)
            offsets.append(offset)
    return offsets or halves


def _element(layout: MemoryDesc | ImageDesc, index: tuple[int, ...]) -> Facts:
    desc = buffer_of(layout)
    offset = int(desc.offset(index, padded=True))
    facts: Facts = {"index": index, "offset": offset, "byte": desc.byte(index, padded=True)}
    if desc.dtype.is_packed:
        facts["half"] = "high" if offset % 2 else "low"
    if isinstance(layout, ImageDesc):
        *pixel, lane = layout.pixel(desc.index(offset))
        facts |= {"pixel": tuple(pixel), "lane": lane}
    return facts | {"padding": any(at >= size for at, size in zip(index, desc.dims, strict=True))}


def _record(options: Options, dims: tuple[int, ...] | None) -> Facts:
    flags = ("dtype", "at", "byte", "pixel")
    if unwanted := [f"--{name}" for name in flags if getattr(options, name)]:
        raise MemdescError(
            f"{options.layout} is a record: it has its own types; leave {', '.join(unwanted)} out"
        )
    if dims is None:
        raise MemdescError(f"{options.layout!r} does not contain the sizes; give dims")
    record = memdesc.record.record_desc(dims, options.layout)
    facts: Facts = {
        "dims": record.dims,
        "rule": str(record.rule),
        "bytes": record.nbytes,
        "bits_per_element": round(record.bits_per_element, 4),
        "fields": [
            {
                "name": field.name,
                "type": field.kind,
                "dims": field.layout.dims,
                "groups": field.groups,
                "tensor": field.tensor,
            }
            for field in record.fields
        ],
    }
    constants = [
        {"tensor": constant.tensor, "type": constant.kind, "values": constant.values}
        for constant in record.constants
    ]
    facts |= {"constants": constants} if constants else {}
    _draw(options, record.show, facts)
    return facts


def _draw(options: Options, show: Callable[[], Picture], facts: Facts) -> None:
    if options.svg is not None:
        save(show(), options.svg)
        facts["wrote"] = options.svg
    if options.draw:
        facts["picture"] = show().text.splitlines() if options.json else drawn(show())


def _lay_out(facts: Facts) -> list[str]:
    """Return a line for each fact, or for each element that was asked for; below, the picture."""
    picture = facts.get("picture", [])
    if "elements" not in facts:
        shown = {key: fact for key, fact in facts.items() if key not in {"layout", "picture"}}
        return [*lines(shown), *([""] if picture else []), *picture]
    rows = [[_cell(key, fact) for key, fact in element.items()] for element in facts["elements"]]
    wrote = [f"wrote {facts['wrote']}"] if "wrote" in facts else []
    return [facts["layout"], *table(rows), *wrote, *picture]


def _cell(key: str, fact: Any) -> str:
    if isinstance(fact, bool):
        return key if fact else ""
    return f"{key} {','.join(map(str, fact)) if isinstance(fact, tuple) else fact}"


COMMAND = Command(_answer, _lay_out)
