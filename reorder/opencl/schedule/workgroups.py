"""Which loops stand side by side in a group of work items, so that neighbours touch neighbouring memory.

Images are stored in tiles of a few columns and rows, so items that touch one stand in a
square; a buffer wants them along its smallest stride. A group is a box that gives each side
what it wants. The numbers are the best of a sweep over all boxes and orders on an NVIDIA
H200 (docs/opencl.md has the table of what they reach).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.codegen.pattern import Space
from reorder.opencl.codegen.transpose import MAX_HEIGHT
from reorder.opencl.schedule.placement import Loop

if TYPE_CHECKING:
    from reorder.opencl.schedule.placement import Task

__all__ = ["Shares", "share_out"]

_ITEMS = 256

_COLUMN, _ROW, _NEAR = "column", "row", "near"


class _Wish(NamedTuple):
    """How many items should stand along a loop (a logarithm), and how many steps each takes."""

    role: str
    shift: int
    steps: int = 1


# By the loop that moves least in the buffer: it is the one along the columns, along the rows, or
# apart from both (the blocks of channels of NHWC), where it may be too short to fill a cache line.
# `whole` are lanes that are contiguous in the buffer as well.
_PACK = {
    "columns": (_Wish(_ROW, 1, 2), _Wish(_COLUMN, 6)),
    "whole columns": (_Wish(_COLUMN, 4, 4), _Wish(_ROW, 4)),
    "rows": (_Wish(_COLUMN, 3, 2), _Wish(_ROW, 4)),
    "apart": (_Wish(_COLUMN, 1), _Wish(_ROW, 1), _Wish(_NEAR, 5, 2)),
    "short": (_Wish(_COLUMN, 2, 2), _Wish(_ROW, 1), _Wish(_NEAR, 4)),
    "whole apart": (_Wish(_COLUMN, 1), _Wish(_ROW, 1), _Wish(_NEAR, 5, 2)),
    "whole short": (_Wish(_COLUMN, 3), _Wish(_NEAR, 1, 2), _Wish(_ROW, 3)),
    "": (_Wish(_COLUMN, 4), _Wish(_ROW, 4)),
}
_UNPACK = {
    "columns": (_Wish(_COLUMN, 6), _Wish(_ROW, 2, 2)),
    "whole columns": (_Wish(_COLUMN, 4, 2), _Wish(_ROW, 4)),
    "rows": (_Wish(_ROW, 4), _Wish(_COLUMN, 3, 2)),
    "apart": (_Wish(_COLUMN, 1), _Wish(_NEAR, 5, 2), _Wish(_ROW, 2)),
    "short": (_Wish(_COLUMN, 1, 2), _Wish(_NEAR, 4), _Wish(_ROW, 2)),
    "whole apart": (_Wish(_COLUMN, 2), _Wish(_NEAR, 3), _Wish(_ROW, 2)),
    "whole short": (_Wish(_COLUMN, 3, 2), _Wish(_NEAR, 2), _Wish(_ROW, 2)),
}
# of elements of 16 bits and less, more are needed to fill a line or to keep as many bytes under way
_UNPACK_NARROW = _UNPACK | {
    "columns": (_Wish(_COLUMN, 6), _Wish(_ROW, 2, 4)),
    "whole apart": (_Wish(_COLUMN, 2), _Wish(_NEAR, 4), _Wish(_ROW, 1)),
}
_SHORT, _SHORT_WHOLE = 32, 8
# fewer steps than these are not worth the way through local memory
_MIN_TRANSPOSED = 8
_MAX_TRANSPOSED_BITS = 64
_WIDE_BITS = 32
_EDGE = 64
# patterns with fewer loops have loops of one step beside them, so that there are fewer patterns
_LOOPS = 3


class Shares(NamedTuple):
    """Loops in the order of items, innermost first; `shifts` are logarithms of the items along each.

    `steps` are what an item takes of each loop, `look_shift` is the logarithm of the items along
    the first lookup.
    """

    loops: tuple[Loop, ...]
    shifts: tuple[int, ...]
    steps: tuple[int, ...]
    items: int
    look_shift: int = 0
    is_transposed: bool = False


def share_out(
    task: Task, spaces: tuple[str, str], bits: int, max_items: int, *, converts: bool = False
) -> Shares:
    """Order the loops of a task and say how many items stand along each."""
    room = min(_ITEMS, max_items).bit_length() - 1
    loops = list(reversed(task.loops))
    if Space.IMAGE in spaces:
        return _around_pixels(task, loops, spaces, bits, max_items)
    across = next((loop for loop in loops if task.src and abs(loop.src[0]) == 1), None)
    down = next((loop for loop in loops if loop.dst[0] == 1), None)
    # what goes through local memory keeps its bits
    if across and down and across is not down and not task.lookups and not converts:
        is_worth = (
            min(across.extent, down.extent) >= _MIN_TRANSPOSED and bits <= _MAX_TRANSPOSED_BITS
        )
        if is_worth and room >= 2 * (_MIN_TRANSPOSED - 1).bit_length():
            return _transposed(task, loops, across, down, bits, room)
    loops.sort(key=lambda loop: abs(loop.dst[0]))
    return _filled(task, loops, [], room)


def _log(extent: int) -> int:
    """Return the logarithm of the smallest power of two that is not less."""
    return (extent - 1).bit_length()


def _filled(task: Task, loops: list[Loop], shifts: list[int], room: int) -> Shares:
    """Give the loops that have no items yet as many as they have steps, until there are no more items."""
    still = Loop(1, 1, (0,) * len(task.src), (0,) * len(task.dst))
    loops = [*loops, *(still for _ in range(_LOOPS - len(loops)))]
    shifts = list(shifts)
    items = 1 << room
    room -= sum(shifts)
    for loop in loops[len(shifts) :]:
        shifts.append(min(_log(loop.extent), room))
        room -= shifts[-1]
    look_shift = min(_log(task.lookups[0].extent), room) if task.lookups else 0
    # items that nothing is left for stand idle behind the last loop
    shifts[-1] += room - look_shift
    return Shares(tuple(loops), tuple(shifts), (1,) * len(loops), items, look_shift)


def _transposed(
    task: Task, loops: list[Loop], across: Loop, down: Loop, bits: int, room: int
) -> Shares:
    # a tile of 2048 elements, of narrow ones 4096: 32 x 64 or 64 x 64, longer where a loop is short
    total = 11 if bits >= _WIDE_BITS else 12
    width = min(
        _log(across.extent), max(total - _log(down.extent), total - _log(_EDGE)), _log(MAX_HEIGHT)
    )
    height = min(_log(down.extent), total - width, _log(MAX_HEIGHT))
    # no fewer items than a tile has elements in a row or a column, no more than it has
    room = min(room, width + height)
    steps = 1 << (width + height - room)
    others = [loop for loop in loops if loop is not across and loop is not down]
    shares = _filled(
        task, [across, down, *others], [width, room - width, *(0 for _ in others)], room
    )
    return shares._replace(steps=(1, steps, *shares.steps[2:]), is_transposed=True)


def _around_pixels(
    task: Task, loops: list[Loop], spaces: tuple[str, str], bits: int, max_items: int
) -> Shares:
    """Share out loops of which one side at least is an image."""
    image = 1 if spaces[1] == Space.IMAGE else 0
    roles = {_COLUMN: _smallest(loops, image, 0), _ROW: _smallest(loops, image, 1)}
    is_alone = spaces[1 - image] in {Space.IMAGE, Space.NOWHERE}
    near = None if is_alone else _smallest(loops, 1 - image, 0)
    table = _PACK if image else _UNPACK if bits >= _WIDE_BITS else _UNPACK_NARROW
    is_whole = Space.VECTOR in spaces
    if near is None:
        wishes = _PACK[""]
    elif near is roles[_COLUMN]:
        wishes = table["whole columns" if is_whole else "columns"]
    elif near is roles[_ROW]:
        wishes = table["rows"]
    else:
        is_short = near.extent < (_SHORT_WHOLE if is_whole else _SHORT)
        wishes = table[f"{'whole ' * is_whole}{'short' if is_short else 'apart'}"]
    roles[_NEAR] = near
    room = min(sum(wish.shift for wish in wishes), max_items.bit_length() - 1)
    chosen, shifts, steps = [], [], []
    left = room
    for role, wish, count in wishes:
        loop = roles[role]
        if loop is None:
            continue
        shift = min(_log(loop.extent), wish, left)
        left -= shift
        chosen.append(loop)
        shifts.append(shift)
        steps.append(count if loop.extent >> shift >= count else 1)
    # what is left goes to those that still have steps
    for k, loop in enumerate(chosen):
        more = max(min(left, _log(loop.extent) - shifts[k]), 0)
        shifts[k] += more
        left -= more
    others = [loop for loop in loops if not any(loop is own for own in chosen)]
    shares = _filled(task, [*chosen, *others], shifts, room)
    return shares._replace(steps=(*steps, *shares.steps[len(steps) :]))


def _smallest(loops: list[Loop], side: int, c: int) -> Loop | None:
    """Return the loop that moves least, but not 0, along a column, row or buffer."""
    steps = [(loop.dst if side else loop.src, loop) for loop in loops if loop.extent > 1]
    moving = [
        (abs(place[c]), k) for k, (place, _) in enumerate(steps) if len(place) > c and place[c]
    ]
    return steps[min(moving)[1]][1] if moving else None
