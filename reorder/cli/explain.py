"""`memdesc explain`: how two layouts differ, and what a reorder between them does."""

from __future__ import annotations

from typing import Any

import numpy as np

from memdesc import MemdescError, MemoryDesc
from memdesc.dtypes import BYTE_BITS
from reorder.bench.cases import attr_of
from reorder.cli.command import Command, Facts, Options, buffer_of, lines, pair_of, save
from reorder.plan.compare import COPY, NO_OP, compare_layouts
from reorder.plan.nodes import Box
from reorder.plan.plan import ReorderPlan
from reorder.plan.planner import plan_reorder

# the most elements whose offsets are compared one by one
_MAX_COMPARED = 1 << 22
_SIDES = ("src", "dst")
# in most first-level caches, addresses this far apart share a set, which holds this many lines
_SET_BYTES, _WAYS, _LINE_BITS = 4096, 16, 512
# where large arrays of numpy start in a cache line, in bytes
_NUMPY_PLACE = 16
_KERNELS = ("kernels", "kernels_within_lines")
_SHOWN = ("padded_dims", "nbytes", "is_dense", "offset0")


def _answer(options: Options) -> tuple[Facts, int]:
    from reorder.cpu import PreparedReorder  # LLVM is slow to load
    from reorder.cpu.schedule.access import describe_access  # LLVM is slow to load

    if options.beside and options.svg is None:
        raise MemdescError(
            "--beside changes only the picture of --svg; add that, or leave --beside out"
        )
    pair = pair_of(options, options.to)
    src, dst = map(buffer_of, pair)
    attr = attr_of(src.dims, {} if options.scale is None else {"scale": options.scale})
    plan = plan_reorder(src, dst, attr)
    prepared, relation = PreparedReorder(plan), compare_layouts(src, dst)
    kind, why = (relation.kind, relation.why) if attr is None else (COPY, "a scale changes numbers")
    facts: Facts = {**dict(zip(_SIDES, map(repr, pair), strict=True)), "equal": src == dst}
    facts |= {"reorder": kind, "why": why}
    for key in _SHOWN:
        values = getattr(src, key), getattr(dst, key)
        facts[key] = values[0] if values[0] == values[1] else dict(zip(_SIDES, values, strict=True))
    written = dst.padded_nelems if dst.nelems else 0
    if kind != NO_OP and src.nelems <= _MAX_COMPARED:
        facts["first_moved"] = _first_moved(src, dst)
    facts |= {
        "plan": [_box_facts(box) for box in plan.boxes] if options.json else str(plan).splitlines(),
        "access": [describe_access(plan, box) for box in plan.boxes],
        "slow": [] if kind != COPY else slow_strides(plan),
        "kernels": list(prepared.kernels_at(0)),
        "kernels_within_lines": list(prepared.kernels_at(_NUMPY_PLACE)),
        "bytes_read": src.dtype.nbytes(src.nelems),
        "bytes_written": dst.dtype.nbytes(written),
        "of_these_padding": dst.dtype.nbytes(written - dst.nelems),
        "indirection_tables": any(box.indirect for box in plan.boxes),
    }
    if options.svg is not None:
        save(src.show(beside=dst) if options.beside else plan.show(), options.svg)
        facts["wrote"] = options.svg
    if options.kernels is not None:
        from reorder.opencl import kernel_texts  # pyopencl is slow to load

        facts["texts"] = kernel_texts(*pair)
    return facts, 0


def _first_moved(src: MemoryDesc, dst: MemoryDesc) -> Facts | None:
    """Return the first index whose element has another offset, and both offsets."""
    moved = np.argwhere(src.layout.offsets() != dst.layout.offsets())
    if not len(moved):
        return None
    index = tuple(map(int, moved[0]))
    return {"index": index, "src": src.offset(index), "dst": dst.offset(index)}


def slow_strides(plan: ReorderPlan) -> list[str]:
    """Say where neighbours on one side share few sets of a cache on the other, and the way out.

    >>> src, dst = (MemoryDesc((4096, 64), "f32", tag) for tag in ("ba", "ab"))
    >>> print(*slow_strides(plan_reorder(src, dst)))  # doctest: +NORMALIZE_WHITESPACE
    neighbours in dst are 16,384 bytes apart in src, a multiple of 4,096, so they share few sets of
    a cache: code that copies row by row reads each of its lines many times, and reorder moves tiles
    instead; strides=(1, 4112) would spread them
    """
    found: dict[tuple[int, int], str] = {}
    descs = plan.src, plan.dst
    for box in plan.boxes:
        loops = [node for node in box.nodes if node.valid > 1 and all(node.strides)]
        if box.is_zero or not loops:
            continue
        for side, desc in enumerate(descs):
            run = min(loops, key=lambda node: abs(node.strides[1 - side]))
            apart = abs(run.strides[side]) * desc.dtype.bits // BYTE_BITS
            if apart == 0 or apart % _SET_BYTES or run.valid < _WAYS:
                continue
            here, there = _SIDES[side], _SIDES[1 - side]
            verb = "writes" if side else "reads"
            found[side, apart] = (
                f"neighbours in {there} are {apart:,} bytes apart in {here}, a multiple of "
                f"{_SET_BYTES:,}, so they share few sets of a cache: code that copies row by row "
                f"{verb} each of its lines many times, and reorder moves tiles instead"
                f"{_spread(desc, abs(run.strides[side]))}"
            )
    return [*found.values()]


def _spread(desc: MemoryDesc, apart: int) -> str:
    """Return the strides of rows that are a cache line longer, where strides say it all."""
    if desc.layout.xor or desc.layout.inner():
        return ""
    longer = apart + _LINE_BITS // desc.dtype.bits
    strides = tuple(
        stride if stride % apart else stride // apart * longer for stride in desc.strides
    )
    return f"; strides={strides} would spread them"


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
    """Return what differs, the plan, and the texts of kernels."""
    shown: dict[str, Any] = {key: facts[key] for key in _SIDES}
    shown["reorder"] = f"{facts['reorder']}: {facts['why']}"
    shown |= {key: facts[key] for key in _SHOWN if isinstance(facts[key], dict)}
    if moved := facts.get("first_moved"):
        index = ", ".join(map(str, moved["index"]))
        shown["first_moved"] = f"({index}) from offset {moved['src']} to {moved['dst']}"
    padding = facts["of_these_padding"]
    nbytes = f"{facts['bytes_read']} read, {facts['bytes_written']} written"
    nbytes += f", of these {padding} padding" if padding else ""
    kernels, within = (", ".join(facts[key]) or "none" for key in _KERNELS)
    if within != kernels:
        kernels += f"; where dst starts within a cache line, {within}"
    if facts["reorder"] != COPY:
        nbytes = f"0 if src is used as dst; if copied, {nbytes}"
        kernels = f"if copied, {kernels}"
    shown |= {key: facts[key] for key in ("plan", "access", "slow") if facts[key] or key != "slow"}
    shown |= {"kernels": kernels, "bytes": nbytes}
    if facts["reorder"] == COPY:
        shown["time"] = "memdesc bench measures it"
    shown |= {"wrote": facts["wrote"]} if "wrote" in facts else {}
    texts = facts.get("texts", ())
    return [*lines(shown), *(line for text in texts for line in ("", *text.splitlines()))]


COMMAND = Command(
    _answer,
    _lay_out,
    settings={"--kernels": {"choices": ["opencl"]}},
)
