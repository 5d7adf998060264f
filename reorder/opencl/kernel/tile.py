"""Families of kernels in tiles that go through local memory.

Between two buffers they suit a nest whose innermost loops differ in src and dst, or the loops
around one that is short. A tile covers some steps of several loops. On each side, the loops of its
run are contiguous, and work items access vectors along them. A loop may be in both runs. An image
is best accessed in small rectangles of columns and rows, which devices store together.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, takewhile
from math import gcd, prod
from typing import TYPE_CHECKING

from memdesc.banks import BANKS
from memdesc.dtypes import BYTE_BITS
from reorder.opencl.kernel.access import PIXEL_LANES, VECTOR, WORD, Mode
from reorder.opencl.kernel.formula import WORD_BITS
from reorder.opencl.kernel.launch import (
    KernelTask,
    Launch,
    Pattern,
    ceil_log2,
    divided,
    floor_log2,
    lower_nest,
)
from reorder.opencl.kernel.placement import Chain, Loop, are_apart, chain_of, span_of, without
from reorder.opencl.kernel.staged import (
    LANES,
    Digit,
    Side,
    Staged,
    runs_of,
    without_bank_conflicts,
)
from reorder.values.binding import BETA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reorder.opencl.kernel.formula import KernelFormula
    from reorder.opencl.kernel.placement import Nest

# bytes of the shortest rows of src and dst that are worth skewed tiles
_MIN_ROW = 96
# Conversions: elements of the shortest run, bits of the longest vector, and its fewest elements
_MIN_CONVERTED, _MAX_BITS, _MIN_VECTOR, _MAX_VECTOR = 8, 128, 8, 16
# elements of the shortest vector that is narrowed; its words may be loaded one by one
_MIN_LOADED = 4
# bytes of the longest part that is contiguous in both src and dst
_MAX_SHARED = 128


# By the bits of the elements that are moved: the most elements of a run of src, of one of dst, and
# of a tile, the fewest of a run, since shorter ones are faster without local memory, and the work
# items.
_SHAPES = {
    8: ((128, 64), 8192, 16, 128),
    16: ((64, 64), 8192, 8, 256),
    32: ((64, 64), 4096, 4, 256),
    64: ((32, 32), 1024, 2, 128),
}


# bytes of a sector of memory, at whose multiples rows of skewed tiles end in dst
_SECTOR = 32
# Steps of a skewed tile along dst and along src, by the bits of an element: whole sectors along
# dst, more of them where rows of src are shorter. A work item loads the rows that it transposes.
_SKEWED = {4: (192, 128), 8: (96, 128), 16: (48, 128), 32: (32, 64)}

# The most tiles along a loop that are evened out: with more tiles, the last one matters less. They
# may get larger, but leave this many bytes of local memory for what is not data.
_MAX_EVENED, _BESIDE = 3, 1024

# Bytes of a tile whose rows of dst are joined, and of the shortest run of src that is worth it. The
# steps along a row are a multiple of the last number, so that there are fewer texts.
_JOINED, _MIN_SRC, _ROWS = 1 << 14, 64, 32

# elements of a tile that converts, and of its longest edge
_CONVERTED, _EDGE = 4096, 64
# bytes of local memory that every device has, and of a cache line
_LOCAL, _LINE = 32768, 128
# elements of 4 bits in a word
_WORD_OF_4 = 8
# the most work items of a group, and of one that gathers
_WORK_ITEMS, _GATHERING = 256, 128
# bytes after each run of local memory, and after each vector of src: the first that is best
_PADDINGS = tuple((padding, gap) for gap in (0, 4, 8, 16) for padding in (0, 4, 8, 16, 32, 64))


def try_lower_skewed(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of a nest that transposes long rows that start at any byte."""
    nest, bits = task.nest, task.bits
    along_dst = nest.along(1) if _has_rows(task) else None
    if along_dst is None:
        return ()
    others = without(nest.moving, (along_dst,))
    rows, length = _SKEWED[bits[1]]
    chain = chain_of(others, 0, length, nest.bounds(0))
    spans = tuple(span_of((along_dst,), k) for k in nest.bounds(1))
    aligned = _SECTOR if task.conversion is None else VECTOR
    is_aligned = nest.alignment(1, (along_dst,)) * bits[1] % (aligned * BYTE_BITS) == 0
    is_short = along_dst.extent * bits[1] < _MIN_ROW * BYTE_BITS
    # no index grows along a row
    if chain is None or is_aligned or is_short or any(spans):
        return ()
    along_src = [others[k] for k in _uniform_run(others, chain, task.varying)]
    nest = nest._replace(loops=(along_dst, *along_src, *without(others, along_src)))
    extents = [1, *chain.extents[: len(along_src)]]
    *_, top = run = tuple(range(1, len(extents)))
    extents += [1] * (len(nest.loops) - len(extents))
    unit = VECTOR // gcd(VECTOR, prod(extents[:top]))
    sector = _SECTOR * BYTE_BITS // bits[1]
    room = _room(task)
    most = room // ((rows + sector) * prod(extents[:top]))
    extents[top] = _evened(nest.loops[top].extent, extents[top], unit, most)
    loaded = prod(extents)
    rows = max(rows, rows * length // loaded // sector * sector)
    extents[0] = _evened(along_dst.extent, rows, sector, room // loaded - sector)
    # with sizes, other tiles are faster for short runs of src and for whole rows
    least = _LINE if nest.sizes else VECTOR
    if loaded * bits[0] < least * BYTE_BITS or (nest.sizes and extents[0] >= along_dst.extent):
        return ()
    src = runs_of(nest, 0, run, extents, bits[0], _widest(bits))._replace(rest=(0,))
    lanes, packed = VECTOR * BYTE_BITS // bits[1], WORD * BYTE_BITS // bits[1]
    dst = Side((0,), run, bits[1], lanes, is_shifted=True, align=_SECTOR, spans=spans)
    body = Staged(tuple(extents), src, dst, packed)
    return _launched(task, nest, body, _WORK_ITEMS)


def try_lower_joined(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of a nest with short rows of dst that follow each other, from any byte on."""
    nest, bits = _by_stride(task.nest), task.bits
    loops = nest.loops
    if not loops or not _has_rows(task) or (task.varying and nest.sizes):
        return ()
    count, vector = (nbytes * BYTE_BITS // bits[1] for nbytes in (WORD, VECTOR))
    # rows, and the loop along src, which may be contiguous after a first loop of rows, all data
    step = loops[0].extent if loops[0].stride(0) == 1 else 1
    top = next((k for k, loop in enumerate(loops) if k and loop.stride(0) == step), 0)
    extents = [loop.extent for loop in loops[:top]]
    lengths = [prod(extents[:k]) for k in range(top + 1)]
    row = min(lengths[-1], *nest.sizes) if nest.sizes else lengths[-1]
    if not top or [loop.stride(1) for loop in loops[: top + 1]] != [*lengths[:-1], row]:
        return ()
    if nest.sizes:
        # all of src is loaded, including its padding; rows of dst end at the size
        indices = [loop.strides[1:2] for loop in loops[:top]] + [((0,),)] * len(loops[top:])
        suits = [loop.strides[2:] for loop in loops] == indices
    else:
        is_long = row * bits[1] >= _MIN_ROW * BYTE_BITS or bits[1] < BYTE_BITS
        suits = count > 1 and is_long and row % vector > 0
    packed = 1 if nest.sizes or top > 1 else count
    # the text does not depend on the length of a row that is one loop
    unit = packed if top > 1 or step > 1 or nest.sizes else _ROWS
    extents[0] = -(-extents[0] // unit) * unit
    fitting = max(_JOINED * BYTE_BITS // (prod(extents) * bits[1]), 1)
    steps = 1 << min(floor_log2(fitting), ceil_log2(loops[top].extent))
    least = max(min(_MIN_SRC * BYTE_BITS // bits[1], loops[top].extent * step), vector)
    is_short = row < vector or steps * step < least or (bits[1] < BYTE_BITS and packed == 1)
    if is_short or not suits or (step > 1 and (task.varying or loops[0].valid < step)):
        return ()
    extents += [steps, *(1 for _ in loops[top + 1 :])]
    if nest.sizes:
        moved = (loop._replace(strides=loop.strides[:2]) for loop in loops)
        nest = nest._replace(starts=nest.starts[:2], loops=tuple(moved), sizes=())
    src = runs_of(nest, 0, (0, top) if step > 1 else (top,), extents, bits[0], _widest(bits))
    src = src._replace(is_whole=src.is_whole and packed > 1 and task.conversion is not None)
    dst = Side(tuple(range(top)), (), bits[1], vector, is_shifted=True, rows=top)
    body = Staged(tuple(extents), src, dst, packed)
    # for a product that is rounded down
    inverse = -(-(1 << WORD_BITS) // row)
    task = task._replace(numbers={**task.numbers, "row": row, "inverse": inverse})
    return _launched(task, nest, body, task.work_items(_WORK_ITEMS))


def _has_rows(task: KernelTask) -> bool:
    """Whether enough elements of 4 to 32 bits move between two buffers, or are converted."""
    is_large = task.nest.steps * task.bits[1] >= task.device.min_tiled * BYTE_BITS
    is_between = is_large and task.nest.is_plain and not task.has_image
    accumulates = task.conversion is not None and BETA in task.conversion.roles
    return is_between and not accumulates and all(bits in _SKEWED for bits in task.bits)


def _uniform_run(loops: Sequence[Loop], chain: Chain, varying: tuple[str, ...]) -> tuple[int, ...]:
    """Return the loops of a run along which roles are the same, or a loop where they vary."""
    uniform = takewhile(lambda k: loops[k].uniform(varying) == varying, chain.run)
    return tuple(uniform) or chain.run[:1]


def _evened(extent: int, steps: int, unit: int, most: int) -> int:
    """Return about this many steps of a tile, so that the last of a few tiles is hardly shorter."""
    count = max(round(extent / steps), 1)
    evened = -(-extent // count // unit) * unit
    return steps if steps % unit or count > _MAX_EVENED or evened > most else evened


def _room(task: KernelTask) -> int:
    """Return the elements of an evened tile that local memory has room for."""
    return (task.device.max_local - _BESIDE) * BYTE_BITS // task.bits[1]


def _widest(bits: tuple[int, int]) -> int:
    """Return the bits of a vector of src, which should not become many vectors of dst."""
    return bits[0] * min(_MAX_BITS // bits[0], max(_MAX_BITS // bits[1], _MIN_VECTOR), _MAX_VECTOR)


def try_lower(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of a nest that moves or converts elements; empty if others are faster."""
    nest, bits, conversion = task.nest, task.bits, task.conversion
    is_small = nest.steps * (WORD if conversion else bits[1] // BYTE_BITS) < task.device.min_tiled
    suits = bits[1] in _SHAPES if conversion is None else BETA not in conversion.roles
    if is_small or not suits or not nest.is_plain or task.has_image:
        return ()
    nest = _by_stride(nest)
    chains = _chains(task, nest)
    body = None if chains is None else _staged(task, nest, chains)
    # no byte of local memory is shared
    if body is None or (bits[1] < BYTE_BITS and body.packed_rows == 1):
        return ()
    # all work items convert
    vectors = body.accesses(body.src)
    if conversion is None:
        src, dst = body.src, body.dst
        if dst.is_shifted and dst.run[0] == src.run[0]:
            return ()
        vectors = max(vectors, body.accesses(dst))
        if bits[1] >= WORD_BITS:
            # an H200 is slower if moves of words take vectors to be whole
            body = replace(body, src=src._replace(is_whole=False), dst=dst._replace(is_whole=False))
    return _launched(
        task, nest, body, task.work_items(min(_shape(task)[3], 1 << ceil_log2(vectors)))
    )


def _shape(task: KernelTask) -> tuple[tuple[int, int], int, int, int]:
    """Return what `_SHAPES` has, for moves and for conversions."""
    bits = task.bits
    if task.conversion is None:
        return _SHAPES[bits[1]]
    most, edge = _CONVERTED, _EDGE
    if min(bits) < BYTE_BITS:
        # rows of 4 bits are short: dst and src have cache lines, if local memory has room for them,
        # with gaps between its banks
        edge = max(edge, _LINE * BYTE_BITS // bits[1])
        most = min(edge * max(_LINE, _LINE * BYTE_BITS // bits[0]), _LOCAL * BYTE_BITS // bits[1])
        most //= 1 if task.device.max_local > _LOCAL else 2
    return (most // edge, edge), most, _MIN_CONVERTED, _WORK_ITEMS


def _by_stride(nest: Nest) -> Nest:
    """Return a nest of the moving loops, in the order of their strides in dst."""
    loops = sorted(nest.moving, key=lambda loop: abs(loop.stride(1)))
    return nest._replace(loops=tuple(loops))


def _staged(task: KernelTask, nest: Nest, chains: tuple[Chain, Chain]) -> Staged | None:
    """Return a tile; None if an index grows along both runs."""
    bits, (along, run) = task.bits, (chain.run for chain in chains)
    # larger along the runs, then along other loops
    order = along[-1], run[-1], *range(len(nest.loops))
    extents = _grown(task, nest.loops, chains, order, _shape(task)[1])
    first = run[0]
    if bits[1] < BYTE_BITS and first in along[1:]:
        # bytes of dst have elements of several rows
        along = along[: along.index(first)]
    src = runs_of(nest, 0, along, extents, bits[0], _widest(bits))
    if bits[0] > bits[1] and src.lanes < _MIN_LOADED:
        lanes = min(_MIN_LOADED, VECTOR * BYTE_BITS // bits[0])
        src = src._replace(lanes=lanes, parts=lanes // src.lanes, is_whole=False)
    shifts = BYTE_BITS <= bits[1] <= WORD_BITS and first not in src.run
    dst = _run_of_dst(nest, run, extents, bits[1], shifts=shifts)
    if dst.is_shifted:
        # the fewer runs, the fewer vectors are stored in parts
        dst = _run_of_dst(nest, _extended(nest, run, extents), extents, bits[1], shifts=shifts)
    bounds = zip(src.spans, nest.bounds(0), strict=True)
    grow = (nest.loops[first].stride(k) for span, k in bounds if span)
    if first not in src.run and any(grow):
        return None
    count = max(WORD * BYTE_BITS // bits[1], 1)
    shared = gcd(extents[first], count)
    packed = 1 if first in src.run or (shared < count and bits[1] >= BYTE_BITS) else shared
    body = Staged(tuple(extents), src, dst, packed)
    # fewer addresses are computed on the side where elements are at the same distances
    is_regular = body.is_regular(src) or dst.is_shifted or not body.is_regular(dst)
    if packed == 1 and not is_regular and min(bits) >= BYTE_BITS:
        body = replace(body, is_gathered=bits[1] <= WORD_BITS)
    return body


def _run_of_dst(
    nest: Nest, run: tuple[int, ...], extents: Sequence[int], bits: int, *, shifts: bool
) -> Side:
    """Return how a run of dst is stored: at any byte unless aligned vectors are wide or whole."""
    side = runs_of(nest, 1, run, extents, bits)
    if not shifts or side.is_whole or side.nbytes == VECTOR:
        return side
    return side._replace(lanes=VECTOR * BYTE_BITS // bits, is_shifted=True)


def _extended(nest: Nest, run: tuple[int, ...], extents: Sequence[int]) -> tuple[int, ...]:
    """Return a run of dst with the loops of a tile that continue it."""
    loops, count, chain = nest.loops, len(run), chain_of(nest.loops, 1, 1 << 62, nest.bounds(1))
    longer = run if chain is None else chain.run
    # a run goes on after all steps of its last loop
    for last, following in pairwise(longer[count - 1 :]):
        if extents[last] != loops[last].extent or extents[following] == 1:
            break
        count += 1
    return longer[:count]


def _chains(task: KernelTask, nest: Nest) -> tuple[Chain, Chain] | None:
    """Return the runs of src and dst in a tile; None if one is short, or if they are equal."""
    loops, (limits, _, least, _) = nest.loops, _shape(task)
    src, dst = (chain_of(loops, k, limits[k], nest.bounds(k)) for k in (0, 1))
    if src is None or dst is None:
        return None
    run = _uniform_run(loops, src, task.varying)
    chains = Chain(run, src.extents[: len(run)]), dst
    is_short = any(prod(chain.extents) < least for chain in chains)
    return None if is_short or not _runs_differ(nest, *chains, task.bits[1]) else chains


def _grown(
    task: KernelTask,
    loops: Sequence[Loop],
    chains: Sequence[Chain],
    order: Iterable[int],
    most: int,
) -> list[int]:
    """Return the steps of each loop in a tile: those of some runs, then more up to `most` in all.

    The first loop of the last run may have more steps than there are.
    """
    extents = [1] * len(loops)
    limits = [loop.extent for loop in loops]
    # a run goes on after exactly the steps of its lower loops
    lower = {k for chain in chains for k in chain.run[:-1]}
    for chain in chains:
        for k, extent in zip(chain.run, chain.extents, strict=True):
            extents[k] = max(extents[k], limits[k] if k in lower else extent)
    for k in order:
        if k in lower:
            continue
        while extents[k] < limits[k] and 2 * prod(extents) <= most:
            extents[k] *= 2
        # the next tile starts at a vector, and rows of a word are transposed together
        most_steps = _room(task) * extents[k] // prod(extents)
        extents[k] = _evened(limits[k], extents[k], VECTOR, most_steps)
        if k != chains[-1].run[0]:
            extents[k] = min(extents[k], limits[k])
    return extents


def _runs_differ(nest: Nest, src: Chain, dst: Chain, bits: int) -> bool:
    """Whether the runs of src and dst have different loops, except perhaps a short first one."""
    first, *others = zip(src.run[:2], dst.run[:2], strict=False)
    is_short = nest.loops[src.run[0]].extent * bits <= _MAX_SHARED * BYTE_BITS
    return first[0] != first[1] or (is_short and any(one != other for one, other in others))


def _launched(
    task: KernelTask,
    nest: Nest,
    body: Staged,
    work_items: int,
    paddings: tuple[tuple[int, int], ...] = _PADDINGS,
    lanes: tuple[int, ...] = (0,),
) -> tuple[Launch, ...]:
    """Make the launch of a tile; empty if the device has no such group, or too little memory."""
    if work_items > task.device.max_work_items:
        return ()
    work_items = min(work_items, _GATHERING) if body.is_gathered else work_items
    if task.varying:
        body = replace(body, uniform=nest.loops[body.src.run[0]].uniform(task.varying))
    numbers = task.numbers
    is_full = all(loop.valid == loop.extent for loop in nest.loops)
    body = replace(
        body,
        is_padded=not is_full or bool(nest.sizes and not nest.is_limited),
        # an H200 executes fewer instructions then, but is slower if these do not matter
        shares_steps=task.conversion is not None or body.src.is_shifted,
    )
    if 0 < body.dst.bits < BYTE_BITS and body.dst.is_shifted:
        joined = _joined(nest, body)
        if joined is None:
            return ()
        body, numbers = replace(body, joined=joined[0]), {**numbers, "joined": joined[1]}
    for tried in (paddings, paddings[:1]):
        padded = without_bank_conflicts(body, work_items, tried)
        if padded.local_nbytes <= task.device.max_local:
            pattern = Pattern(*task.accesses, padded, work_items, task.conversion, lanes)
            loops = zip(nest.loops, body.extents, strict=True)
            divisions = [divided(loop.extent, steps=steps) for loop, steps in loops]
            return (lower_nest(nest, pattern, divisions, numbers),)
    return ()


def _joined(nest: Nest, body: Staged) -> tuple[tuple[int, ...], int] | None:
    """Return the loops along which 4-bit runs follow each other in dst, and their elements.

    None if other work items may write halves of bytes at the ends, or dst may end before them.
    """
    if nest.is_limited:
        return None
    loops, chain = nest.loops, chain_of(nest.loops, 1, 1 << 62)
    run = () if chain is None else chain.run
    length = prod(loops[k].extent for k in run)
    *lower, top = (*body.dst.run, *([] if body.dst.rows is None else [body.dst.rows]))
    steps = loops[top].extent % body.extents[top] or body.extents[top]
    is_long = top == body.skewed or steps * prod(loops[k].extent for k in lower) >= _WORD_OF_4
    others = (loop for k, loop in enumerate(loops) if k not in run)
    return (run, length) if is_long and are_apart(others, length) else None


# bits of the widest element that is converted beside an image
_MAX_PIXEL_BITS = 32
# bytes of a run beside an image that is worth local memory
_MIN_PIXEL_RUN = 32
# most pixels that a work item holds at once
_MAX_STEPS = 16


# adjacent work items take a rectangle of this many columns and rows of the image
_RECTANGLE = (4, 2)
# Bytes of a run of the buffer and of the tile, and the work items of a group, for tiles that pack
# an image and for those that unpack one.
_PACK, _UNPACK = (128, 4608, 128), (256, 9216, 256)


def try_lower_pixels(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of tiles between a buffer and an image; empty if others are faster."""
    nest, conversion = task.nest, task.conversion
    modes = [access.mode for access in task.accesses]
    if conversion is None or not nest.is_plain or modes[0] == modes[1]:
        return ()
    image = modes.index(Mode.IMAGE)
    run_nbytes, nbytes, work_items = _PACK if image else _UNPACK
    access = task.accesses[1 - image]
    is_small = nest.steps * PIXEL_LANES * access.nbytes < task.device.min_tiled
    if is_small or (task.converts and not _converts_alone(nest, conversion)):
        return ()
    places = (lane.offsets for lane in nest.lanes if lane.is_valid)
    lanes_at = sorted((offsets[image], offsets[1 - image]) for offsets in places)
    step = lanes_at[1][1] if len(lanes_at) == PIXEL_LANES else 0
    if step <= 0 or lanes_at != [(k, k * step) for k in range(PIXEL_LANES)]:
        return ()
    loops = sorted(nest.moving, key=lambda loop: tuple(map(abs, reversed(loop.strides[1]))))
    # the lanes come after the loops
    indices = ((at,) for at in nest.lanes[1].offsets[2:])
    every = (*loops, Loop(PIXEL_LANES, PIXEL_LANES, ((step,), (step,), *indices)))
    run = chain_of(every, 1 - image, run_nbytes // access.nbytes, nest.bounds(1 - image))
    if run is None:
        return ()
    edges = (_edge(loops, image, coord, limit) for coord, limit in enumerate(_RECTANGLE))
    rectangle = [chain for chain in edges if chain is not None]
    by_row = sorted((loop.strides[image][1], k) for k, loop in enumerate(loops))
    order = *(k for stride, k in by_row if stride), run.run[-1], *range(len(loops))
    lanes = Chain((len(loops),), (PIXEL_LANES,))
    steps = _grown(task, every, [run, *rectangle, lanes], order, nbytes // access.nbytes)
    *extents, _ = steps
    side = runs_of(nest._replace(loops=every), 1 - image, run.run, steps, access.bits)
    first, rest = (
        tuple(LANES if k == len(loops) else k for k in part) for part in (side.run, side.rest)
    )
    length = prod(steps[k] for k in side.run) * access.nbytes
    if length < _MIN_PIXEL_RUN or prod(extents) > _MAX_STEPS * work_items:
        return ()
    buffer = side._replace(run=first, rest=rest)
    order = _order(extents, rectangle)
    pixels = Side((LANES,), (), access.bits, PIXEL_LANES, is_whole=True, order=order)
    src, dst = (buffer, pixels) if image else (pixels, buffer)
    tile = Staged(tuple(extents), src, dst)
    gap = max(buffer.nbytes, PIXEL_LANES * access.nbytes if first[0] == LANES else WORD)
    paddings = tuple((padding, 0) for padding in range(0, BANKS * WORD, gap))
    nest = nest._replace(loops=tuple(loops))
    return _launched(task, nest, tile, work_items, paddings, (0, 1, 2, 3))


def _converts_alone(nest: Nest, conversion: KernelFormula) -> bool:
    """Whether each element of dst depends on only one of src, in 32 bits, without padding."""
    is_whole = not nest.sizes and all(loop.valid == loop.extent for loop in nest.loops)
    is_narrow = max(conversion.widths) <= _MAX_PIXEL_BITS
    return is_whole and is_narrow and not conversion.varying and BETA not in conversion.roles


def _edge(loops: list[Loop], image: int, coord: int, limit: int) -> Chain | None:
    """Return the loops along columns or rows of a rectangle; its parts divide the image."""
    along = [
        loop._replace(strides=tuple(coords[coord : coord + 1] for coords in loop.strides))
        for loop in loops
    ]
    chain = chain_of(along, image, limit)
    if chain is None:
        return None
    *lower, top = chain.extents
    divisor = gcd(top, loops[chain.run[-1]].extent)
    return chain._replace(extents=(*lower, divisor if divisor > 1 else top))


def _order(extents: list[int], rectangle: list[Chain]) -> tuple[Digit, ...]:
    """Return the order of the pixels of a tile: a rectangle of the image, then the rest."""
    left = list(extents)
    order = []
    for chain in rectangle:
        for k, extent in zip(chain.run, chain.extents, strict=True):
            steps = gcd(left[k], extent)
            steps = left[k] if steps == 1 else steps
            order.append((k, steps))
            left[k] //= steps
    distances, digits = [1] * len(extents), []
    for k, steps in (*order, *enumerate(left)):
        if steps > 1:
            digits.append((k, steps, distances[k]))
            distances[k] *= steps
    return tuple(digits)
