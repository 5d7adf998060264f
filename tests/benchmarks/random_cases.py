"""Random reorders of the kinds that frameworks issue: a pure function of a seed.

Kernels are tuned on one seed and reported on another: a memorised list is not
a distribution.
"""

from collections.abc import Callable, Sequence
from random import Random

from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from tests.benchmarks.cases import parse_cases

# Bytes of src and dst together, between which sizes are drawn: as many of each power of two.
LEAST_NBYTES, LARGEST_NBYTES = 64 << 10, 256 << 20
# Most cases of one run: they are arguments of the processes that measure.
MAX_CASES = 2000

_AXES = "abcdef"
_MOVED = ("f32", "f32", "f32", "bf16", "f16", "s8", "f64")
# Layouts of weights: dims a and b are output and input channels. Pairs and groups of four are for
# dtypes of 16 and 8 bits.
_PLAIN_WEIGHTS = ("abcd", "acdb", "cdba", "cdab", "bacd")
_BLOCKED_WEIGHTS = {
    1: (
        *("aBcd4b", "aBcd8b", "aBcd16b", "Abcd16a", "ABcd4a4b", "ABcd8b8a", "ABcd8a8b"),
        *("ABcd16a16b", "ABcd16b16a", "ABcd8b16a", "ABcd16a32b", "ABcd16b32a", "BAcd16a64b"),
    ),
    2: ("ABcd8b8a2b", "ABcd8b16a2b", "ABcd16b16a2b", "BAcd16b32a2b", "BAcd8a16b2a"),
    4: ("ABcd4b16a4b", "ABcd2b8a4b", "ABcd16b16a4b", "BAcd16a64b4a"),
}
_WEIGHTS = ("f32", "bf16", "f16", "s8")
_CONVERTED = (
    *(("f32", "bf16"), ("bf16", "f32"), ("f32", "f16"), ("f16", "f32"), ("f32", "s8")),
    *(("s8", "f32"), ("f32", "u8"), ("s32", "s8"), ("s8", "bf16"), ("u4", "f32")),
)
_ATTRIBUTES = ((), (), ("--scale=0.5",), ("--src-scale=mask:2",), ("--scale=mask:1",))


def random_words(count: int, seed: int, classes: Sequence[str] | None = None) -> list[str]:
    """Return random cases in the notation of benchdnn: all differ, and equal seeds give equal ones.

    They are drawn from `classes` in turn.

    >>> random_words(1, seed=3, classes=["outer-swap"])  # doctest: +ELLIPSIS
    ['--reset', '--sdt=...', '--ddt=...', '--stag=...', '--dtag=...', ...]
    """
    if not 1 <= count <= MAX_CASES:
        msg = f"{count} random cases: ask for 1 to {MAX_CASES}"
        raise MemdescError(msg)
    chosen = list(CLASSES) if classes is None else list(classes)
    if not chosen or (unknown := set(chosen) - set(CLASSES)):
        named = repr(min(unknown)) if chosen else "an empty list"
        msg = f"no class {named} of random cases; there are {', '.join(CLASSES)}"
        raise MemdescError(msg)
    draw = Random(seed)
    words: list[str] = []
    seen: set[str] = set()
    while len(seen) < count:
        found = CLASSES[chosen[len(seen) % len(chosen)]](draw)
        (case,) = parse_cases(found)
        if LEAST_NBYTES <= case.nbytes <= LARGEST_NBYTES and case.name not in seen:
            seen.add(case.name)
            words += found
    return words


def _permutation(draw: Random) -> list[str]:
    """Draw a permutation of 2 to 6 dims, half of them of odd extents."""
    dtype = draw.choice(_MOVED)
    ndims = draw.randint(2, 6)
    axes = list(_AXES[:ndims])
    permuted = axes
    while permuted == axes:
        permuted = draw.sample(axes, ndims)
    return _words((dtype, dtype), ("".join(axes), "".join(permuted)), _split(draw, dtype, ndims))


def _outer_swap(draw: Random) -> list[str]:
    """Draw a swap of outer dims around rows of 64 to 512 bytes, such as attention heads."""
    dtype = draw.choice(("f32", "bf16", "s8"))
    stag, dtag = draw.choice((("abc", "bac"), ("abcd", "acbd"), ("abcd", "cabd")))
    row = draw.choice((64, 96, 128, 160, 256, 512)) // DATA_TYPES[dtype].nbytes(1)
    return _words((dtype, dtype), (stag, dtag), [*_split(draw, dtype, len(stag) - 1, row), row])


def _activation(draw: Random) -> list[str]:
    """Draw a change between plain activations and blocks of channels, or of their width."""
    dtype = draw.choice(("f32", "f32", "bf16", "s8"))
    width = draw.choice((4, 8, 16, 32, 64))
    blocked = f"aBx{width}b"
    other = draw.choice(("abx", "axb", f"aBx{draw.choice((8, 16, 32))}b"))
    if other == blocked:
        other = "abx"
    pair = (other, blocked) if draw.random() < 0.5 else (blocked, other)
    return _words((dtype, dtype), pair, _images(draw, dtype, width))


def _weight(draw: Random) -> list[str]:
    """Draw a change between plain weights and blocks, with and without pairs."""
    dtype = draw.choice(_WEIGHTS)
    blocked = draw.choice(_BLOCKED_WEIGHTS[draw.choice((1, 4 // DATA_TYPES[dtype].nbytes(1)))])
    plain = draw.choice(_PLAIN_WEIGHTS)
    pair = (plain, blocked) if draw.random() < 0.75 else (blocked, plain)
    kernel = draw.choice(((1, 1), (3, 3), (1, 3), (5, 5), (7, 7)))
    a, b = _split(draw, dtype, 2, kernel[0] * kernel[1])
    return _words((dtype, dtype), pair, [*(_rounded(draw, size, 16) for size in (a, b)), *kernel])


def _conversion(draw: Random) -> list[str]:
    """Draw a conversion of activations, in place or between layouts, with scales or without."""
    types = draw.choice(_CONVERTED)
    tags = "abx", "axb", "aBx16b"
    pair = draw.choice(tags), draw.choice(tags)
    return _words(types, pair, _images(draw, types[0], 16), draw.choice(_ATTRIBUTES))


CLASSES: dict[str, Callable[[Random], list[str]]] = {
    "permutation": _permutation,
    "activation": _activation,
    "weight": _weight,
    "outer-swap": _outer_swap,
    "conversion": _conversion,
}
"""The classes of random cases, by name."""


def _words(
    types: tuple[str, str], tags: tuple[str, str], dims: list[int], more: tuple[str, ...] = ()
) -> list[str]:
    """Return the words of one case; options of the case before are dropped."""
    options = [f"--sdt={types[0]}", f"--ddt={types[1]}", f"--stag={tags[0]}", f"--dtag={tags[1]}"]
    return ["--reset", *options, *more, "x".join(map(str, dims))]


def _split(draw: Random, dtype: str, count: int, others: int = 1) -> list[int]:
    """Draw dims of a tensor with `others` elements in further dims; half of them are odd."""
    nbytes = LEAST_NBYTES * (LARGEST_NBYTES / LEAST_NBYTES) ** draw.random()
    nelems = nbytes / 2 / DATA_TYPES[dtype].nbytes(1) / others
    parts = [draw.expovariate(1.0) + 1.0 for _ in range(count)]
    dims = [max(2, round(nelems ** (part / sum(parts)))) for part in parts]
    return [dim | draw.randint(0, 1) for dim in dims]


def _images(draw: Random, dtype: str, width: int) -> list[int]:
    """Draw a batch of images: n, c, h, w; some channels fill whole blocks."""
    side = draw.choice((7, 13, 14, 28, 56, 57, 112))
    n, c = _split(draw, dtype, 2, side * side)
    return [n, _rounded(draw, c, width), side, side]


def _rounded(draw: Random, size: int, width: int) -> int:
    """Round up to a multiple of a width, two times out of three."""
    return -(-size // width) * width if draw.randint(0, 2) else size
