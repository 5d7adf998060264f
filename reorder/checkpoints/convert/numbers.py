"""Find scales and zero points that a new format cannot hold, before anything is written."""

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
    most = max(map(_needed_nbytes, steps), default=0)
    threads = max(min(options.thread_count, options.max_bytes // max(most, 1)), 1)
    with ThreadPoolExecutor(threads, "memdesc-check") as pool:
        found = [each for each in pool.map(_check_step, steps) if each is not None]
    how = "scales change by at most 1.2e-07 of their value; codes do not change"
    return [
        f"{old} becomes {new}, with the reciprocal rounded to f32: {how}"
        for old, new in dict.fromkeys(found)
    ]


def _needed_nbytes(step: Step) -> int:
    """Return the bytes of memory that checking the scales of a step takes."""
    src = step.src
    if not isinstance(src, RecordDesc):
        return 0
    codes = _code_tensors(src)
    return _WORKING * sum(nbytes for name, nbytes in src.tensors.items() if name not in codes)


def _code_tensors(desc: RecordDesc) -> set[str]:
    return {desc.field(name).tensor for name, _ in desc.rule.code.parts}


def _check_step(step: Step) -> tuple[str, str] | None:
    """Refuse scales that are not finite, and numbers that are ambiguous or that do not fit.

    A zero point of 0 does not fit into version 1 of GPTQ. Returns the factors of codes, before and
    after, if one becomes its reciprocal.

    Codes, which are most of the bytes, are not read: whether they fit, their pieces find out, and
    so do those of blocks that hold codes and scales.
    """
    src, dst = step.src, step.dst
    if not isinstance(src, RecordDesc) or 0 in src.dims:
        return None
    codes = _code_tensors(src)
    with about(step.name):
        check_scales(src, src.tensors.keys() - codes, lambda role: step.sources[role].read())
        if not isinstance(dst, RecordDesc) or dst.rule.zero != src.rule.zero:
            check_zero_points(src, lambda role: step.sources[role].read())
    if not isinstance(dst, RecordDesc):
        return None
    dst = dst.bare
    written = _code_tensors(dst)
    try:
        if codes == set(src.tensors) or written == set(dst.tensors):
            return None
        tensors = {
            name: _blank(nbytes) if name in codes else step.sources[name].read()
            for name, nbytes in src.tensors.items()
        }
        made = {
            name: _blank(nbytes) if {name} == written else np.zeros(nbytes, np.uint8)
            for name, nbytes in dst.tensors.items()
        }
        write_numbers(Record(src, tensors), Record(dst, made), permutation(src, dst), [])
    except MemdescError as error:
        msg = f"{step.name}: {str(error).removeprefix(f'{step.name}: ')}"
        if step.rule is not None:
            step.rule.fail(msg)
        raise MemdescError(msg) from None
    old, new = (str(desc.rule).rpartition(" * ")[0] for desc in (src, dst))
    return (old, new) if is_rounded(src, dst) else None


@lru_cache(maxsize=2)
def _blank(nbytes: int) -> NDArray[np.uint8]:
    """Return bytes that are never touched, so the system gives them no memory."""
    return np.zeros(nbytes, np.uint8)
