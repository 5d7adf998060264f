"""Find scales and zero points that a new format cannot hold, before anything is written.

Numbers that are lost while a conversion runs are found by `moves.losses`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from memdesc import MemdescError
from memdesc.errors import about
from memdesc.record import RecordDesc
from reorder.checkpoints.moves.changes import permutation
from reorder.checkpoints.moves.losses import check_scales, check_zero_points
from reorder.records.convert_numbers import is_rounded, write_numbers
from reorder.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from reorder.checkpoints.convert.options import ConvertOptions
    from reorder.checkpoints.convert.steps import Step

# bytes of memory for each byte of scales and zero points that are checked, as numpy widens them
_WORKING = 32


def check_numbers(steps: Sequence[Step], options: ConvertOptions) -> list[str]:
    """Check the numbers of all steps, on as many threads as memory allows.

    Returns a warning for each kind of record in which a factor becomes its reciprocal.

    Fails if the new format of a step cannot hold its numbers; the first such step is reported.
    """
    moved = [(step, step.src) for step in steps if isinstance(step.src, RecordDesc)]
    moved = [(step, src) for step, src in moved if 0 not in src.dims]
    most = _WORKING * max((sum(_beside_codes(src).values()) for _, src in moved), default=0)
    threads = max(min(options.thread_count, options.max_bytes // max(most, 1)), 1)
    with ThreadPoolExecutor(threads, "memdesc-check") as pool:
        found = pool.map(lambda each: _check(*each), moved)
        rounded = dict.fromkeys(each for each in found if each is not None)
    how = "scales change by at most 1.2e-07 of their value; codes do not change"
    return [
        f"{old} becomes {new}, with the reciprocal rounded to f32: {how}" for old, new in rounded
    ]


def _beside_codes(desc: RecordDesc) -> dict[str, int]:
    """Return the bytes of the tensors without codes."""
    codes = {desc.field(name).tensor for name, _ in desc.rule.code.parts}
    return {name: nbytes for name, nbytes in desc.tensors.items() if name not in codes}


def _check(step: Step, src: RecordDesc) -> tuple[str, str] | None:
    """Refuse scales that are not finite, and numbers that are ambiguous or that do not fit.

    A zero point of 0 does not fit into version 1 of GPTQ. Returns the factors of codes, before and
    after, if one becomes its reciprocal.

    Codes, which are most of the bytes, are not read: whether they fit, their pieces find out, and
    so do those of blocks that hold codes and scales.
    """
    rest, dst = _beside_codes(src), step.dst.bare if isinstance(step.dst, RecordDesc) else None
    with about(step.name):
        check_scales(src, rest, lambda role: step.sources[role].read())
        if dst is None or dst.rule.zero != src.rule.zero:
            check_zero_points(src, lambda role: step.sources[role].read())
    if dst is None or not rest or not _beside_codes(dst):
        return None
    tensors = {
        name: step.sources[name].read() if name in rest else _blank(nbytes)
        for name, nbytes in src.tensors.items()
    }
    written = _beside_codes(dst)
    made = {
        name: np.zeros(nbytes, np.uint8) if name in written else _blank(nbytes)
        for name, nbytes in dst.tensors.items()
    }
    try:
        write_numbers(Record(src, tensors), Record(dst, made), permutation(src, dst), [])
    except MemdescError as error:
        msg = f"{step.name}: {str(error).removeprefix(f'{step.name}: ')}"
        if step.rule is not None:
            step.rule.fail(msg)
        raise MemdescError(msg) from None
    old, new = (str(desc.rule).rpartition(" * ")[0] for desc in (src, dst))
    return (old, new) if is_rounded(src, dst) else None


@lru_cache(maxsize=2)  # memory that is freed would be cleared when it is used again
def _blank(nbytes: int) -> NDArray[np.uint8]:
    """Return bytes that are never touched, so the system gives them no memory."""
    return np.zeros(nbytes, np.uint8)
