"""`memdesc compile`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.cli.command import Command, Facts
from reorder.cli.progress import Progress

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]

_NONE = "none"
_PARTS = 1000


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dtypes",
        metavar="DTYPES",
        help="types between which tensors will be converted, such as f32,bf16,s8, or none "
        "(default: all); kernels that only move elements are always compiled",
    )
    parser.add_argument(
        "--records",
        metavar="RECORDS",
        help="records that will be decoded, such as q4_0,awq, or none (default: all)",
    )


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    # numba is slow to load
    from reorder.ahead import compile_kernels  # see above
    from reorder.cpu import cache_folder  # likewise

    with Progress(_PARTS) as bar:

        def show(done: int, total: int) -> None:
            bar.move_to(_PARTS * done // total, f"step {done + 1} of {total}")

        made = compile_kernels(_listed(options.dtypes), _listed(options.records), progress=show)
    fresh = [kernel for kernel in made if not kernel["is_loaded"]]
    return {
        "folder": cache_folder(),
        "kernels": len(made),
        "compiled": len(fresh),
        "seconds": round(sum(kernel["seconds"] for kernel in made), 2),
    }, 0


def _listed(names: str | None) -> list[str] | None:
    if names is None:
        return None
    return [] if names == _NONE else names.split(",")


COMMAND = Command(
    "compile",
    "Compile the CPU kernels before their first use, for example in a container image.",
    "compile --dtypes f32,bf16 --records none",
    _add_arguments,
    _answer,
)
