"""Quantised weights stay whole: codes change together with their scales, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdesc import DATA_TYPES, MemoryDesc, RecordDesc
from memdesc.record.names import read_name
from reorder.storage.containers.descriptors import stored_desc
from reorder.storage.groups import read_group
from reorder.storage.siblings import Siblings, siblings_of
from reorder.storage.stored import ONE
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reorder.storage.containers.entry import Entry
    from reorder.storage.convert.jobs import Job
    from reorder.storage.groups import Said

__all__ = ["check_whole", "is_narrow", "partial_warnings"]

_NARROW_BITS = 8
# options that the tensors do not show
_SAID = ("bits", "zeros")
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
    renamed = _Renamed.of(jobs)
    partial: dict[str, list[tuple[Job, Siblings]]] = {}
    for weight in (*found, *_without_scales(found, jobs, said)):
        for job in _changes(weight, homes, renamed):
            if job.rule is None:  # only rules change or rename
                continue
            if not said.is_partial:
                job.rule.fail(_problem(weight, job, said))
            partial.setdefault(job.rule.text, []).append((job, weight))
    return partial


def is_narrow(entry: Entry, *, or_unsigned: bool = False) -> bool:
    """Whether a tensor holds floats or signed integers of up to 8 bits, which rarely stand alone.

    Unsigned bytes are masks too, and integers of more bits are indices.
    """
    kind = entry.desc.dtype.name if isinstance(entry.desc, MemoryDesc) else entry.dtype
    is_code = kind in FLOATS or (kind in INTEGERS and (or_unsigned or INTEGERS[kind].is_signed))
    return is_code and DATA_TYPES[kind].bits <= _NARROW_BITS


def _without_scales(
    found: Sequence[Siblings], jobs: Sequence[Job], said: Said
) -> Iterator[Siblings]:
    """Return the narrow tensors of a quantised model whose scales are not known by name.

    In a graph they may have any names, and weights are unsigned bytes as well.
    """
    if said.declared is None and not said.has_nodes:
        return
    known = {name for weight in found for name in weight.names}
    for job in jobs:
        for entry in job.sources.values():
            is_code = entry.name not in known and is_narrow(entry, or_unsigned=said.has_nodes)
            if is_code and not job.is_copy:
                yield Siblings(entry.name, {ONE: entry})


def partial_warnings(partial: Mapping[str, Sequence[tuple[Job, Siblings]]]) -> tuple[str, ...]:
    """Return a warning for each rule that changed parts of quantised weights."""
    warnings = []
    for text, changes in partial.items():
        names = [f"{job.name} without {_others(weight, job)}" for job, weight in changes[:_SHOWN]]
        more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        warnings.append(
            f"rule {text!r} changes {'; '.join(names)}{more}: together they no longer mean the "
            "same numbers"
        )
    return tuple(warnings)


class _Renamed(NamedTuple):
    """Single tensors by their new names, and these by the old ones."""

    entries: Mapping[str, Entry]
    names: Mapping[str, str]

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> _Renamed:
        """Return what single tensors are called."""
        found = {
            tensor.name: job.sources[key]
            for job in jobs
            if not isinstance(job.src, RecordDesc)
            for key, tensor in job.targets.items()
        }
        return cls(found, {entry.name: name for name, entry in found.items()})

    def keeps(self, weight: Siblings) -> bool:
        """Whether the new names of a weight's tensors still show that they belong together."""
        new = [self.names.get(name, name) for name in weight.names]
        if new == [*weight.names]:
            return True
        if new[0] not in self.entries:
            return False
        kept, held = (
            {role: entry.name for role, entry in each.entries.items()}
            for each in (siblings_of(self.entries, new[0]), weight)
        )
        is_moved = all(one != other for one, other in zip(new, weight.names, strict=True))
        return kept == held or (is_moved and {*kept.values()} == {*held.values()})


def _changes(weight: Siblings, homes: Mapping[str, Job], renamed: _Renamed) -> Iterator[Job]:
    """Return the jobs that change a weight without changing all of its tensors."""
    codes = homes.get(weight.codes.name)
    if codes is not None and isinstance(codes.src, RecordDesc):
        if any(homes.get(name) is not codes for name in weight.names):
            yield codes
        return
    held = {name: homes[name] for name in weight.names if name in homes}
    changed = [
        job for job in held.values() if not _is_same(job) and (job is codes or not _is_wider(job))
    ]
    yield from changed
    if not changed and not renamed.keeps(weight):
        yield next(job for name, job in held.items() if renamed.names.get(name) != name)


def _is_same(job: Job) -> bool:
    """Whether a tensor keeps its bytes, its shape, and what is said of it."""
    if not job.is_copy or job.rule is None:
        return job.is_copy
    (entry,), (tensor,) = job.sources.values(), job.targets.values()
    desc = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
    return tensor.shape == entry.shape and desc == entry.desc


def _is_wider(job: Job) -> bool:
    """Whether floats only get a wider type, which holds all of them."""
    src, dst = job.src, job.dst
    if not (isinstance(src, MemoryDesc) and isinstance(dst, MemoryDesc)):
        return False
    is_float = {src.dtype.name, dst.dtype.name} <= FLOATS.keys() and job.attr is None
    is_kept = not job.scales and dst == src.with_dtype(dst.dtype)
    return is_float and is_kept and np.can_cast(src.dtype.numpy, dst.dtype.numpy)


def _problem(weight: Siblings, job: Job, said: Said) -> str:
    """Return what is wrong with a change, and the way out."""
    if len(weight.names) == 1:
        why = (
            f"of a quantised model, according to {said.declared.file}, but no tensor beside it is "
            "known to hold their scales"
            if said.declared
            else "whose scales only the nodes of the model know"
        )
        return (
            f"{job.name} holds codes {why}; leave it as it is, or let --allow-partial treat the "
            "codes as numbers"
        )
    group = read_group(weight, said)
    if group.desc is None:
        way = (
            f"no rule can move them together: {group.reason}; leave them as they are, or decode "
            "them with the program that made them"
        )
    else:
        usual = read_name(group.desc.name)[2]
        options = [
            f"{k}={v}" for k, v in group.desc.options if k in _SAID and v not in (usual[k], True)
        ]
        name = f"{group.desc.name}({', '.join(options)})" if options else group.desc.name
        way = f"they are one record, which moves with its prefix: '{weight.prefix}: {name} -> ...'"
    return (
        f"{job.name} would change without {_others(weight, job)}: {weight.codes.name} holds codes, "
        f"which mean numbers only together with the rest; {way}; --allow-partial does it anyway"
    )


def _others(weight: Siblings, job: Job) -> str:
    moved = {entry.name for entry in (*job.sources.values(), *job.dropped)}
    return ", ".join(name for name in weight.names if name not in moved) or "its scales"
