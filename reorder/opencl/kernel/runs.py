"""A family of kernels that converts between two buffers, in runs of elements.

A work item converts elements that dst stores as words. It has several runs, spaced by the number of
work items in the group: all are loaded before the first one is stored, so that more bytes are in
flight. Here extent0 and valid0 count elements; 4-bit elements have a further parameter

    parity                    of the offsets in dst that are written
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TYPE_CHECKING

from memdesc.dtypes import BYTE_BITS
from reorder.opencl.kernel.access import (
    Access,
    AccessKind,
    load_words,
    one_element,
    store_element,
    store_words,
)
from reorder.opencl.kernel.launch import (
    Body,
    Division,
    KernelTask,
    Launch,
    Pattern,
    divided,
    floor_log2,
    lower_nest,
    share_out,
)
from reorder.opencl.kernel.statements import (
    index_lines,
    indirect_lines,
    offset_at,
    shared_lines,
)
from reorder.values.binding import BETA

if TYPE_CHECKING:
    from reorder.opencl.kernel.formula import KernelFormula
    from reorder.opencl.kernel.placement import Loop, Nest

# Bits of a run on the side with the wider elements, and the most elements of a run.
_RUN_BITS, _MAX_RUN = 128, 16
_WORK_ITEMS = 256
# Runs of 4 elements of a work item; fewer if they are longer, or if groups would be too few.
_RUNS, _MIN_GROUPS = 4, 1024


def try_lower(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launches of a nest that converts between two buffers, or moves 4-bit elements.

    4-bit elements that do not fill whole bytes are written by two launches, one for each half of a
    byte.
    """
    conversion = task.conversion
    if conversion is None or task.has_image:
        return ()
    nest = _ordered(task.nest)
    loops = nest.loops
    bits = conversion.widths
    most = min(_RUN_BITS // max(bits), _MAX_RUN, 1 << floor_log2(loops[0].extent))
    length = _length(nest, 1, most, task)
    kinds = [
        AccessKind.VECTOR if 1 < length == _length(nest, k, length, task) else AccessKind.BUFFER
        for k in range(2)
    ]
    if nest.is_zero:
        kinds[0] = AccessKind.NONE
    run = Run(
        length,
        loops[0].valid == loops[0].extent and not loops[0].extent % length,
        bits[1] < BYTE_BITS and length == 1,
        uniform_roles(loops[0], conversion),
    )
    work_items = task.work_items(_WORK_ITEMS)
    src, dst = (Access(kind, width) for kind, width in zip(kinds, bits, strict=True))
    pattern = Pattern(src, dst, run, work_items, with_products(conversion, run.uniform, task))
    divisions, indirect_shift = _divisions(nest, length, floor_log2(work_items))

    def launch(parity: int) -> Launch:
        numbers = {**task.numbers, "parity": parity}
        made = lower_nest(nest, pattern, divisions, numbers, indirect_shift)
        return made._replace(is_later=bool(parity))

    if not run.is_nibble:
        return (launch(0),)
    if all(stride % 2 == 0 for stride in nest.strides(1)):
        return (launch(nest.starts[1][0] % 2),)
    return launch(0), launch(1)


def _ordered(nest: Nest) -> Nest:
    """Sort loops by stride in dst, smallest first; add loops of one step if there are few."""
    loops = sorted(nest.loops, key=lambda loop: abs(loop.stride(1)))
    return nest._replace(loops=nest.filled(loops))


def uniform_roles(loop: Loop, conversion: KernelFormula) -> tuple[str, ...]:
    """Return the roles that vary, but not along a loop."""
    pairs = zip(conversion.varying, loop.strides[2:], strict=True)
    return tuple(role for role, stride in pairs if stride == (0,))


def with_products(
    conversion: KernelFormula, uniform: tuple[str, ...], task: KernelTask
) -> KernelFormula:
    """Turn quotients into products if a run has one divisor and the device has fused operations.

    `uniform` are the roles that vary, but not within a run.
    """
    is_shared = "dst_scale" in (*conversion.scalars, *uniform)
    multiplies = is_shared and task.device.floats.multiplies and conversion.work == "f32"
    return replace(conversion, multiplies=multiplies)


def _length(nest: Nest, operand: int, most: int, task: KernelTask) -> int:
    """Return the elements of a run; `most` is a power of two, and so is the result.

    All runs start at multiples of it, so that they can be loaded and stored as words.
    """
    loop = nest.loops[0]
    if loop.strides[operand] != (1,):
        return 1
    if not task.is_aligned:
        most = min(most, max(BYTE_BITS // task.accesses[operand].bits, 1))
    return gcd(most, nest.alignment(operand, (loop,)))


def _divisions(nest: Nest, length: int, total: int) -> tuple[list[Division], int]:
    """Divide the loops, and the first indirect loop, among 2^total work items."""
    extents = [-(-nest.loops[0].extent // length), *(loop.extent for loop in nest.loops[1:])]
    shifts, indirect_shift = share_out(nest, extents, total)
    steps = _steps(extents, shifts, length)
    divisions = [
        divided(loop.extent, shift, count, 1 if k else length)
        for k, (loop, shift, count) in enumerate(zip(nest.loops, shifts, steps, strict=True))
    ]
    return divisions, indirect_shift


def _steps(extents: list[int], shifts: list[int], length: int) -> list[int]:
    """Return a work item's steps along each loop: several along one if there are many groups."""
    groups = prod(-(-extent >> shift) for extent, shift in zip(extents, shifts, strict=True))
    steps = [1] * len(extents)
    wanted = max(_RUNS // max(length // _RUNS, 1), 1)
    while wanted > 1 and groups < wanted * _MIN_GROUPS:
        wanted //= 2
    for k, (extent, shift) in enumerate(zip(extents, shifts, strict=True)):
        if wanted > 1 and extent >> shift >= wanted:
            steps[k] = wanted
            break
    return steps


@dataclass(frozen=True)
class Run(Body):
    """A run of `length` successive steps of loop 0, which a work item converts between buffers.

    With `is_whole` all are inside and hold data. With `is_nibble` it writes one half of a byte: the
    elements at odd offsets, or at even ones, as a parameter says. `uniform` are the roles whose
    values vary, but not within a run.
    """

    length: int
    is_whole: bool = False
    is_nibble: bool = False
    uniform: tuple[str, ...] = ()

    def param_names(self) -> list[str]:
        """Return the parity of the offsets that are written, for 4-bit elements."""
        return ["parity"] if self.is_nibble else []

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: runs are loaded, converted and stored; padding becomes 0."""
        conversion, src_bits = _conversion(pattern), pattern.src.bits
        reads = pattern.src.kind != AccessKind.NONE
        yield from index_lines(pattern)
        for k in range(len(pattern.indirect)):
            yield f"if (j{k} >= p.indirect{k}_extent) return;"
            yield from indirect_lines(pattern, k)
        if reads:
            yield from shared_lines(conversion, conversion.scalars, 0)
        steps = range(max((loop.steps for loop in pattern.loops), default=1))
        for s in steps:
            yield from _place_lines(self, pattern, s, reads=reads)
        if reads:
            for s in steps:
                yield f"{conversion.src_type} {_names(f'x{s}', self, ' = 0')};"
                yield f"if (is_data_{s}) {{"
                load = (f"src_{s}", pattern.src.kind, f"x{s}")
                yield from _loads(self, load, src_bits, s)
                yield "}"
        for s in steps:
            yield f"if (is_inside_{s}) {{"
            yield f"{conversion.dst_type} {_names('y', self, ' = 0')};"
            if reads:
                yield f"if (is_data_{s}) {{"
                yield from _converted_lines(self, pattern, s)
                yield "}"
            yield from _store_lines(self, pattern, s)
            yield "}"


def _conversion(pattern: Pattern) -> KernelFormula:
    """Return what the kernel of a run computes."""
    assert pattern.conversion is not None  # noqa: S101 - for the type checker
    return pattern.conversion


def _names(prefix: str, run: Run, suffix: str = "") -> str:
    return ", ".join(f"{prefix}_{k}{suffix}" for k in range(run.length))


def _place_lines(run: Run, pattern: Pattern, s: int, *, reads: bool) -> Iterator[str]:
    """Return where a run starts, and whether it is inside and holds data."""
    index = [f"i{k}" for k in range(len(pattern.loops))]
    for k, loop in enumerate(pattern.loops):
        if loop.steps > 1 and s:
            index[k] = f"(i{k} + ({s} << p.shift{k}))"
    index[0] = f"first_{s}"
    start = f"i0 + ({s} << p.shift0)" if pattern.loops[0].steps > 1 and s else "i0"
    yield f"const index_t first_{s} = ({start}) * {run.length};"
    for operand in (*(("src",) if reads else ()), "dst", *pattern.varying):
        indirect = (f"indirect{k}_{operand}" for k in range(len(pattern.indirect)))
        yield f"const index_t {operand}_{s} = {offset_at(operand, enumerate(index), *indirect)};"
    inside = [f"{i} < p.extent{k}" for k, i in enumerate(index)]
    inside += [f"(dst_{s} & 1) == p.parity"] if run.is_nibble else []
    yield f"const int is_inside_{s} = {' && '.join(inside)};"
    if reads:
        data = [f"{i} < p.valid{k}" for k, i in enumerate(index)]
        data += [f"is_data{k}" for k in range(len(pattern.indirect))]
        yield f"const int is_data_{s} = {' && '.join([f'is_inside_{s}', *data])};"


def _converted_lines(run: Run, pattern: Pattern, s: int) -> Iterator[str]:
    """Return the statements that compute y_0, ... from the elements of src."""
    conversion = _conversion(pattern)
    if BETA in conversion.roles:
        yield f"{conversion.dst_type} {_names('old', run, ' = 0')};"
        load = (f"dst_{s}", pattern.dst.kind, "old")
        yield from _loads(run, load, pattern.dst.bits, s)
    if run.uniform:
        yield from shared_lines(conversion, run.uniform, s)
    shared = (*conversion.scalars, *run.uniform)
    for k in range(run.length):

        def value(role: str, k: int = k) -> str:
            if role in shared:
                return f"{role}_all"
            return conversion.operand_value(role, _moved(f"{role}_{s}", role, k))

        done = f"y_{k} = {conversion.converted(f'x{s}_{k}', value, f'old_{k}')};"
        yield done if run.is_whole or not k else f"if (first_{s} + {k} < p.valid0) {done}"


def _loads(run: Run, operand: tuple[str, str, str], bits: int, s: int) -> Iterator[str]:
    """Return the loads of a run: as words where elements are aligned, and all hold data."""
    offset, kind, prefix = operand
    name = offset.partition("_")[0]
    names = [f"{prefix}_{k}" for k in range(run.length)]
    elements = [
        f"{lane} = {one_element(name, _moved(offset, name, k), bits)};"
        for k, lane in enumerate(names)
    ]
    words = load_words(name, offset, bits, names) if kind == AccessKind.VECTOR else None
    limit = "" if run.is_whole else "p.valid0"
    yield from _as_words(words, elements, f"first_{s}", limit)


def _store_lines(run: Run, pattern: Pattern, s: int) -> Iterator[str]:
    """Return the stores of a run: as words where elements are aligned, and all are inside."""
    bits = pattern.dst.bits
    names = [f"y_{k}" for k in range(run.length)]
    elements = [
        store_element("dst", _moved(f"dst_{s}", "dst", k), bits, lane)
        for k, lane in enumerate(names)
    ]
    is_vector = pattern.dst.kind == AccessKind.VECTOR
    words = store_words("dst", f"dst_{s}", bits, names) if is_vector else None
    yield from _as_words(words, elements, f"first_{s}", "" if run.is_whole else "p.extent0")


def _as_words(
    words: Iterator[str] | None, elements: list[str], first: str, limit: str
) -> Iterator[str]:
    """Return the statement for all elements of a run, or those for one each if some are outside.

    Steps from `first` on are inside below a limit; without one, all are.
    """
    if words is not None:
        if not limit:
            yield from words
            return
        yield f"if ({first} + {len(elements)} <= {limit}) {{"
        yield from words
        yield "} else {"
    for k, statement in enumerate(elements):
        yield f"if ({first} + {k} < {limit}) {statement}" if limit and k else statement
    if words is not None:
        yield "}"


def _moved(offset: str, operand: str, lane: int) -> str:
    """Return the offset of an element of a run."""
    return f"{offset} + {lane} * p.{operand}0" if lane else offset
