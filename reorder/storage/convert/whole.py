"""Quantised weights stay whole: codes change with what turns them into numbers, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memdesc import MemdescError, MemoryDesc, RecordDesc
from reorder.storage.groups import read_group
from reorder.storage.siblings import siblings_of
from reorder.values.formats import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reorder.storage.containers.entry import Entry
    from reorder.storage.convert.jobs import Job
    from reorder.storage.groups import Said
    from reorder.storage.siblings import Siblings

__all__ = ["check_whole", "partial_warnings"]

# tensors that a warning names
_SHOWN = 4


def check_whole(
    found: Sequence[Siblings], jobs: Sequence[Job], said: Said
) -> dict[str, list[tuple[Job, Siblings]]]:
    """Return what rules change of quantised weights without the rest, by the rule's text.

    Raises
    ------
    MemdescError
        If there is such a change, and none is allowed: with the rule, the tensors and the way out.
    """
    homes = {entry.name: job for job in jobs for entry in (*job.sources.values(), *job.dropped)}
    renamed = _renamed(jobs)
    partial: dict[str, list[tuple[Job, Siblings]]] = {}
    for weight in found:
        for job in _changes(weight, homes, renamed):
            if not said.is_partial:
                _refuse(weight, job, said)
            text = job.rule.text if job.rule else ""
            partial.setdefault(text, []).append((job, weight))
    return partial


def partial_warnings(partial: Mapping[str, Sequence[tuple[Job, Siblings]]]) -> tuple[str, ...]:
    """Return a warning for each rule that changed parts of quantised weights."""
    warnings = []
    for text, changes in partial.items():
        names = [f"{job.name} without {_others(weight, job)}" for job, weight in changes[:_SHOWN]]
        more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        warnings.append(
            f"rule {text!r} changes {'; '.join(names)}{more}: together they are no longer the "
            "numbers that they were"
        )
    return tuple(warnings)


def _renamed(jobs: Sequence[Job]) -> dict[str, Entry] | None:
    """Return what single tensors are read from, by their new names; None if all keep theirs."""
    found = {
        tensor.name: job.sources[key]
        for job in jobs
        if not isinstance(job.src, RecordDesc)
        for key, tensor in job.targets.items()
    }
    return found if any(name != entry.name for name, entry in found.items()) else None


def _changes(
    weight: Siblings, homes: Mapping[str, Job], renamed: Mapping[str, Entry] | None
) -> Iterator[Job]:
    """Return the jobs that change the numbers of a weight, as far as they leave out a part."""
    whole = homes[weight.codes.name]
    if isinstance(whole.src, RecordDesc):
        if any(homes[name] is not whole for name in weight.names):
            yield whole
        return
    changed = False
    for name in weight.names:
        job = homes[name]
        if not job.is_copy and (name == weight.codes.name or not _is_wider(job)):
            changed = True
            yield job
    if renamed is None or changed:
        return
    new = {entry.name: name for name, entry in renamed.items()}
    if weight.codes.name in new:
        kept = siblings_of(renamed, new[weight.codes.name]).entries
        if {role: entry.name for role, entry in kept.items()} == {
            role: entry.name for role, entry in weight.entries.items()
        }:
            return
    yield next(homes[name] for name in weight.names if new.get(name) != name)


def _is_wider(job: Job) -> bool:
    """Whether a tensor of floats only gets a type that holds them all."""
    src, dst = job.src, job.dst
    if not (isinstance(src, MemoryDesc) and isinstance(dst, MemoryDesc)):
        return False
    is_float = {src.dtype.name, dst.dtype.name} <= FLOATS.keys() and job.attr is None
    is_kept = not job.scales and dst == src.with_dtype(dst.dtype)
    return is_float and is_kept and np.can_cast(src.dtype.numpy, dst.dtype.numpy)


def _refuse(weight: Siblings, job: Job, said: Said) -> None:
    group = read_group(weight, said)
    if group.desc is None:
        way = (
            f"no record moves them together ({group.reason}); leave them as they are, or decode "
            "them with the program that made them"
        )
    else:
        options = "".join(f"({k}={v})" for k, v in group.desc.options if k == "zeros")
        way = (
            f"they are one record, which moves with its prefix: '{weight.prefix}: "
            f"{group.desc.name}{options} -> ...'"
        )
    msg = (
        f"{job.name} would change without {_others(weight, job)}: {weight.codes.name} holds codes, "
        f"which are numbers only with all of them; {way}; --allow-partial does it all the same"
    )
    if job.rule is None:
        raise MemdescError(msg)
    job.rule.fail(msg)


def _others(weight: Siblings, job: Job) -> str:
    moved = {entry.name for entry in (*job.sources.values(), *job.dropped)}
    return ", ".join(name for name in weight.names if name not in moved)
