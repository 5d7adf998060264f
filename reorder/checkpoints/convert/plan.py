"""Plan: what each tensor of a checkpoint becomes, decided before its bytes are read.

A rule between two records, whose pattern matches the common prefix of a record's tensors, moves
whole records; every other rule is about single tensors. Quantised weights stay whole: codes change
together with their scales, or not at all. Everything that is written follows from the list of
steps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, MemoryDesc, UnsupportedFormatError, data_type, memory_desc
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.errors import about
from memdesc.names import expand_meta_tag, resolve
from memdesc.record import RecordDesc, record_desc
from memdesc.record.rows import SCHEMES
from memdesc.tags import LETTERS
from reorder.checkpoints.convert.rules import COPY, PLAIN, WHOLE, FormatName, Rule, is_record
from reorder.checkpoints.convert.targets import Chosen, Decided, left_out_warnings
from reorder.checkpoints.formats.entry import (
    ONE,
    QUANTIZED,
    WEIGHT,
    Desc,
    Entry,
    Tensor,
    joined_tensors,
    record_tensors,
    stem_of,
    stored_desc,
    stored_layout,
    stored_record,
)
from reorder.checkpoints.moves.changes import ONLY, Change, Quantize, Reorder, Repack, copied
from reorder.checkpoints.moves.pieces import Cut, cut
from reorder.checkpoints.moves.tasks import Task
from reorder.checkpoints.weights import (
    SERVING,
    Claims,
    Weight,
    decide,
    holds_codes,
    tensors_of,
    weight_of,
)
from reorder.records.repacking import is_rounded, target_desc
from reorder.values.attr import GROUPED_DIMS, Attr
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memdesc import DataType
    from reorder.checkpoints.convert.conversion import ConvertOptions
    from reorder.checkpoints.formats.entry import Place

# the type in which scales are chosen
_SCALES = "f32"
# the most bits of codes that are not packed
_NARROW_BITS = 8


@dataclass(frozen=True)
class Step:
    """What a tensor, or the tensors of a record, become."""

    # what is converted, for messages
    name: str
    # what is read, by role: the tensors of a record by their names in it, or `ONLY` one tensor
    sources: Mapping[str, Entry]
    # what is written, by role: likewise, or codes with the ``scales`` and ``zero_points`` chosen
    targets: Mapping[str, Tensor]
    change: Change
    # what asks for it
    rule: Rule = COPY
    # tensors that the output does not need, such as a `g_idx` that keeps the order of inputs
    dropped: tuple[Entry, ...] = ()
    # targets that depend on nothing that is read, by role
    constants: Mapping[str, bytes] = field(default_factory=dict)
    # the sizes of its pieces; empty for one whole piece
    sizes: tuple[int, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that are written."""
        return tuple(self.targets.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors that are written, but for constants."""
        return sum(dst.nbytes for role, dst in self.targets.items() if role not in self.constants)

    def in_pieces(self, options: ConvertOptions) -> Step:
        """Return the step with its pieces; the message of an error has the tensor."""
        with about(self.name):
            pieces = cut(self.change, options.max_bytes, options.thread_count)
        return replace(self, sizes=pieces.sizes)

    @property
    def pieces(self) -> Cut:
        """The pieces of the change."""
        return Cut(self.change, self.sizes)

    def tasks(self, where: Callable[[str], Place]) -> Iterator[Task]:
        """Return the pieces with their places; `where` gives those of what is written."""
        src = {role: entry.place for role, entry in self.sources.items()}
        dst = {role: where(tensor.name) for role, tensor in self.targets.items()}
        return (Task(self.name, x, src, dst, self.rule.text) for x in self.pieces.pieces())


class Plan:
    """What each tensor of a model becomes: the last rule that matches it applies."""

    def __init__(self, whole: Decided, rules: Sequence[Rule], format_name: str) -> None:
        #: what is read, what config.json should declare, and the format that is written
        self.model, self.target, self.format = whole.model, whole.target, format_name
        self._entries = whole.model.entries
        self._weights = whole.model.quantised if rules or whole.chosen else []
        self._chosen = self._choose(whole.chosen, rules)
        #: what happens to tensors, in the order of the source, and to the files beside them
        self.steps, self.copied = self._steps(), list[Step]()
        _check_names(self.steps)
        self._check_whole()
        codes = {weight.codes.name for weight in self._weights}
        #: the layers whose weights become records, with what these were and are
        self.made: list[tuple[str, Desc, RecordDesc]] = []
        #: the layers whose weights become plain numbers
        self.decoded: list[str] = []
        #: the name of a tensor of codes that is copied; empty if there is none
        self.left = ""
        is_converted, roundings, served = not whole.chosen, dict[str, None](), list[str]()
        for step in self.steps:
            src, dst = step.change.src, step.change.dst
            role, name = next((role, tensor.name) for role, tensor in step.targets.items())
            if isinstance(dst, RecordDesc):
                self.made.append((name.removesuffix(role).removesuffix("."), src, dst))
                roundings |= dict.fromkeys(_roundings(src, dst))
            elif isinstance(src, RecordDesc):
                self.decoded.append(name.rpartition(".")[0])
            dtype = dst.dtype.name if isinstance(dst, MemoryDesc) else None
            for entry in step.sources.values():
                is_converted |= entry.name in whole.chosen and dtype == self.target.dtype
                if step.change.is_copy and (
                    entry.name in codes or isinstance(entry.desc, RecordDesc)
                ):
                    self.left = self.left or entry.name
            served += (x.name for x in step.dropped if f".{x.name}".endswith(SERVING))
        if not is_converted:
            target_rule, _ = next(iter(whole.chosen.values()))
            target_rule.fail("later rules leave it nothing to convert; leave out --to")
        #: what the user may not expect; the files of the output add to it
        self.warnings = [*whole.warnings, *left_out_warnings(served), *roundings]

    @property
    def is_redeclared(self) -> bool:
        """Whether what config.json declares may change: records come or go."""
        return bool(self.made or self.decoded)

    def _choose(self, chosen: Mapping[str, Chosen], rules: Sequence[Rule]) -> dict[str, Chosen]:
        """Return the rule of each tensor, and the weight that it moves as a whole, if it does."""
        # tensors that do not belong to any weight have prefixes too
        layers: dict[str, dict[str, Weight]] = {x.rpartition(".")[0]: {} for x in self._entries}
        for weight in self._weights:
            if self._entries.keys() >= {*weight.names}:
                layers.setdefault(weight.prefix, {})[weight.codes.name] = weight
        choices = {**chosen}
        for rule in rules:
            weights = self._weights_of(rule, layers)
            names = rule.matching(self._entries) if not weights else ()
            if not (weights or names):
                rule.fail_unmatched([*self._entries])
            choices |= {name: (rule, weight) for weight in weights for name in weight.names}
            choices |= dict.fromkeys(names, (rule, None))
        return choices

    def _weights_of(self, rule: Rule, layers: Mapping[str, Mapping[str, Weight]]) -> list[Weight]:
        """Return the weights of several tensors whose prefix a rule matches."""
        # a layout alone moves tensors
        is_layout = rule.dst is not None and not is_record(rule.dst) and rule.dtype is None
        scheme = None if rule.src is None or is_layout else SCHEMES.get(rule.src.name.lower())
        if scheme is None:
            return []
        weights, prefixes = dict[str, Weight](), rule.matching(layers)
        for name, weight in ((name, x) for layer in prefixes for name, x in layers[layer].items()):
            if {*scheme.tensors(**scheme.shown(weight.entries))} <= weight.entries.keys():
                weights[name] = weight
        for prefix in prefixes if weights else ():
            names = {x: f"{prefix}.{x}".lstrip(".") for x in (*scheme.tensors(), *scheme.optional)}
            held = {role: name for role, name in names.items() if name in self._entries}
            codes = held.get(scheme.tensors()[0])
            if held and codes not in weights and (not codes or holds_codes(self._entries[codes])):
                wanted = scheme.tensors(**scheme.shown(held))
                missing = ", ".join(role for role in wanted if role not in held)
                rule.fail(
                    f"{prefix} has {', '.join(held)}, but no {missing}: a record of {scheme.name} "
                    f"has {', '.join(wanted)}"
                )
        return [*weights.values()]

    def _rule(self, name: str) -> Rule:
        """Return the rule of a tensor that is not moved as a part of a weight."""
        rule, weight = self._chosen.get(name, (COPY, None))
        return rule if weight is None else COPY

    def _steps(self) -> list[Step]:
        """Return the step of each tensor, and of each weight that is moved as a whole."""
        notes = {x.codes.name: self._renamed_note(x) for x in self._weights if x.note}
        whole = dict[str, Step]()
        for rule, weight in self._chosen.values():
            if weight is not None and weight.codes.name not in whole:
                whole[weight.codes.name] = self._weight_step(weight, rule)
        taken = {e.name for x in whole.values() for e in (*x.sources.values(), *x.dropped)}
        steps = []
        for name, entry in self._entries.items():
            if name in whole:
                steps.append(whole[name])
            # a record may leave out some tensors of its weight, which are copied
            elif name not in taken:
                held = replace(entry, note=notes[name]) if name in notes else entry
                steps.append(self._tensor_step(held, self._rule(name)))
        return steps

    def _weight_step(self, weight: Weight, rule: Rule) -> Step:
        """Return the step of a weight that is moved as a whole."""
        # a target has decided what it moves
        moved = weight if weight.tensors else _decided(weight, rule, self.model.claims)
        step = _record_step(moved, rule, self.format)
        src, dst = moved.desc, step.change.dst
        if not weight.tensors and src and isinstance(dst, RecordDesc) and src.name == dst.name:
            return step
        # tensors that serve codes go with their format, unless a rule names them
        beside = (f"{step.name}{end}".removeprefix(".") for end in SERVING)
        served = (x for x in beside if x in self._entries and x not in self._chosen)
        return replace(step, dropped=(*step.dropped, *(self._entries[name] for name in served)))

    def _tensor_step(self, entry: Entry, rule: Rule) -> Step:
        """Return the step of a single tensor, which is copied unless a rule changes it."""
        if rule.has_only("rename"):
            return _copy_step(entry, rule, self.format)
        src = rule.src
        is_blocks = src is not None and is_record(src) and tensors_of(src.name) == (ONE,)
        if not is_blocks and not isinstance(entry.desc, RecordDesc):
            return _layout_step(entry, rule, self.format)
        # files beside a model declare records of several tensors
        weight = weight_of(self._entries, entry.name).single
        return _record_step(_decided(weight, rule, Claims()), rule, self.format)

    def _renamed_note(self, weight: Weight) -> dict[str, object]:
        """Return the note of a saved Quantized or Record whose tensors get other names."""
        held = {role: self._rule(x.name).renamed(x.name) for role, x in weight.entries.items()}
        (role, first), *_ = held.items()
        note = weight.note or {}
        stem = stem_of(first, role, str(note.get("record")))
        return {**note, "name": weight.called(stem), "tensors": held}

    def _check_whole(self) -> None:
        """Refuse rules that change parts of a quantised weight alone."""
        own = {name: rule for name, (rule, weight) in self._chosen.items() if weight is None}
        changed = {name for name, rule in own.items() if not rule.has_only("rename")}
        names = {name: self._rule(name).renamed(name) for name in self._entries}
        renamed = {names[name]: entry for name, entry in self._entries.items()}
        for weight in self._weights:
            # no tensor of a weight that moves as a whole has a rule of its own
            alone = own if any(self._chosen.get(x, (0, None))[1] for x in weight.names) else changed
            wrong = [name for name in weight.names if name in alone]
            moved = [name for name in weight.names if names.get(name, name) != name]
            if moved and not wrong and weight.note is None:
                # tensors that are renamed must still show that they belong together, as a note does
                first = names.get(weight.codes.name, "")
                kept = weight_of(renamed, first).entries if first else {}
                wrong = [] if kept == weight.entries else moved
            for name in wrong:
                own[name].fail(self._problem(weight, name))
        has_nodes = self.model.container.has_nodes
        for name in sorted(changed):
            # narrow numbers are mostly codes; unsigned bytes may be masks, but weights in a graph
            element = self._entries[name].element
            held = INTEGERS.get(element)
            is_code = element in FLOATS or (held is not None and (has_nodes or held.is_signed))
            if not is_code or DATA_TYPES[element].bits > _NARROW_BITS:
                continue
            why = "whose scales only the nodes of the model know" if has_nodes else ""
            if declared := self.model.claims.declared:
                why = (
                    f"of a quantised model, according to {declared.file}, but no tensor beside it "
                    "is known to hold their scales"
                )
            if why:
                own[name].fail(f"{name} holds codes {why}; leave it as it is")

    def _problem(self, weight: Weight, name: str) -> str:
        """Return what is wrong with changing a tensor alone, and the way out."""
        group = decide(weight, self.model.claims)
        if group.desc is None:
            way = (
                f"no rule can move them together: {group.reason}; leave them as they are, or "
                "decode them with the program that made them"
            )
        else:
            rule = f"{weight.prefix}: {group.desc.name} -> ..."
            way = f"they are one record, which moves with its prefix: '{rule}'"
        others = ", ".join(tensor for tensor in weight.names if tensor != name)
        return (
            f"{name} would no longer fit {others}: {weight.codes.name} holds codes, which mean "
            f"numbers only together with the rest; {way}"
        )


def _roundings(src: Desc, dst: RecordDesc) -> Iterator[str]:
    """Yield what is rounded: a factor of scales that becomes its reciprocal."""
    if isinstance(src, RecordDesc) and is_rounded(src, dst):
        old, new = (str(desc.rule).rpartition(" * ")[0] for desc in (src, dst))
        yield (
            f"{old} becomes {new}, with the reciprocal rounded to f32: scales change by at most "
            "1.2e-07 of their value; codes do not change"
        )


def _decided(weight: Weight, rule: Rule, claims: Claims) -> Weight:
    """Return the record that a rule moves, as it names it."""
    if rule.src is not None:
        return decide(weight, claims._replace(name=rule.src.name, options=dict(rule.src.options)))
    held = weight.codes.desc
    return decide(weight, claims._replace(name=held.name if isinstance(held, RecordDesc) else None))


def _check_names(steps: Sequence[Step]) -> None:
    """Refuse names that two values would have once the output is loaded."""
    written = [(step, tensor) for step in steps for tensor in step.tensors]
    # a note may be wrong
    listed = [tensor.note.get("tensors") for _, tensor in written if tensor.note]
    members = {str(name) for roles in listed if isinstance(roles, dict) for name in roles.values()}
    homes: dict[str, Step] = {}
    for step, (name, *_, note) in written:
        called = str((note or {}).get("name", name))
        # tensors of equal names, those of records too, are refused by the format
        other = homes.setdefault(called, step) if note or name not in members else step
        rule = step.rule if step.rule.text else other.rule
        # two that are copied share a name in the input already
        if other is not step and rule.text:
            rule.fail(f"{other.name} and {step.name} would both be called {called}; see rename=")


# --- single tensors ---


def copied_step(entry: Entry, target: Tensor, rule: Rule = COPY) -> Step:
    """Return the step that copies the bytes of a tensor, and its note."""
    target = target._replace(note=entry.note)
    return Step(entry.name, {ONLY: entry}, {ONLY: target}, copied(target.nbytes), rule)


def _copy_step(entry: Entry, rule: Rule, format_name: str) -> Step:
    name, desc, dtype = rule.renamed(entry.name), entry.desc, entry.dtype
    if isinstance(desc, RecordDesc):
        return copied_step(entry, stored_record(name, desc, format_name), rule)
    if desc is not None and not entry.is_described:
        plain = memory_desc(desc.dims, desc.dtype)
        if plain != desc:
            # numpy's arrays in Fortran order: other containers do not have that order
            layout = {ONLY: stored_layout(name, plain)}
            return Step(entry.name, {ONLY: entry}, layout, Reorder(desc, plain), rule)
        desc = None
    elif desc and desc == stored_desc(desc.dtype.name, entry.shape)[0] and not desc.dtype.is_packed:
        # a type that its container does not have, such as bf16 in archives of numpy
        dtype = desc.dtype.name
    return copied_step(entry, Tensor(name, dtype, entry.shape, entry.nbytes, desc), rule)


def _layout_step(entry: Entry, rule: Rule, format_name: str) -> Step:
    """Return the step of a tensor whose layout or type a rule changes."""
    name = rule.renamed(entry.name)
    try:
        src = _held_layout(entry, rule)
        change = _change(rule, src)
    except MemdescError as error:
        hint = ""
        if rule.src is not None and is_record(rule.src):
            tensors = ", ".join(tensors_of(rule.src.name.lower()))
            hint = (
                f"; no weight that it matches has all tensors of {rule.src}, {tensors}: to move a "
                "record, match what comes before the names of its tensors"
            )
        elif is_record(rule.dst) and not _takes_floats(rule.dst):
            hint = (
                f"; plain numbers do not become {rule.dst}: give a data type and scales=, such as "
                "'u4, scales=ab, groups=1x32'"
            )
        rule.fail(f"{entry.name} of {entry.dtype} and shape {entry.shape}: {error}{hint}")
    dst, given, constants = change.dst, dict(rule.attr), dict[str, bytes]()
    if not given.keys().isdisjoint({"dst_scale", "dst_zero_point"}):
        constants["scales"] = np.float32(given.get("dst_scale", 1)).tobytes()
    if "dst_zero_point" in given:
        constants["zero_points"] = np.int32(given["dst_zero_point"]).tobytes()
    if isinstance(dst, RecordDesc):
        prefix = name.removesuffix(WEIGHT)
        targets = record_tensors(prefix, prefix, dst, format_name)
    elif constants or isinstance(change, Quantize):
        facts: dict[str, tuple[int, ...]] = {"axis": (), "groups": ()}
        roles, sizes = [*constants], list[int]()
        if isinstance(change, Quantize):
            facts, roles = {"axis": change.axes, "groups": change.groups}, [*change.scales]
            sizes = [change.scales["scales"].dims[dim] for dim in change.axes]
        targets = {ONLY: _stored(entry, name, dst)}
        for role in roles:
            desc = memory_desc(sizes or (1,), _SCALES if role == "scales" else "s32")
            targets[role] = stored_layout(f"{name}{QUANTIZED[role]}", desc)
        targets = joined_tensors(name, {"quantized": facts}, targets)
    else:
        is_packed = src.dtype == dst.dtype and entry.dtype in DATA_TYPES
        target = _stored(entry, name, dst, entry.dtype if is_packed else None)
        if change == Reorder(src, src):
            return copied_step(entry, target, rule)
        targets = {ONLY: target}
    return Step(entry.name, {ONLY: entry}, targets, change, rule, constants=constants)


def _stored(entry: Entry, name: str, dst: MemoryDesc, words: str | None = None) -> Tensor:
    """Return how what an entry becomes is stored; a scalar has a descriptor of dims (1,)."""
    target = stored_layout(name, dst, words)
    return target if entry.shape or target.shape != (1,) else target._replace(shape=())


def _takes_floats(dst: FormatName) -> bool:
    """Whether floats become a record, with scales chosen from the data."""
    scheme = SCHEMES.get(dst.name.lower())
    return scheme is not None and {"codes", "scales"} <= scheme.options.keys()


def _change(rule: Rule, src: MemoryDesc) -> Change:
    if rule.dst is not None and _takes_floats(rule.dst):
        if not rule.has_only("src", "holds", "dims", "dst", "rename"):
            raise MemdescError(
                f"{rule.dst.name} says which types codes and scales have; leave out other keys"
            )
        record = record_desc(src.dims, rule.dst.name, **dict(rule.dst.options))
        if record.scales.kind != _SCALES:
            raise MemdescError(f"scales are chosen in f32; leave out scales= of {rule.dst.name}")
        groups = record.scales.groups[-GROUPED_DIMS:]
        return Quantize(src, record, tuple(range(src.ndims)), groups)
    dtype = src.dtype if rule.dtype is None else data_type(rule.dtype)
    dst = src.with_extra(None).with_dtype(dtype)
    if rule.dst is not None:
        dst = memory_desc(src.dims, dtype, str(rule.dst))
    if rule.scales is not None:
        letters = "" if rule.scales == WHOLE else rule.scales
        axes = tuple(sorted({LETTERS.index(letter) for letter in letters}))
        if any(dim >= src.ndims for dim in axes):
            raise MemdescError(f"scales={letters} names a dim that {src.dims} do not have")
        return Quantize(src, dst, axes, rule.groups or ())
    if not rule.attr and src.dtype.name in FLOATS and dst.dtype.name in INTEGERS:
        raise MemdescError(
            f"{src.dtype} becomes {dst.dtype} by scales; give scale=, or scales= to choose them "
            "from the data, or scale=1 to round"
        )
    given: dict[str, Any] = dict(rule.attr)
    return Reorder(src, dst, Attr(**given, saturate=True) if given else None)


# --- records ---


def _record_step(weight: Weight, rule: Rule, format_name: str) -> Step:
    """Return the step of a record: another record, or plain numbers."""
    src, dst, prefix = weight.desc, rule.dst, rule.renamed(weight.prefix)
    constants: dict[str, bytes] = {}
    with about(f"rule {rule.text!r}: {weight.prefix}"):
        if src is None:
            raise MemdescError(weight.reason)
        own, keys = ("types, ", ()) if is_record(dst) else ("", ("dtype",))
        if not rule.has_only("src", "dst", "rename", *keys):
            raise MemdescError(f"a record has its own {own}dims and scales; leave out other keys")
        if not is_record(dst):
            if rule.dtype is not None and rule.dtype not in FLOATS:
                raise MemdescError(
                    f"a record becomes floats, not {rule.dtype}; another conversion, with scales=, "
                    "quantises these"
                )
            floats, plain = _decoded_layouts(src, dst or PLAIN, rule.dtype or _SCALES)
            change = Repack(src.bare, floats)
            targets = {ONLY: stored_layout(weight.decoded_name(prefix), plain)}
        elif weight.is_looked_up:
            raise MemdescError(
                "its scales are looked up by an indirection table (act-order), which no record "
                "holds: it becomes floats, as in 'plain(axes=oi), bf16'"
            )
        else:
            made = target_desc(src, dst.name, dict(dst.options))
            constants = {constant.tensor: constant.data for constant in made.constants}
            change = Repack(src.bare, made.bare)
            is_bare = len(weight.tensors) > 1 and not weight.is_dotted
            name = weight.called(prefix)
            targets = record_tensors(name, prefix, made, format_name, is_bare=is_bare)
    order = weight.order
    dropped = () if order is None or order in weight.tensors.values() else (order,)
    return Step(weight.prefix, weight.tensors, targets, change, rule, dropped, constants)


def _decoded_layouts(src: RecordDesc, dst: FormatName, dtype: str) -> tuple[MemoryDesc, MemoryDesc]:
    """Return the layout that a record is decoded to, and the layout that is stored for it."""
    options = dict(dst.options)
    if options.keys() != {"axes"}:
        desc = memory_desc(src.dims, dtype, str(dst))
        return desc, desc
    # row-major over the dims in another order, by the letters of the record
    axes = str(options["axes"])
    if dst.name != PLAIN.name or sorted(axes) != sorted(src.letters):
        raise MemdescError(
            f"axes= goes with plain and must be {src.letters} in some order, not {axes}"
        )
    order = [src.letters.index(letter) for letter in axes]
    stored = memory_desc(tuple(src.dims[dim] for dim in order), dtype)
    return memory_desc(src.dims, dtype, "".join(LETTERS[dim] for dim in order)), stored


# --- what a tensor holds, by a rule ---


def _held_layout(entry: Entry, rule: Rule) -> MemoryDesc:
    """Return the layout of an entry, from its descriptor or from a rule, which must agree."""
    held, name = entry.desc, str(rule.src or PLAIN)
    words = {f"'{name} ->'": rule.src, "holds=": rule.holds, "dims=": rule.dims}
    given = ", ".join(word for word, value in words.items() if value is not None)
    if not given:
        if isinstance(held, MemoryDesc):
            return held
        raise MemdescError(entry.reason or f"it holds {held!r}")
    if rule.dims is None and entry.is_described and isinstance(held, MemoryDesc):
        desc = memory_desc(held.dims, rule.holds or held.dtype, name)
    else:
        element = _element_type(name, data_type(rule.holds or entry.dtype))
        desc = memory_desc(rule.dims or _dims_of_shape(entry, name, element.bits), element, name)
    if entry.is_described and desc != held:
        raise MemdescError(
            f"it holds {held!r}, as its descriptor says, not {desc!r}; leave out {given}"
        )
    if desc.nbytes != entry.nbytes:
        raise MemdescError(
            f"it has {entry.nbytes} bytes, but {desc!r} takes {desc.nbytes}; its dims are given "
            "as dims="
        )
    return desc


def _element_type(name: str, given: DataType) -> DataType:
    """Return the type of the elements of a layout: the given one, or the one that it packs."""
    for element in (given, data_type("u4"), data_type("u8")):
        try:
            resolve(name, (), element.bits)
        except UnsupportedFormatError:
            continue
        except MemdescError:  # a name for any number of dims, or not a name: the caller finds out
            return given
        return element
    return given


def _dims_of_shape(entry: Entry, name: str, bits: int) -> tuple[int, ...]:
    """Return logical sizes from a shape with an axis for each block in memory, or for each dim."""
    shape = entry.shape
    known = DATA_TYPES.get(entry.dtype)
    word = known.bits if known else BYTE_BITS * entry.nbytes // max(prod(shape), 1)
    if bits < word:
        raise MemdescError(
            f"{name} has {word // bits} elements in a word of {entry.dtype}; give its dims="
        )
    # for a layout of any rank: each block adds an axis to the shape
    ndims = len(shape) - len(re.findall("[0-9]+[a-z]", name))
    tag = resolve(expand_meta_tag(name, ndims), (), bits)
    if len(shape) == tag.ndims != len(tag.digits):
        return shape
    if len(shape) != len(tag.digits) or any(len(axis) > 1 for axis in tag.axes):
        raise MemdescError(
            f"{tag} has {len(tag.digits)} axes in memory; give its logical sizes as dims="
        )
    sizes = [1] * tag.ndims
    for digit, size in zip(tag.digits, shape, strict=True):
        if digit.extent and digit.extent != size:
            raise MemdescError(
                f"{tag} has a block of {digit.extent}, but the axis of the shape has {size}"
            )
        sizes[tag.axes[digit.axis][0]] *= size
    return tuple(sizes)
