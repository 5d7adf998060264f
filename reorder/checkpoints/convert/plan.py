"""Plan: the step of each tensor of a checkpoint, chosen by rules; nothing is written.

A rule between two records, whose pattern matches the common prefix of a record's tensors, moves
whole records; every other rule is about single tensors. Quantised weights stay whole: codes change
together with their scales, or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from memdesc import MemoryDesc
from memdesc.dtypes import DATA_TYPES
from memdesc.record import RecordDesc
from memdesc.record.names import read_name, scheme_of
from memdesc.tuples import NamedTuple
from reorder.checkpoints.convert.rules import FormatName, Rule, is_record
from reorder.checkpoints.convert.steps import Step, copy_step, layout_step, record_step
from reorder.checkpoints.convert.targets import Decided, Target, left_out_warnings, served_by
from reorder.checkpoints.formats.entry import (
    ONE,
    Entry,
    stem_of,
    stored_desc,
)
from reorder.checkpoints.moves.changes import ONLY
from reorder.checkpoints.weights import (
    Claims,
    Model,
    Weight,
    decide,
    holds_codes,
    tensors_of,
    weight_of,
)
from reorder.values.formats import FLOATS, INTEGERS

_NARROW_BITS = 8
# options that the tensors do not show
_SAID = ("bits", "zeros")
# the rule of each tensor, and the weight that it moves as a whole, if it does
_Chosen = dict[str, tuple[Rule, Weight | None]]


class Plan(NamedTuple):
    """What each tensor becomes."""

    # in the order of the source
    steps: tuple[Step, ...]
    # what the user may not expect
    warnings: tuple[str, ...]
    # the name of a tensor of codes that is copied; empty if there is none
    left: str
    # what config.json should declare
    target: Target

    @property
    def moved(self) -> tuple[Step, ...]:
        """The steps from or to records: what config.json declares may change."""
        return tuple(s for s in self.steps if RecordDesc in {type(s.src), type(s.dst)})

    @property
    def made(self) -> list[tuple[Step, RecordDesc]]:
        """The steps that write records, and these."""
        return [(step, step.dst) for step in self.steps if isinstance(step.dst, RecordDesc)]


def plan_steps(whole: Decided, rules: Sequence[Rule], format_name: str) -> Plan:
    """Decide what each tensor becomes, written in a container by its key in the table of formats.

    The last rule that matches a tensor applies; tensors without one are copied. Fails if a rule
    matches nothing, would change codes without the scales that turn them into numbers, or names
    what a tensor cannot become; the message has the rule, the tensor and the way out.
    """
    model = whole.model
    entries, is_asked = model.entries, bool(rules or whole.chosen)
    weights = model.found if is_asked else []
    has_config = weights or (is_asked and any(map(_is_narrow, entries.values())))
    claims = (model.claims if has_config else Claims())._replace(
        has_nodes=model.container.has_nodes
    )
    known = [each for each in weights if entries.keys() >= {*each.names}]
    chosen = _assign(entries, known, rules, whole.chosen)
    free = [name for name in entries if name not in chosen]
    serving: dict[str, list[str]] = defaultdict(list)
    for name in free:
        serving[served_by(name)].append(name)
    records: dict[str, Step] = {}
    for rule, weight in chosen.values():
        if weight is not None and weight.codes.name not in records:
            # a target has decided what it moves
            moved = weight if weight.is_known else _decided(weight, rule, claims)
            step = record_step(moved, rule, format_name)
            kept = step.dst.name if isinstance(step.dst, RecordDesc) else None
            if weight.is_known or moved.desc is None or moved.desc.name != kept:
                # what serves codes goes with their format, unless a rule names it
                lost = [entries[name] for name in serving[step.name]]
                step = replace(step, dropped=(*step.dropped, *lost))
            records[weight.codes.name] = step
    taken = {e.name for x in records.values() for e in (*x.sources.values(), *x.dropped)}
    steps = []
    for name, entry in entries.items():
        if name in records:
            steps.append(records[name])
        elif name not in taken:
            # a record may leave out some tensors of its weight, which are copied
            own, part = chosen.get(name, (None, None))
            steps.append(_tensor_step(entry, None if part else own, model, claims, format_name))
    steps = _with_notes(steps, weights)
    _check_names(steps)
    _check_whole(weights, steps, claims)
    dropped = [entry.name for step in steps for entry in step.dropped if served_by(entry.name)]
    roundings = dict.fromkeys(filter(None, (step.rounding for step in steps)))
    warnings = (*whole.warnings, *left_out_warnings(dropped), *roundings)
    codes = {each.codes.name for each in known}
    copied = (entry for step in steps if step.is_copy for entry in step.sources.values())
    left = (e.name for e in copied if e.name in codes or isinstance(e.desc, RecordDesc))
    return Plan(tuple(steps), warnings, next(left, ""), whole.target)


def _tensor_step(
    entry: Entry, rule: Rule | None, model: Model, claims: Claims, format_name: str
) -> Step:
    """Return the step of a single tensor, which is copied unless a rule applies to it."""
    if rule is None:
        return copy_step(entry, entry.name, format_name)
    src = rule.src
    is_blocks = src is not None and is_record(src) and tensors_of(src.name) == (ONE,)
    is_moved = rule.dst is not None or rule.dtype is not None
    if not is_moved or not (is_blocks or isinstance(entry.desc, RecordDesc)):
        return layout_step(entry, rule, format_name)
    found = weight_of(model.entries, entry.name).single
    # files beside a model declare records of several tensors
    return record_step(_decided(found, rule, claims._replace(declared=None)), rule, format_name)


# --- which rule applies ---


def _decided(found: Weight, rule: Rule, claims: Claims) -> Weight:
    """Return the record that a rule moves, as it names it."""
    if rule.src is not None:
        return decide(found, claims._replace(name=rule.src.name, options=dict(rule.src.options)))
    held = found.codes.desc
    return decide(found, claims._replace(name=held.name if isinstance(held, RecordDesc) else None))


def _assign(
    entries: Mapping[str, Entry],
    weights: Sequence[Weight],
    rules: Sequence[Rule],
    before: Mapping[str, tuple[Rule, Weight | None]],
) -> _Chosen:
    """Return the rule of each tensor. Fails if one moves a part of what another moves whole."""
    chosen: _Chosen = {**before}
    layers: dict[str, dict[str, Weight]] = {name.rpartition(".")[0]: {} for name in entries}
    for weight in weights:
        layers.setdefault(weight.prefix, {})[weight.codes.name] = weight
    for rule in rules:
        found = _records_of(rule, entries, layers)
        for weight in found:
            chosen |= dict.fromkeys(weight.names, (rule, weight))
        if not found:
            names = rule.matching(entries) or rule.fail_unmatched([*entries])
            chosen |= dict.fromkeys(names, (rule, None))
    for name, (rule, whole) in chosen.items():
        for other in () if whole is None else whole.names:
            later = chosen[other]
            if whole and (later[1] is not whole or later[0] is not rule):
                rule.fail(
                    f"it moves the record {whole.prefix}, which includes {name}, but a later "
                    f"rule, {later[0].text!r}, moves {other} alone"
                )
    return chosen


def _records_of(
    rule: Rule, entries: Mapping[str, Entry], layers: Mapping[str, Mapping[str, Weight]]
) -> list[Weight]:
    """Return the records of several tensors whose prefix a rule matches.

    Fails if some tensors of a record with the prefix are missing.
    """
    # a layout alone moves tensors
    is_layout = rule.dst is not None and not is_record(rule.dst) and rule.dtype is None
    scheme = None if rule.src is None or is_layout else scheme_of(rule.src.name.lower())
    if rule.src is None or scheme is None:
        return []
    prefixes = rule.matching(layers)
    first, *others = (*scheme.tensors(), *scheme.optional)
    found = {
        name: weight
        for prefix in prefixes
        for name, weight in layers[prefix].items()
        if {*scheme.tensors(**scheme.shown(weight.entries))} <= weight.entries.keys()
    }
    for prefix in prefixes if found else ():
        names = {role: f"{prefix}.{role}".removeprefix(".") for role in (first, *others)}
        held = [role for role, name in names.items() if name in entries]
        is_alone = bool(held) and first not in held
        is_bare = first in held and holds_codes(entries[names[first]])
        if is_alone or (is_bare and names[first] not in found):
            wanted = scheme.tensors(**scheme.shown(held))
            missing = ", ".join(role for role in wanted if role not in held)
            rule.fail(
                f"{prefix} has {', '.join(held)}, but no {missing}: a record of {rule.src.name} "
                f"has {', '.join(wanted)}"
            )
    return [*found.values()]


# --- names and notes ---


def _check_names(steps: Sequence[Step]) -> None:
    """Refuse names that two steps write, or that two values have once the output is loaded."""
    written = [(step, tensor) for step in steps for tensor in step.tensors]
    # what a note says may be wrong
    listed = [tensor.note.get("tensors") for _, tensor in written if tensor.note]
    members = {str(name) for each in listed if isinstance(each, dict) for name in each.values()}
    homes: dict[tuple[bool, str], Step] = {}
    for step, (name, *_, note) in written:
        keys = [(False, name)]
        if note or name not in members:
            keys.append((True, str((note or {}).get("name", name))))
        for key in keys:
            other = homes.setdefault(key, step)
            if other is not step:
                said = f"{other.name} and {step.name} would both be called {key[1]}; see rename="
                (step if step.rule else other).fail(said)


def _with_notes(steps: Sequence[Step], weights: Sequence[Weight]) -> list[Step]:
    """Return the steps with notes that say in the output what is still a Quantized or a Record."""
    homes = {entry.name: step for step in steps for entry in step.sources.values()}
    noted = {each.codes.name: (each, each.note) for each in weights if each.note is not None}
    found = []
    for step in steps:
        names = noted.keys() & {entry.name for entry in step.sources.values()}
        if not names or not step.is_copy:
            found.append(step)
            continue
        weight, note = noted[names.pop()]
        tensor = step.targets[ONLY]._replace(note=None)
        if all(homes[name].is_copy for name in weight.names if name in homes):
            held = {
                role: homes[each.name].targets[ONLY].name if each.name in homes else each.name
                for role, each in weight.entries.items()
            }
            stem = stem_of(tensor.name, next(iter(held)), str(note.get("record")))
            new = {**note, "name": weight.called(stem), "tensors": held}
            tensor = tensor._replace(note=new)
        found.append(replace(step, targets={ONLY: tensor}))
    return found


# --- quantised weights stay whole ---


def _check_whole(found: Sequence[Weight], steps: Sequence[Step], claims: Claims) -> None:
    """Refuse rules that change parts of a quantised weight alone."""
    homes = {e.name: step for step in steps for e in (*step.sources.values(), *step.dropped)}
    renamed = {
        tensor.name: step.sources[key]
        for step in steps
        if not isinstance(step.src, RecordDesc)
        for key, tensor in step.targets.items()
        if key in step.sources
    }
    names = {entry.name: name for name, entry in renamed.items()}
    for weight in (*found, *_without_scales(found, steps, claims)):
        held = {name: homes[name] for name in weight.names if name in homes}
        codes = held.get(weight.codes.name)
        if codes is not None and isinstance(codes.src, RecordDesc):
            wrong = [codes] if any(homes.get(name) is not codes for name in weight.names) else []
        else:
            wrong = [x for x in held.values() if not _keeps(x)]
            if not wrong and not _keeps_names(weight, renamed, names):
                wrong = [step for name, step in held.items() if names.get(name) != name]
        for step in wrong:
            if step.rule is not None:  # only rules change or rename
                step.rule.fail(_problem(weight, step, claims))


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


def _keeps(step: Step) -> bool:
    """Whether a step keeps a tensor as it is."""
    if not step.is_copy or step.rule is None:
        return step.is_copy
    (entry,), (tensor,) = step.sources.values(), step.tensors
    desc = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
    return (tensor.shape, desc) == (entry.shape, entry.desc)


def _problem(weight: Weight, step: Step, claims: Claims) -> str:
    """Return what is wrong with a change, and the way out."""
    if len(weight.names) == 1:
        why = (
            f"of a quantised model, according to {claims.declared.file}, but no tensor "
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
        desc, usual = group.desc, read_name(group.desc.name)[2]
        said = ((k, v) for k, v in desc.options if k in _SAID and v not in (usual[k], True))
        name = FormatName(desc.name, (*said,))
        way = f"they are one record, which moves with its prefix: '{weight.prefix}: {name} -> ...'"
    moved = {entry.name for entry in (*step.sources.values(), *step.dropped)}
    others = ", ".join(name for name in weight.names if name not in moved) or "its scales"
    return (
        f"{step.name} would change without {others}: {weight.codes.name} holds codes, which mean "
        f"numbers only together with the rest; {way}"
    )
