"""What commands share: their form, facts as lines, and layouts."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import memdesc
from memdesc import (
    Block,
    DataType,
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
from memdesc.tags import LETTERS as ALPHABET
from memdesc.tuples import NamedTuple
from reorder.disk import as_path, write_file
from reorder.system import count_cores

if TYPE_CHECKING:
    from memdesc.picture import Picture

Facts = dict[str, Any]
Options: TypeAlias = Namespace
"""The arguments of a command, by the names in `commands.txt`."""
Columns: TypeAlias = "Mapping[str, str | Callable[[Facts], str]]"
"""A table: what stands above each column, and a format or a function that makes a cell of a row."""

# How many pixels of an image are printed.
_PIXELS = 4
# More threads are not faster anywhere, and take longer to start.
_THREADS = 256


# Facts as lines.


class Coloured(str):
    """A line of a picture with the colours of a terminal, which are not escaped."""

    __slots__ = ()


def one_line(text: str) -> str:
    """Escape what ends a line or controls a terminal, as names of files and in files may."""
    if text.isprintable() or isinstance(text, Coloured):
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


class Said(NamedTuple):
    """A fact whose line differs from its JSON; without a text it has no line."""

    fact: Any
    text: Any = None


class Line(NamedTuple):
    """What is said in a line and not in JSON."""

    text: Any


def json_of(facts: Facts) -> Facts:
    """Return what facts are as JSON."""
    return {
        key: each.fact if isinstance(each, Said) else each
        for key, each in facts.items()
        if not isinstance(each, Line)
    }


def lines(facts: Facts) -> list[str]:
    """Return a line for each fact, and one for each item of a list."""
    shown = {
        key: each.text if isinstance(each, Said | Line) else each
        for key, each in facts.items()
        if not isinstance(each, Said) or each.text is not None
    }
    width = max(map(len, shown)) + 2
    laid_out = []
    for key, value in shown.items():
        texts = [_text(row) for row in (value if isinstance(value, list) else [value])] or ["none"]
        heads = [key.replace("_", " "), *[""] * (len(texts) - 1)]
        laid_out += [f"{head:{width}}{text}" for head, text in zip(heads, texts, strict=True)]
    return laid_out


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {each}" for key, each in value.items())
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows of cells as lines with aligned columns; those in `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:>{width}}" if k in right else f"{cell:{width}}"
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def tabulate(
    columns: Columns, rows: Sequence[Facts], left: Collection[str], *, is_whole: bool = True
) -> list[str]:
    """Return a table of facts; columns stand right but those in `left`.

    Columns that are empty below their heads are left out unless it `is_whole`.
    """
    cells = {
        head: [cell.format_map(row) if isinstance(cell, str) else cell(row) for row in rows]
        for head, cell in columns.items()
    }
    kept = [head for head in columns if is_whole or any(cells[head])] or [*columns]
    right = [k for k, head in enumerate(kept) if head not in left]
    return table([kept, *zip(*(cells[head] for head in kept), strict=True)], right)


def save(picture: Picture, path: str) -> None:
    """Write a picture to a file, completely or not at all."""
    target = as_path(path)
    data = picture.encoded(target.suffix)
    write_file(target, lambda file: file.write(data))


def drawn(picture: Picture) -> list[str]:
    """Return the lines of a picture: in colour in a terminal, if nobody minds, and cut to fit."""
    lines = picture.text.splitlines()
    if sys.stdout is None or not sys.stdout.isatty():
        return lines  # files and pipes get whole lines
    columns = shutil.get_terminal_size().columns
    if max(map(len, lines)) <= columns:
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return lines if is_plain else [Coloured(line) for line in picture.coloured.splitlines()]
    shown = [line if len(line) <= columns else f"{line[: columns - 1]}…" for line in lines]
    return [*shown, "", "cut at the terminal's width; --svg FILE draws all of it"]


def _names(names: Iterable[Name]) -> Said:
    """Return names, and a line in which those of a vocabulary are together."""
    rows = [name._asdict() for name in names]
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["vocabulary"], []).append(row["text"])
    text = ", ".join(f"{' '.join(texts)} ({label_of(name)})" for name, texts in found.items())
    return Said(rows, text or "none")


def label_of(vocabulary: str) -> str:
    """Return what readers call a vocabulary: its name, and whose it is if that says too little."""
    return "cldnn of OpenVINO" if vocabulary == "cldnn" else vocabulary


class Command(NamedTuple):
    """A command of `memdesc`, whose arguments are in `commands.txt`.

    `answer` returns facts and the exit code; facts are printed as JSON, or as lines by `lay_out`.
    `words` fill the texts of arguments, and `settings` has what argparse is told of some flags.
    """

    answer: Callable[[Options], tuple[Facts, int]]
    lay_out: Callable[[Facts], list[str]] = lines
    words: Mapping[str, str] = {}
    settings: Mapping[str, Mapping[str, Any]] = {}


def facts_of(value: object, *names: str) -> Facts:
    """Return attributes of a value; types, and nan and inf, which JSON lacks, become strings."""
    found = {name: getattr(value, name) for name in names}
    return {
        name: str(each)
        if isinstance(each, DataType) or (isinstance(each, float) and not isfinite(each))
        else each
        for name, each in found.items()
    }


def is_wanted(name: str, wanted: str) -> bool:
    """Whether a name has a part, or matches a pattern such as ``*.weight``, in any case."""
    name, wanted = name.lower(), wanted.lower()
    return fnmatchcase(name, wanted) if any(mark in wanted for mark in "*?[") else wanted in name


def threads_of(given: int | None) -> int:
    """Return the number of threads to run: by default all that the process may use."""
    if given is None:
        return count_cores()
    if given < 1:
        raise MemdescError(f"--threads {given} must be 1 or more")
    return min(given, _THREADS)


def measured_threads(given: int) -> int:
    """Return a number of threads; refuse one with which nothing can be measured here."""
    cores = count_cores()
    if not 1 <= given <= cores:
        raise MemdescError(f"--threads {given}: give 1 to {cores}, the cores of this process")
    return given


# Layouts.


def layout_of(options: Options, text: str | None = None) -> MemoryDesc | ImageDesc:
    """Return the layout that LAYOUT, DIMS and --dtype describe."""
    return _parse(options.layout if text is None else text, options.dims, options.dtype)


def _parse(text: str, *given: Any, **more: Any) -> MemoryDesc | ImageDesc:
    """Read a layout; say so if it is the name of a file."""
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
        order = dense_tag(desc.layout).memory_order(desc.letters or ALPHABET)
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
        {**row, "holds": " ".join(str(each or "padding") for each in row["holds"])}
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
