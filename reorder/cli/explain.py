"""`memdesc explain`: how two layouts differ, and what a reorder between them does."""

from __future__ import annotations

from memdesc import MemoryDesc
from memdesc.dtypes import BYTE_BITS
from reorder.cli.command import Command, Facts, Line, Options, Said, save
from reorder.cli.layouts import buffer_of, pair_of
from reorder.plan.compare import COPY, compare_layouts
from reorder.plan.nodes import Box
from reorder.plan.plan import ReorderPlan, plan_reorder
from reorder.values.attr import Attr

_SIDES = ("src", "dst")
# in most first-level caches, addresses this far apart share a set, which holds this many lines
_SET_BYTES, _WAYS, _LINE_BITS = 4096, 16, 512
# where large arrays of numpy start in a cache line, in bytes
_NUMPY_PLACE = 16
_SHOWN = ("padded_dims", "nbytes", "is_dense", "offset0")


def _answer(options: Options) -> tuple[Facts, int]:
    from reorder.cpu import PreparedReorder  # LLVM is slow to load
    from reorder.cpu.schedule.access import describe_access  # LLVM is slow to load
    from reorder.cpu.target import instructions  # LLVM is slow to load

    pair = pair_of(options, options.to)
    src, dst = map(buffer_of, pair)
    attr = None if options.scale is None else Attr(dst_scale=options.scale)
    plan = plan_reorder(src, dst, attr)
    prepared, relation = PreparedReorder(plan), compare_layouts(src, dst)
    kind, why = (relation.kind, relation.why) if attr is None else (COPY, "a scale changes numbers")
    facts: Facts = dict(zip(_SIDES, map(repr, pair), strict=True))
    facts |= {"equal": Said(src == dst), "reorder": Said(kind, f"{kind}: {why}"), "why": Said(why)}
    for key in _SHOWN:
        left, right = getattr(src, key), getattr(dst, key)
        facts[key] = Said(left) if left == right else dict(zip(_SIDES, (left, right), strict=True))
    elements = dst.padded_nelems if dst.nelems else 0
    nbytes = {
        "bytes_read": src.dtype.nbytes(src.nelems),
        "bytes_written": dst.dtype.nbytes(elements),
        "of_these_padding": dst.dtype.nbytes(elements - dst.nelems),
    }
    slow = [] if kind != COPY else slow_strides(plan)
    kernels, within = ([*prepared.kernels_at(place)] for place in (0, _NUMPY_PLACE))
    used, elsewhere = (", ".join(names) or "none" for names in (kernels, within))
    if elsewhere != used:
        used += f"; where dst starts within a cache line, {elsewhere}"
    read, written, added = nbytes.values()
    moved = f"{read} read, {written} written" + (f", of these {added} padding" if added else "")
    if kind != COPY:
        used = f"if copied, {used}"
        moved = f"0 if src is used as dst; if copied, {moved}"
    facts |= {
        "plan": Said([_box_facts(box) for box in plan.boxes], str(plan).splitlines()),
        "access": [describe_access(plan, box, instructions()) for box in plan.boxes],
        "slow": slow or Said(slow),
        "kernels": Said(kernels, used),
        "kernels_within_lines": Said(within),
        "bytes": Line(moved),
        **{key: Said(count) for key, count in nbytes.items()},
        "indirection_tables": Said(any(box.indirect for box in plan.boxes)),
    }
    if options.svg is not None:
        save(plan.show(), options.svg)
        facts["wrote"] = options.svg
    return facts, 0


def slow_strides(plan: ReorderPlan) -> list[str]:
    """Say where neighbours on one side share few sets of a cache on the other, and the way out.

    >>> src, dst = (MemoryDesc((4096, 64), "f32", tag) for tag in ("ba", "ab"))
    >>> print(*slow_strides(plan_reorder(src, dst)))  # doctest: +NORMALIZE_WHITESPACE
    neighbours in dst are 16,384 bytes apart in src, a multiple of 4,096, so they share few sets of
    a cache: code that copies row by row reads each line many times, so reorder moves tiles instead;
    strides=(1, 4112) would spread them over more sets
    """
    notes: dict[tuple[int, int], str] = {}
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
            notes[side, apart] = (
                f"neighbours in {there} are {apart:,} bytes apart in {here}, a multiple of "
                f"{_SET_BYTES:,}, so they share few sets of a cache: code that copies row by row "
                f"{verb} each line many times, so reorder moves tiles instead"
                f"{_spread(desc, abs(run.strides[side]))}"
            )
    return [*notes.values()]


def _spread(desc: MemoryDesc, apart: int) -> str:
    """Return the strides of rows that are a cache line longer, if strides describe the layout."""
    if desc.layout.xor or desc.layout.inner():
        return ""
    longer = apart + _LINE_BITS // desc.dtype.bits
    strides = tuple(
        stride if stride % apart else stride // apart * longer for stride in desc.strides
    )
    return f"; strides={strides} would spread them over more sets"


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


COMMAND = Command(_answer)
