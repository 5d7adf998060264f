"""Choose how a plan is run by timing: what `prepare(plan, tune=...)` does.

The thresholds of `target` are a model of the machine. Where no model is good enough, some choices
are timed once, on buffers of their own, and the fastest is kept: in the process, and in a file
where one is given (as FFTW keeps its wisdom).
"""

from __future__ import annotations

import hashlib
import json
import platform
from contextlib import suppress
from functools import lru_cache
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError
from memdesc.disk import read_if_exists, write_files
from reorder.cpu.execute import PreparedReorder
from reorder.cpu.target import register_bits, this_machine
from reorder.memory.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from reorder.cpu.target import Machine
    from reorder.plan.plan import ReorderPlan

__all__ = ["Choice", "find_choice", "model_choice", "tuned"]

# Another choice than that of the model must take less than this part of its time: differences
# that are smaller are noise.
_GAIN = 0.95
# Each choice is timed in this many rounds, in samples of so many seconds.
_ROUNDS, _SAMPLE_SECONDS = 5, 2e-3
# A byte with which elements of all types are normal numbers.
_BYTE = 0x3C
# Limits that no number of bytes exceeds, and that every number exceeds.
_NEVER, _ALWAYS = 1 << 62, -1
_MAX_FILE_NBYTES = 1 << 24


class Choice(NamedTuple):
    """What can be chosen about a plan."""

    threads: int
    # whether dst is written by non-temporal stores
    streams: bool
    # whether src is prefetched
    prefetches: bool

    def on(self, machine: Machine) -> Machine:
        """Return a machine whose thresholds lead to this choice."""
        return machine._replace(
            threads=self.threads,
            cache_nbytes=_ALWAYS if self.streams else _NEVER,
            streamed_nbytes=_ALWAYS if self.streams else _NEVER,
            core_cache_nbytes=_ALWAYS if self.prefetches else _NEVER,
        )


def model_choice(machine: Machine, threads: int, nbytes: int) -> Choice:
    """Return what the thresholds of a machine choose for src and dst of together `nbytes`."""
    threads = min(threads, machine.threads)
    streams = machine.streams(nbytes, threads)
    return Choice(threads, streams, machine.prefetches(nbytes, threads, streams=streams))


def find_choice(first: Choice, seconds_of: Callable[[Sequence[Choice]], Sequence[float]]) -> Choice:
    """Return the fastest choice found, or the first one if no other gains enough.

    Parameters
    ----------
    first : Choice
        That of the model.
    seconds_of : callable
        Returns what a call takes with each of some choices. It is asked twice: about stores and
        prefetches, then about fewer threads, each half as many as the one before.
    """
    flags = (False, True)
    ways = [first._replace(streams=a, prefetches=b) for a in flags for b in flags]
    best = _fastest([first, *(way for way in ways if way != first)], seconds_of)
    fewer = [best._replace(threads=best.threads >> k) for k in range(best.threads.bit_length())]
    return _fastest(fewer, seconds_of)


def _fastest(
    choices: list[Choice], seconds_of: Callable[[Sequence[Choice]], Sequence[float]]
) -> Choice:
    """Return the fastest choice, the first one unless another gains enough."""
    seconds = list(seconds_of(choices))
    least = min(seconds)
    return choices[0] if least > _GAIN * seconds[0] else choices[seconds.index(least)]


def tuned(plan: ReorderPlan, threads: int | None, file: Path | None) -> PreparedReorder:
    """Return a plan prepared with the fastest choice; equal calls time once.

    Raises
    ------
    MemdescError
        If there is not enough memory for src and dst, or the file cannot be read or written, or
        holds something else.
    """
    machine = this_machine()
    if file is None:
        return _prepare(plan, _choice_of(plan, threads), machine)
    choices = _read(file)
    key = _key_of(plan, threads, machine)
    if key not in choices:
        found = _choice_of(plan, threads)
        # others may have written meanwhile
        choices = _read(file) | {key: found}
        text = json.dumps(choices, indent=1)
        write_files({file: lambda handle: handle.write(text.encode())})
    return _prepare(plan, choices[key], machine)


@lru_cache(maxsize=512)
def _choice_of(plan: ReorderPlan, threads: int | None) -> Choice:
    """Time the choices about a plan, on buffers of their own."""
    machine = this_machine()
    try:
        src, dst = Memory(plan.src).data, Memory(plan.dst).data
        src[...] = _BYTE
    except MemoryError:
        sizes = f"{plan.src.nbytes} and {plan.dst.nbytes} bytes"
        msg = f"tuning needs a src and a dst of its own, of {sizes}, more than there are"
        raise MemdescError(msg) from None

    def seconds_of(choices: Sequence[Choice]) -> list[float]:
        runs = [_prepare(plan, choice, machine) for choice in choices]
        least = [inf] * len(runs)
        for _ in range(_ROUNDS):
            for k, run in enumerate(runs):
                least[k] = min(least[k], _sample(run, src, dst))
        return least

    nbytes = plan.src.min_nbytes + plan.dst.min_nbytes
    return find_choice(model_choice(machine, threads or machine.threads, nbytes), seconds_of)


def _sample(run: PreparedReorder, src: NDArray[np.uint8], dst: NDArray[np.uint8]) -> float:
    """Return the seconds of a call, after one that fills the caches and wakes the threads."""
    run(src, dst)
    start = perf_counter()
    calls = 0
    while calls == 0 or perf_counter() - start < _SAMPLE_SECONDS:
        run(src, dst)
        calls += 1
    return (perf_counter() - start) / calls


def _prepare(plan: ReorderPlan, choice: Choice, machine: Machine) -> PreparedReorder:
    return PreparedReorder(plan, choice.threads, choice.on(machine))


def _key_of(plan: ReorderPlan, threads: int | None, machine: Machine) -> str:
    """Return what a choice is valid for: the plan, the threads asked for, the processor."""
    facts = [plan.src, plan.dst, plan.attr, threads, *machine, register_bits(), platform.machine()]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _read(file: Path) -> dict[str, Choice]:
    """Return the choices of a file, none if it does not exist."""
    data = read_if_exists(file, _MAX_FILE_NBYTES)
    if data is None:
        return {}
    with suppress(ValueError, TypeError, AttributeError):
        found = {key: Choice(*value) for key, value in json.loads(data).items()}
        if all(_is_valid(choice) for choice in found.values()):
            return found
    msg = f"{str(file)!r} does not hold choices that tuning has written; name another file"
    raise MemdescError(msg)


def _is_valid(choice: Choice) -> bool:
    is_count = type(choice.threads) is int and choice.threads >= 1
    return is_count and type(choice.streams) is bool and type(choice.prefetches) is bool
