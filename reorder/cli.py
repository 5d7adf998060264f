"""The command `memdesc`: show, reorder, check, doctor."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import memdesc
from memdesc import ImageDesc, MemdescError, MemoryDesc, NotBlockedError, PaddingError
from memdesc.names import is_image
from reorder.api import reorder
from reorder.files import load, save, sidecar
from reorder.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, 1 (a check failed) or 2 (bad input)."""
    options = _parser().parse_args(arguments)
    try:
        facts, code = options.run(options)
    except (MemdescError, MemoryError) as error:
        sys.stderr.write(f"memdesc: {error}\n")
        return 2
    try:
        sys.stdout.write((json.dumps(facts) if options.json else "\n".join(_lines(facts))) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has seen enough; keep the interpreter from flushing into it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="memdesc", description="How tensors lie in memory, and how to move them.")
    parser.add_argument("--version", action="version", version=f"memdesc {memdesc.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    def add(name: str, run: Any, text: str, example: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, epilog=f"example: memdesc {example}")
        command.add_argument("--json", action="store_true", help="print one JSON object")
        command.set_defaults(run=run)
        return command

    show = add("show", _show, "Show a layout: padding, strides, blocks, bytes, names.", "show nChw8c 2x17x5x4 --dtype f32")
    show.add_argument("tag", help="a format name of oneDNN, OpenVINO or MACE")
    show.add_argument("dims", help="logical sizes, such as 2x17x5x4")
    show.add_argument("--dtype", default="f32", help="data type (default f32)")

    move = add("reorder", _reorder, "Reorder a .npy into another layout.", "reorder in.npy out.npy --from nchw --to nChw16c")
    move.add_argument("src", help="a .npy; if a descriptor lies beside it, it is read as that says")
    move.add_argument("dst", help="the .npy to write (raw bytes for a blocked layout); its descriptor is written beside it")
    move.add_argument(
        "--from", dest="tag", metavar="TAG", help="order of the axes of the array, such as nhwc, if they are not its logical dims"
    )
    move.add_argument("--to", required=True, metavar="TAG", help="layout to write")
    move.add_argument("--dtype", help="what the array holds where .npy cannot say it, such as bf16")
    move.add_argument("--threads", type=int, help="at most so many threads")

    check = add("check", _check, "Check that the padding of a saved tensor is zero.", "check out.npy")
    check.add_argument("file", help="a .npy with its descriptor beside it")

    add("doctor", _doctor, "Report versions, threads and the cache of compiled kernels.", "doctor")
    return parser


def _dims(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split("x"))
    except ValueError:
        msg = f"dims {text!r} are not sizes joined by x, such as 2x17x5x4"
        raise MemdescError(msg) from None


def _show(options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    dims = _dims(options.dims)
    if is_image(options.tag):
        return _image_facts(memdesc.image_desc(dims, options.dtype, options.tag)), 0
    return _facts(memdesc.memory_desc(dims, options.dtype, options.tag)), 0


def _facts(desc: MemoryDesc) -> dict[str, Any]:
    facts: dict[str, Any] = {"dims": desc.dims, "dtype": str(desc.dtype), "padded_dims": desc.padded_dims}
    try:
        facts |= {"strides": desc.strides, "inner_blks": desc.inner_blks, "inner_idxs": desc.inner_idxs}
    except NotBlockedError as reason:
        facts |= {"blocks": [block._asdict() for block in desc.blocks], "not_in_onednn": str(reason)}
    unpadded = desc.dtype.nbytes(desc.nelems)
    facts |= {
        "offset0": desc.offset0,
        "bytes": desc.nbytes,
        "unpadded_bytes": unpadded,
        "padding_overhead": round(desc.padding_overhead, 4),
        "names": [name._asdict() for name in desc.tags()],
    }
    return facts


def _image_facts(image: ImageDesc) -> dict[str, Any]:
    return {
        "dims": image.dims,
        "dtype": str(image.dtype),
        "width": image.width,
        "height": image.height,
        "channels": image.channels,
        "bytes": image.nbytes,
        "padding_overhead": round(image.desc.padding_overhead, 4),
    }


def _reorder(options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    x = load(options.src, options.dtype)
    if isinstance(x, Memory) and options.tag is not None:
        if memdesc.memory_desc(x.desc.dims, x.desc.dtype, options.tag) != x.desc:
            msg = f"{str(sidecar(options.src))!r} says {x.desc!r}, not {options.tag!r}; leave --from out"
            raise MemdescError(msg)
        options.tag = None
    result = reorder(x, options.to, src=options.tag, threads=options.threads)
    save(options.dst, result)
    return {"wrote": options.dst, "descriptor": str(sidecar(options.dst)), **_facts(result.desc)}, 0


def _check(options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    memory = load(options.file)
    if not isinstance(memory, Memory):
        msg = f"{options.file!r} has no descriptor beside it ({str(sidecar(options.file))!r}), so nothing says what is padding"
        raise MemdescError(msg)
    padding = memory.desc.padded_nelems - memory.desc.nelems
    try:
        memory.check_padding()
    except PaddingError as error:
        return {"file": options.file, "padding_elements": padding, "zero": False, "first": str(error)}, 1
    return {"file": options.file, "padding_elements": padding, "zero": True}, 0


def _doctor(_options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    from reorder.cpu import cache_folder, count_threads, layer_name  # noqa: PLC0415 - numba is slow to load

    facts: dict[str, Any] = {"memdesc": memdesc.__version__, "python": platform.python_version(), "machine": platform.machine()}
    for package in ("numpy", "ml_dtypes", "numba", "llvmlite", "pyopencl", "tbb"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    folder = cache_folder()
    facts |= {
        "thread_layer": layer_name(),
        "threads": count_threads(),
        "kernel_cache": folder or "none: no folder can be written, so each process compiles anew; set NUMBA_CACHE_DIR to one",
    }
    return facts, 0


def _lines(facts: dict[str, Any]) -> list[str]:
    """Lay facts out for a reader: one a line, names and blocks below each other."""
    width = max(map(len, facts)) + 2
    lines = []
    for key, value in facts.items():
        rows = value if isinstance(value, list) else [value]
        texts = [_row(row) if isinstance(row, dict) else _plain(row) for row in rows] or ["none"]
        lines += [f"{key.replace('_', ' ') if k == 0 else '':{width}}{text}" for k, text in enumerate(texts)]
    return lines


def _row(row: dict[str, Any]) -> str:
    if "vocabulary" in row:
        return f"{row['text']} ({row['vocabulary']}, {row['domain']})"
    return ", ".join(f"{key} {value}" for key, value in row.items())


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    sys.exit(main())
