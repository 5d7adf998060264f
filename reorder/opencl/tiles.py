"""Which loops stand side by side in a group of work items, so that neighbours touch neighbouring memory.

Images are stored in tiles of a few columns and rows, so items that write one stand
in a square; a buffer wants them along its smallest stride. A group is a box that
gives each side what it wants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.pattern import Space
from reorder.opencl.sides import Loop

if TYPE_CHECKING:
    from reorder.opencl.sides import Task

__all__ = ["Shares", "share_out"]

_ITEMS = 256
# fewer steps than these are not worth the way through local memory
_MIN_TRANSPOSED = 8
_MAX_TRANSPOSED_BITS = 64
_WIDE_BITS = 32
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


def share_out(task: Task, spaces: tuple[str, str], bits: int, max_items: int) -> Shares:
    """Order the loops of a task and say how many items stand along each."""
    room = min(_ITEMS, max_items).bit_length() - 1
    loops = list(reversed(task.loops))
    if Space.IMAGE in spaces:
        return _around_pixels(task, loops, spaces, room)
    across = next((loop for loop in loops if task.src and abs(loop.src[0]) == 1), None)
    down = next((loop for loop in loops if loop.dst[0] == 1), None)
    if across and down and across is not down and not task.lookups:
        is_worth = min(across.extent, down.extent) >= _MIN_TRANSPOSED and bits <= _MAX_TRANSPOSED_BITS
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


def _transposed(task: Task, loops: list[Loop], across: Loop, down: Loop, bits: int, room: int) -> Shares:
    edge = _log(32 if bits >= _WIDE_BITS else 64)
    width, height = (min(_log(loop.extent), edge) for loop in (across, down))
    # no fewer items than a tile has elements in a row or a column, no more than it has
    room = min(room, width + height)
    steps = 1 << (width + height - room)
    others = [loop for loop in loops if loop is not across and loop is not down]
    shares = _filled(task, [across, down, *others], [width, room - width, *(0 for _ in others)], room)
    return shares._replace(steps=(1, steps, *shares.steps[2:]), is_transposed=True)


def _around_pixels(task: Task, loops: list[Loop], spaces: tuple[str, str], room: int) -> Shares:
    """Share out loops of which one side at least is an image."""
    image = 1 if spaces[1] == Space.IMAGE else 0
    column = _smallest(loops, image, 0)
    row = _smallest(loops, image, 1)
    near = None if spaces[1 - image] in {Space.IMAGE, Space.NOWHERE} else _smallest(loops, 1 - image, 0)
    wanted: list[tuple[Loop, int]] = []
    if near is not None and near is not column:
        wanted.append((near, 3 if near is not row else 4))
    if column is not None:
        wanted.append((column, 4 if near in {None, column, row} else 2))
    if row is not None and row is not near:
        wanted.append((row, 3))
    shifts: list[int] = []
    left = room
    for loop, wish in wanted:
        shifts.append(min(_log(loop.extent), wish, left))
        left -= shifts[-1]
    chosen = [loop for loop, _ in wanted]
    # what is left goes to those that still have steps
    for k, loop in enumerate(chosen):
        more = max(min(left, _log(loop.extent) - shifts[k]), 0)
        shifts[k] += more
        left -= more
    others = [loop for loop in loops if not any(loop is own for own in chosen)]
    return _filled(task, [*chosen, *others], shifts, room)


def _smallest(loops: list[Loop], side: int, c: int) -> Loop | None:
    """Return the loop that moves least, but not 0, along a column, row or buffer."""
    moving = [loop for loop in loops if len(loop[2 + side]) > c and loop[2 + side][c] and loop.extent > 1]
    return min(moving, key=lambda loop: abs(loop[2 + side][c]), default=None)
