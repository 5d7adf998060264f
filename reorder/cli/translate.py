"""`memdesc translate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, UnsupportedFormatError, from_notation
from memdesc.exchange import SYSTEMS, written
from memdesc.names import dim_letters
from reorder.cli.command import Command, Facts, desc_of, dims_of, lines

if TYPE_CHECKING:
    import argparse

    from memdesc import MemoryDesc

__all__ = ["COMMAND"]

_SYSTEMS = ", ".join(SYSTEMS)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", help="a layout, in the notation of --from")
    parser.add_argument(
        "--from",
        dest="src",
        metavar="SYSTEM",
        help=f"{_SYSTEMS} (default: a format name, or strides such as 340x20x4x1)",
    )
    parser.add_argument("--to", metavar="SYSTEM", help="one of these (default: all)")
    parser.add_argument("--dims", help="logical sizes, such as 2x17x5x4, if TEXT has none")
    parser.add_argument("--dtype", help="data type (default: what TEXT says, else f32)")
    parser.add_argument(
        "--letters", help="what to call the dims, such as nchw (default: as a format name does)"
    )


def _desc(options: argparse.Namespace, letters: str | None) -> MemoryDesc:
    dims = None if options.dims is None else dims_of(options.dims)
    if options.src is not None:
        return from_notation(options.text, options.src, dims, options.dtype, letters=letters)
    if dims is None:
        msg = f"{options.text!r} does not contain the sizes; give --dims, or --from for a notation"
        raise MemdescError(msg)
    return desc_of(options.text, dims, options.dtype or "f32")


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    letters = options.letters or dim_letters(options.text)
    desc = _desc(options, options.letters)
    if letters is not None and len(letters) != desc.ndims and options.letters is None:
        letters = None
    texts: dict[str, tuple[str, ...]] = {}
    refused = {}
    for system in SYSTEMS if options.to is None else [options.to]:
        try:
            texts[system] = written(desc, system, letters=letters)
        except UnsupportedFormatError as error:
            if options.to is not None:
                raise
            refused[system] = str(error).partition(": ")[2]
    facts: Facts = {
        "written": texts,
        "cannot": refused,
        "layout": repr(desc),
        "dims": desc.dims,
        "dtype": str(desc.dtype),
        "padded_dims": desc.padded_dims,
        "bytes": desc.nbytes,
        "unpadded_bytes": desc.dtype.nbytes(desc.nelems),
        "padding_overhead": round(desc.padding_overhead, 4),
    }
    return facts, 0


def _lay_out(facts: Facts) -> list[str]:
    """Return a line for each string, then why others are missing, then the layout and its bytes."""
    rows: dict[str, Any] = {name: list(texts) for name, texts in facts["written"].items()}
    rows |= {name: f"cannot: {reason}" for name, reason in facts["cannot"].items()}
    rows |= {key: value for key, value in facts.items() if key not in {"written", "cannot"}}
    rows["padding_overhead"] = f"{facts['padding_overhead']:g}x expansion"
    return lines(rows)


COMMAND = Command(
    "translate",
    "Write a layout in the notations of other systems.",
    "translate nChw16c --dims 2x17x5x4 --to xla",
    _add_arguments,
    _answer,
    _lay_out,
)
