"""A family of kernels that moves tiles between a buffer and an image through local memory.

A buffer is best accessed in vectors along its contiguous loops, an image in small rectangles of
columns and rows, which devices store together. A tile allows both: work items move vectors along
the runs of the buffer, and pixels in the order in which the image stores them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.kernel.access import (
    VECTOR,
    WORD,
    AccessKind,
    code_of_lane,
    lane_of_code,
    vector_type,
)
from reorder.opencl.kernel.launch import Body, KernelTask, Launch, Pattern, lower_nest, tiled
from reorder.opencl.kernel.local_memory import (
    BANKS,
    SUBGROUP,
    LocalLayout,
    chain_of,
    least_conflicts,
    local_layout,
    offset_of,
)
from reorder.opencl.kernel.placement import Loop, Nest
from reorder.opencl.kernel.statements import digits_of, index_lines, start_lines, steps_inside
from reorder.values.binding import BETA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.kernel.formula import KernelFormula
    from reorder.opencl.kernel.local_memory import Chain

# the index of the lanes of a pixel among the loops of a tile
LANES = -1
# how many lanes a pixel has
_LANE_COUNT = 4
# bits of the widest element that is converted
_MAX_BITS = 32
# steps below which the loop next to the lanes of a pixel is short
_SHORT = 8
# bytes of a run that is worth local memory; bytes of local memory that every device has
_MIN_RUN, _MAX_LOCAL = 32, 32768
# most pixels that a work item holds at once
_MAX_STEPS = 16
# which parameter counts the steps that may be accessed: src has data there, dst is written there
_COUNTED = {"src": "valid", "dst": "extent"}


class PixelShape(NamedTuple):
    """A tile: bytes of a run of the buffer and of the tile, and the work items of its group.

    Adjacent work items take a rectangle of `columns` and `rows` of the image.
    """

    run: int
    columns: int
    rows: int
    nbytes: int
    work_items: int


class PixelSizes(NamedTuple):
    """The tiles that pack an image, and that unpack one."""

    pack: PixelShape = PixelShape(128, 4, 2, 4608, 128)
    unpack: PixelShape = PixelShape(256, 4, 2, 9216, 256)


def try_lower(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of tiles of pixels; empty if work items should move pixels without them."""
    nest, conversion, profile = task.nest, task.conversion, task.device.profile
    kinds = [access.kind for access in task.accesses]
    if not nest.is_plain or kinds[0] == kinds[1] or not task.is_aligned:
        return ()
    if conversion is not None and not _converts_alone(nest, conversion):
        return ()
    image = kinds.index(AccessKind.IMAGE)
    sizes = profile.sizes_of(PixelSizes)
    shape = sizes.pack if image else sizes.unpack
    nbytes = task.accesses[1 - image].nbytes
    if (
        nest.steps * _LANE_COUNT * nbytes < profile.min_tiled
        or task.device.max_work_items < shape.work_items
    ):
        return ()
    chosen = _choose_tile(nest, nbytes, image, shape)
    if chosen is None:
        return ()
    loops, tile = chosen
    if conversion is not None and tile.has_whole_pixels:
        # without tiles a work item loads and stores a pixel as one vector, which is usually enough;
        # but from f32 in nChw16c to f16, an H200 reached 0.94 of its copy bandwidth with tiles, and
        # 0.84 without
        runs = [loops[k].extent for k in tile.run[1:]]
        if image == 0 or conversion.dst != "f16" or (runs and runs[0] >= _SHORT):
            return ()
    pattern = Pattern(*task.accesses, tile, shape.work_items, conversion, (0, 1, 2, 3))
    nest = nest._replace(loops=loops)
    return (lower_nest(nest, pattern, tiled(loops, tile.extents), task.numbers),)


def _converts_alone(nest: Nest, conversion: KernelFormula) -> bool:
    """Whether each element of dst depends on one of src alone, in 32 bits, without padding."""
    is_whole = all(loop.valid == loop.extent for loop in nest.loops)
    is_narrow = max(conversion.widths) <= _MAX_BITS
    return is_whole and is_narrow and not conversion.varying and BETA not in conversion.roles


class _Sides(NamedTuple):
    """The loops of a nest, innermost first in dst, and the chains of a tile of them.

    `strides` are those of the loops in the buffer, then that of the lanes; `rows` are the loops
    along the rows of the image.
    """

    loops: tuple[Loop, ...]
    strides: tuple[int, ...]
    run: Chain
    rectangle: tuple[Chain, ...]
    rows: tuple[int, ...]


def _choose_tile(
    nest: Nest, nbytes: int, image: int, shape: PixelShape
) -> tuple[tuple[Loop, ...], PixelTile] | None:
    """Return loops in the order of work-groups, innermost first, and a tile of them.

    `image` is the operand that is one. None if a lane holds no data, the runs of the buffer are
    short or not made of vectors, or the least tile is too large.
    """
    sides = _sides(nest, nbytes, image, shape)
    if sides is None:
        return None
    extents = _extents(sides, shape.nbytes // (_LANE_COUNT * nbytes))
    # the lanes come after the loops
    lanes = len(extents)
    run = tuple(LANES if k == lanes else k for k in sides.run.run)
    inside = [k for k in range(lanes) if extents[k] > 1 and k not in run]
    inside += [] if LANES in run else [LANES]
    rest = tuple(sorted(inside, key=lambda k: abs(sides.strides[k])))
    tile = PixelTile(tuple(extents), nbytes, run, rest, nbytes, _order(extents, sides.rectangle))
    tile = replace(tile, vector=_vector(tile, sides, nest, image))
    is_short = tile.chunks * tile.vector < _MIN_RUN or tile.vector < WORD
    is_large = tile.pixels > _MAX_STEPS * shape.work_items
    if is_short or is_large or tile.local_vectors * VECTOR > _MAX_LOCAL:
        return None
    return sides.loops, _spread(tile)


def _sides(nest: Nest, nbytes: int, image: int, shape: PixelShape) -> _Sides | None:
    """Return the loops and chains of a nest; None if there is no run, or a lane without data."""
    places = [lane.offsets for lane in nest.lanes if lane.is_valid]
    step = places[1][1 - image] - places[0][1 - image] if len(places) == _LANE_COUNT else 0
    wanted = [(k, k * step) for k in range(_LANE_COUNT)]
    found = sorted((place[image], place[1 - image]) for place in places)
    if step <= 0 or found != wanted:
        return None
    loops = sorted(nest.moving.loops, key=lambda loop: tuple(map(abs, reversed(loop.strides[1]))))
    lanes = Loop(_LANE_COUNT, _LANE_COUNT, ((step,), (step,)))
    run = chain_of([*loops, lanes], 1 - image, shape.run // nbytes)
    if run is None:
        return None
    strides = (*(loop.stride(1 - image) for loop in loops), step)
    # a chain is along the first coordinate
    swapped = [
        loop._replace(strides=tuple(coords[::-1] for coords in loop.strides)) for loop in loops
    ]
    edges = _edge(loops, image, shape.columns), _edge(swapped, image, shape.rows)
    rows = sorted((loop.stride(image), k) for k, loop in enumerate(swapped))
    rectangle = tuple(chain for chain in edges if chain is not None)
    return _Sides(tuple(loops), strides, run, rectangle, tuple(k for stride, k in rows if stride))


def _edge(loops: list[Loop], image: int, limit: int) -> Chain | None:
    """Return the loops along an edge of a rectangle; its parts divide the image if they can."""
    chain = chain_of(loops, image, limit)
    if chain is None:
        return None
    *lower, top = chain.extents
    divisor = gcd(top, loops[chain.run[-1]].extent)
    return chain._replace(extents=(*lower, divisor if divisor > 1 else top))


def _extents(sides: _Sides, most: int) -> list[int]:
    """Return the steps of each loop in a tile of at most `most` pixels, or of the least tile."""
    loops = sides.loops
    extents = [1] * len(loops)
    chains = (sides.run, *sides.rectangle)
    for chain in chains:
        for k, extent in zip(chain.run, chain.extents, strict=True):
            # not the lanes
            if k < len(loops):
                extents[k] = max(extents[k], min(extent, loops[k].extent))
    whole = {k for chain in chains for k in chain.run[:-1]}
    for k in (*sides.rows, sides.run.run[-1], *range(len(loops))):
        if k in whole or k == len(loops):
            continue
        while extents[k] < loops[k].extent and 2 * prod(extents) <= most:
            extents[k] = min(2 * extents[k], loops[k].extent)
    return extents


def _order(extents: list[int], rectangle: tuple[Chain, ...]) -> tuple[tuple[int, int], ...]:
    """Return the order of the pixels of a tile: a rectangle of the image, then the rest."""
    left = list(extents)
    order = []
    for chain in rectangle:
        for k, extent in zip(chain.run, chain.extents, strict=True):
            steps = gcd(left[k], extent)
            steps = left[k] if steps == 1 else steps
            order.append((k, steps))
            left[k] //= steps
    order += enumerate(left)
    return tuple((k, steps) for k, steps in order if steps > 1)


def _vector(tile: PixelTile, sides: _Sides, nest: Nest, image: int) -> int:
    """Return the bytes of the widest vector such that all runs start and end at multiples of it."""
    *lower, top = tile.run
    below = prod(map(tile.steps, lower))
    ends = [below * tile.steps(top)]
    if top != LANES:
        loop = sides.loops[top]
        ends.append(below * (loop.extent if image == 0 else loop.valid))
    lanes = [sides.strides[LANES]] if LANES in tile.rest else []
    along = [sides.loops[k] for k in tile.run if k != LANES]
    starts = nest._replace(loops=sides.loops).alignment(1 - image, along)
    return gcd(VECTOR, *(number * tile.nbytes for number in (starts, *lanes, *ends)))


def _spread(tile: PixelTile) -> PixelTile:
    """Return a tile with the gap between runs for which few accesses share a bank."""
    step = max(tile.vector, _LANE_COUNT * tile.nbytes if tile.has_whole_pixels else WORD)
    gaps = range(0, BANKS * WORD, step)
    return least_conflicts((replace(tile, gap=gap) for gap in gaps), _accesses)


def _accesses(tile: PixelTile) -> tuple[list[int], list[int]]:
    """Return the words of the first vectors of the runs, and of the first pixels."""
    strides = tile.local.strides
    rest = [(tile.steps(k), strides[k]) for k in tile.rest]
    pixels = [(steps, scale * strides[k]) for k, steps, scale in tile.digits]
    vectors = [(tile.chunks, tile.vector), *rest]
    stored, loaded = (
        [offset_of(item, digits)[0] // WORD for item in range(SUBGROUP)]
        for digits in (vectors, pixels)
    )
    return stored, loaded


@dataclass(frozen=True)
class PixelTile(Body):
    """Part of a nest between a buffer and an image that goes through local memory.

    `extents` has the steps of each loop of the pattern in a tile; a pixel has 4 elements of
    `nbytes` bytes. The loops of `run`, innermost first, are contiguous in the buffer, where
    vectors of `vector` bytes are moved; `rest` are the other loops of the tile. Either has `LANES`.
    Local memory holds the tile in that order, with `gap` bytes more between runs. `order` has
    (loop, steps), innermost first: adjacent work items take adjacent pixels of the image. A loop
    may occur in it again.
    """

    extents: tuple[int, ...]
    nbytes: int
    run: tuple[int, ...]
    rest: tuple[int, ...]
    vector: int
    order: tuple[tuple[int, int], ...]
    gap: int = 0

    def steps(self, loop: int) -> int:
        """Return the steps of a loop in a tile."""
        return _LANE_COUNT if loop == LANES else self.extents[loop]

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.vector // self.nbytes

    @property
    def chunks(self) -> int:
        """Vectors of a run."""
        return prod(map(self.steps, self.run)) // self.lanes

    @property
    def vectors(self) -> int:
        """Vectors of a tile."""
        return self.chunks * prod(map(self.steps, self.rest))

    @property
    def pixels(self) -> int:
        """Pixels of a tile."""
        return prod(self.extents)

    @property
    def digits(self) -> Iterator[tuple[int, int, int]]:
        """The entries of `order`, each with the distance of its steps along the loop."""
        scales: dict[int, int] = {}
        for k, steps in self.order:
            scale = scales.get(k, 1)
            yield k, steps, scale
            scales[k] = scale * steps

    @property
    def has_whole_pixels(self) -> bool:
        """Whether the lanes of a pixel are contiguous in the buffer."""
        return self.run[0] == LANES

    @property
    def local(self) -> LocalLayout:
        """Where the elements are in local memory."""
        run, rest = ([(k, self.steps(k)) for k in loops] for loops in (self.run, self.rest))
        return local_layout(self.nbytes, run, rest, self.gap)

    @property
    def local_vectors(self) -> int:
        """Vectors of 16 bytes of local memory."""
        return -(-self.local.nbytes // VECTOR)

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: all loads, the stores to local memory, then those to dst."""
        packs = pattern.dst.kind == AccessKind.IMAGE
        kind = vector_type(self.vector)
        yield f"__local uint4 tile[{self.local_vectors}];"
        yield from index_lines(pattern)
        yield from start_lines(pattern, "src", pattern.src)
        yield from start_lines(pattern, "dst", pattern.dst)
        # src has data there; a tile starts inside of dst
        alone = [f"i{k} < p.valid{k}" for k, extent in enumerate(self.extents) if extent == 1]
        vectors = _parts(self.vectors, pattern.work_items)
        pixels = _parts(self.pixels, pattern.work_items)
        if packs:
            yield _run_line(self, "valid")
            for s in vectors:
                yield from _vector_lines(self, pattern, s, "src", alone)
                yield f"{kind} v{s} = ({kind})(0);"
                place = f"(__global const {kind} *)(src + from{s})"
                yield f"if (inside{s}) v{s} = *{place};"
            for s in vectors:
                store = f"*(__local {kind} *)((__local uchar *)tile + at{s}) = v{s};"
                yield _within(f"n{s}", self.vectors, pattern.work_items, store)
            yield "barrier(CLK_LOCAL_MEM_FENCE);"
            for s in pixels:
                yield "{"
                yield from _pixel_lines(self, pattern, s, "dst", [])
                suffix = pattern.dst.element.image_suffix
                value = _loaded(self, pattern, s)
                at = pattern.dst.pixel(f"(int2)(x{s}, y{s})")
                yield f"if (inside{s}) write_image{suffix}(dst, {at}, {value});"
                yield "}"
            return
        value = f"{pattern.src.element.value}4"
        suffix = pattern.src.element.image_suffix
        for s in pixels:
            yield from _pixel_lines(self, pattern, s, "src", alone)
            yield f"{value} v{s} = ({value})(0);"
            at = pattern.src.pixel(f"(int2)(x{s}, y{s})")
            read = f"read_image{suffix}(src, {at})"
            yield f"if (inside{s}) v{s} = {read};"
        for s in pixels:
            yield _within(
                f"n{s}", self.pixels, pattern.work_items, f"{{ {_stored(self, pattern, s)} }}"
            )
        yield "barrier(CLK_LOCAL_MEM_FENCE);"
        yield _run_line(self, "extent")
        for s in vectors:
            yield "{"
            yield from _vector_lines(self, pattern, s, "dst", [])
            local = f"*(__local const {kind} *)((__local uchar *)tile + at{s})"
            yield f"if (inside{s}) *(__global {kind} *)(dst + from{s}) = {local};"
            yield "}"


def _parts(total: int, work_items: int) -> range:
    return range(-(-total // work_items))


def _within(number: str, total: int, work_items: int, statement: str) -> str:
    return statement if total % work_items == 0 else f"if ({number} < {total}u) {statement}"


def _run_line(tile: PixelTile, counted: str) -> str:
    """Return the elements of a run that hold data, or that are inside."""
    *lower, top = tile.run
    steps = str(_LANE_COUNT) if top == LANES else steps_inside(top, tile.extents[top], counted)
    return f"const int run = {steps} * {prod(map(tile.steps, lower))};"


def _vector_lines(
    tile: PixelTile, pattern: Pattern, s: int, operand: str, conditions: list[str]
) -> Iterator[str]:
    """Return where vector s of a work item is in the buffer, and in local memory."""
    strides = tile.local.strides
    yield f"const uint n{s} = get_local_id(0) + {s * pattern.work_items}u;"
    yield f"const int r{s} = (int)(n{s} % {tile.chunks}u) * {tile.lanes};"
    counted = _COUNTED[operand]
    offset, local = [f"{operand}_offset", f"r{s}"], [f"r{s} * {tile.nbytes}"]
    inside = [*conditions, f"r{s} < run"]
    if tile.vectors % pattern.work_items:
        inside.append(f"n{s} < {tile.vectors}u")
    for k, digit in zip(
        tile.rest, digits_of(f"n{s}", map(tile.steps, tile.rest), tile.chunks), strict=True
    ):
        name = "lane" if k == LANES else f"u{k}"
        yield f"const int {name}_{s} = {digit};"
        stride = f"p.{operand}_lane1" if k == LANES else f"p.{operand}{k}"
        offset.append(f"{name}_{s} * {stride}")
        local.append(f"{name}_{s} * {strides[k]}")
        if k != LANES:
            inside.append(f"i{k} + {name}_{s} < p.{counted}{k}")
    yield f"const index_t from{s} = {' + '.join(offset)};"
    yield f"const int at{s} = {' + '.join(local)};"
    yield f"const int inside{s} = {' && '.join(inside)};"


def _pixel_lines(
    tile: PixelTile, pattern: Pattern, s: int, operand: str, conditions: list[str]
) -> Iterator[str]:
    """Return where pixel s of a work item is in the image, and in local memory."""
    yield f"const uint n{s} = get_local_id(0) + {s * pattern.work_items}u;"
    digits: dict[int, list[str]] = {}
    texts = digits_of(f"n{s}", (steps for _, steps in tile.order))
    for (k, _, scale), digit in zip(tile.digits, texts, strict=True):
        digits.setdefault(k, []).append(f"{digit} * {scale}" if scale > 1 else digit)
    for k, terms in digits.items():
        yield f"const int t{k}_{s} = {' + '.join(terms)};"
    for c in "xy":
        terms = [f"{operand}_{c}", *(f"t{k}_{s} * p.{operand}_{c}{k}" for k in digits)]
        yield f"const int {c}{s} = (int)({' + '.join(terms)});"
    strides = tile.local.strides
    local = " + ".join(f"t{k}_{s} * {strides[k]}" for k in digits)
    yield f"const int at{s} = {local or '0'};"
    counted = _COUNTED[operand]
    inside = [*conditions, *(f"i{k} + t{k}_{s} < p.{counted}{k}" for k in digits)]
    if tile.pixels % pattern.work_items:
        inside.append(f"n{s} < {tile.pixels}u")
    yield f"const int inside{s} = {' && '.join(inside) or '1'};"


def _lane_place(tile: PixelTile, memory: str, s: int, lane: int) -> str:
    """Return the address in local memory of a lane of pixel s."""
    offset = lane * tile.local.strides[LANES]
    return f"(__local {memory} *)((__local uchar *)tile + at{s} + {offset})"


def _loaded(tile: PixelTile, pattern: Pattern, s: int) -> str:
    """Return a pixel in local memory as a value."""
    element, conversion = pattern.src.element, pattern.conversion
    place = f"((__local uchar *)tile + at{s})"
    vector = f"*(__local const {element.memory}4 *){place}"
    if tile.has_whole_pixels and conversion is None:
        if element.is_half:
            return f"vloada_half4(0, (__local const half *){place})"
        return element.to_value(vector, "4")
    lanes = []
    for lane in range(_LANE_COUNT):
        memory = _lane_place(tile, f"const {element.memory}", s, lane)
        if conversion is None:
            lanes.append(element.load(memory, "0"))
        else:
            code = f"({vector}).s{lane}" if tile.has_whole_pixels else f"*{memory}"
            result = _converted(conversion, f"(uint){code}")
            lanes.append(lane_of_code(pattern.dst, conversion.dst, result))
    return f"({pattern.dst.element.value}4)({', '.join(lanes)})"


def _stored(tile: PixelTile, pattern: Pattern, s: int) -> str:
    """Return the statements that store a value as a pixel in local memory."""
    element, conversion = pattern.dst.element, pattern.conversion
    lanes = [f"v{s}.s{lane}" for lane in range(_LANE_COUNT)]
    if conversion is not None:
        # not whole pixels: `try_lower` leaves their conversion to kernels without tiles
        codes = [code_of_lane(pattern.src, lane) for lane in lanes]
        lanes = [f"({element.memory})({_converted(conversion, code)})" for code in codes]
    elif tile.has_whole_pixels:
        place = f"((__local uchar *)tile + at{s})"
        if element.is_half:
            return f"vstorea_half4_rte(v{s}, 0, (__local half *){place});"
        return f"*(__local {element.memory}4 *){place} = {element.from_value(f'v{s}', '4')};"
    return " ".join(
        element.store(_lane_place(tile, element.memory, s, k), "0", lane)
        for k, lane in enumerate(lanes)
    )


def _converted(conversion: KernelFormula, code: str) -> str:
    """Return the bits of dst, from those of src; no operand varies."""
    return conversion.converted(code, lambda role: conversion.operand_value(role, ""))
