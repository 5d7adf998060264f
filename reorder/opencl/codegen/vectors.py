"""Functions of a kernel with tiles: loads and stores of vectors, transposed units of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Tile

__all__ = ["transposed_words", "unit_lines", "vector_functions", "word_of"]

_WORD = 4


def word_of(vector: str, index: int, words: int) -> str:
    """Return a word of a vector of words."""
    return vector if words == 1 else f"{vector}.s{index}"


def transposed_words(rows: list[str], words: int) -> Iterator[str]:
    """Return the words of the columns of some rows."""
    for word in range(words):
        parts = ", ".join(word_of(row, word, words) for row in rows)
        for column in range(len(rows)):
            yield f"column{column}({parts})"


def vector_functions(tile: Tile) -> Iterator[str]:
    """Return the functions that the body of a tile calls."""
    moves = " ^ ".join(["w", *(f"((w >> {shift}) & {mask})" for shift, mask in tile.swizzle)])
    # adjacent work items access different banks of local memory
    yield f"int bank(int w) {{ return {moves}; }}"
    if tile.unit > 1:
        yield from unit_lines(tile.unit, "uint")
    elif tile.nbytes < _WORD:
        scale = tile.nbytes.bit_length() - 1
        index = (
            f"(bank(at >> 2) << {2 - scale}) + (at >> {scale} & {_WORD // tile.nbytes - 1})"
            if tile.swizzle
            else f"at >> {scale}"
        )
        kind = tile.memory
        if tile.is_gathered:
            yield f"{kind} get(const __local uint *tile, int at)"
            yield f"{{ return ((const __local {kind} *)tile)[{index}]; }}"
        else:
            yield f"void put(__local uint *tile, int at, {kind} value)"
            yield f"{{ ((__local {kind} *)tile)[{index}] = value; }}"
    if tile.is_paired:
        yield from _PAIRED
    yield from _load(tile)
    if tile.dst.is_shifted:
        yield "uint funnel(const __local uint *tile, int at) {"
        yield "    const int w = at >> 2;"
        yield "    const uint low = tile[bank(max(w, 0))], high = tile[bank(w + 1)];"
        yield "    const uint shift = (at & 3) * 8;"
        yield "    return shift ? low >> shift | high << (32 - shift) : low;"
        yield "}"
    yield from _store(tile)


_COLUMNS = {
    2: (
        "uint column0(uint a, uint b) { return (a & 0xffff) | b << 16; }",
        "uint column1(uint a, uint b) { return a >> 16 | (b & 0xffff0000); }",
    ),
    4: (
        "uint even(uint a, uint b) { return (a & 0x00ff00ff) | (b & 0x00ff00ff) << 8; }",
        "uint odd(uint a, uint b) { return (a >> 8 & 0x00ff00ff) | (b & 0xff00ff00); }",
        "uint low(uint a, uint b) { return (a & 0xffff) | b << 16; }",
        "uint high(uint a, uint b) { return a >> 16 | (b & 0xffff0000); }",
        "#define column0(a, b, c, d) low(even(a, b), even(c, d))",
        "#define column1(a, b, c, d) low(odd(a, b), odd(c, d))",
        "#define column2(a, b, c, d) high(even(a, b), even(c, d))",
        "#define column3(a, b, c, d) high(odd(a, b), odd(c, d))",
    ),
}


def unit_lines(unit: int, kind: str) -> Iterator[str]:
    """Return the functions that join rows of narrow elements, for words or vectors of words."""
    for line in _COLUMNS[unit]:
        yield line if kind == "uint" else line.replace("uint ", f"{kind} ")


# Squares of 2 x 2 elements of 4 bits: from bytes a and b of two rows, and from words of four
# bytes; (even, odd) are the bytes of two rows of dst.
_PAIRED = (
    "uint square(uint a, uint b)",
    "{ return (a & 15) | (b & 15) << 4 | (a & 240) << 4 | (b & 240) << 8; }",
    "uint2 squares(uint a, uint b) {",
    "    const uint even = (a & 0x0f0f0f0f) | (b & 0x0f0f0f0f) << 4;",
    "    const uint odd = (a >> 4 & 0x0f0f0f0f) | (b & 0xf0f0f0f0);",
    "    const uint x = (even & 0x00ff00ff) | (odd & 0x00ff00ff) << 8;",
    "    const uint y = (even >> 8 & 0x00ff00ff) | (odd & 0xff00ff00);",
    "    return (uint2)((x & 0xffff) | y << 16, x >> 16 | (y & 0xffff0000));",
    "}",
    "uint2 rows(uint v, uint w) {",
    "    const uint x = (v & 0xffff) | w << 16, y = v >> 16 | (w & 0xffff0000);",
    "    const uint even = (x & 0x00ff00ff) | (y & 0x00ff00ff) << 8;",
    "    return (uint2)(even, (x >> 8 & 0x00ff00ff) | (y & 0xff00ff00));",
    "}",
)


def _load_pair(tile: Tile) -> Iterator[str]:
    """Return the statements that load a whole vector from two rows."""
    words = tile.src.nbytes // _WORD
    half = _vector(words // 2)
    yield f"        const {half} a = *(__global const {half} *)from;"
    yield f"        const {half} b = *(__global const {half} *)(from + other);"
    parts = [
        f"squares({word_of('a', k, words // 2)}, {word_of('b', k, words // 2)})"
        for k in range(words // 2)
    ]
    yield f"        return ({tile.src.vector})({', '.join(parts)});"


def _store_pair(tile: Tile) -> Iterator[str]:
    """Return the statements that store a whole vector in two rows."""
    words = tile.dst.nbytes // _WORD
    half = _vector(words // 2)
    for k in range(words // 2):
        yield f"        const uint2 r{k} = rows(v.s{2 * k}, v.s{2 * k + 1});"
    for row, place in enumerate(("to", "to + other")):
        parts = ", ".join(f"r{k}.s{row}" for k in range(words // 2))
        yield f"        *(__global {half} *)({place}) = ({half})({parts});"


def _vector(words: int) -> str:
    return "uint" if words == 1 else f"uint{words}"


def _load(tile: Tile) -> Iterator[str]:
    """Return a function that loads the first `count` elements of a vector, and zeros.

    For squares of 4-bit elements, `other` is the distance of the second row from the first one, in
    bytes. With `is_inside` the aligned words around the vector are in src.
    """
    vector, words = tile.src.vector, tile.src.nbytes // _WORD
    other = "index_t other, " if tile.is_paired else ""
    inside = "int is_inside, " if tile.src.is_shifted else ""
    head = f"{vector} load(__global const {tile.row_memory} *from"
    yield f"{head}, {other}{inside}int count) {{"
    if tile.is_paired:
        yield f"    if (count >= {tile.src.lanes}) {{"
        yield from _load_pair(tile)
        yield "    }"
    elif tile.src.is_shifted:
        yield f"    if (is_inside && count >= {tile.src.lanes}) {{"
        yield "        const uint shift = ((uint)(uintptr_t)from & 3) * 8;"
        yield (
            "        __global const uint *whole = "
            "(__global const uint *)((uintptr_t)from & ~(uintptr_t)3);"
        )
        yield ("        return shift ? whole[0] >> shift | whole[1] << (32 - shift) : whole[0];")
        yield "    }"
    else:
        yield f"    if (count >= {tile.src.lanes}) return *(__global const {vector} *)from;"
    # elements move in from the end
    yield f"    {vector} v = ({vector})(0);"
    last = f"min(count, {tile.src.lanes})" if inside else "count"
    yield f"    for (int j = {last} - 1; j >= 0; --j) {{"
    if tile.nbytes < _WORD:
        bits = 8 * tile.nbytes
        for k in reversed(range(words)):
            lower = f" | {word_of('v', k - 1, words)} >> {32 - bits}" if k else ""
            yield f"        {word_of('v', k, words)} = {word_of('v', k, words)} << {bits}{lower};"
        element = "square(from[j], from[other + j])" if tile.is_paired else "from[j]"
        yield f"        {word_of('v', 0, words)} |= {element};"
    else:
        parts = tile.nbytes // _WORD
        for k in reversed(range(parts, words)):
            yield f"        v.s{k} = v.s{k - parts};"
        yield f"        {word_of('v', 0, words)} = (uint)from[j];"
        if parts > 1:
            yield "        v.s1 = (uint)(from[j] >> 32);"
    yield "    }"
    yield "    return v;"
    yield "}"


def _store(tile: Tile) -> Iterator[str]:
    """Return a function that stores the first `count` elements of a vector, as `_load` loads.

    A word that begins `first` elements before its run: these are not stored.
    """
    vector, words = tile.dst.vector, tile.dst.nbytes // _WORD
    first = ", int first" if tile.dst.is_shifted else ""
    other = "index_t other, " if tile.is_paired else ""
    yield f"void store(__global {tile.row_memory} *to, {other}{vector} v{first}, int count) {{"
    whole = f"count >= {tile.dst.lanes}" + (" && first <= 0" if first else "")
    if tile.is_paired:
        yield f"    if ({whole}) {{"
        yield from _store_pair(tile)
        yield "        return;"
        yield "    }"
    else:
        yield f"    if ({whole}) {{ *(__global {vector} *)to = v; return; }}"
    start = "0"
    if first:
        start = "max(first, 0)"
        yield f"    v >>= min(max(first, 0) * {8 * tile.nbytes}, 31);"
    yield f"    for (int j = {start}; j < min(count, {tile.dst.lanes}); ++j) {{"
    if tile.nbytes < _WORD:
        bits = 8 * tile.nbytes
        yield f"        to[j] = ({tile.row_memory}){word_of('v', 0, words)};"
        if tile.is_paired:
            yield f"        to[other + j] = (uchar)({word_of('v', 0, words)} >> 8);"
        for k in range(words):
            upper = f" | {word_of('v', k + 1, words)} << {32 - bits}" if k < words - 1 else ""
            yield f"        {word_of('v', k, words)} = {word_of('v', k, words)} >> {bits}{upper};"
    else:
        parts = tile.nbytes // _WORD
        low = word_of("v", 0, words)
        value = low if parts == 1 else "(ulong)v.s1 << 32 | v.s0"
        yield f"        to[j] = {value};"
        for k in range(words - parts):
            yield f"        v.s{k} = v.s{k + parts};"
    yield "    }"
    yield "}"
