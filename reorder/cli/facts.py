"""Facts about layouts and images, and their output as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memdesc import NotBlockedError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memdesc import ImageDesc, MemoryDesc, RecordDesc

__all__ = ["Facts", "desc_facts", "image_facts", "lines", "one_line", "record_facts", "table"]

Facts = dict[str, Any]

# how many pixels of an image are printed
_SHOWN = 4


def one_line(text: str) -> str:
    """Return a text of which nothing ends a line or commands a terminal, as names in a file may."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def desc_facts(desc: MemoryDesc) -> Facts:
    """Return what `show` prints of a descriptor."""
    facts: Facts = {"dims": desc.dims, "dtype": str(desc.dtype), "padded_dims": desc.padded_dims}
    try:
        facts |= {
            "strides": desc.strides,
            "inner_blks": desc.inner_blks,
            "inner_idxs": desc.inner_idxs,
        }
    except NotBlockedError as reason:
        facts |= {
            "blocks": [block._asdict() for block in desc.blocks],
            "not_in_onednn": str(reason),
        }
    unpadded = desc.dtype.nbytes(desc.nelems)
    facts |= {
        "offset0": desc.offset0,
        "bytes": desc.nbytes,
        "unpadded_bytes": unpadded,
        "padding_overhead": round(desc.padding_overhead, 4),
        "names": [name._asdict() for name in desc.tags()],
    }
    return facts


def record_facts(record: RecordDesc) -> Facts:
    """Return what `show` prints of a record."""
    fields = [
        {
            "name": part.name,
            "type": part.kind,
            "dims": part.layout.dims,
            "groups": part.groups,
            "tensor": part.tensor,
        }
        for part in record.fields
    ]
    return {
        "dims": record.dims,
        "rule": str(record.rule),
        "bytes": record.nbytes,
        "bits_per_element": round(record.bits_per_element, 4),
        "fields": fields,
    }


def image_facts(image: ImageDesc) -> Facts:
    """Return what `show` prints of an image."""
    return {
        "dims": image.dims,
        "dtype": str(image.dtype),
        "width": image.width,
        "height": image.height,
        "channels": image.channels,
        "bytes": image.nbytes,
        "padding_overhead": round(image.desc.padding_overhead, 4),
        "first_pixels": [
            {"pixel": (x, 0), "holds": _lanes(image, x)} for x in range(min(image.width, _SHOWN))
        ],
    }


def _lanes(image: ImageDesc, x: int) -> list[tuple[int, ...] | None]:
    """Return the logical index of each lane of a pixel of the first row; None for padding."""
    indices = [image.desc.index(x * image.channels + lane) for lane in range(image.channels)]
    return [None if index.is_padding else index for index in indices]


def lines(facts: Facts) -> list[str]:
    """Return facts as lines: one fact each, names and blocks below each other."""
    width = max(map(len, facts)) + 2
    laid_out = []
    for key, value in facts.items():
        rows = value if isinstance(value, list) else [value]
        texts = [_row(row) if isinstance(row, dict) else _plain(row) for row in rows] or ["none"]
        laid_out += [
            f"{key.replace('_', ' ') if k == 0 else '':{width}}{text}"
            for k, text in enumerate(texts)
        ]
    return laid_out


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows of cells as lines with aligned columns; those of `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:>{width}}" if k in right else f"{cell:{width}}"
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _row(row: dict[str, Any]) -> str:
    if "vocabulary" in row:
        return f"{row['text']} ({row['vocabulary']}, {row['domain']})"
    return ", ".join(f"{key.replace('_', ' ')} {_in_row(value)}" for key, value in row.items())


def _in_row(value: Any) -> str:
    if isinstance(value, list):
        return " ".join("padding" if one is None else str(one) for one in value)
    return str(value)


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
