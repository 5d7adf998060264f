"""`memdesc reorder`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, memory_desc
from reorder.api import reorder
from reorder.cli.command import (
    DEVICE,
    Command,
    Facts,
    add_conversion,
    add_max_bytes,
    buffer_name,
    bytes_of,
    desc_facts,
    threads_of,
)
from reorder.cli.progress import Progress
from reorder.cli.tensors import (
    SOURCE,
    add_output,
    check_output,
    codes_note,
    load_file,
    load_tensor,
    locate,
    write_output,
)
from reorder.memory.memory import Memory
from reorder.storage.reorder_file import FileReorder, reorder_file
from reorder.values.attr import Attr

if TYPE_CHECKING:
    import argparse

    from memdesc import MemoryDesc

__all__ = ["COMMAND"]

# tensors of up to this many bytes together are held in memory whole
_AT_ONCE = 1 << 28


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("src", help=SOURCE)
    add_output(parser, "dst")
    add_conversion(parser)
    parser.add_argument("--to", required=True, metavar="TAG", help="layout to write")
    parser.add_argument(
        "--scale",
        metavar="S",
        help="the scale of dst: a number, or FILE.npy:MASK, an array along the dims whose bits are "
        "set in the mask",
    )
    parser.add_argument(
        "--zero-point", metavar="Z", help="the integer that means 0 in dst, or FILE.npy:MASK"
    )
    parser.add_argument("--src-scale", metavar="S", help="the scale of the array that is read")
    parser.add_argument("--src-zero-point", metavar="Z", help="its zero point")
    parser.add_argument(
        "--beta",
        type=float,
        default=0.0,
        help="DST, which must exist, is multiplied by this and added",
    )
    parser.add_argument(
        "--saturate",
        action="store_true",
        help="numbers beyond the largest float of the type become that float, not infinity",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="the maximum number of threads")
    add_max_bytes(parser)
    parser.add_argument("--device", metavar="NAME", help=f"reorder on {DEVICE}")


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    check_output(options.dst, options.src, is_raw=options.raw)
    attr = _attr(options)
    large = _large(options, attr)
    if large is not None:
        desc = _in_pieces(options, large)
    else:
        with Progress(3) as progress:
            desc = _at_once(options, attr, progress)
    return {
        "wrote": options.dst,
        **desc_facts(desc),
        **({"note": note} if (note := codes_note(options.src)) else {}),
    }, 0


def _large(options: argparse.Namespace, attr: Attr) -> FileReorder | None:
    """Return a reorder that is too large to hold in memory; None for others and for bad input."""
    most = bytes_of("--max-bytes", options.max_bytes)
    # all of what is there is needed, or all moves to a device
    if options.beta or options.device is not None:
        return None
    found = locate(options.src, options.dtype, options.tag)
    if found is None:
        return None
    src, entry = found
    dst = memory_desc(src.dims, options.to_dtype or src.dtype, buffer_name(options.to))
    given = FileReorder(entry, src, dst, attr, is_raw=options.raw)
    return given if given.nbytes > min(most, _AT_ONCE) else None


def _in_pieces(options: argparse.Namespace, given: FileReorder) -> MemoryDesc:
    with Progress(given.dst.nbytes) as progress:
        reorder_file(
            given,
            Path(os.path.realpath(options.dst)),  # a link stays, as `save` leaves it
            max_bytes=bytes_of("--max-bytes", options.max_bytes),
            threads=threads_of(options.threads),
            step=lambda nbytes: progress.step("reordering", nbytes),
        )
    return given.dst


def _at_once(options: argparse.Namespace, attr: Attr, progress: Progress) -> MemoryDesc:
    progress.step(f"reading {options.src}")
    x = load_tensor(options.src, options.dtype, options.tag)
    out = load_tensor(options.dst) if options.beta else None
    progress.step("reordering", 1)
    dst, dtype = buffer_name(options.to), options.to_dtype
    if options.device is None:
        result = reorder(x, dst, dtype=dtype, attr=attr, out=out, threads=options.threads)
    elif options.threads is None:
        result = _on_device(options.device, x, dst, dtype=dtype, attr=attr, out=out)
    else:
        msg = "--threads is for the CPU; leave it out, or --device"
        raise MemdescError(msg)
    progress.step(f"writing {options.dst}", 1)
    write_output(options.dst, result, is_raw=options.raw)
    return result.desc


def _on_device(device: str, x: Memory, dst: str, *, out: Memory | None, **given: Any) -> Memory:
    """Reorder as `reorder.reorder` does, on the device of a name; the result is on the host.

    Raises
    ------
    MemdescError
        If no such device works, or it cannot do this reorder.
    """
    import pyopencl as cl  # pyopencl is slow to load

    from reorder.opencl import find_device  # likewise

    # not every runtime keeps the context of a queue alive
    context = cl.Context([find_device(device).device])
    queue = cl.CommandQueue(context)
    held = None if out is None else reorder(out, out.desc, queue=queue)
    return reorder(x, dst, out=held, queue=queue, **given).get()


def _attr(options: argparse.Namespace) -> Attr:
    given: dict[str, Any] = {"beta": options.beta, "saturate": options.saturate}
    words = {
        "dst_scale": ("--scale", options.scale),
        "dst_zero_point": ("--zero-point", options.zero_point),
        "src_scale": ("--src-scale", options.src_scale),
        "src_zero_point": ("--src-zero-point", options.src_zero_point),
    }
    for role, (option, text) in words.items():
        if text is not None:
            given |= _values(role, option, text)
    return Attr(**given)


def _values(role: str, option: str, text: str) -> dict[str, Any]:
    """Return the arguments of an Attr for a number, or for a file and a mask."""
    path, colon, mask = text.rpartition(":")
    try:
        if not colon:
            return {role: float(text) if role.endswith("scale") else int(text)}
        bits = int(mask)
    except ValueError:
        example = "such as scales.npy:2 for one along dim b"
        msg = f"{option} {text!r} is neither a number nor FILE.npy:MASK, {example}"
        raise MemdescError(msg) from None
    values = load_file(path)
    return {role: values.numpy() if isinstance(values, Memory) else values, f"{role}_mask": bits}


COMMAND = Command(
    "reorder",
    "Reorder a tensor into another layout or data type.",
    "reorder in.npy out.safetensors --from nchw --to nChw16c",
    _add_arguments,
    _answer,
)
