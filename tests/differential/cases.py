"""Random dims, layouts and steps, the same for oneDNN and for memdesc, and the same in each run.

Case k of a test that draws by `make_rng` has its own generator, seeded by the seed, the test's name
and k, so a case that failed can be run again alone.
"""

import os
import random
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from memdesc import MemdescError, MemoryDesc
from memdesc.dtypes import DATA_TYPES
from memdesc.tags import parse_tag
from tests.strategies import descs_of
from tests.tables import ONEDNN_CANONICAL

from .libdnnl import DESC_TYPES, Desc, Library, Status

_T = TypeVar("_T")

SEED: Final = int(os.environ.get("MEMDESC_SEED", "2026"))

_DTYPES_OF_3_2: Final = ("f32", "s32", "s8", "u8", "bf16", "f16", "f64")


def make_rng(test: str, case: int) -> random.Random:
    """Make the generator of one case."""
    return random.Random(f"{SEED}/{test}/{case}")


@cache
def examples(count: int, strategy: st.SearchStrategy[_T]) -> list[_T]:
    """Draw examples, the same in each run: new ones might end the process."""
    found: list[_T] = []

    @seed(SEED)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(strategy)
    def add(value: _T) -> None:
        found.append(value)

    add()
    return found


@cache
def tags_of(ndims: int, count: int) -> tuple[str, ...]:
    """Return the tags with this many dims among the first `count` of the enum."""
    return tuple(tag for tag in ONEDNN_CANONICAL[:count] if parse_tag(tag).ndims == ndims)


class Start(NamedTuple):
    """How a descriptor is made: by a tag, by strides, or row-major where both are None."""

    dims: tuple[int, ...]
    dtype: str
    tag: str | None = None
    strides: tuple[int, ...] | None = None

    def __str__(self) -> str:
        how = repr(self.tag) if self.tag else f"strides={self.strides}"
        return f"memory_desc({self.dims}, {self.dtype!r}, {how})"


def make_theirs(library: Library, start: Start) -> Desc | Status:
    """Make a descriptor with oneDNN."""
    dims, dtype, tag, strides = start
    if tag is None:
        return library.by_strides(dims, dtype, strides)
    if tag in ONEDNN_CANONICAL[: count_tags(library)]:
        return library.by_tag(dims, dtype, ONEDNN_CANONICAL.index(tag) + 2)
    return library.by_string_tag(dims, dtype, tag)


def count_tags(library: Library) -> int:
    """Return how many tags a library enumerates."""
    return 760 if library.version < (3, 13) else len(ONEDNN_CANONICAL)


def dtypes_of(library: Library) -> tuple[str, ...]:
    """Return the data types that a library makes descriptors of."""
    if library.version < (3, 13):
        return _DTYPES_OF_3_2
    return tuple(name for name in DATA_TYPES if name in DESC_TYPES)


def _is_onednns(desc: MemoryDesc) -> bool:
    """Whether oneDNN's fields describe a layout, and its functions may make it.

    They pad to whole blocks at most, and each of its strides is 0 or covers the inner blocks.
    """
    try:
        strides, tile = desc.strides, prod(desc.inner_blks)
    except MemdescError:
        return False
    steps = [desc.layout.outer(dim).step for dim in range(desc.ndims)]
    padded = zip(desc.dims, desc.padded_dims, steps, strict=True)
    is_outside = all(stride == 0 or stride >= tile for stride in strides)
    return is_outside and all(whole < size + step for size, whole, step in padded)


def onednns(
    sizes: tuple[int, ...], dtype: str, *, source: bool = True
) -> st.SearchStrategy[MemoryDesc]:
    """Return descriptors of these dims that oneDNN can make."""
    return descs_of(sizes, dtype, source=source).filter(_is_onednns)


class Step(NamedTuple):
    """How one descriptor follows from another."""

    name: str
    arguments: tuple[tuple[int, ...], ...]


def step_ours(desc: MemoryDesc, step: Step) -> MemoryDesc | MemdescError:
    """Follow a step with memdesc; return what it raised, if it did."""
    try:
        made: MemoryDesc = getattr(desc, step.name)(*step.arguments)
    except MemdescError as error:
        return error
    return made


def step_theirs(desc: Desc, step: Step) -> Desc | Status:
    """Follow a step with oneDNN."""
    made: Desc | Status = getattr(desc, step.name)(*step.arguments)
    return made


@st.composite
def steps(draw: st.DrawFn, desc: MemoryDesc) -> Step:
    """Draw a view, other dims of the same elements, or an order of dims; most often a legal one."""
    name = draw(st.sampled_from(("submemory", "reshape", "permute_axes")))
    if name == "submemory":
        blocks = [desc.layout.outer(dim).step for dim in range(desc.ndims)]
        boxes = [draw(_ranges(*each)) for each in zip(desc.dims, blocks, strict=True)]
        return Step(name, (tuple(size for size, _ in boxes), tuple(at for _, at in boxes)))
    if name == "reshape":
        return Step(name, (draw(_other_dims(desc.dims)),))
    perm = draw(st.permutations(range(desc.ndims)))
    if draw(st.integers(0, 19)) == 7:
        perm[draw(st.integers(0, desc.ndims - 1))] = draw(st.integers(-1, desc.ndims))
    return Step(name, (tuple(perm),))


@st.composite
def _ranges(draw: st.DrawFn, whole: int, block: int) -> tuple[int, int]:
    """Draw the size and start of a range along a dim."""
    at = draw(st.integers(0, whole // block)) * block
    match draw(st.sampled_from((*["whole"] * 4, *["end"] * 3, "end", "blocks", "part", "any"))):
        case "whole":
            return whole, 0
        case "end":
            return max(whole - at, 0), at
        case "blocks":
            return draw(st.integers(0, max(whole - at, 0) // block)) * block, at
        case "part":
            return min(draw(st.integers(0, block)), max(whole - at, 0)), at
    return draw(st.integers(-1, whole + 1)), draw(st.integers(-1, whole + 1))


@st.composite
def _other_dims(draw: st.DrawFn, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Draw dims that are merged, split, of 1 more or less; seldom ones of another product."""
    sizes: list[Any] = list(dims)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(sizes) - 1))
        match draw(st.sampled_from((*("insert", "drop", "split", "merge") * 4, "swap", "change"))):
            case "insert":
                sizes.insert(at, 1)
            case "drop" if 1 in sizes and len(sizes) > 1:
                sizes.remove(1)
            case "split" if sizes[at] > 1:
                factors = [each for each in range(2, sizes[at] + 1) if sizes[at] % each == 0]
                factor = draw(st.sampled_from(factors))
                sizes[at : at + 1] = [sizes[at] // factor, factor]
            case "merge" if at + 1 < len(sizes):
                sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
            case "swap":
                sizes = draw(st.permutations(sizes))
            case "change":
                sizes[at] = max(sizes[at] + draw(st.sampled_from((-1, 1))), 0)
    return tuple(sizes)


def draw_huge(rng: random.Random) -> int:
    """Draw a number near a power of 2 that int64 holds."""
    return rng.choice(
        (2 ** rng.randint(20, 62) + rng.randint(-3, 3), rng.randint(2**30, 2**63 - 1))
    )


def draw_dims_with_tails(
    rng: random.Random, blocks: Sequence[int], *, zero: float = 0.0, max_nelems: int = 4096
) -> tuple[int, ...]:
    """Draw sizes that rarely fill whole blocks, and whose product is at most `max_nelems`.

    `zero` is the probability of a size of 0.
    """
    sizes = [1] * len(blocks)
    for dim in rng.sample(range(len(blocks)), len(blocks)):
        block = blocks[dim]
        more = block + rng.randint(1, block), block - 1, rng.randint(1, 3 * block)
        size = rng.choice((1, 2, 3, rng.randint(1, 7), block, *more))
        sizes[dim] = min(max(size, 1), max(max_nelems, 1))
        max_nelems //= sizes[dim]
    if rng.random() < zero:
        sizes[rng.randrange(len(sizes))] = 0
    return tuple(sizes)
