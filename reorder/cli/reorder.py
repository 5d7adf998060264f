"""`memdesc reorder`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memdesc import MemdescError
from reorder.api import reorder
from reorder.cli.command import Command, Facts
from reorder.cli.device import DEVICE, reorder_on
from reorder.cli.facts import desc_facts
from reorder.cli.layouts import HELD, buffer_name
from reorder.cli.progress import Progress
from reorder.cli.tensors import SOURCE, load_file, load_tensor
from reorder.memory.memory import Memory
from reorder.storage.files import save, sidecar
from reorder.values.attr import Attr

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("src", help=SOURCE)
    parser.add_argument(
        "dst",
        help="the .npy to write (raw bytes for a blocked layout), with its descriptor beside it",
    )
    parser.add_argument(
        "--from",
        dest="tag",
        metavar="TAG",
        help="order of the axes of the array, such as nhwc, if they are not its logical dims",
    )
    parser.add_argument("--to", required=True, metavar="TAG", help="layout to write")
    parser.add_argument("--dtype", metavar="DTYPE", help=HELD)
    parser.add_argument(
        "--to-dtype",
        metavar="DTYPE",
        help="type to convert to, such as s8; by default nothing is converted",
    )
    parser.add_argument(
        "--scale",
        metavar="S",
        help="dst holds multiples of it: a number, or FILE.npy:MASK, an array along the dims whose "
        "bits the mask has",
    )
    parser.add_argument(
        "--zero-point", metavar="Z", help="the integer that stands for 0 in dst, or FILE.npy:MASK"
    )
    parser.add_argument("--src-scale", metavar="S", help="likewise for the array that is read")
    parser.add_argument("--src-zero-point", metavar="Z", help="likewise")
    parser.add_argument(
        "--beta", type=float, default=0.0, help="how much of what DST holds is added; it must exist"
    )
    parser.add_argument(
        "--saturate",
        action="store_true",
        help="numbers beyond the largest float of the type become that, not infinite",
    )
    parser.add_argument("--threads", type=int, help="the maximum number of threads")
    parser.add_argument("--device", metavar="NAME", help=f"reorder on {DEVICE}")


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    with Progress(3) as progress:
        return _reorder(options, progress), 0


def _reorder(options: argparse.Namespace, progress: Progress) -> Facts:
    progress.step(f"reading {options.src}")
    x = load_tensor(options.src, options.dtype, options.tag)
    attr = _attr(options)
    out: Memory | None = None
    if options.beta:
        held = load_file(options.dst)
        if not isinstance(held, Memory):
            msg = f"--beta adds to what {options.dst!r} holds, but no descriptor lies beside it"
            raise MemdescError(msg)
        out = held
    progress.step("reordering", 1)
    dst, dtype = buffer_name(options.to), options.to_dtype
    if options.device is None:
        result = reorder(x, dst, dtype=dtype, attr=attr, out=out, threads=options.threads)
    elif options.threads is None:
        result = reorder_on(options.device, x, dst, dtype=dtype, attr=attr, out=out)
    else:
        msg = "--threads are those of the CPU; leave them out, or --device"
        raise MemdescError(msg)
    progress.step(f"writing {options.dst}", 1)
    save(options.dst, result)
    return {
        "wrote": options.dst,
        "descriptor": str(sidecar(options.dst)),
        **desc_facts(result.desc),
    }


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
    "Reorder a .npy into another layout.",
    "reorder in.npy out.npy --from nchw --to nChw16c",
    _add_arguments,
    _answer,
)
