"""Random hand-made plans, some nearly valid, some not."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

import reorder
from memdesc import MemdescError, memory_desc
from reorder.plan import Box, IndirectLoop, Node, ReorderPlan
from reorder.plan.planner import validate
from tests.reorders import box_map, few_boxes, forced_parts, move_guarded, random_bytes

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder import Attr

_KINDS = (
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
)
_STRANGE: tuple[Any, ...] = (True, 1.0, np.float32(2), None, "1", 2**63, -(2**64), np.ones(2))
_EDGES = (0, 1, -1, 2, 3, 7, 8, 16, 127, 255, 300, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63) + 1)
_STRIDES = (0, 1, 1, 1, -1, 2, 3, 4, 5, 8, 16, 17, 64, -8)


def disguised(number: int, rng: np.random.Generator) -> Any:
    """Return the same number as an integer of any type that holds it."""
    kind = _KINDS[rng.integers(len(_KINDS))]
    if rng.random() < 0.5 or not np.iinfo(kind).min <= number <= np.iinfo(kind).max:
        return number
    return kind(number)


def _changed(number: int, rng: np.random.Generator) -> Any:
    """Return a nearby number, an extreme one, or a non-number."""
    choice = rng.integers(8)
    if choice < 4:
        return disguised(number + int(rng.integers(-3, 4)), rng)
    if choice < 5:
        return disguised(number * int(rng.choice([-1, 2, 3])), rng)
    if choice < 7:
        return disguised(_EDGES[rng.integers(len(_EDGES))], rng)
    return _STRANGE[rng.integers(len(_STRANGE))]


class _Change:
    """Walks through a value of tuples and changes one of its numbers, or a few."""

    def __init__(self, rng: np.random.Generator, count: int, changes: int) -> None:
        self._rng = rng
        self._at = set(rng.integers(max(count, 1), size=changes).tolist()) if changes else set()
        self._seen = 0

    def apply(self, value: Any) -> Any:
        """Return the value with the changes, and its numbers in integers of any type."""
        if isinstance(value, tuple):
            parts = [self.apply(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        self._seen += 1
        if self._seen - 1 in self._at:
            return _changed(value, self._rng)
        return disguised(value, self._rng)


def mutated(value: Any, rng: np.random.Generator, changes: int) -> Any:
    """Return tuples with some numbers changed, and the others in integers of any type."""
    return _Change(rng, _count(value), changes).apply(value)


def _count(value: Any) -> int:
    return sum(map(_count, value)) if isinstance(value, tuple) else 1


@cache
def _pool() -> tuple[ReorderPlan, ...]:
    """Return plans of `plan_reorder`: moves, conversions, parameters, gathers, 4 bits."""
    pairs: list[tuple[MemoryDesc, MemoryDesc, Attr | None]] = []
    layouts = [
        ((4, 6), "ab", "ba"),
        ((3, 17, 5), "abc", "aBc4b"),
        ((3, 17, 5), "aBc8b", "cab"),
        ((33, 31), "ab", "BA16a4b"),
        ((2, 40), "aB8b", "Ab2a"),
        ((17, 19, 3), "cba", "ABc8b16a2b"),
        ((5, 100), "aB48b", "aB32b"),
        ((6, 5, 7), "(ab)c", "a(cb)"),
        ((64, 64), "ab", "ba"),
    ]
    scales = reorder.Attr(dst_scale=np.linspace(0.5, 2, 4).astype(np.float32), dst_scale_mask=1)
    for dims, src, dst in layouts:
        pairs += [
            (memory_desc(dims, kind, src), memory_desc(dims, kind, dst), None)
            for kind in ("u8", "bf16", "f32", "f64", "s4")
        ]
        pairs += [
            (memory_desc(dims, one, src), memory_desc(dims, other, dst), None)
            for one, other in (("f32", "s8"), ("s4", "f32"), ("f16", "f32"))
        ]
    pairs.append((memory_desc((4, 6), "f32", "ab"), memory_desc((4, 6), "s8", "ba"), scales))
    pairs.append(
        (memory_desc((4, 60), "f32", "aB48b"), memory_desc((4, 60), "f32", "aB32b"), scales)
    )
    plans = [reorder.plan_reorder(*pair) for pair in pairs]
    with few_boxes():
        plans += [reorder.plan_reorder(*pair) for pair in pairs]
    return tuple(plans)


def random_plan(rng: np.random.Generator) -> ReorderPlan:
    """Return a plan by hand: one of the pool with changed numbers, or random boxes."""
    base = _pool()[rng.integers(len(_pool()))]
    kind = rng.integers(3)
    if kind == 0:
        boxes = tuple(_random_box(base, rng) for _ in range(rng.integers(1, 4)))
    else:
        boxes = tuple(base.boxes[k] for k in rng.integers(len(base.boxes), size=rng.integers(1, 4)))
        if kind == 2:
            boxes = tuple(_shuffled(box, rng) for box in boxes)
    changes = int(rng.choice([0, 0, 1, 1, 2, 4]))
    return ReorderPlan(base.src, base.dst, mutated(boxes, rng, changes), base.attr)


def _shuffled(box: Box, rng: np.random.Generator) -> Box:
    nodes = tuple(box.nodes[k] for k in rng.permutation(len(box.nodes)))
    nodes = tuple(
        node._replace(valid=int(rng.integers(0, node.extent + 1))) if rng.random() < 0.3 else node
        for node in nodes
    )
    return box._replace(nodes=nodes)


def _random_box(base: ReorderPlan, rng: np.random.Generator) -> Box:
    """Return loops with offsets that mostly keep them inside of the descriptors."""
    operands = len(base.boxes[0].offsets)
    nodes = []
    for _ in range(rng.integers(0, 5)):
        extent = int(rng.choice([1, 2, 3, 4, 8, 16, 17, 33]))
        valid = extent if rng.random() < 0.7 else int(rng.integers(0, extent + 1))
        strides = tuple(_STRIDES[k] for k in rng.integers(len(_STRIDES), size=operands))
        nodes.append(Node(extent, valid, strides))
    if nodes and rng.random() < 0.5:
        # what a transposition looks like
        extent = nodes[-1].extent
        nodes.append(Node(int(rng.choice([2, 4, 16])), 16, (extent, 1, *(0,) * (operands - 2))))
        nodes[-1] = nodes[-1]._replace(valid=nodes[-1].extent)
    lasts = [base.src.layout.last, base.dst.layout.last, *([0] * (operands - 2))]
    offsets = []
    for operand, last in enumerate(lasts):
        steps = [node.strides[operand] * (node.extent - 1) for node in nodes]
        low = -sum(min(step, 0) for step in steps)
        high = last - sum(max(step, 0) for step in steps)
        offsets.append(int(rng.integers(low, high + 1)) if low <= high else low)
    indirect: tuple[IndirectLoop, ...] = base.boxes[0].indirect if rng.random() < 0.3 else ()
    return Box(tuple(offsets), tuple(nodes), indirect)


def run_plan(plan: ReorderPlan, rng: np.random.Generator) -> bool:
    """Run a plan at guard pages and compare what it wrote; False where it is refused."""
    try:
        checked = validate(plan)
    except MemdescError:
        return False
    src, dst = checked.src, checked.dst
    source = random_bytes(src.min_nbytes, int(rng.integers(1000)))
    before = random_bytes(dst.min_nbytes, int(rng.integers(1000)))
    at_end = bool(rng.random() < 0.5)
    if rng.integers(8):
        found = move_guarded(checked, source, before, at_end=at_end)
    else:
        with forced_parts(3):
            found = move_guarded(checked, source, before, at_end=at_end, threads=3)
    _compare(checked, source, before, found)
    return True


def _compare(plan: ReorderPlan, source: Any, before: Any, found: Any) -> None:
    """Compare elements that are written once, or not at all, with the definition of boxes."""
    operands_of_move = 2
    if plan.dst.dtype.is_packed or any(len(box.offsets) != operands_of_move for box in plan.boxes):
        return
    to, fro = box_map(plan.boxes)
    new, old = (
        data[: data.size // size * size].view(f"u{size}")
        for size in (plan.dst.dtype.bits // 8,)
        for data in (found, before)
    )
    written = np.bincount(to, minlength=new.size)
    assert np.array_equal(new[written == 0], old[written == 0]), "other elements were written"
    if plan.converts:
        return
    values = source.view(new.dtype)
    wanted = np.where(fro >= 0, values[fro], 0)
    once = written[to] == 1
    assert np.array_equal(new[to[once]], wanted[once]), "elements are wrong"
