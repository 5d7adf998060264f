"""The plan of a conversion: entries and rules in, jobs out; nothing is written.

A rule whose two sides are records, and whose pattern is that of what stands in front of the names
of a record's tensors, moves whole records; every other rule is about single tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc import MemdescError, RecordDesc
from reorder.storage.containers.entry import Entry, FileState
from reorder.storage.containers.shards import names_beside
from reorder.storage.convert.jobs import Plan, copy_job, layout_job, record_job
from reorder.storage.convert.matching import matches, refuse_unmatched
from reorder.storage.convert.rules import is_record
from reorder.storage.convert.whole import check_whole, is_narrow, partial_warnings
from reorder.storage.groups import Said, read_group, said_of, single
from reorder.storage.siblings import find_siblings, siblings_of, tensors_of
from reorder.storage.stored import ONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from reorder.storage.containers.entry import Container
    from reorder.storage.convert.jobs import Job
    from reorder.storage.convert.rules import Rule
    from reorder.storage.groups import Group
    from reorder.storage.siblings import Siblings

__all__ = ["plan_conversion"]


def plan_conversion(
    source: Path,
    container: Container,
    rules: Sequence[Rule],
    format_name: str,
    *,
    allow_partial: bool = False,
) -> Plan:
    """Decide what becomes of each tensor.

    Parameters
    ----------
    source : Path
        The checkpoint, beside which files may declare what its tensors hold.
    container : Container
        Its headers.
    rules : sequence of Rule
        Of those that match a tensor the last one serves; tensors that none matches are copied.
    format_name : str
        The container that is written, by its key in the table of formats.
    allow_partial : bool
        Whether codes may change without what turns them into numbers.

    Raises
    ------
    MemdescError
        If a rule matches nothing, or a tensor cannot become what its rule says; with the rule,
        the tensor and the way out.
    """
    entries = container.entries
    # of the other shards of a model: a weight may lie in two of them
    beside = {name: _elsewhere(name, source) for name in names_beside(source)}
    weights = [
        each
        for each in (find_siblings(beside | entries) if rules else ())
        if not entries.keys().isdisjoint(each.names)
    ]
    has_config = weights or (rules and any(map(is_narrow, entries.values())))
    said = said_of(source, container) if has_config else Said()
    said = said._replace(is_partial=allow_partial, has_nodes=container.has_nodes)
    whole = [each for each in weights if entries.keys() >= {*each.names}]
    chosen, groups = _assign(entries, whole, rules)
    jobs: list[Job] = []
    done: set[str] = set()
    for name, entry in entries.items():
        if name in done:
            continue
        rule = chosen.get(name)
        if name in groups:
            found, rule = groups[name]
            job = record_job(_named_group(found, rule, said), rule, format_name)
            done |= {each.name for each in (*job.sources.values(), *job.dropped)}
        elif rule is None:
            job = copy_job(entry, name, format_name)
        elif _is_single_record(rule, entry):
            found = single(siblings_of(entries, name))
            # files beside a model declare records of several tensors
            group = _named_group(found, rule, said._replace(declared=None))
            job = record_job(group, rule, format_name)
        else:
            job = layout_job(entry, rule, format_name)
        jobs.append(job)
    _check_names(jobs)
    partial = check_whole(weights, jobs, said)
    new = {
        text: [t.name for job, _ in parts for t in job.tensors] for text, parts in partial.items()
    }
    codes = {each.codes.name for each in whole}
    copied = [entry for job in jobs if job.is_copy for entry in job.sources.values()]
    left = next((e.name for e in copied if e.name in codes or isinstance(e.desc, RecordDesc)), "")
    return Plan(tuple(jobs), partial_warnings(partial), new, left)


def _elsewhere(name: str, source: Path) -> Entry:
    """Return a tensor of another shard, which is not read."""
    return Entry(name, "unknown", (), source, 0, 0, FileState(0, 0))


def _named_group(found: Siblings, rule: Rule, said: Said) -> Group:
    """Return the record that a rule is about."""
    if rule.src is not None:
        return read_group(found, said._replace(name=rule.src.name, options=dict(rule.src.options)))
    held = found.codes.desc
    name = held.name if isinstance(held, RecordDesc) else None
    return read_group(found, said._replace(name=name, options={}))


def _assign(
    entries: Mapping[str, Entry], weights: Sequence[Siblings], rules: Sequence[Rule]
) -> tuple[dict[str, Rule], dict[str, tuple[Siblings, Rule]]]:
    """Return the rule of each tensor, and the record of each tensor that moves with one."""
    chosen: dict[str, Rule] = {}
    groups: dict[str, tuple[Siblings, Rule]] = {}
    for rule in rules:
        found = _groups_of(rule, entries, weights)
        for weight in found:
            for name in weight.names:
                chosen[name] = rule
                groups[name] = (weight, rule)
        single_names = [] if found else [name for name in entries if matches(rule, name)]
        for name in single_names:
            chosen[name] = rule
            groups.pop(name, None)
        if not found and not single_names:
            refuse_unmatched(rule, [*entries])
    for name, (weight, rule) in groups.items():
        split = [each for each in weight.names if groups.get(each) != (weight, rule)]
        if split:
            rule.fail(
                f"it moves the record {weight.prefix}, of which {name} is a tensor, but a later "
                f"rule, {chosen[split[0]].text!r}, moves {split[0]} alone"
            )
    return chosen, groups


def _groups_of(
    rule: Rule, entries: Mapping[str, Entry], weights: Sequence[Siblings]
) -> list[Siblings]:
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
    names = tensors_of(rule.src.name.lower())
    if names == (ONE,):
        return []
    found = [
        each for each in weights if matches(rule, each.prefix) and {*names} <= each.entries.keys()
    ]
    whole = {each.codes.name for each in found}
    for name in entries if found else ():
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
    return rule.src is not None and is_record(rule.src) and tensors_of(rule.src.name) == (ONE,)


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
