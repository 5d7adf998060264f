"""Random dims, layouts and operations, the same for oneDNN and for memdesc.

Case k has its own generator, seeded by the seed, the test's name and k, so a case that failed can
be run again alone.
"""

import json
import os
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.tags import parse_tag

from .libdnnl import DESC_TYPES, Desc, Library, Status
from .nesting import strict_desc

SEED: Final = int(os.environ.get("MEMDESC_SEED", "2026"))

_TABLE: Final = Path(__file__).parents[1] / "data" / "onednn_tags.json"
_EXTENTS: Final = (2, 3, 4, 5, 8, 16)
_MAX_NDIMS: Final = 12
_DTYPES_OF_3_2: Final = ("f32", "s32", "s8", "u8", "bf16", "f16", "f64")


def make_rng(test: str, case: int) -> random.Random:
    """Make the generator of one case."""
    return random.Random(f"{SEED}/{test}/{case}")


@cache
def canonical_tags() -> tuple[str, ...]:
    """Return all canonical tags; the value of the enum is the index and 2."""
    return tuple(json.loads(_TABLE.read_text())["canonical"])


@cache
def aliases() -> dict[str, str]:
    """Return all aliases, with the canonical tag that each stands for."""
    return dict(json.loads(_TABLE.read_text())["aliases"])


@cache
def tags_of(ndims: int, count: int) -> tuple[str, ...]:
    """Return the tags with this many dims among the first `count` of the enum."""
    return tuple(tag for tag in canonical_tags()[:count] if parse_tag(tag).ndims == ndims)


class Start(NamedTuple):
    """How a descriptor begins: by a tag, by strides, or row-major where both are None."""

    dims: tuple[int, ...]
    dtype: str
    tag: str | None = None
    strides: tuple[int, ...] | None = None

    def __str__(self) -> str:
        how = repr(self.tag) if self.tag else f"strides={self.strides}"
        return f"memory_desc({self.dims}, {self.dtype!r}, {how})"


class Step(NamedTuple):
    """How one descriptor follows from another."""

    name: str
    arguments: tuple[tuple[int, ...], ...]


class Recipe(NamedTuple):
    """A descriptor that either side can make."""

    start: Start
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return str(self.start) + "".join(
            f".{step.name}({', '.join(map(str, step.arguments))})" for step in self.steps
        )


def make_ours(start: Start, *, strict: bool = True) -> MemoryDesc:
    """Make the beginning of a recipe with memdesc; by default refuse what oneDNN refuses."""
    make = strict_desc if strict else memory_desc
    return make(start.dims, start.dtype, start.tag, strides=start.strides)


def make_theirs(library: Library, start: Start) -> Desc | Status:
    """Make the beginning of a recipe with oneDNN."""
    dims, dtype, tag, strides = start
    if tag is None:
        return library.by_strides(dims, dtype, strides)
    if tag in canonical_tags()[: count_tags(library)]:
        return library.by_tag(dims, dtype, canonical_tags().index(tag) + 2)
    return library.by_string_tag(dims, dtype, tag)


def count_tags(library: Library) -> int:
    """Return how many tags a library enumerates."""
    return 760 if library.version < (3, 13) else len(canonical_tags())


def dtypes_of(library: Library) -> tuple[str, ...]:
    """Return the data types that a library makes descriptors of."""
    if library.version < (3, 13):
        return _DTYPES_OF_3_2
    return tuple(name for name in DATA_TYPES if name in DESC_TYPES)


def step_ours(desc: MemoryDesc, step: Step) -> MemoryDesc:
    """Follow a step with memdesc."""
    call: Callable[..., MemoryDesc] = getattr(desc, step.name)
    return call(*step.arguments)


def step_theirs(desc: Desc, step: Step) -> Desc | Status:
    """Follow a step with oneDNN."""
    match step.name:
        case "submemory":
            return desc.submemory(*step.arguments)
        case "reshape":
            return desc.reshape(*step.arguments)
        case "permute_axes":
            return desc.permute(*step.arguments)
    message = f"no step is called {step.name}"
    raise ValueError(message)


def follow_ours(recipe: Recipe) -> MemoryDesc:
    """Make a whole recipe with memdesc."""
    desc = make_ours(recipe.start)
    for step in recipe.steps:
        desc = step_ours(desc, step)
    return desc


def follow_theirs(library: Library, recipe: Recipe) -> Desc | Status:
    """Make a whole recipe with oneDNN, up to the first reshape that it refuses."""
    desc = make_theirs(library, recipe.start)
    for step in recipe.steps:
        assert isinstance(desc, Desc), (recipe, desc)
        desc = step_theirs(desc, step)
        if isinstance(desc, Status) and step.name == "reshape":
            return desc
    assert isinstance(desc, Desc), (recipe, desc)
    return desc


def ask(
    make: Callable[..., MemoryDesc], *arguments: object, **options: object
) -> MemoryDesc | MemdescError:
    """Call memdesc and return what it raised, if it did."""
    try:
        return make(*arguments, **options)
    except MemdescError as error:
        return error


def draw_ndims(rng: random.Random) -> int:
    """Draw a number of dims: 2 to 5 mostly, 12 now and then."""
    return rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6, rng.randint(1, _MAX_NDIMS)))


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
        choices = (
            1,
            2,
            3,
            rng.randint(1, 7),
            block,
            block + rng.randint(1, block),
            block - 1,
            rng.randint(1, 3 * block),
        )
        sizes[dim] = min(max(rng.choice(choices), 1), max(max_nelems, 1))
        max_nelems //= sizes[dim]
    if rng.random() < zero:
        sizes[rng.randrange(len(sizes))] = 0
    return tuple(sizes)


def draw_free_tag(rng: random.Random, ndims: int, max_tile: int = 256) -> str:
    """Draw a tag of any blocks: adjacent ones, three of one dim; few are in oneDNN's enum."""
    max_nelems = max_tile
    inner: list[tuple[int, int]] = []
    for _ in range(rng.randint(0, 4)):
        extent = rng.choice(_EXTENTS)
        if extent <= max_nelems:
            again = [dim for _, dim in inner]
            inner.append(
                (
                    extent,
                    rng.choice(again) if again and rng.random() < 0.5 else rng.randrange(ndims),
                )
            )
            max_nelems //= extent
    blocked = {dim for _, dim in inner}
    order = rng.sample(range(ndims), ndims)
    letters = "abcdefghijkl"
    outer = "".join(letters[dim].upper() if dim in blocked else letters[dim] for dim in order)
    return outer + "".join(f"{extent}{letters[dim]}" for extent, dim in inner)


def draw_strides(
    rng: random.Random, dims: Sequence[int], *, broadcast: float = 0.1, gap: float = 0.3
) -> tuple[int, ...]:
    """Draw strides in any order of dims that nest: dense, with gaps, or 0."""
    strides = [0] * len(dims)
    need = 1
    for dim in rng.sample(range(len(dims)), len(dims)):
        if rng.random() < broadcast:
            continue
        strides[dim] = need + (rng.randint(0, 3) if rng.random() < gap else 0)
        need = strides[dim] * max(dims[dim], 1)
        if dims[dim] == 1 and rng.random() < 0.3:
            strides[dim] = rng.randint(0, 2 * need)
    return tuple(strides)


def draw_step(rng: random.Random, desc: MemoryDesc) -> Step:
    """Draw an operation on a descriptor, most often a legal one."""
    name = rng.choice(("submemory", "reshape", "permute_axes"))
    match name:
        case "submemory":
            return Step(name, _draw_view(rng, desc))
        case "reshape":
            return Step(name, (_draw_reshape(rng, desc.dims),))
        case _:
            return Step(name, (draw_perm(rng, desc.ndims, wrong=0.05),))


def draw_perm(rng: random.Random, ndims: int, *, wrong: float = 0.0) -> tuple[int, ...]:
    """Draw a permutation; with probability `wrong` none."""
    perm = rng.sample(range(ndims), ndims)
    if rng.random() < wrong:
        perm[rng.randrange(ndims)] = rng.randint(-1, ndims)
    return tuple(perm)


def _draw_view(rng: random.Random, desc: MemoryDesc) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes, offsets = [], []
    for dim, whole in enumerate(desc.dims):
        block = desc.layout.outer(dim).step
        at = rng.randint(0, whole // block) * block
        left = max(whole - at, 0)
        kind = rng.choices(
            ("whole", "to the end", "blocks", "part of a block", "any", "outside"),
            (40, 25, 15, 10, 7, 1),
        )[0]
        match kind:
            case "whole":
                size, at = whole, 0
            case "to the end":
                size = left
            case "blocks":
                size = rng.randint(0, left // block) * block
            case "part of a block":
                size = min(rng.randint(0, block), left)
            case "any":
                at = rng.randint(0, whole)
                size = rng.randint(0, whole - at)
            case _:
                at, size = rng.randint(-1, whole + 1), rng.randint(-1, whole + 1)
        sizes.append(size)
        offsets.append(at)
    return tuple(sizes), tuple(offsets)


def _draw_reshape(rng: random.Random, dims: tuple[int, ...]) -> tuple[int, ...]:
    sizes = list(dims)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(sizes))
        match rng.choices(
            ("insert", "drop", "split", "merge", "swap", "change"), (20, 20, 25, 25, 3, 2)
        )[0]:
            case "insert":
                sizes.insert(rng.randint(0, len(sizes)), 1)
            case "drop":
                units = [dim for dim, size in enumerate(sizes) if size == 1]
                if units and len(sizes) > 1:
                    del sizes[rng.choice(units)]
            case "split":
                factors = [factor for factor in range(2, sizes[at] + 1) if sizes[at] % factor == 0]
                if factors:
                    factor = rng.choice(factors)
                    sizes[at : at + 1] = [sizes[at] // factor, factor]
            case "merge":
                if at + 1 < len(sizes):
                    sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
            case "swap":
                rng.shuffle(sizes)
            case _:
                sizes[at] = max(sizes[at] + rng.choice((-1, 1)), 0)
    return tuple(sizes)
