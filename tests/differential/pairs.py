"""Random pairs of layouts of the same dims, and values to move between them."""

import random
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc
from memdesc.dtypes import DATA_TYPES
from memdesc.tags import parse_tag

from .cases import (
    SEED,
    Recipe,
    Start,
    Step,
    draw_dims_with_tails,
    draw_free_tag,
    draw_perm,
    draw_step,
    draw_strides,
    follow_ours,
    make_ours,
    step_ours,
    tags_of,
)

DTYPES: Final = ("f32", "s32", "s8", "u8", "f16", "bf16")
MAX_OFFSET: Final = 1 << 15
"""No element of a drawn layout, and none of the parent of a view, lies beyond."""

_TAGS: Final = 760
_POOL: Final = 1 << 17
_LETTERS: Final = "abcdefghijkl"
_SRC_KINDS: Final = (
    "tag",
    "tag",
    "tag",
    "permuted tag",
    "free tag",
    "strides",
    "strides",
    "view",
    "view",
    "broadcast",
)
_DST_KINDS: Final = _SRC_KINDS[:-1]


class Side(NamedTuple):
    """One side of a reorder: what kind it was drawn as, and how to make it."""

    kind: str
    recipe: Recipe
    desc: MemoryDesc


def draw_pair(rng: random.Random) -> tuple[Side, Side]:
    """Draw a source and a destination of the same dims and data type, for oneDNN 3.2."""
    dtype = rng.choice(("f32", *DTYPES))
    match rng.choices(("any", "misaligned", "same", "steps"), (80, 7, 5, 8))[0]:
        case "misaligned":
            return _draw_misaligned(rng, dtype)
        case "same":
            side = _draw_side(rng, _draw_dims(rng), dtype, _DST_KINDS)
            return side._replace(kind="same"), side._replace(kind="same")
        case "steps":
            src = _draw_steps(rng, dtype)
            return src, _draw_side(rng, src.desc.dims, dtype, _DST_KINDS)
    dims = _draw_dims(rng)
    return _draw_side(rng, dims, dtype, _SRC_KINDS), _draw_side(rng, dims, dtype, _DST_KINDS)


def _draw_dims(rng: random.Random) -> tuple[int, ...]:
    ndims = (
        rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 6, 6))
        if rng.random() < 0.96
        else rng.randint(7, 12)
    )
    return draw_dims_with_tails(
        rng, [rng.choice((1, 1, 2, 4, 8, 16, 32)) for _ in range(ndims)], zero=0.01, max_nelems=600
    )


def _draw_side(
    rng: random.Random, dims: tuple[int, ...], dtype: str, kinds: tuple[str, ...]
) -> Side:
    for _ in range(20):
        kind = rng.choice(kinds)
        recipe = _draw_recipe(rng, kind, dims, dtype)
        try:
            desc = follow_ours(recipe)
        except MemdescError:
            continue
        if max(desc.layout.last, make_ours(recipe.start).layout.last) <= MAX_OFFSET:
            return Side(kind, recipe, desc)
    recipe = Recipe(Start(dims, dtype, _LETTERS[: len(dims)]))
    return Side("tag", recipe, follow_ours(recipe))


def _draw_recipe(rng: random.Random, kind: str, dims: tuple[int, ...], dtype: str) -> Recipe:
    ndims = len(dims)
    match kind:
        case "tag":
            return Recipe(Start(dims, dtype, rng.choice(tags_of(ndims, _TAGS))))
        case "permuted tag":
            perm = draw_perm(rng, ndims)
            before = tuple(dims[dim] for dim in perm)
            return Recipe(
                Start(before, dtype, rng.choice(tags_of(ndims, _TAGS))),
                (Step("permute_axes", (perm,)),),
            )
        case "free tag":
            # with a dim of 0 such tags have other strides in oneDNN
            return Recipe(
                Start(dims, dtype, draw_free_tag(rng, ndims) if all(dims) else _LETTERS[:ndims])
            )
        case "strides":
            return Recipe(Start(dims, dtype, strides=draw_strides(rng, dims, broadcast=0, gap=0.5)))
        case "broadcast":
            return Recipe(Start(dims, dtype, strides=draw_strides(rng, dims, broadcast=0.5)))
    tag = rng.choice(tags_of(ndims, _TAGS)) if rng.random() < 0.6 else None
    blocks = parse_tag(tag).block_sizes if tag else (1,) * ndims
    whole, at = list(dims), [0] * ndims
    for dim, block in enumerate(blocks):
        if rng.random() < 0.4:
            # after the view only where it ends with a block, or inside its first one
            at[dim] = block * rng.randint(0, 2)
            whole[dim] += at[dim] + (
                rng.randint(0, 3) if dims[dim] % block == 0 or dims[dim] < block else 0
            )
    start = Start(tuple(whole), dtype, tag, None if tag else draw_strides(rng, whole, broadcast=0))
    return Recipe(start, (Step("submemory", (dims, tuple(at))),))


@cache
def _misaligned_tags(ndims: int) -> tuple[tuple[str, str, int], ...]:
    """Return pairs of tags, and a dim whose two blocks do not divide each other."""
    sizes = [(tag, parse_tag(tag).block_sizes) for tag in tags_of(ndims, _TAGS)]
    return tuple(
        (one, other, dim)
        for one, mine in sizes
        for other, yours in sizes
        for dim in range(ndims)
        if mine[dim] % yours[dim] and yours[dim] % mine[dim]
    )


def _draw_misaligned(rng: random.Random, dtype: str) -> tuple[Side, Side]:
    ndims = rng.choice((2, 3, 4))
    for _ in range(50):
        one, other, at = rng.choice(_misaligned_tags(ndims))
        dims = list(draw_dims_with_tails(rng, (1,) * ndims, max_nelems=12))
        block = max(parse_tag(one).block_sizes[at], parse_tag(other).block_sizes[at])
        dims[at] = rng.randint(block // 2, 2 * block + 1)
        recipes = [Recipe(Start(tuple(dims), dtype, tag)) for tag in (one, other)]
        descs = [follow_ours(recipe) for recipe in recipes]
        if max(desc.layout.last for desc in descs) <= MAX_OFFSET:
            break
    src, dst = (
        Side("misaligned", recipe, desc) for recipe, desc in zip(recipes, descs, strict=True)
    )
    return src, dst


def _draw_steps(rng: random.Random, dtype: str) -> Side:
    """Draw what up to three steps make of a tag or of strides."""
    side = _draw_side(rng, _draw_dims(rng), dtype, ("tag", "strides", "broadcast"))
    recipe, desc = side.recipe, side.desc
    for _ in range(rng.randint(1, 3)):
        step = draw_step(rng, desc)
        units = [
            dim
            for dim, (size, padded) in enumerate(zip(desc.dims, desc.padded_dims, strict=True))
            if size == padded == 1
        ]
        if step.name == "reshape" and not set(units).isdisjoint(desc.inner_idxs):
            continue  # known.drops_a_blocked_unit_dim
        try:
            made = step_ours(desc, step)
            made.inner_blks  # noqa: B018 - refused if oneDNN cannot describe the blocks
        except MemdescError:
            continue
        if not made.nelems and rng.random() < 0.8:
            continue
        desc = made
        recipe = Recipe(recipe.start, (*recipe.steps, step))
    return Side("steps", recipe, desc)


@cache
def values(dtype: str) -> NDArray[np.uint8]:
    """Return the bytes of many random numbers that oneDNN's reference moves unchanged.

    No -0.0, no NaN, no denormal, nothing beyond 2^24 in s32: it computes in f32 and adds a
    zero point of 0.
    """
    rng = np.random.default_rng([SEED, DTYPES.index(dtype)])
    if dtype == "s32":
        return rng.integers(-(2**24), 2**24 + 1, _POOL).astype(np.int32).view(np.uint8)
    if DATA_TYPES[dtype].bits == 8:
        return rng.integers(0, 256, _POOL).astype(np.uint8)
    low, high = (-13, 15) if dtype == "f16" else (-120, 120)
    magnitudes = np.ldexp(1 + rng.random(_POOL), rng.integers(low, high, _POOL)).astype(np.float32)
    signed: NDArray[Any] = (magnitudes * rng.choice([-1, 1], _POOL)).astype(DATA_TYPES[dtype].numpy)
    return signed.view(np.uint8)


@cache
def poison() -> NDArray[np.uint8]:
    """Return random bytes."""
    return np.random.default_rng(SEED).integers(0, 256, 8 * _POOL).astype(np.uint8)
