"""Layouts that commands read, and what commands say about them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import memdesc
from memdesc import (
    Block,
    ImageDesc,
    Layout,
    MemdescError,
    MemoryDesc,
    UnknownFormatError,
    UnsupportedFormatError,
)
from memdesc.desc import desc_of
from memdesc.errors import NotBlockedError, short_repr
from memdesc.exchange import written
from memdesc.layout_names import dense_tag
from memdesc.names import Name
from memdesc.tags import LETTERS
from reorder.cli.command import Facts, Options, Said, facts_of

# How many pixels of an image are printed.
_PIXELS = 4


def layout_of(options: Options, text: str | None = None) -> MemoryDesc | ImageDesc:
    """Return the layout that LAYOUT, DIMS and --dtype describe."""
    return _parse(options.layout if text is None else text, options.dims, options.dtype)


def _parse(text: str, *given: Any, **more: Any) -> MemoryDesc | ImageDesc:
    """Read a layout; if it is the name of a file, say so."""
    try:
        return memdesc.parse_layout(text, *given, **more)
    except UnknownFormatError:
        if not os.path.isfile(text):  # noqa: PTH113 - of any length
            raise
    raise MemdescError(
        f"{short_repr(text)} is a file, not a layout; `memdesc inspect` lists what is in it"
    )


def normal_form(layout: MemoryDesc | ImageDesc) -> MemoryDesc | ImageDesc:
    """Merge blocks that continue each other, as nested modes of CuTe may, if oneDNN needs that."""
    if isinstance(layout, MemoryDesc):
        for desc in (layout, with_merged_blocks(layout)):
            with suppress(NotBlockedError):
                _ = desc.inner_blks
                return desc
    return layout


def with_merged_blocks(desc: MemoryDesc) -> MemoryDesc:
    """Return a descriptor with the same offsets where blocks that continue each other are one.

    >>> with_merged_blocks(memdesc.parse_layout("(4,(2,4)):(1,(4,8))")).blocks
    (Block(axis=0, step=1, extent=4, stride=1), Block(axis=1, step=1, extent=8, stride=4))
    """
    layout = desc.layout
    blocks: list[Block] = []
    for block in layout.blocks:
        axis, step, extent, stride = block
        last = blocks[-1] if blocks else Block(-1, 1, 1, 1)
        is_next = last.axis == axis and last.stride == stride * extent
        # a padded extent may end inside a block
        if is_next and layout.axes[axis].padded % last.step == 0:
            blocks[-1] = Block(axis, step, last.extent * extent, stride)
        else:
            blocks.append(block)
    merged = Layout(layout.dims, layout.axes, tuple(blocks), layout.offset0, layout.xor)
    return desc_of(desc.dtype, merged, desc.extra, desc.letters)


def pair_of(options: Options, to: str) -> tuple[MemoryDesc | ImageDesc, MemoryDesc | ImageDesc]:
    """Return the layouts of LAYOUT and of another one of the same dims, in --to-dtype."""
    src = layout_of(options)
    return src, _parse(to, src.dims, options.to_dtype, default=src.dtype)


def buffer_of(layout: MemoryDesc | ImageDesc) -> MemoryDesc:
    """Return a descriptor itself; for an image, the linear buffer of its pixels, row by row."""
    return layout.desc if isinstance(layout, ImageDesc) else layout


def layout_facts(layout: MemoryDesc | ImageDesc) -> Facts:
    """Return what `show` prints of a layout."""
    facts = _image_facts(layout) if isinstance(layout, ImageDesc) else _desc_facts(layout)
    return {"layout": repr(layout)} | facts


def _desc_facts(desc: MemoryDesc) -> Facts:
    facts = facts_of(desc, "dims", "dtype", "padded_dims")
    try:
        facts |= facts_of(desc, "strides", "inner_blks", "inner_idxs")
    except NotBlockedError as reason:
        facts |= {
            "blocks": [block._asdict() for block in desc.layout.blocks],
            "not_in_onednn": str(reason),
        }
        if desc.layout.xor:
            facts["xor"] = [{"shift": shift, "mask": mask} for shift, mask in desc.layout.xor]
    if not desc.layout.xor:
        order = dense_tag(desc.layout).memory_order(desc.letters or LETTERS)
        facts["memory_order"] = f"outermost first: {order}"
    names = [*desc.names()]
    with suppress(UnsupportedFormatError):  # all commands take torch's memory formats like names
        texts = (text for text in written(desc, "pytorch") if text.startswith("torch."))
        names += [Name("pytorch", text, "memory format") for text in texts]
    return facts | {
        "offset0": desc.offset0,
        "bytes": desc.nbytes,
        "unpadded_bytes": desc.dtype.nbytes(desc.nelems),
        "padding_overhead": round(desc.padding_overhead, 4),
        "names": _names(names),
    }


def _image_facts(image: ImageDesc) -> Facts:
    pixels: list[Facts] = []
    for x in range(min(image.width, _PIXELS)):
        lanes = (image.desc.index(x * image.channels + lane) for lane in range(image.channels))
        # the logical index of each lane of a pixel in the first row; None for padding
        holds = [None if index.is_padding else index for index in lanes]
        pixels.append({"pixel": (x, 0), "holds": holds})
    texts = [
        {**row, "holds": " ".join(str(index or "padding") for index in row["holds"])}
        for row in pixels
    ]
    return {
        **facts_of(image, "dims", "dtype", "width", "height"),
        **({} if image.kind == "2d" else facts_of(image, "depth", "kind")),
        "channels": image.channels,
        "bytes": image.nbytes,
        "padding_overhead": round(image.desc.padding_overhead, 4),
        "names": _names(image.names()),
        "first_pixels": Said(pixels, texts),
    }


def _names(names: Iterable[Name]) -> Said:
    """Return names, and a line in which those of a vocabulary are together."""
    rows = [name._asdict() for name in names]
    systems: dict[str, list[str]] = {}
    for row in rows:
        systems.setdefault(row["vocabulary"], []).append(row["text"])
    text = ", ".join(f"{' '.join(texts)} ({label_of(name)})" for name, texts in systems.items())
    return Said(rows, text or "none")


def label_of(vocabulary: str) -> str:
    """Return what readers call a vocabulary: its name, and whose it is if that says too little."""
    return "cldnn of OpenVINO" if vocabulary == "cldnn" else vocabulary
