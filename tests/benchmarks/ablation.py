"""Measure what each mechanism of the CPU backend is worth: switch it off, and time both.

    python -m tests.benchmarks.ablation [MECHANISM[+MECHANISM ...] ...] [--threads 1,16]
        [--place 16] [--random 240] [--seed 7] [--sample 360] [--most-mb 48] [--seconds 0.02]
        [--seconds-total 60] [--json FILE]

All variants run in one process. A variant is the package `reorder.cpu`, imported again with some
functions or constants replaced; threads are shared. Which cases a mechanism changes is found first,
by a process for each core, which compiles their code too. A case is not timed if its programs,
tables and machine code stay the same. The others run in short slices, in turns with the engine as
it is, in random order; `--seconds-total` ends this early, for each number of threads. On one thread
its CPU time counts, which other processes disturb less than the time of day.

Mechanisms that are joined by + are off together: one may hide what another is worth. A row says in
how many listed and fresh cases its mechanism changes anything. src and dst start `--place` bytes
into a cache line, by default where large arrays of numpy do.

Three mechanisms have no row. Regions of an OpenMP runtime, which users ask for by
`MEMDESC_OPENMP=1`, need processes of their own, because all variants share the threads. The memory
of freed results is not used here, because calls write into buffers that exist; it is off where
`reorder.memory.allocation._POOL` is None. Families of kernels for devices are not part of
`reorder.cpu`: `memdesc bench --device` times them.

The first variant replaces nothing: it shows the spread of the same code against itself. A mechanism
stays if switching it off costs 1 % of the geometric mean of moves or of conversions, or makes at
least 1 % of the random cases more than twice as slow, on one of two different machines, beyond
that spread.
"""

import argparse
import hashlib
import importlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import groupby, product
from multiprocessing import get_context
from pathlib import Path
from pkgutil import walk_packages
from random import Random
from statistics import median
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import reorder.cpu
from reorder import plan_reorder
from reorder.bench.cases import Case
from reorder.cpu.runtime.pool import load_pool
from reorder.cpu.schedule.loops import size_of
from reorder.cpu.schedule.select import MICRO_KERNELS, Part
from reorder.plan import ReorderPlan
from tests.benchmarks.cases import parse_cases
from tests.benchmarks.random_cases import random_words
from tests.benchmarks.report import geometric_mean
from tests.benchmarks.turns import in_turns, is_move, listed_cases, source_of, timer, zeros_at

# modules that every variant shares: the threads, compiled code by its name, and what both sides of
# a job know
_SHARED = ("host", "machine", "target", "tables")
_SHARED_RUNTIME = ("jit", "pool", "worker", "intrinsics")
_MAX_ROUNDS = 12
# Cases that a process looks at in turn: they share much of the machine code.
_PART = 12
_SLOWDOWN = 2.0


class Mechanism(NamedTuple):
    """What is replaced to switch a mechanism off.

    `replaced` has a function of the old value, by ``module:name`` below `reorder.cpu`. A mechanism
    that changes machine code says which: `code` is a pattern that the schedules of the cases
    contain, where a box is ``kernel ROWSxCOLUMNS;``.
    """

    replaced: dict[str, Callable[[Any], Any]]
    code: str = ""


def _value(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _returns(value: Any) -> Callable[[Any], Any]:
    """Return what replaces a function by one that always returns a value."""
    return lambda _: lambda *_args, **_kwargs: value


def _does_nothing(_: Any) -> Any:
    return lambda *_args, **_kwargs: None


def _under_name(variant: str) -> Callable[[Any], Any]:
    """Return what replaces the function that compiles code under a name."""
    return lambda old: lambda name, *of, **more: old(f"{name}, without {variant}", *of, **more)


def _in_place(old: Any) -> Any:
    """Leave operands where they are."""
    return lambda nodes, *_: old(nodes)


def _at_zero(_: Any) -> Any:
    """Begin vectors where the row begins."""
    return lambda _elements, _dst, _lanes, count, *_width: count.like(0)


def _skips_nothing(_: Any) -> Any:
    """Begin tiles with the first column."""
    return lambda move, *_: move.first.like(0)


def _without_joined_jobs(old: Any) -> Any:
    """Run the batches of a schedule one by one."""

    def make(*given: Any) -> Any:
        schedule = old(*given)
        schedule.has_job = schedule.has_job and len(schedule.scheduled) == 1
        return schedule

    return make


MECHANISMS: dict[str, Mechanism] = {
    "itself": Mechanism({}),
    "runs in pieces": Mechanism({"schedule.cuts:_in_pieces": _returns(())}),
    "tiles of narrow elements": Mechanism({"schedule.post_ops:Conversion.is_single": _value(0)}),
    "permuted elements": Mechanism(
        {
            "schedule.permuted:_permuted_elements": _returns(()),
        }
    ),
    "permuted lines": Mechanism({"schedule.permuted:_permuted_windows": _returns(())}),
    "packing at odd bytes": Mechanism({"schedule.select:_WIDEST": _value(0)}),
    "joined jobs": Mechanism({"execute:_Schedule": _without_joined_jobs}),
    "chunks of a thread": Mechanism({"schedule.partition:MAX_THREAD_CHUNKS": _value(1)}),
    "cuts between columns": Mechanism({"schedule.partition:_SHARED_LINE": _value(0)}),
    "gathered operands": Mechanism({"schedule.tile_steps:find_rows": _in_place}),
    "operands that repeat": Mechanism({"schedule.operands:_OVERLAP": _value(1 << 22)}),
    "groups in a row": Mechanism({"schedule.operands:_MAX_GROUP": _value(0)}),
    "quotients": Mechanism({"schedule.post_ops:_MAX_DIVISOR": _value(1.0)}),
    "direct stages": Mechanism({"schedule.post_ops:_DIRECT": _value(())}),
    "rotated rows": Mechanism({"schedule.batches:rotate": _returns(())}),
    "joined runs": Mechanism({"schedule.batches:join_runs": _returns(())}),
    "runs of zeros": Mechanism({"schedule.select:_MANY_ZEROS": _value(1 << 62)}),
    "heads of tiles": Mechanism({"schedule.tiles:_heads": _returns({})}),
    "vectors that start lines": Mechanism(
        {
            "kernels.elements:first_vector": _at_zero,
            "kernels.transpose:first_vector": _at_zero,
        },
        code=r"run |transposed ([2-4]x|\d+x[2-4];)",
    ),
    "colliding rows": Mechanism({"schedule.program:rows_collide": _returns(value=False)}),
    # worth most above 48 MB
    "streamed scratch": Mechanism(
        {"schedule.tile_steps:StepWriter._starts_lines": _returns(value=False)}
    ),
    "few columns": Mechanism({"schedule.program:FEW_COLUMNS": _value(0)}),
    "few columns, blocks": Mechanism({"schedule.program:_way_of": _returns(Part.TILES)}),
    "loops of kernels": Mechanism({"schedule.select:ScheduledBox.kernel_loop": _value(None)}),
    "streamed rows": Mechanism({"schedule.batches:BatchBuilder.streams_rows": _value(0)}),
    "prefetch of src": Mechanism(
        {"schedule.tile_steps:StepWriter._prefetched_lines": _returns([])}
    ),
    "prefetch of dst": Mechanism(
        {"schedule.select:ScheduledBox.prefetches_dst": _returns(value=False)}
    ),
    "tiles that start lines": Mechanism(
        {"kernels.transpose:_skipped_columns": _skips_nothing}, code="transposed"
    ),
    # worth most above 48 MB
    "prefetch of rows": Mechanism(
        {"kernels.transpose:_prefetch_rows": _does_nothing}, code="non-temporal stores"
    ),
    "interleave of 2 to 4": Mechanism(
        {"kernels.transpose:emit_interleaved": _does_nothing},
        code=r"transposed ([2-4]x|\d+x[2-4];)",
    ),
    "masked copies": Mechanism({"kernels.copy:has_masks": _returns(value=False)}, code="run "),
    "whole vectors": Mechanism({"kernels.copy:_VECTOR_NBYTES": _value(())}, code="run "),
    # worth most without masks: MEMDESC_MACHINE="cpu=haswell"
    "overlapping parts": Mechanism({"kernels.copy:_PARTS": _value(((16, 1, 16),))}, code="run "),
    "masked conversions": Mechanism(
        {"kernels.stage:masks_elements": _returns(value=False)}, code="stage|StageTypes"
    ),
}


def _joined(names: str) -> Mechanism:
    """Return mechanisms that are joined by + as one."""
    parts = [MECHANISMS[name] for name in names.split("+")]
    replaced = {place: replace for part in parts for place, replace in part.replaced.items()}
    return Mechanism(replaced, "|".join(part.code for part in parts if part.code))


class Variant:
    """A copy of the CPU backend without a mechanism."""

    def __init__(self, name: str) -> None:
        self.name, self.mechanism = name, _joined(name)
        names = [found.name for found in walk_packages(reorder.cpu.__path__, "reorder.cpu.")]
        names = ["reorder.cpu", *names]
        shared = [key for key in names if _is_shared(key)]
        if self.mechanism.code:
            # this one compiles code under its own names
            shared.remove("reorder.cpu.runtime.jit")
        self._modules = {key: importlib.import_module(key) for key in shared}
        with self._active():
            self._modules = {key: importlib.import_module(key) for key in names}
            for place, replace in self.mechanism.replaced.items():
                self._replace(place, replace)
            if self.mechanism.code:
                # its code must not be taken for that of the engine
                for module in ("runtime.jit", "runtime.stages"):
                    self._replace(f"{module}:compiled_interpreter", _under_name(name))
            self.prepared = self._module("execute").PreparedReorder
            self.schedules: list[str] = []
            self._record("schedule.batches", "tile_boxes", _text_of_boxes)
            self._record("schedule.batches", "rotate", _text_of_boxes)
            self._record("schedule.batches", "join_runs", _text_of_boxes)
            self._record("schedule.tile_steps", "tile_boxes", _text_of_boxes)
            self._record("schedule.tile_steps", "StageTable", _text_of_stage)

    @contextmanager
    def _active(self) -> Iterator[None]:
        """Let imports find the modules of this variant: some are imported when they are needed."""
        kept = {key: module for key, module in sys.modules.items() if _is_ours(key)}
        for key in kept:
            del sys.modules[key]
        sys.modules.update(self._modules)
        try:
            yield
        finally:
            for key in [key for key in sys.modules if _is_ours(key)]:
                del sys.modules[key]
            sys.modules.update(kept)
            # an import has set this to the package of the variant
            reorder.cpu = sys.modules["reorder.cpu"]

    def _module(self, name: str) -> ModuleType:
        return self._modules[f"reorder.cpu.{name}"]

    def _replace(self, place: str, replace: Callable[[Any], Any]) -> None:
        module, _, path = place.partition(":")
        *owners, name = path.split(".")
        owner: Any = self._module(module)
        for each in owners:
            owner = getattr(owner, each)
        setattr(owner, name, replace(getattr(owner, name)))

    def _record(self, module: str, name: str, text_of: Callable[..., str]) -> None:
        """Keep what a function of the schedule returns, as text."""

        def recording(old: Any) -> Any:
            def recorded(*given: Any, **more: Any) -> Any:
                result = old(*given, **more)
                self.schedules.append(text_of(result, *given))
                return result

            # of tables the schedule asks for their fields too
            recorded.__dict__.update(_fields=getattr(old, "_fields", ()))
            return recorded

        self._replace(f"{module}:{name}", recording)

    def prepare(self, plan: ReorderPlan, threads: int, place: int = 0) -> tuple[Any, str]:
        """Return a prepared plan, and what its schedule is for dst at a place."""
        self.schedules.clear()
        with self._active():
            run = self.prepared(plan, threads)
            schedule = run._schedule_at(place)  # noqa: SLF001 - as the first call there would
        self.schedules += map(_text_of_batch, schedule.scheduled)
        joins = f"joined: {schedule.has_job}"
        return run, "\n".join([*self.schedules, *run.kernels_at(place), joins])

    def compile(self, run: Any) -> Any:
        """Compile the code of a prepared plan; returns the plan."""
        load_pool()
        with self._active():
            for schedule in run._places.values():  # noqa: SLF001 - as its first calls would
                schedule.batches  # noqa: B018 - which links them
                if schedule.has_job:
                    schedule.job_at()
        return run

    def changes(self, schedule: str, other: str) -> bool:
        """Whether a case has to be timed: its schedule with the mechanism, and without."""
        code = self.mechanism.code
        if code and re.search(code, schedule):
            return True
        return self.name == "itself" or schedule != other


def _text_of_batch(batch: Any) -> str:
    """Return all of a batch: what it names is code, or an array."""
    shares = batch.partition
    named = [] if isinstance(batch.program, np.ndarray) else batch.program
    arrays = [np.array([word for word in named if isinstance(word, int)], np.int64)]
    arrays += [shares.ranges, shares.bounds, *([batch.program] if batch.kernel else ())]
    arrays += [word for word in named if isinstance(word, np.ndarray)]
    code = [word for word in named if not isinstance(word, (int, np.ndarray))]
    digest = hashlib.sha256(b" ".join(array.tobytes() for array in arrays)).hexdigest()
    return f"{batch.kernel} {code} {digest}"


def _text_of_boxes(result: Any, *_: Any) -> str:
    sizes = [
        f"{MICRO_KERNELS[box.micro_kernel]} {size_of(box.rows)}x{size_of(box.columns)};"
        for box in result
    ]
    return " ".join(sizes)


def _text_of_stage(result: Any, *_: Any) -> str:
    return f"stage {result.columns};"


def _is_ours(key: str) -> bool:
    return key == "reorder.cpu" or key.startswith("reorder.cpu.")


def _is_shared(key: str) -> bool:
    name = key.removeprefix("reorder.cpu.")
    return name in _SHARED or name in {f"runtime.{each}" for each in _SHARED_RUNTIME}


class Timing(NamedTuple):
    """One case: the seconds of the engine and of a variant, and the second over the first."""

    case: str
    is_move: bool
    is_random: bool
    threads: int
    engine: float
    ratio: float


def _cases(options: argparse.Namespace) -> list[tuple[Case, bool]]:
    """Return a sample of the set, and random cases; whether each is one."""
    draw = Random(options.seed)
    most = options.most_mb * 1e6
    listed = [case for case in listed_cases() if case.nbytes <= most]
    listed = draw.sample(listed, min(options.sample, len(listed)))
    drawn = parse_cases(random_words(2 * options.random, options.seed)) if options.random else ()
    fresh = [case for case in drawn if case.nbytes <= most][: options.random]
    return [*((case, False) for case in listed), *((case, True) for case in fresh)]


class Changed(NamedTuple):
    """A case, and the names of the variants that run it differently."""

    case: Case
    is_random: bool
    variants: tuple[str, ...]


def _find_changed(
    engine: Variant,
    variants: Sequence[Variant],
    where: tuple[int, int],
    cases: Sequence[tuple[Case, bool]],
) -> list[Changed]:
    """Compile what cases need, and find the variants that run them differently.

    `where` are the threads, and the place of dst.
    """
    found = []
    for case, is_random in cases:
        plan = plan_reorder(case.src, case.dst, case.attr)
        run, schedule = engine.prepare(plan, *where)
        engine.compile(run)
        names = []
        for variant in variants:
            is_code = all(MECHANISMS[name].code for name in variant.name.split("+"))
            if is_code and not variant.changes(schedule, schedule):
                continue
            run, other = variant.prepare(plan, *where)
            if variant.changes(schedule, other):
                variant.compile(run)
                names.append(variant.name)
        found.append(Changed(case, is_random, tuple(names)))
    return found


def _kinds(pair: tuple[Case, bool]) -> tuple[str, str, bool]:
    """Return what the machine code of a case depends on, so that one process compiles it."""
    case, _ = pair
    return str(case.src.dtype), str(case.dst.dtype), case.attr is not None


def measure(
    variants: Sequence[Variant],
    cases: Sequence[tuple[Case, bool]],
    threads: int,
    options: argparse.Namespace,
) -> tuple[dict[str, list[Timing]], dict[str, str]]:
    """Time all cases without each mechanism; where nothing changes the ratio is 1.

    Returns also in how many of all cases each changes anything.
    """
    engine, *variants = variants
    parts = [list(part) for _, part in groupby(sorted(cases, key=_kinds), key=_kinds)]
    parts = [part[k : k + _PART] for part in parts for k in range(0, len(part), _PART)]
    find = partial(_find_changed, engine, variants, (threads, options.place))
    changed = [each for part in _in_processes(find, parts) for each in part]
    Random(options.seed).shuffle(changed)
    end = time.perf_counter() + options.seconds_total
    found: dict[str, list[Timing]] = {variant.name: [] for variant in variants}
    fired = {variant.name: _count_changed(changed, variant.name) for variant in variants}
    for case, is_random, names in changed:
        if time.perf_counter() > end:
            break
        plan = plan_reorder(case.src, case.dst, case.attr)
        timed = [engine, *(variant for variant in variants if variant.name in names)]
        where = threads, options.place
        runs = [variant.compile(variant.prepare(plan, *where)[0]) for variant in timed]
        buffers = source_of(case, options.place), zeros_at(options.place, case.dst.nbytes)
        clock = time.thread_time if threads == 1 else time.perf_counter
        timers = [timer(partial(run, *buffers), clock) for run in runs]
        times = in_turns(timers, options.seconds, most_rounds=_MAX_ROUNDS)
        ratios = dict(zip(names, (_ratio(off, times[0]) for off in times[1:]), strict=True))
        for name, timings in found.items():
            ratio, seconds_of = ratios.get(name, 1.0), min(times[0])
            timings.append(Timing(case.name, is_move(case), is_random, threads, seconds_of, ratio))
    return found, fired


def _count_changed(changed: Sequence[Changed], name: str) -> str:
    """Return in how many listed cases, and in how many fresh ones, a mechanism changes anything."""
    counts = []
    for is_random, what in ((False, "listed"), (True, "fresh")):
        cases = [each for each in changed if each.is_random == is_random]
        fires = sum(name in each.variants for each in cases)
        counts.append(f"{fires} of {len(cases)} {what}")
    return ", ".join(counts)


# what forked processes do: they have all variants, which cannot be sent to them
_work: list[Callable[[Any], Any]] = []


def _in_processes(work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Return what a function returns for each part, computed by forked processes."""
    _work[:] = [work]
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, mp_context=get_context("fork")) as processes:
        return list(processes.map(_do_work, parts))


def _do_work(part: Any) -> Any:
    return _work[0](part)


def _ratio(off: list[float], on: list[float]) -> float:
    """Return the mean of two ratios: of the fastest slices, and of neighbouring ones."""
    return (min(off) / min(on) + median(a / b for a, b in zip(off, on, strict=True))) / 2


def _line(name: str, timings: list[Timing], fires: str) -> str:
    words = [f"{name:24} {timings[0].threads:2}t  {fires:32}"]
    for kind in product((True, False), (False, True)):
        ratios = [t.ratio for t in timings if (t.is_move, t.is_random) == kind]
        mean = 100 * (geometric_mean(ratios) - 1) if ratios else 0.0
        words.append(f"{mean:+6.2f}%")
    fresh = [t.ratio for t in timings if t.is_random]
    slow = sum(ratio > _SLOWDOWN for ratio in fresh)
    words.append(f"{slow:3} of {len(fresh)}")
    worst = max(timings, key=lambda t: t.ratio)
    words.append(f"{worst.ratio:.2f} {worst.case}")
    return "  ".join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what switching each mechanism off costs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("mechanisms", nargs="*", metavar="MECHANISM", help=", ".join(MECHANISMS))
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}")
    parser.add_argument(
        "--place", type=int, default=16, help="of src and dst in their lines (default 16)"
    )
    parser.add_argument("--random", type=int, default=240, help="random cases (default 240)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--sample", type=int, default=360, help="cases of the set (default 360)")
    parser.add_argument("--most-mb", type=float, default=48, help="the largest case (default 48)")
    parser.add_argument("--seconds", type=float, default=0.02, help="for each case and variant")
    parser.add_argument("--seconds-total", type=float, default=float("inf"), help="for all timings")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    options = parser.parse_args(arguments)
    names = options.mechanisms or list(MECHANISMS)
    if unknown := {part for name in names for part in name.split("+")} - set(MECHANISMS):
        parser.error(f"no mechanism {min(unknown)!r}; there are {', '.join(MECHANISMS)}")
    names = ["itself", *(name for name in names if name != "itself")]
    cases = _cases(options)
    variants = [Variant("itself"), *map(Variant, names)]
    facts = []
    sys.stdout.write(
        "where each changes anything; what it costs when switched off: moves of the set, random "
        "moves, conversions of the set, random conversions; random cases over 2x; the worst\n"
    )
    for threads in sorted({int(count) for count in options.threads.split(",")}):
        start = time.perf_counter()
        found, fired = measure(variants, cases, threads, options)
        counts = len(found["itself"]), len(cases), time.perf_counter() - start
        sys.stdout.write("{} of {} cases, {:.0f} s\n".format(*counts))
        for name, timings in found.items():
            sys.stdout.write(_line(name, timings, fired[name]) + "\n")
            facts += [{"mechanism": name, **timing._asdict()} for timing in timings]
        sys.stdout.flush()
        if options.json:
            options.json.write_text(json.dumps(facts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
