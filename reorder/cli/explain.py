"""`memdesc explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.cli.command import Command, Facts, add_layouts, add_picture, buffer_of, lines, pair_of
from reorder.plan.compare import compare
from reorder.plan.plan import plan_reorder

if TYPE_CHECKING:
    import argparse

    from reorder.plan.nodes import Box

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_layouts(parser)
    add_picture(parser, "draw the plan: the source of each element of B")
    parser.add_argument(
        "--kernels", choices=["opencl"], help="print the kernels that would run on an OpenCL device"
    )


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    from reorder.cpu import PreparedReorder  # numba is slow to load

    pair = pair_of(options)
    src, dst = map(buffer_of, pair)
    plan = plan_reorder(src, dst)
    relation = compare(src, dst)
    facts: Facts = {
        "src": repr(pair[0]),
        "dst": repr(pair[1]),
        "plan": [_box_facts(box) for box in plan.boxes] if options.json else str(plan).splitlines(),
        "kernels": list(PreparedReorder(plan).kernels),
        "bytes_read": src.dtype.nbytes(src.nelems),
        "bytes_written": dst.dtype.nbytes(dst.padded_nelems if dst.nelems else 0),
        "of_these_padding": dst.dtype.nbytes(dst.padded_nelems - dst.nelems if dst.nelems else 0),
        "offset_tables": any(box.indirect for box in plan.boxes),
        "reorder": relation.kind,
        "why": relation.why,
    }
    if options.svg is not None:
        plan.show().save(options.svg)
        facts["wrote"] = options.svg
    if options.kernels is not None:
        from reorder.opencl import kernel_texts  # pyopencl is slow to load

        facts["texts"] = kernel_texts(*pair)
    return facts, 0


def _box_facts(box: Box) -> Facts:
    """Return a loop nest as numbers: strides and offsets in src, then in dst, in elements."""
    return {
        "offsets": box.offsets,
        "loops": [
            {"extent": node.extent, "valid": node.valid, "strides": node.strides}
            for node in box.nodes
        ],
        "indirect_loops": len(box.indirect),
    }


def _lay_out(facts: Facts) -> list[str]:
    """Return a line for each fact, then the texts of the kernels."""
    shown = {key: value for key, value in facts.items() if key != "texts"}
    return [
        *lines(shown),
        *(line for text in facts.get("texts", ()) for line in ("", *text.splitlines())),
    ]


COMMAND = Command(
    "explain",
    "Explain a reorder from A to B: its plan, the bytes, the kernels that would run.",
    "explain nchw nChw16c 8x17x56x56",
    _add_arguments,
    _answer,
    _lay_out,
)
