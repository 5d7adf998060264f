"""What commands share: their form, arguments that several take, and facts as lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import memdesc
from memdesc import ImageDesc, MemdescError, NotBlockedError
from memdesc.errors import short_repr
from memdesc.names import is_image
from reorder.cores import count_cores

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Sequence

    from memdesc import MemoryDesc

__all__ = [
    "DEVICE",
    "LAYOUT",
    "Command",
    "Facts",
    "add_conversion",
    "add_dims",
    "add_dtype",
    "add_layouts",
    "add_max_bytes",
    "add_picture",
    "buffer_name",
    "buffer_of",
    "bytes_of",
    "desc_facts",
    "desc_of",
    "dims_of",
    "flags_of",
    "image_facts",
    "layout_of",
    "lines",
    "numbers_of",
    "one_line",
    "pair_of",
    "table",
    "threads_of",
]

Facts = dict[str, Any]

DEVICE = "an OpenCL device, by part of its name or of its runtime's, such as nvidia"
LAYOUT = (
    "a format name of oneDNN, OpenVINO, MACE, TensorRT, ..., a packing of weights, an image type, "
    "or strides such as 340x20x4x1 (with @N: from element N on)"
)
# How many pixels of an image are printed.
_PIXELS = 4
# More threads are no faster anywhere, and take longer to start.
_THREADS = 256
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"([0-9]{1,12}) ?([KMGT]?)i?B?", re.ASCII | re.IGNORECASE)


# Facts as lines.


def one_line(text: str) -> str:
    """Escape what ends a line or controls a terminal, as names in a file may."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def lines(facts: Facts) -> list[str]:
    """Return a line for each fact, and one for each item of a list."""
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
    """Return rows of cells as lines with aligned columns; those in `right` are right-aligned."""
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


# Commands.


class Command(NamedTuple):
    """A command of `memdesc`.

    `answer` returns facts and the exit code; facts are printed as JSON, or as lines by `lay_out`.
    """

    name: str
    summary: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    answer: Callable[[argparse.Namespace], tuple[Facts, int]]
    lay_out: Callable[[Facts], list[str]] = lines


def flags_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the flags of a parser, such as ``--json``, each with its action."""
    return {flag: action for action in parser._actions for flag in action.option_strings}  # noqa: SLF001 - argparse has no public list


# Arguments that several commands take.


def add_dims(parser: argparse.ArgumentParser) -> None:
    """Add the sizes of the tensor that is described."""
    parser.add_argument("dims", metavar="DIMS", help="logical sizes, such as 2x17x5x4")


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Add the type of the elements that are described."""
    parser.add_argument(
        "--dtype", metavar="DTYPE", default="f32", help="type of the elements (default f32)"
    )


def add_layouts(parser: argparse.ArgumentParser) -> None:
    """Add two layouts: their names, the common dims, the data types."""
    parser.add_argument("src", metavar="A", help=LAYOUT)
    parser.add_argument("dst", metavar="B", help="the same for the other layout")
    add_dims(parser)
    add_dtype(parser)
    parser.add_argument("--to-dtype", metavar="DTYPE", help="type in B, if it differs")


def add_picture(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the flag that draws something into a file."""
    parser.add_argument("--svg", metavar="FILE", help=f"{what}; FILE ends in .svg, .png or .html")


def add_max_bytes(parser: argparse.ArgumentParser) -> None:
    """Add how much memory a command that works in pieces may take."""
    text = "how much memory the pieces of a large tensor may take, such as 200MiB (default 1GiB)"
    parser.add_argument("--max-bytes", metavar="SIZE", default="1GiB", help=text)


def add_conversion(parser: argparse.ArgumentParser) -> None:
    """Add the order of axes and the type of the array that is read, and the type to write."""
    parser.add_argument(
        "--from",
        dest="tag",
        metavar="TAG",
        help="order of the axes of the array, such as nhwc, if they are not its logical dims",
    )
    text = "type of the elements that are read, where .npy cannot say it, such as bf16"
    parser.add_argument("--dtype", metavar="DTYPE", help=text)
    text = "type to convert to, such as s8; by default nothing is converted"
    parser.add_argument("--to-dtype", metavar="DTYPE", help=text)


def numbers_of(text: str, what: str) -> tuple[int, ...]:
    """Return integers joined by x or by commas."""
    numbers = [number.strip() for number in re.split("[x,]", text)]
    if not all(re.fullmatch("-?[0-9]{1,4000}", number) for number in numbers):
        msg = (
            f"{what} {short_repr(text)} are not integers joined by x or commas, such as 340x20x4x1"
        )
        raise MemdescError(msg)
    return tuple(map(int, numbers))


def dims_of(text: str) -> tuple[int, ...]:
    """Return dims from a string such as ``2x17x5x4`` or ``2,17,5,4``."""
    return numbers_of(text, "dims")


def bytes_of(flag: str, text: str) -> int:
    """Return a size such as ``200MiB``, in bytes; units are powers of 1024."""
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) << _UNITS[found[2].upper()] if found else 0
    if not size:
        msg = f"{flag} {text!r} is not a size above 0, such as 200MiB or 1073741824"
        raise MemdescError(msg)
    return size


def threads_of(given: int | None) -> int:
    """Return the number of threads to run: by default all that the process may use."""
    if given is None:
        return count_cores()
    if given < 1:
        msg = f"--threads {given} must be 1 or more"
        raise MemdescError(msg)
    return min(given, _THREADS)


# Layouts as the command line names them: by a format name, or by strides.


def buffer_name(text: str) -> str:
    """Return the name of a buffer layout; refuse image types, and name the commands for them."""
    if is_image(text):
        msg = (
            f"{text!r} is an image type, not a linear buffer; "
            f"memdesc pack IN.npy OUT.safetensors --as {text} makes its pixels, "
            f"and memdesc show {text} DIMS describes it"
        )
        raise MemdescError(msg)
    return text


def layout_of(text: str, dims: tuple[int, ...], dtype: str) -> MemoryDesc | ImageDesc:
    """Return the descriptor of a name, which may be an image type, or of strides."""
    if is_image(text):
        return memdesc.image_desc(dims, dtype, text)
    strides, _, offset0 = text.partition("@")
    if not re.fullmatch("-?[0-9]+([x,]-?[0-9]+)*", strides):
        return memdesc.memory_desc(dims, dtype, text)
    start = numbers_of(offset0, "the element after @")[0] if offset0 else 0
    return memdesc.memory_desc(dims, dtype, strides=numbers_of(strides, "strides"), offset0=start)


def desc_of(text: str, dims: tuple[int, ...], dtype: str) -> MemoryDesc:
    """Return the descriptor of a name or of strides; for an image type, that of its pixels."""
    return buffer_of(layout_of(text, dims, dtype))


def buffer_of(layout: MemoryDesc | ImageDesc) -> MemoryDesc:
    """Return a descriptor itself; for an image, the linear buffer of its pixels, row by row."""
    return layout.desc if isinstance(layout, ImageDesc) else layout


def pair_of(
    options: argparse.Namespace,
) -> tuple[MemoryDesc | ImageDesc, MemoryDesc | ImageDesc]:
    """Return the descriptors that `add_layouts` asked for."""
    dims = dims_of(options.dims)
    return layout_of(options.src, dims, options.dtype), layout_of(
        options.dst, dims, options.to_dtype or options.dtype
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
    return facts | {
        "offset0": desc.offset0,
        "bytes": desc.nbytes,
        "unpadded_bytes": desc.dtype.nbytes(desc.nelems),
        "padding_overhead": round(desc.padding_overhead, 4),
        "names": [name._asdict() for name in desc.tags()],
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
            {"pixel": (x, 0), "holds": _lanes(image, x)} for x in range(min(image.width, _PIXELS))
        ],
    }


def _lanes(image: ImageDesc, x: int) -> list[tuple[int, ...] | None]:
    """Return the logical index of each lane of a pixel in the first row; None for padding."""
    indices = [image.desc.index(x * image.channels + lane) for lane in range(image.channels)]
    return [None if index.is_padding else index for index in indices]
