"""Make steps by applying rules to the tensors of a checkpoint; nothing is written.

A rule between two records, whose pattern matches the common prefix of a record's tensors, moves
whole records; every other rule is about single tensors. Quantised weights stay whole: codes change
together with their scales, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from memdesc import MemdescError, MemoryDesc
from memdesc.dtypes import DATA_TYPES
from memdesc.record import RecordDesc
from memdesc.record.names import read_name, scheme_of
from reorder.checkpoints.convert.beside import beside, left_out_warnings
from reorder.checkpoints.convert.rules import Rule, is_record
from reorder.checkpoints.convert.steps import Step, copy_step, layout_step, record_step
from reorder.checkpoints.convert.targets import Target
from reorder.checkpoints.formats.descriptors import record_fields
from reorder.checkpoints.formats.entry import Entry, Tensor, stored_desc
from reorder.checkpoints.formats.shards import names_beside
from reorder.checkpoints.moves.changes import ONLY, Reorder
from reorder.checkpoints.stored import ONE, joined_tensors, stem_of
from reorder.checkpoints.weights import (
    Claims,
    Model,
    Weight,
    decide,
    elsewhere,
    find_weights,
    holds_codes,
    tensors_of,
    weight_of,
)
from reorder.values.formats import FLOATS, INTEGERS

_NARROW_BITS = 8
# options that the tensors do not show
_SAID = ("bits", "zeros")


class Plan(NamedTuple):
    """What each tensor becomes."""

    # in the order of the source
    steps: tuple[Step, ...]
    # what the user may not expect
    warnings: tuple[str, ...]
    # the name of a tensor of codes that is copied; empty if there is none
    left: str
    # what config.json should declare
    target: Target = Target()

    @property
    def moved(self) -> tuple[Step, ...]:
        """The steps from or to records: what config.json declares may change."""
        return tuple(s for s in self.steps if RecordDesc in {type(s.src), type(s.dst)})


def plan_steps(model: Model, rules: Sequence[Rule], format_name: str) -> Plan:
    """Decide what each tensor becomes.

    Files beside the source may declare what its tensors hold. The last rule that matches a tensor
    applies; tensors without one are copied. `format_name` is the container that is written, by its
    key in the table of formats. Fails if a rule matches nothing, would change codes without the
    scales that turn them into numbers, or names what a tensor cannot become; the message has the
    rule, the tensor and the way out.
    """
    container = model.container
    entries = container.entries
    weights = _weights(model.path, entries) if rules else []
    has_config = weights or (rules and any(map(_is_narrow, entries.values())))
    claims = model.claims if has_config else Claims()
    claims = claims._replace(has_nodes=container.has_nodes)
    whole = [each for each in weights if entries.keys() >= {*each.names}]
    chosen, groups = _assign(entries, whole, rules)
    free = {name: entry for name, entry in entries.items() if name not in chosen}
    moves = {found.codes.name: (found, rule) for found, rule in groups.values()}
    records = {
        name: _drop_beside(
            record_step(_decided(found, rule, claims, model), rule, format_name), free
        )
        for name, (found, rule) in moves.items()
    }
    done = {
        each.name for step in records.values() for each in (*step.sources.values(), *step.dropped)
    }
    steps: list[Step] = []
    for name, entry in entries.items():
        if name in records:
            steps.append(records[name])
        elif name not in done:
            # a record may leave out some tensors of its weight, which are copied
            rule = None if name in groups else chosen.get(name)
            steps.append(_tensor_step(entry, rule, entries, claims, format_name))
    _check_names((tensor.name, step) for step in steps for tensor in step.tensors)
    _check_whole(weights, steps, claims)
    steps = _with_notes(steps, weights)
    _check_names(_names_to_load(steps))
    dropped = [entry.name for step in steps for entry in step.dropped if entry.name in free]
    return Plan(tuple(steps), tuple(left_out_warnings(dropped)), _left(steps, whole))


def _weights(source: Path, entries: Mapping[str, Entry]) -> list[Weight]:
    """Return the quantised weights with tensors here; others may be in other shards of a model."""
    in_other_shards = {name: elsewhere(name, source) for name in names_beside(source)}
    return [
        each
        for each in find_weights({**in_other_shards, **entries})
        if not entries.keys().isdisjoint(each.names)
    ]


def _tensor_step(
    entry: Entry,
    rule: Rule | None,
    entries: Mapping[str, Entry],
    claims: Claims,
    format_name: str,
) -> Step:
    """Return the step of a single tensor, which is copied unless a rule applies to it."""
    if rule is None:
        return copy_step(entry, entry.name, format_name)
    if not _is_single_record(rule, entry):
        return layout_step(entry, rule, format_name)
    found = weight_of(entries, entry.name).single
    # files beside a model declare records of several tensors
    group = _named_group(found, rule, claims._replace(declared=None))
    return record_step(group, rule, format_name)


def _left(steps: Sequence[Step], weights: Sequence[Weight]) -> str:
    """Return the name of a tensor of codes that is copied; empty if there is none."""
    codes = {each.codes.name for each in weights}
    copied = [entry for step in steps if step.is_copy for entry in step.sources.values()]
    return next((e.name for e in copied if e.name in codes or isinstance(e.desc, RecordDesc)), "")


def _drop_beside(step: Step, free: Mapping[str, Entry]) -> Step:
    """Leave out what is beside the codes of a record, if it becomes something else.

    `free` has the tensors that no rule names: rules that name such a tensor still apply to it.
    """
    names = [each.name for each in (step.src, step.dst) if isinstance(each, RecordDesc)]
    if len(names) == len({*names}) + 1:  # the same record
        return step
    found = (free[name] for name in beside(step.name, free))
    return replace(step, dropped=(*step.dropped, *found))


def _decided(found: Weight, rule: Rule, claims: Claims, model: Model) -> Weight:
    """Return the record that a rule moves: as a target has decided it, or as the rule names it."""
    if rule.prefixes is not None and found.prefix in rule.prefixes:
        return model.decided(found)
    return _named_group(found, rule, claims)


def _named_group(found: Weight, rule: Rule, claims: Claims) -> Weight:
    """Return the record that a rule moves."""
    if rule.src is not None:
        return decide(found, claims._replace(name=rule.src.name, options=dict(rule.src.options)))
    held = found.codes.desc
    name = held.name if isinstance(held, RecordDesc) else None
    return decide(found, claims._replace(name=name, options={}))


def _assign(
    entries: Mapping[str, Entry], weights: Sequence[Weight], rules: Sequence[Rule]
) -> tuple[dict[str, Rule], dict[str, tuple[Weight, Rule]]]:
    """Return the rule of each tensor, and the record of each tensor that moves with one."""
    chosen: dict[str, Rule] = {}
    groups: dict[str, tuple[Weight, Rule]] = {}
    layers = _layers(entries, weights)
    for rule in rules:
        found = _groups_of(rule, entries, layers)
        for weight in found:
            for name in weight.names:
                chosen[name] = rule
                groups[name] = (weight, rule)
        single_names = [] if found else rule.matching(entries)
        for name in single_names:
            chosen[name] = rule
            groups.pop(name, None)
        if not found and not single_names:
            rule.fail_unmatched([*entries])
    for name, (weight, rule) in groups.items():
        split = [each for each in weight.names if groups.get(each) != (weight, rule)]
        if split:
            rule.fail(
                f"it moves the record {weight.prefix}, which includes {name}, but a later "
                f"rule, {chosen[split[0]].text!r}, moves {split[0]} alone"
            )
    return chosen, groups


class _Layer(NamedTuple):
    """What has a prefix: quantised weights, and the names that consist of it and one more part."""

    weights: list[Weight]
    names: list[str]


def _layers(entries: Mapping[str, Entry], weights: Sequence[Weight]) -> dict[str, _Layer]:
    """Return what has each prefix."""
    found: dict[str, _Layer] = {}
    for weight in weights:
        found.setdefault(weight.prefix, _Layer([], [])).weights.append(weight)
    for name in entries:
        found.setdefault(name.rpartition(".")[0], _Layer([], [])).names.append(name)
    return found


def _groups_of(
    rule: Rule, entries: Mapping[str, Entry], layers: Mapping[str, _Layer]
) -> list[Weight]:
    """Return the records of several tensors whose prefix a rule matches.

    Fails if some tensors of a record with the prefix are missing.
    """
    if not is_record(rule.src) or rule.src is None:
        return []
    if rule.dst is not None and not is_record(rule.dst) and rule.dtype is None:
        return []  # a layout alone moves tensors
    record = rule.src.name.lower()
    scheme = scheme_of(record)
    if scheme is None:
        return []

    def needed(each: Weight) -> list[str]:
        return [*scheme.tensors(**scheme.shown(each.entries))]

    prefixes = rule.matching(layers)
    matched = [each for prefix in prefixes for each in layers[prefix].weights]
    found = [each for each in matched if {*needed(each)} <= each.entries.keys()]
    of_codes = {each.codes.name: each for each in matched}
    whole = {each.codes.name for each in found}
    first, *others = (*scheme.tensors(), *scheme.optional)
    for name in [name for prefix in prefixes for name in layers[prefix].names] if found else ():
        prefix, _, last = name.rpartition(".")
        codes = f"{prefix}.{first}".removeprefix(".")
        is_bare = last == first and holds_codes(entries[name]) and name not in whole
        is_alone = last in others and codes not in entries
        if not (is_bare or is_alone):
            continue
        names = needed(of_codes.get(name, found[0]))
        missing = [each for each in names if f"{prefix}.{each}" not in entries]
        what = (
            f"{prefix} has {last}, but no {', '.join(missing)}"
            if is_bare
            else f"{name} is there, but no {codes}"
        )
        rule.fail(f"{what}: a record of {rule.src.name} has {', '.join(names)}")
    return found


def _is_single_record(rule: Rule, entry: Entry) -> bool:
    """Whether a rule moves a record that is a single tensor."""
    if rule.dst is None and rule.dtype is None:
        return False
    if isinstance(entry.desc, RecordDesc):
        return True
    return rule.src is not None and is_record(rule.src) and tensors_of(rule.src.name) == (ONE,)


def _check_names(names: Iterable[tuple[str, Step]]) -> None:
    """Refuse names that two steps write."""
    homes: dict[str, Step] = {}
    for name, step in names:
        if name in homes:
            other = homes[name]
            rule = step.rule or other.rule
            msg = f"{other.name} and {step.name} would both be called {name}"
            if rule is None:
                raise MemdescError(msg)
            rule.fail(f"{msg}; see rename=")
        homes[name] = step


def _names_to_load(steps: Sequence[Step]) -> Iterator[tuple[str, Step]]:
    """Return the names that `load_all` will have; a note gives several tensors one name."""
    notes = [tensor.note for step in steps for tensor in step.targets.values() if tensor.note]
    listed = [note["tensors"] for note in notes if isinstance(note.get("tensors"), dict)]
    members = {str(name) for tensors in listed for name in tensors.values()}
    for step in steps:
        for tensor in step.tensors:
            name = (tensor.note or {}).get("name")
            if isinstance(name, str):
                yield name, step
            elif tensor.name not in members:
                yield tensor.name, step


def _check_whole(found: Sequence[Weight], steps: Sequence[Step], claims: Claims) -> None:
    """Refuse rules that change parts of a quantised weight alone.

    The message has the rule, the tensors and the way out.
    """
    homes = {
        entry.name: step for step in steps for entry in (*step.sources.values(), *step.dropped)
    }
    renamed = {
        tensor.name: step.sources[key]
        for step in steps
        if not isinstance(step.src, RecordDesc)
        for key, tensor in step.targets.items()
        if key in step.sources
    }
    names = {entry.name: name for name, entry in renamed.items()}
    for weight in (*found, *_without_scales(found, steps, claims)):
        for step in _changes(weight, homes, renamed, names):
            if step.rule is not None:  # only rules change or rename
                step.rule.fail(_problem(weight, step, claims))


def _with_notes(steps: Sequence[Step], weights: Sequence[Weight]) -> list[Step]:
    """Return the steps with notes, which say in the output what is a Quantized or a Record."""
    homes = {entry.name: step for step in steps for entry in step.sources.values()}
    noted = {each.codes.name: each for each in weights if each.note is not None}
    found = []
    for step in steps:
        weight = next((noted[e.name] for e in step.sources.values() if e.name in noted), None)
        found.append(step if weight is None else _with_note(step, weight, homes))
    return found


def _with_note(codes: Step, weight: Weight, homes: Mapping[str, Step]) -> Step:
    """Return the step of the codes of a saved weight, with the note of what it becomes."""
    note, whole = weight.note, codes.targets
    facts: Mapping[str, Any] = {}
    if isinstance(codes.dst, RecordDesc):
        facts = record_fields(codes.dst)
    elif note is not None and all(homes[name].is_copy for name in weight.names if name in homes):
        facts = note.facts
        whole = {
            role: homes[name].targets[ONLY] if name in homes else Tensor(name, "", (), 0)
            for role, name in note.tensors.items()
        }
    else:
        note = None
    if note is None:
        bare = {role: tensor._replace(note=None) for role, tensor in codes.targets.items()}
        return replace(codes, targets=bare)
    role, first = next(iter(whole.items()))
    stem = stem_of(first.name, role, str(facts.get("record")))
    joined = joined_tensors(note.name_at(stem), facts, whole)
    return replace(codes, targets={ONLY: joined[role]} if codes.is_copy else joined)


def _is_narrow(entry: Entry, *, or_unsigned: bool = False) -> bool:
    """Whether a tensor holds floats or signed integers of up to 8 bits, which are mostly codes.

    Unsigned bytes may be masks, and wider integers are indices.
    """
    kind = entry.desc.dtype.name if isinstance(entry.desc, MemoryDesc) else entry.dtype
    is_code = kind in FLOATS or (kind in INTEGERS and (or_unsigned or INTEGERS[kind].is_signed))
    return is_code and DATA_TYPES[kind].bits <= _NARROW_BITS


def _without_scales(
    found: Sequence[Weight], steps: Sequence[Step], claims: Claims
) -> Iterator[Weight]:
    """Return the narrow tensors of a quantised model whose scales cannot be found by name.

    In a graph, scales may have any name, and weights may be unsigned bytes.
    """
    if claims.declared is None and not claims.has_nodes:
        return
    known = {name for weight in found for name in weight.names}
    for step in steps:
        for entry in step.sources.values():
            is_code = entry.name not in known and _is_narrow(entry, or_unsigned=claims.has_nodes)
            if is_code and not step.is_copy:
                yield Weight(entry.name, {ONE: entry})


def _keeps_names(weight: Weight, renamed: Mapping[str, Entry], names: Mapping[str, str]) -> bool:
    """Whether tensors that are renamed still show that they belong together, as a note does.

    `renamed` has entries by their new names, and `names` the new names by the old ones.
    """
    new = [names.get(name, name) for name in weight.names]
    if weight.note is not None or new == [*weight.names]:
        return True
    if new[0] not in renamed:
        return False
    kept = {role: each.name for role, each in weight_of(renamed, new[0]).entries.items()}
    held = {role: each.name for role, each in weight.entries.items()}
    is_moved = all(one != other for one, other in zip(new, weight.names, strict=True))
    return kept == held or (is_moved and {*kept.values()} == {*held.values()})


def _changes(
    weight: Weight,
    homes: Mapping[str, Step],
    renamed: Mapping[str, Entry],
    names: Mapping[str, str],
) -> Iterator[Step]:
    """Return the steps that change a weight without changing all of its tensors."""
    codes = homes.get(weight.codes.name)
    if codes is not None and isinstance(codes.src, RecordDesc):
        if any(homes.get(name) is not codes for name in weight.names):
            yield codes
        return
    held = {name: homes[name] for name in weight.names if name in homes}
    changed = [
        step
        for step in held.values()
        if not _is_same(step) and (step is codes or not _is_wider(step))
    ]
    yield from changed
    if not changed and not _keeps_names(weight, renamed, names):
        yield next(step for name, step in held.items() if names.get(name) != name)


def _is_same(step: Step) -> bool:
    """Whether a step keeps the bytes, the shape and the descriptor of its tensor."""
    if not step.is_copy or step.rule is None:
        return step.is_copy
    (entry,), (tensor,) = step.sources.values(), step.targets.values()
    desc = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
    return tensor.shape == entry.shape and desc == entry.desc


def _is_wider(step: Step) -> bool:
    """Whether a step only gives floats a wider type, which represents all of them."""
    src, dst = step.src, step.dst
    if not (isinstance(src, MemoryDesc) and isinstance(dst, MemoryDesc)):
        return False
    old, new = (FLOATS.get(each.dtype.name) for each in (src, dst))
    is_kept = step.change == Reorder(src, src.with_dtype(dst.dtype))
    return old is not None and new is not None and is_kept and new.holds(old)


def _problem(weight: Weight, step: Step, claims: Claims) -> str:
    """Return what is wrong with a change, and the way out."""
    if len(weight.names) == 1:
        why = (
            f"of a quantised model, according to {claims.declared.whole.file}, but no tensor "
            "beside it is known to hold their scales"
            if claims.declared
            else "whose scales only the nodes of the model know"
        )
        return f"{step.name} holds codes {why}; leave it as it is"
    group = decide(weight, claims)
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
        f"{step.name} would change without {_others(weight, step)}: {weight.codes.name} holds "
        f"codes, which mean numbers only together with the rest; {way}"
    )


def _others(weight: Weight, step: Step) -> str:
    moved = {entry.name for entry in (*step.sources.values(), *step.dropped)}
    return ", ".join(name for name in weight.names if name not in moved) or "its scales"
