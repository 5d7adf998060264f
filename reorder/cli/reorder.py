"""`memdesc reorder`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import memdesc
from memdesc import MemdescError
from reorder.api import reorder
from reorder.cli.command import Command, Facts
from reorder.cli.facts import desc_facts
from reorder.files import load, save, sidecar
from reorder.memory import Memory

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("src", help="a .npy; if a descriptor lies beside it, it is read as that says")
    parser.add_argument("dst", help="the .npy to write (raw bytes for a blocked layout); its descriptor is written beside it")
    parser.add_argument(
        "--from", dest="tag", metavar="TAG", help="order of the axes of the array, such as nhwc, if they are not its logical dims"
    )
    parser.add_argument("--to", required=True, metavar="TAG", help="layout to write")
    parser.add_argument("--dtype", help="what the array holds where .npy cannot say it, such as bf16")
    parser.add_argument("--threads", type=int, help="at most so many threads")


def _run(options: argparse.Namespace) -> tuple[Facts, int]:
    x = load(options.src, options.dtype)
    if isinstance(x, Memory) and options.tag is not None:
        if memdesc.memory_desc(x.desc.dims, x.desc.dtype, options.tag) != x.desc:
            msg = f"{str(sidecar(options.src))!r} says {x.desc!r}, not {options.tag!r}; leave --from out"
            raise MemdescError(msg)
        options.tag = None
    result = reorder(x, options.to, src=options.tag, threads=options.threads)
    save(options.dst, result)
    return {"wrote": options.dst, "descriptor": str(sidecar(options.dst)), **desc_facts(result.desc)}, 0


COMMAND = Command("reorder", "Reorder a .npy into another layout.", "reorder in.npy out.npy --from nchw --to nChw16c", _add_arguments, _run)
