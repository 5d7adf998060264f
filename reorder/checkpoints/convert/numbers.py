"""Find scales and zero points that a new format cannot hold, before anything is written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdesc import MemdescError, MemoryDesc
from memdesc.errors import about
from memdesc.record import RecordDesc
from reorder.checkpoints.moves.changes import permutation
from reorder.checkpoints.moves.losses import check_scales, check_zero_points
from reorder.records.convert_numbers import is_rounded, write_numbers
from reorder.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from reorder.checkpoints.convert.options import ConvertOptions
    from reorder.checkpoints.convert.steps import Step

# bytes of memory for each byte of scales and zero points that are checked, as numpy widens them
_WORKING = 32


class _RoundedScales(NamedTuple):
    """A record in which a factor becomes its reciprocal."""

    step: Step
    # the largest relative change of a product of scales; 0 if none changes
    error: float


def rounding_warnings(checked: Iterable[_RoundedScales | None]) -> tuple[str, ...]:
    """Return a warning for each kind of record that `check_numbers` found to be rounded."""
    found: dict[tuple[str, str], list[float]] = {}
    for each in checked:
        if each is not None and isinstance(each.step.src, RecordDesc):
            old, new = (_factors(desc) for desc in (each.step.src, each.step.dst))
            found.setdefault((old, new), []).append(each.error)
    return tuple(
        f"{old} becomes {new}, with the reciprocal rounded to f32: scales change in "
        f"{sum(error > 0 for error in errors)} of {len(errors)} weights, by at most "
        f"{max(errors):.2g} of their value; codes do not change"
        for (old, new), errors in found.items()
    )


def _factors(desc: MemoryDesc | RecordDesc | None) -> str:
    """Return what multiplies the codes of a record, as its rule writes it."""
    return str(desc.rule).rpartition(" * ")[0] if isinstance(desc, RecordDesc) else ""


def check_numbers(steps: Sequence[Step], options: ConvertOptions) -> list[_RoundedScales | None]:
    """Check the numbers of all steps, on as many threads as memory allows.

    Returns what `_check_step` returns for each.

    Fails if the new format of a step cannot hold its numbers; the first such step is reported.
    """
    most = max(map(_needed_nbytes, steps), default=0)
    threads = max(min(options.thread_count, options.max_bytes // max(most, 1)), 1)
    with ThreadPoolExecutor(threads, "memdesc-check") as pool:
        return [*pool.map(_check_step, steps)]


def _needed_nbytes(step: Step) -> int:
    """Return the bytes of memory that checking the scales of a step takes."""
    src = step.src
    if not isinstance(src, RecordDesc):
        return 0
    codes = _code_tensors(src)
    return _WORKING * sum(nbytes for name, nbytes in src.tensors.items() if name not in codes)


def _code_tensors(desc: RecordDesc) -> set[str]:
    return {desc.field(name).tensor for name, _ in desc.rule.code.parts}


def _check_step(step: Step) -> _RoundedScales | None:
    """Refuse scales that are not finite, and numbers that are ambiguous or that do not fit.

    A zero point of 0 does not fit into version 1 of GPTQ. Returns what is rounded, if a factor
    becomes its reciprocal.

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
    dst, errors = dst.bare, list[float]()
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
        write_numbers(Record(src, tensors), Record(dst, made), permutation(src, dst), errors)
    except MemdescError as error:
        msg = f"{step.name}: {str(error).removeprefix(f'{step.name}: ')}"
        if step.rule is not None:
            step.rule.fail(msg)
        raise MemdescError(msg) from None
    return _RoundedScales(step, max(errors, default=0.0)) if is_rounded(src, dst) else None


@lru_cache(maxsize=2)
def _blank(nbytes: int) -> NDArray[np.uint8]:
    """Return bytes that are never touched, so the system gives them no memory."""
    return np.zeros(nbytes, np.uint8)
