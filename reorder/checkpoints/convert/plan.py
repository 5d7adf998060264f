"""Plan: the step of each tensor of a checkpoint, chosen by rules; nothing is written.

A rule between two records, whose pattern matches the common prefix of a record's tensors, moves
whole records; every other rule is about single tensors. Quantised weights stay whole: codes change
together with their scales, or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from memdesc import MemoryDesc
from memdesc.dtypes import DATA_TYPES
from memdesc.record import RecordDesc
from memdesc.record.names import read_name, scheme_of
from memdesc.tuples import NamedTuple
from reorder.checkpoints.convert.rules import FormatName, Rule, is_record
from reorder.checkpoints.convert.steps import Step, copy_step, layout_step, record_step
from reorder.checkpoints.convert.targets import Decided, Target, left_out_warnings, serves
from reorder.checkpoints.formats.entry import ONE, Entry, Tensor, stem_of
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
    """Decide what each tensor becomes: the last rule that matches it applies, or it is copied."""
    model, entries, is_asked = whole.model, whole.model.entries, bool(rules or whole.chosen)
    weights = model.found if is_asked else []
    has_config = weights or (is_asked and any(map(_is_narrow, entries.values())))
    claims = model.claims if has_config else Claims()
    claims = claims._replace(has_nodes=model.container.has_nodes)
    chosen: _Chosen = {**whole.chosen}
    _assign(chosen, entries, [x for x in weights if entries.keys() >= {*x.names}], rules)
    records = _record_steps(chosen, entries, claims, format_name)
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
    _check_whole(weights, chosen, entries, claims)
    dropped = [entry.name for step in steps for entry in step.dropped if serves(entry.name)]
    roundings = dict.fromkeys(filter(None, (step.rounding for step in steps)))
    codes = {each.codes.name for each in weights}
    copied = (entry for step in steps if step.is_copy for entry in step.sources.values())
    left = (e.name for e in copied if e.name in codes or isinstance(e.desc, RecordDesc))
    warnings = (*whole.warnings, *left_out_warnings(dropped), *roundings)
    return Plan(tuple(steps), warnings, next(left, ""), whole.target)


def _record_steps(
    chosen: _Chosen, entries: Mapping[str, Entry], claims: Claims, format_name: str
) -> dict[str, Step]:
    """Return the steps of records of several tensors, by the names of their codes."""
    serving: dict[str, list[Entry]] = defaultdict(list)
    for name in (name for name in entries if serves(name) and name not in chosen):
        serving[name.rpartition(".")[0]].append(entries[name])
    found: dict[str, Step] = {}
    for rule, weight in chosen.values():
        if weight is None or weight.codes.name in found:
            continue
        # a target has decided what it moves
        moved = weight if weight.is_known else _decided(weight, rule, claims)
        step = record_step(moved, rule, format_name)
        kept = step.dst.name if isinstance(step.dst, RecordDesc) else None
        if weight.is_known or moved.desc is None or moved.desc.name != kept:
            # what serves codes goes with their format, unless a rule names it
            step = replace(step, dropped=(*step.dropped, *serving[step.name]))
        found[weight.codes.name] = step
    return found


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
    chosen: _Chosen,
    entries: Mapping[str, Entry],
    weights: Sequence[Weight],
    rules: Sequence[Rule],
) -> None:
    """Add the rule of each tensor. Fails if one moves a part of what another moves whole."""
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


def _records_of(
    rule: Rule, entries: Mapping[str, Entry], layers: Mapping[str, Mapping[str, Weight]]
) -> list[Weight]:
    """Return the records of several tensors whose prefix a rule matches."""
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
    copied = {step.name: step.targets[ONLY] for step in steps if step.is_copy}
    made: dict[str, Tensor] = {}
    for weight in weights:
        codes = copied.get(weight.codes.name)
        if weight.note is not None and codes is not None:
            held = {role: copied.get(each.name, each).name for role, each in weight.entries.items()}
            stem = stem_of(codes.name, next(iter(held)), str(weight.note.get("record")))
            new = {**weight.note, "name": weight.called(stem), "tensors": held}
            made[weight.codes.name] = codes._replace(note=new)
    return [
        replace(step, targets={ONLY: made[step.name]}) if step.name in made else step
        for step in steps
    ]


# --- quantised weights stay whole ---


def _check_whole(
    weights: Sequence[Weight], chosen: _Chosen, entries: Mapping[str, Entry], claims: Claims
) -> None:
    """Refuse rules that change parts of a quantised weight alone."""
    own = {name: rule for name, (rule, whole) in chosen.items() if whole is None}
    names = {name: own[name].renamed(name) if name in own else name for name in entries}
    renamed = {names[name]: entry for name, entry in entries.items()}
    known = {name for weight in weights for name in weight.names}
    alone: list[Weight] = []
    if claims.declared is not None or claims.has_nodes:
        # scales may have names that are not known; in a graph, weights may be unsigned bytes
        rest = (entries[name] for name in own if name not in known)
        narrow = (each for each in rest if _is_narrow(each, or_unsigned=claims.has_nodes))
        alone += (Weight(each.name, {ONE: each}) for each in narrow)
    for weight in (*weights, *alone):
        parts = {name: own[name] for name in weight.names if name in own}
        wrong = [name for name, rule in parts.items() if not rule.is_renaming]
        if not wrong and not _keeps_names(weight, renamed, names):
            wrong = [name for name in parts if names[name] != name]
        for name in wrong:
            parts[name].fail(_problem(weight, name, claims))


def _is_narrow(entry: Entry, *, or_unsigned: bool = False) -> bool:
    """Whether a tensor holds floats or signed integers of up to 8 bits, which are mostly codes.

    Unsigned bytes may be masks, and wider integers are indices.
    """
    kind = entry.desc.dtype.name if isinstance(entry.desc, MemoryDesc) else entry.dtype
    is_code = kind in FLOATS or (kind in INTEGERS and (or_unsigned or INTEGERS[kind].is_signed))
    return is_code and DATA_TYPES[kind].bits <= _NARROW_BITS


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


def _problem(weight: Weight, name: str, claims: Claims) -> str:
    """Return what is wrong with a change, and the way out."""
    if len(weight.names) == 1:
        why = (
            f"of a quantised model, according to {claims.declared.file}, but no tensor "
            "beside it is known to hold their scales"
            if claims.declared
            else "whose scales only the nodes of the model know"
        )
        return f"{name} holds codes {why}; leave it as it is"
    group = decide(weight, claims)
    if group.desc is None:
        way = (
            f"no rule can move them together: {group.reason}; leave them as they are, or decode "
            "them with the program that made them"
        )
    else:
        desc, usual = group.desc, read_name(group.desc.name)[2]
        said = ((k, v) for k, v in desc.options if k in _SAID and v not in (usual[k], True))
        src = FormatName(desc.name, (*said,))
        way = f"they are one record, which moves with its prefix: '{weight.prefix}: {src} -> ...'"
    others = ", ".join(each for each in weight.names if each != name)
    return (
        f"{name} would change without {others}: {weight.codes.name} holds codes, which mean "
        f"numbers only together with the rest; {way}"
    )
