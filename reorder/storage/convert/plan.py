"""The plan of a conversion: entries and rules in, jobs out; nothing is written.

A rule whose two sides are records, and whose pattern is that of what stands in front of the names
of a record's tensors, moves whole records; every other rule is about single tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError, RecordDesc
from reorder.storage.convert.jobs import copy_job, layout_job, record_job
from reorder.storage.convert.matching import matches, refuse_unmatched
from reorder.storage.convert.records import Group, find_groups, is_record, tensors_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reorder.storage.containers.entry import Entry
    from reorder.storage.convert.jobs import Job
    from reorder.storage.convert.rules import Rule

__all__ = ["Plan", "plan_conversion"]

_ONE = "data"
_SHOWN = 4


class Plan(NamedTuple):
    """What a conversion does.

    Attributes
    ----------
    jobs : tuple of Job
        In the order of the source.
    warnings : tuple of str
        What a user may not have meant.
    """

    jobs: tuple[Job, ...]
    warnings: tuple[str, ...]


def plan_conversion(entries: Mapping[str, Entry], rules: Sequence[Rule], format_name: str) -> Plan:
    """Decide what becomes of each tensor.

    Parameters
    ----------
    entries : mapping of str to Entry
        All tensors of the source.
    rules : sequence of Rule
        Of those that match a tensor the last one serves; tensors that none matches are copied.
    format_name : str
        The container that is written, by its key in the table of formats.

    Raises
    ------
    MemdescError
        If a rule matches nothing, or a tensor cannot become what its rule says; with the rule,
        the tensor and the way out.
    """
    chosen, groups = _assign(entries, rules)
    jobs: list[Job] = []
    done: set[str] = set()
    for name, entry in entries.items():
        if name in done:
            continue
        rule = chosen.get(name)
        if name in groups:
            group, rule = groups[name]
            job = record_job(group, rule, format_name)
            done |= {each.name for each in (*group.entries.values(), *job.dropped)}
        elif rule is None:
            job = copy_job(entry, name, format_name)
        elif _is_single_record(rule, entry):
            job = record_job(Group(name, {_ONE: entry}), rule, format_name)
        else:
            job = layout_job(entry, rule, format_name)
        jobs.append(job)
    _check_names(jobs)
    return Plan(tuple(jobs), _partial_moves(jobs, entries))


def _assign(
    entries: Mapping[str, Entry], rules: Sequence[Rule]
) -> tuple[dict[str, Rule], dict[str, tuple[Group, Rule]]]:
    """Return the rule of each tensor, and the record of each tensor that moves with one."""
    chosen: dict[str, Rule] = {}
    groups: dict[str, tuple[Group, Rule]] = {}
    for rule in rules:
        found = _groups_of(rule, entries)
        members = [_members(group) for group in found]
        for group, names in zip(found, members, strict=True):
            for name in names:
                chosen[name] = rule
                groups[name] = (group, rule)
        single = [] if found else [name for name in entries if matches(rule, name)]
        for name in single:
            chosen[name] = rule
            groups.pop(name, None)
        if not found and not single:
            refuse_unmatched(rule, [*entries])
    for name, (group, rule) in groups.items():
        split = [each for each in _members(group) if groups.get(each) != (group, rule)]
        if split:
            rule.fail(
                f"it moves the record {group.prefix}, of which {name} is a tensor, but a later "
                f"rule, {chosen[split[0]].text!r}, moves {split[0]} alone"
            )
    return chosen, groups


def _members(group: Group) -> list[str]:
    order = () if group.order is None else (group.order,)
    return [entry.name for entry in (*group.entries.values(), *order)]


def _groups_of(rule: Rule, entries: Mapping[str, Entry]) -> list[Group]:
    """Return the records of several tensors whose prefix is that of a rule.

    Raises
    ------
    MemdescError
        If a tensor has the prefix, but not the others of its record.
    """
    if not is_record(rule.src) or rule.src is None:
        return []
    if rule.dst is not None and not is_record(rule.dst) and rule.dtype is None:
        return []  # a layout alone moves tensors
    found = [group for group in find_groups(rule, entries) if matches(rule, group.prefix)]
    if found:
        names = tensors_of(rule.src.name)
        whole = {name for group in found for name in _members(group)}
        for name in entries:
            prefix, _, last = name.rpartition(".")
            if last == names[0] and matches(rule, prefix) and name not in whole:
                missing = [each for each in names if f"{prefix}.{each}" not in entries]
                rule.fail(
                    f"{prefix} has {last}, but no {', '.join(missing)}: a record of "
                    f"{rule.src.name} has {', '.join(names)}"
                )
    return found


def _is_single_record(rule: Rule, entry: Entry) -> bool:
    """Whether a rule is about a tensor that holds a whole record."""
    if rule.dst is None and rule.dtype is None:
        return False
    if isinstance(entry.desc, RecordDesc):
        return True
    return rule.src is not None and is_record(rule.src) and tensors_of(rule.src.name) == (_ONE,)


def _check_names(jobs: list[Job]) -> None:
    """Refuse two tensors of one name."""
    homes: dict[str, Job] = {}
    for job in jobs:
        for tensor in job.tensors:
            if tensor.name in homes:
                other = homes[tensor.name]
                rule = job.rule or other.rule
                msg = f"{other.name} and {job.name} would both be called {tensor.name}"
                if rule is None:
                    raise MemdescError(msg)
                rule.fail(f"{msg}; see rename=")
            homes[tensor.name] = job


def _partial_moves(jobs: list[Job], entries: Mapping[str, Entry]) -> tuple[str, ...]:
    """Return warnings of tensors that leave the others of their record in the old convention."""
    moved = {job.name for job in jobs if not job.is_copy}
    found: dict[str, list[str]] = {}
    for job in jobs:
        rule = job.rule
        if rule is None or job.is_copy or not is_record(rule.src) or rule.src is None:
            continue
        prefix, _, last = job.name.rpartition(".")
        names = tensors_of(rule.src.name)
        left = [f"{prefix}.{each}" for each in names if each != last]
        left = [name for name in left if name in entries and name not in moved]
        if last in names and left:
            found.setdefault(rule.text, []).append(f"{job.name} without {', '.join(left)}")
    return tuple(
        f"rule {text!r} moves {'; '.join(names[:_SHOWN])}"
        f"{f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''}: these keep the old "
        "convention; a rule over what stands before the last dot moves all of a record"
        for text, names in found.items()
    )
