"""Families of kernels that convert between two buffers, in runs of elements.

Runs: a work item converts elements that dst stores as words. It has several runs, spaced by the
number of work items in the group: all are loaded before the first one is stored, so that more bytes
are in flight. Here extent0 and valid0 count elements; 4-bit elements have a further parameter

    parity                    of the offsets in dst that are written

Tiles of runs: if the innermost loops of src and dst differ, work items convert runs along loop 0,
which is contiguous in src, into local memory, and store runs along loop 1, which is contiguous in
dst. Local memory has a row for each step of loop 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd, prod

from memdesc.dtypes import BYTE_BITS
from reorder.opencl.kernel.access import (
    WORD,
    Access,
    AccessKind,
    load_words,
    one_element,
    store_element,
    store_words,
)
from reorder.opencl.kernel.formula import INVERSE, WORD_BITS, KernelFormula
from reorder.opencl.kernel.launch import (
    Body,
    Division,
    KernelTask,
    Launch,
    Pattern,
    ceil_log2,
    divided,
    floor_log2,
    lower_nest,
    share_out,
    tiled,
)
from reorder.opencl.kernel.local_memory import BANKS, SUBGROUP, least_conflicts, row_of
from reorder.opencl.kernel.placement import Loop, Nest, without
from reorder.opencl.kernel.statements import index_lines, indices_of, indirect_lines, offset_at
from reorder.values.binding import BETA

# Bits of a run on the side with the wider elements, and the most elements of a run.
_RUN_BITS, _MAX_RUN = 128, 16
_WORK_ITEMS = 256
# Runs of 4 elements of a work item; fewer if they are longer, or if groups would be too few.
_RUNS, _MIN_GROUPS = 4, 1024
# Elements of a tile and of its longest edge; bytes of src and an edge if wider elements become
# bytes, or narrower ones.
_TILE, _EDGE = 4096, 64
_NARROW_NBYTES, _NARROW_EDGE = 1 << 15, 128
# The shortest edge of a tile, the elements of a box worth tiling, and the shortest run to load.
_MIN_EDGE, _MIN_ELEMENTS, _MIN_RUN = 8, 1 << 14, 8


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
        _uniform(loops[0], conversion),
    )
    work_items = task.work_items(_WORK_ITEMS)
    src, dst = (Access(kind, width) for kind, width in zip(kinds, bits, strict=True))
    pattern = Pattern(src, dst, run, work_items, _with_products(conversion, run, task))
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


def try_lower_tile(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of a nest that goes through tiles; empty if runs along dst suffice."""
    conversion = task.conversion
    if conversion is None or task.has_image or BETA in conversion.roles:
        return ()
    nest = _ordered(task.nest)
    if not nest.is_plain or task.device.max_work_items < _WORK_ITEMS:
        return ()
    along_dst = nest.loops[0]
    along_src = next((loop for loop in nest.loops if loop.strides[0] == (1,)), None)
    if along_src is None or along_src is along_dst or along_dst.strides[1] != (1,):
        return ()
    edges = along_src.extent, along_dst.extent
    if min(edges) < _MIN_EDGE or nest.steps < _MIN_ELEMENTS:
        return ()
    outer = without(nest.loops, (along_src, along_dst))
    nest = nest._replace(loops=(along_src, along_dst, *outer))
    bits = conversion.widths
    # a run that is loaded should not become many vectors of dst
    longest = min(_RUN_BITS // bits[0], max(_RUN_BITS // bits[1], _MIN_RUN), _MAX_RUN)
    most, edge = _TILE, _EDGE
    if bits[0] > BYTE_BITS >= bits[1] and _length(nest, 0, longest, task) == longest:
        # rows of dst would be shorter than a cache line
        most, edge = _NARROW_NBYTES * BYTE_BITS // bits[0], _NARROW_EDGE
    height = min(edge, 1 << ceil_log2(edges[1]))
    width = min(most // height, 1 << ceil_log2(edges[0]))
    height = min(most // width, 1 << ceil_log2(edges[1]))
    stored = min(_RUN_BITS // bits[1], _MAX_RUN, height)
    lengths = _length(nest, 0, min(longest, width), task), _length(nest, 1, stored, task, along=1)
    if bits[1] < BYTE_BITS and lengths[1] == 1:
        return ()
    is_whole = along_src.valid == along_src.extent and along_src.extent % width == 0
    run = Run(lengths[0], is_whole, uniform=_uniform(along_src, conversion))
    kinds = [AccessKind.VECTOR if length > 1 else AccessKind.BUFFER for length in lengths]
    src, dst = (Access(kind, width_) for kind, width_ in zip(kinds, bits, strict=True))
    tile = _spread(RunTile(run, width, height, lengths[1], height), max(bits[1] // BYTE_BITS, 1))
    conversion = _with_products(conversion, run, task)
    pattern = Pattern(src, dst, tile, _WORK_ITEMS, conversion)
    steps = (width, height, *(1 for _ in outer))
    return (lower_nest(nest, pattern, tiled(nest.loops, steps), task.numbers),)


def _ordered(nest: Nest) -> Nest:
    """Sort loops by stride in dst, smallest first; add loops of one step if there are few."""
    loops = sorted(nest.loops, key=lambda loop: abs(loop.stride(1)))
    return nest._replace(loops=nest.filled(loops))


def _uniform(loop: Loop, conversion: KernelFormula) -> tuple[str, ...]:
    """Return the roles that vary, but not along a loop."""
    pairs = zip(conversion.varying, loop.strides[2:], strict=True)
    return tuple(role for role, stride in pairs if stride == (0,))


def _with_products(conversion: KernelFormula, run: Run, task: KernelTask) -> KernelFormula:
    """Turn quotients into products if a run has one divisor and the device has fused operations."""
    is_shared = "dst_scale" in (*conversion.scalars, *run.uniform)
    multiplies = is_shared and task.device.floats.multiplies and conversion.work == "f32"
    return replace(conversion, multiplies=multiplies)


def _length(nest: Nest, operand: int, most: int, task: KernelTask, along: int = 0) -> int:
    """Return the elements of a run along a loop; `most` is a power of two, and so is the result.

    All runs start at multiples of it, so that they can be loaded and stored as words.
    """
    loop = nest.loops[along]
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
    found = [
        divided(loop.extent, shift, count, 1 if k else length)
        for k, (loop, shift, count) in enumerate(zip(nest.loops, shifts, steps, strict=True))
    ]
    return found, indirect_shift


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


@lru_cache(maxsize=256)
def _spread(tile: RunTile, nbytes: int) -> RunTile:
    """Return a tile with the pitch and gap for which the fewest accesses share a bank.

    Work items store runs of elements of `nbytes` bytes, and load those of a row.
    """
    length, step = tile.run.length, max(WORD // nbytes, 1)
    gaps = range(0, BANKS * step, step) if length > 1 else (0,)
    tiles = [replace(tile, pitch=tile.height + more, gap=gap) for more in (0, step) for gap in gaps]
    return least_conflicts(tiles, lambda tried: _accesses(tried, nbytes))


def _accesses(tile: RunTile, nbytes: int) -> tuple[list[int], list[int]]:
    """Return the words that the first work items store first, and those that they load."""
    length = tile.run.length
    stored, loaded = [], []
    for item in range(SUBGROUP):
        row, run = divmod(item, tile.width // length)
        column, chunk = divmod(item, tile.height // tile.length)
        stored.append((run * (length * tile.pitch + tile.gap) + row) * nbytes // WORD)
        start = column * tile.pitch + column // length * tile.gap + chunk * tile.length
        loaded.append(start * nbytes // WORD)
    return stored, loaded


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
            yield from _shared_lines(conversion, conversion.scalars, 0)
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


@dataclass(frozen=True)
class RunTile(Body):
    """A tile of a conversion in local memory: `width` steps of loop 0, `height` of loop 1.

    Work items load runs along loop 0, and store `length` elements at a time along loop 1. In
    local memory steps of loop 0 are `pitch` elements apart, runs of them `gap` elements more.
    """

    run: Run
    width: int
    height: int
    length: int
    pitch: int
    gap: int = 0

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: all loads, the stores to local memory, then those to dst."""
        run, conversion = self.run, _conversion(pattern)
        count = self.width * self.pitch + self.width // run.length * self.gap
        yield f"__local {pattern.dst.element.memory} tile[{count}];"
        yield from index_lines(pattern)
        yield from _shared_lines(conversion, conversion.scalars, 0)
        total = self.width * self.height // run.length
        steps = range(-(-total // pattern.work_items))
        for t in steps:
            yield from _place_tile_lines(self, pattern, t)
        for t in steps:
            yield f"{conversion.src_type} {_names(f'x{t}', run, ' = 0')};"
            yield f"if (is_data_{t}) {{"
            source = (f"src_{t}", pattern.src.kind, f"x{t}")
            yield from _loads(run, source, pattern.src.bits, t)
            yield "}"
        for t in steps:
            yield f"if (n_{t} < {total}) {{"
            yield f"{conversion.dst_type} {_names('y', run, ' = 0')};"
            yield f"if (is_data_{t}) {{"
            yield from _converted_lines(run, pattern, t)
            yield "}"
            yield f"const int to = {_row(self, f's_{t}')} + d_{t};"
            for k in range(run.length):
                yield f"tile[to + {k * self.pitch}] = y_{k};"
            yield "}"
        yield "barrier(CLK_LOCAL_MEM_FENCE);"
        yield from _store_tile_lines(self, pattern)


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
        yield from _shared_lines(conversion, run.uniform, s)
    shared = (*conversion.scalars, *run.uniform)
    for k in range(run.length):

        def value(role: str, k: int = k) -> str:
            if role in shared:
                return f"{role}_all"
            return conversion.operand_value(role, _moved(f"{role}_{s}", role, k))

        done = f"y_{k} = {conversion.converted(f'x{s}_{k}', value, f'old_{k}')};"
        yield done if run.is_whole or not k else f"if (first_{s} + {k} < p.valid0) {done}"


def _shared_lines(conversion: KernelFormula, roles: tuple[str, ...], s: int) -> Iterator[str]:
    """Return the values of roles that all elements of a run share."""
    for role in roles:
        kind, read = conversion.operand_type(role), conversion.operand_value(role, f"{role}_{s}")
        yield f"const {kind} {role}_all = {read};"
    if conversion.multiplies and "dst_scale" in roles:
        yield f"const float {INVERSE} = 1.0f / dst_scale_all;"


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


def _row(tile: RunTile, step: str) -> str:
    """Return where a step of loop 0 starts in local memory."""
    return row_of(step, tile.pitch, tile.run.length, tile.gap)


def _place_tile_lines(tile: RunTile, pattern: Pattern, t: int) -> Iterator[str]:
    """Return where a run starts, and whether its first element holds data."""
    length = tile.run.length
    chunks = tile.width // length
    yield f"const int n_{t} = (int)get_local_id(0) + {t * pattern.work_items};"
    yield f"const int s_{t} = n_{t} % {chunks} * {length}, d_{t} = n_{t} / {chunks};"
    yield f"const index_t first_{t} = i0 + s_{t};"
    outer = indices_of(pattern, 2)
    for operand in ("src", *pattern.varying):
        at = offset_at(operand, [(0, f"first_{t}"), (1, f"(i1 + d_{t})"), *outer])
        yield f"const index_t {operand}_{t} = {at};"
    data = [f"d_{t} < {tile.height}", f"first_{t} < p.valid0", f"i1 + d_{t} < p.valid1"]
    data += [f"{index} < p.valid{k}" for k, index in outer]
    yield f"const int is_data_{t} = {' && '.join(data)};"


def _store_tile_lines(tile: RunTile, pattern: Pattern) -> Iterator[str]:
    """Return the stores of runs of dst, as words where they are inside."""
    bits = pattern.dst.bits
    kind = "ulong" if bits > WORD_BITS else "uint"
    total, chunks = tile.width * tile.height // tile.length, tile.height // tile.length
    names = [f"z{k}" for k in range(tile.length)]
    start = offset_at("dst", [(0, "(i0 + s)"), (1, "(i1 + d)"), *indices_of(pattern, 2)])
    for t in range(-(-total // pattern.work_items)):
        yield "{"
        yield f"const int n = (int)get_local_id(0) + {t * pattern.work_items};"
        yield f"const int s = n / {chunks}, d = n % {chunks} * {tile.length};"
        yield f"if (s < {tile.width} && i0 + s < p.extent0 && i1 + d < p.extent1) {{"
        yield f"const index_t at = {start};"
        yield f"const int from = {_row(tile, 's')} + d;"
        for k, name in enumerate(names):
            yield f"const {kind} {name} = tile[from + {k}];"
        stores = [
            store_element("dst", f"at + {k}" if k else "at", bits, name)
            for k, name in enumerate(names)
        ]
        is_vector = pattern.dst.kind == AccessKind.VECTOR
        words = store_words("dst", "at", bits, names) if is_vector else None
        yield from _as_words(words, stores, "i1 + d", "p.extent1")
        yield "} }"
