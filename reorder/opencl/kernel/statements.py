"""Lines of a kernel that several families share.

The loop indices of a work item, and the offsets of operands there; the offsets of indirect loops;
vectors that start at any byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.kernel.access import Access, Mode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from reorder.opencl.kernel.formula import KernelFormula
    from reorder.opencl.kernel.launch import Pattern


def shared_lines(conversion: KernelFormula, roles: Collection[str], s: int) -> Iterator[str]:
    """Return the values of roles that all elements of step s share."""
    for role in roles:
        ctype, read = conversion.operand_type(role), conversion.operand_value(role, f"{role}_{s}")
        yield f"const {ctype} {role}_all = {read};"


def index_lines(pattern: Pattern) -> Iterator[str]:
    """Return the indices of a work item: i0, i1, ... of loops, j0, j1, ... of indirect ones."""
    yield "uint item = get_local_id(0);"
    for dim in sorted(
        {loop.grid_dim for loop in pattern.loops} | ({0} if pattern.indirect else set())
    ):
        yield f"uint group{dim} = get_group_id({dim});"
    for k, loop in enumerate(pattern.loops):
        is_last = pattern.is_last_in_dimension(k)
        dim = loop.grid_dim
        group = f"group{dim}" if is_last else f"group{dim} % (uint)p.groups{k}"
        tile = f"(index_t)({group}){f' * {loop.steps}' if loop.steps > 1 else ''}"
        yield f"index_t i{k} = (({tile}) << p.shift{k}) + {_digit(f'shift{k}')};"
        yield f"item >>= p.shift{k};"
        if not is_last:
            yield f"group{dim} /= (uint)p.groups{k};"
    for k in range(pattern.indirect):
        is_last = k == pattern.indirect - 1
        shift = f"indirect{k}_shift"
        group = "group0" if is_last else f"group0 % (uint)p.indirect{k}_groups"
        yield f"const index_t j{k} = ((index_t)({group}) << p.{shift}) + {_digit(shift)};"
        yield f"item >>= p.{shift};"
        if not is_last:
            yield f"group0 /= (uint)p.indirect{k}_groups;"


def _digit(shift: str) -> str:
    """Return the lowest bits of what is left of the local id."""
    return f"(index_t)(item & ((1u << p.{shift}) - 1))"


def offset_at(operand: str, indices: Iterable[tuple[int, str]], *more: str) -> str:
    """Return the offset of an operand at the indices of some loops, which come as (loop, index)."""
    return " + ".join(
        [f"p.{operand}", *(f"{index} * p.{operand}{k}" for k, index in indices), *more]
    )


def start_lines(pattern: Pattern, operand: str, access: Access) -> Iterator[str]:
    """Return the coordinates of an operand at the indices of a work item."""
    indices = indices_of(pattern)
    if access.mode == Mode.IMAGE:
        for c in "xy":
            terms = [f"p.{operand}_{c}", *(f"{i} * p.{operand}_{c}{k}" for k, i in indices)]
            yield f"const int {operand}_{c} = (int)({' + '.join(terms)});"
    elif access.mode != Mode.NONE:
        indirect = (f"indirect{k}_{operand}" for k in range(pattern.indirect))
        yield f"const index_t {operand}_offset = {offset_at(operand, indices, *indirect)};"


def indices_of(pattern: Pattern, first: int = 0) -> list[tuple[int, str]]:
    """Return the loops of a pattern, from `first` on, with their indices."""
    return [(k, f"i{k}") for k in range(first, len(pattern.loops))]


def steps_inside(loop: int, extent: int, counted: str) -> str:
    """Return how many of a tile's steps of a loop are below a limit: `extent` or `valid`."""
    return f"(int)min((index_t){extent}, p.{counted}{loop} - i{loop})"


def digits_of(number: str, extents: Iterable[int], step: int = 1) -> Iterator[str]:
    """Return the digits of a number of a work item; the first one changes every `step`."""
    for extent in extents:
        yield f"(int)({number} / {step}u % {extent}u)"
        step *= extent


def indirect_lines(pattern: Pattern, k: int) -> Iterator[str]:
    """Return indirect{k}_src, indirect{k}_dst and so on, and is_data{k}, at the index j{k}."""
    for n, operand in enumerate(pattern.indirect_operands):
        at = f"table{k}[{f'{n} * p.indirect{k}_extent + ' if n else ''}j{k}]"
        if operand == "src":
            yield f"const int is_data{k} = {at} != {'LONG' if pattern.is_wide else 'INT'}_MIN;"
            at = f"is_data{k} ? {at} : 0"
        yield f"const index_t indirect{k}_{operand} = {at};"


# Bytes of two aligned vectors, from which 16 bytes are taken that start in the first one.
VECTORS_NBYTES = 32

SHIFTS = (
    "uint funnel(uint low, uint high, uint shift)",
    "{ return (uint)(((ulong)high << 32 | low) >> shift); }",
    # pairs of words, words, then bits are chosen
    "uint4 shifted(uint4 a, uint4 b, uint at) {",
    "    const int is_far = at & 8, is_odd = at & 4;",
    "    const uint shift = (at & 3) * 8;",
    "    const uint x0 = is_far ? a.z : a.x, x1 = is_far ? a.w : a.y, x2 = is_far ? b.x : a.z;",
    "    const uint x3 = is_far ? b.y : a.w, x4 = is_far ? b.z : b.x, x5 = is_far ? b.w : b.y;",
    "    const uint y0 = is_odd ? x1 : x0, y1 = is_odd ? x2 : x1, y2 = is_odd ? x3 : x2;",
    "    const uint y3 = is_odd ? x4 : x3, y4 = is_odd ? x5 : x4;",
    "    return (uint4)(funnel(y0, y1, shift), funnel(y1, y2, shift),",
    "                   funnel(y2, y3, shift), funnel(y3, y4, shift));",
    "}",
)


FIRST_BYTES = (
    "uint bits(int count)",
    "{ return count >= 4 ? 0xffffffffu : count <= 0 ? 0u : (1u << count * 8) - 1; }",
    # the first `count` bytes of a vector, and zeros
    "uint4 first_bytes(uint4 v, int count) {",
    "    return v & (uint4)(bits(count), bits(count - 4), bits(count - 8), bits(count - 12));",
    "}",
)


NIBBLES = (
    # two bytes, of the low halves of four
    "uint nibbles(uint w) {",
    "    const uint pairs = (w | w >> 4) & 0x00ff00ff;",
    "    return (pairs | pairs >> 8) & 0xffff;",
    "}",
)


def word_of(vector: str, index: int, words: int) -> str:
    """Return a word of a vector of words."""
    return vector if words == 1 else f"{vector}.s{index}"
