"""Contracts of checkpoints: rules that say what tensors must hold, checked and written.

A contract is TOML: a table for each rule, named by a pattern of names, with what must hold. With a
reference, the numbers of two checkpoints are compared through the layouts of both.
"""

from __future__ import annotations

import glob
import json
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from memdesc import (
    ImageDesc,
    MemdescError,
    MemoryDesc,
    PaddingError,
    RecordDesc,
    data_type,
    memory_desc,
    parse_layout,
    to_notation,
)
from memdesc.disk import as_path, read_small
from memdesc.errors import first_of, short_repr
from memdesc.int64 import checked_ints
from memdesc.names import did_you_mean
from reorder.api import reorder
from reorder.comparison import compare_values
from reorder.quantize import dequantize
from reorder.records.record import Record
from reorder.records.repack import repack
from reorder.storage.checkpoint import Checkpoint, container_of
from reorder.storage.convert.rules import FormatName, Rule, is_record, read_format, stars_of
from reorder.storage.diagnosis import (
    find_causes,
    is_equal_bytes,
    parts_of_memory,
    parts_of_record,
)
from reorder.storage.files import memory_of, value_of
from reorder.storage.groups import Group, find_groups, read_group, said_of, single
from reorder.storage.siblings import siblings_of
from reorder.storage.stored import in_order_of, stored_layout
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from reorder.memory.memory import Memory
    from reorder.storage.containers.entry import Entry
    from reorder.storage.diagnosis import Part

    Expected = str | os.PathLike[str] | Mapping[str, Mapping[str, Any] | str]

__all__ = ["Breach", "CheckReport", "check", "contract_of", "contract_to_toml"]

# bytes of a contract
_MAX_FILE = 1 << 24
_SHOWN = 4
# bytes of a tensor by which another one with the same bytes is found
_START = 4096
_ZERO = "zero"
# keys that are about one tensor, and about a record
_OF_TENSOR = ("layout", "dtype", "scales")
# key of a contract, and its value, that wants a rule for every tensor
_OTHERS, _REFUSED = "others", "refused"
_KEYS = ("layout", "record", "dims", "dtype", "padding", "scales", "like", "count")


class Breach(NamedTuple):
    """What does not hold.

    Parameters
    ----------
    name : str
        A tensor, or the common prefix of a record's tensors.
    key : str
        What does not hold: a key of the rule, or ``values`` where the reference differs.
    problem : str
        In words.
    rule : str
        The pattern of the rule; empty if there is none.
    causes : tuple of str
        For ``values``: what explains every byte that differs; several if they predict the same.

    Examples
    --------
    >>> import numpy as np, pathlib, reorder, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.safetensors"
    >>> reorder.save(path, {"w": np.zeros((3, 4), np.float32)})
    >>> breach = reorder.check(path, {"w": {"dims": [4, 3]}}).breaches[0]
    >>> breach.name, breach.key, breach.rule
    ('w', 'dims', 'w')
    """

    name: str
    key: str
    problem: str
    rule: str = ""
    causes: tuple[str, ...] = ()


class CheckReport(NamedTuple):
    """What `check` found.

    Parameters
    ----------
    breaches : tuple of Breach
        What does not hold.
    checked : tuple of str
        The tensors and records that a rule applies to.
    without_rule : tuple of str
        The others.
    unconfirmed : tuple of str
        Tensors whose file does not say their layout, so that only type and size are known to fit.
        A reference tells more.
    compared : tuple of str
        Tensors and records whose values were compared with the reference.

    Examples
    --------
    >>> import numpy as np, pathlib, reorder, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.safetensors"
    >>> reorder.save(path, {"w": np.zeros((3, 4), np.float32)})
    >>> report = reorder.check(path, {"w": {"dims": [3, 4]}})
    >>> report.holds, report.checked
    (True, ('w',))
    """

    breaches: tuple[Breach, ...]
    checked: tuple[str, ...]
    without_rule: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    compared: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether there is no breach."""
        return not self.breaches


def check(
    model: str | os.PathLike[str],
    expect: Expected | None = None,
    *,
    reference: str | os.PathLike[str] | None = None,
) -> CheckReport:
    """Check a checkpoint against a contract, and its values against another checkpoint.

    A rule is a pattern of names, with ``*``, ``?`` and ``[...]`` as in shells, and what must hold
    for what it matches:

    * ``layout``: any notation that `memdesc.parse_layout` reads; with ``dims`` and ``dtype``.
    * ``record``: a name of `memdesc.known_records`, with options as in ``gptq(group=128)``. The
      pattern matches what stands before the names of the record's tensors.
    * ``padding = "zero"``.
    * ``scales``: the names of the tensors that scale the codes, all of them.
    * ``like``: the name of a tensor or a record that has the same dims, type and layout.
    * ``count``: how many tensors or records the pattern matches. Without it, one is enough.

    ``others = "refused"``, before the rules, makes a breach of each tensor that no rule applies to.
    The first ``*`` in these names stands for what the first one of the pattern is, and so on.

    Where values differ from the reference, each known cause predicts every byte: packed twice, not
    packed, halves swapped, rows interleaved, nibbles or bytes reversed, scales plain instead of
    swizzled, transposed, another tensor of the reference. One that predicts all of them is named.

    *Law*: a model holds `contract_of` it, and differs nowhere from itself.

    Parameters
    ----------
    model : path
        A checkpoint, as for `open_checkpoint`.
    expect : path, or mapping of str to mapping, optional
        The contract: a file of TOML, or its tables.
    reference : path, optional
        A checkpoint with the same tensors, in any layouts and packings.

    Returns
    -------
    CheckReport
        What does not hold, and what was checked.

    Raises
    ------
    MemdescError
        If a rule has an unknown key or value, matches nothing, or contradicts another one; if a
        checkpoint cannot be read.

    Notes
    -----
    Files are mapped. Equal layouts are compared in pieces of 16 MiB; other tensors one by one, with
    two copies of their elements in memory, and twice that to find the cause of a difference.

    Examples
    --------
    >>> import os, tempfile, numpy as np, reorder
    >>> folder = tempfile.mkdtemp()
    >>> good, bad = os.path.join(folder, "good.npz"), os.path.join(folder, "bad.npz")
    >>> x = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    >>> reorder.save(good, {"w": reorder.reorder(x, "AB8b8a")})
    >>> reorder.save(bad, {"w": reorder.reorder(np.roll(x, 8, axis=0), "AB8b8a")})
    >>> reorder.check(good, {"w": {"layout": "AB8b8a", "dims": [16, 64]}}).holds
    True
    >>> for breach in reorder.check(bad, {"*": {"dtype": "f16"}}, reference=good).breaches:
    ...     print(breach.key, breach.problem, breach.causes)
    dtype is f32, not f16 ()
    values differ in 1024 of 1024 elements ('the halves of dim 0 are swapped',)
    """
    if expect is None and reference is None:
        msg = "check needs what to expect: a contract, or a reference to compare with"
        raise MemdescError(msg)
    contract = (False, []) if expect is None else _read_contract(expect)
    return _checked(_Model(model), contract, reference)


def _checked(
    held: _Model,
    contract: tuple[bool, list[_Rule]],
    reference: str | os.PathLike[str] | None = None,
) -> CheckReport:
    is_complete, rules = contract
    chosen, breaches = _assign(rules, held)
    unconfirmed: list[str] = []
    for name, rule in chosen.items():
        breaches += _breaches(held, name, rule, unconfirmed)
    compared: list[str] = []
    if reference is not None:
        for name, found in _compare(held, _Model(reference), chosen):
            compared.append(name)
            breaches += found
    covered = {each for name, rule in chosen.items() for each in held.members(name, rule)}
    without_rule = tuple(name for name in held.entries if name not in covered)
    if is_complete:
        breaches += [
            Breach(each, _OTHERS, "are refused: no rule applies to it") for each in without_rule
        ]
    return CheckReport(
        tuple(breaches),
        tuple(chosen),
        without_rule,
        tuple(unconfirmed),
        tuple(compared),
    )


class _Model:
    """A checkpoint: its tensors, and the quantised weights that they form."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = as_path(path)
        checkpoint = Checkpoint(self.path)
        self.container = container_of(checkpoint)
        self.entries = self.container.entries
        self.map = checkpoint.map
        self.groups = {
            group.prefix: group
            for group in find_groups(self.path, self.container)
            # codes without an ending have the name of their record
            if group.prefix not in self.entries or group.desc is not None
        }

    @cached_property
    def in_groups(self) -> set[str]:
        """Tensors of records, and of weights saved as a Quantized."""
        known = [group for group in self.groups.values() if group.desc is not None]
        return {name for group in known for name in group.found.names}

    def is_whole(self, name: str, rule: _Rule) -> bool:
        """Whether a rule is about a record, rather than about the tensor of the same name."""
        return "record" in rule.values or name not in self.entries

    def members(self, name: str, rule: _Rule) -> tuple[str, ...]:
        """Return the tensors that a rule is about."""
        is_several = self.is_whole(name, rule) and name in self.groups
        return self.groups[name].found.names if is_several else (name,)

    def group(self, name: str, wanted: FormatName | None) -> Group:
        """Return the record at a prefix, or in a tensor, read as the wanted one if there is one."""
        if name in self.groups:
            group = self.groups[name]
            if wanted is None:
                return group
            said = said_of(self.path, self.container)
            found = group.found
        else:
            found = single(siblings_of(self.entries, name))
            said = said_of(self.path, self.container)._replace(declared=None)
        if wanted is None:
            return read_group(found, said)
        return read_group(found, said._replace(name=wanted.name, options=dict(wanted.options)))

    def desc(self, name: str, *, is_whole: bool) -> MemoryDesc | RecordDesc | None:
        """Return what a tensor or a record holds, as the file says; `is_whole` prefers records."""
        is_record = name in self.groups and (is_whole or name not in self.entries)
        return self.groups[name].desc if is_record else self.entries[name].desc


class _Rule(NamedTuple):
    """A rule, or what several say of one tensor: the values by key, and the pattern of each.

    `number` is how many tensors or records the pattern must match; None if any number will do.
    """

    pattern: str
    values: Mapping[str, Any]
    origin: Mapping[str, str]
    number: int | None = None

    def fail(self, problem: str) -> NoReturn:
        msg = f"rule {short_repr(self.pattern)}: {problem}"
        raise MemdescError(msg) from None


# Contracts.


def _read_contract(given: Expected) -> tuple[bool, list[_Rule]]:
    """Return whether a contract refuses tensors without a rule, and its rules."""
    found: object = given
    if not isinstance(given, Mapping):
        path = as_path(given)
        try:
            found = tomllib.loads(read_small(path, _MAX_FILE).decode())
        except MemdescError:
            raise
        except (ValueError, RecursionError) as error:
            msg = f"{str(path)!r} is not TOML: {error}"
            raise MemdescError(msg) from None
    assert isinstance(found, Mapping)  # noqa: S101 - both are
    others = found.get(_OTHERS)
    # a rule may have this name
    is_complete = isinstance(others, str)
    if is_complete and others != _REFUSED:
        msg = f'others must be "{_REFUSED}", not {short_repr(others)}'
        raise MemdescError(msg)
    rules = {key: value for key, value in found.items() if key != _OTHERS or not is_complete}
    if not rules:
        msg = "the contract has no rules, so there is nothing to check"
        raise MemdescError(msg)
    return is_complete, [_read_rule(pattern, values) for pattern, values in rules.items()]


def _read_rule(pattern: object, values: object) -> _Rule:
    rule = _Rule(str(pattern), {}, {})
    if not isinstance(pattern, str) or not isinstance(values, Mapping):
        rule.fail(
            f"it must be a table of {', '.join(_KEYS)}, not {short_repr(values)}; quote patterns "
            'that have dots: ["model.*.weight"]'
        )
    made: dict[str, Any] = {}
    for key, value in values.items():
        if key not in _KEYS:
            hint = (
                '; quote patterns that have dots: ["model.*.weight"]'
                if isinstance(value, Mapping)
                else ""
            )
            rule.fail(f"there is no key {key!r}; the keys are {', '.join(_KEYS)}{hint}")
        made[key] = value if key == "count" else _read_value(rule, key, value)
    if not made:
        rule.fail(f"it says nothing; the keys are {', '.join(_KEYS)}")
    number = made.pop("count", None)
    if number is not None and (type(number) is not int or number < 1):
        rule.fail(f"count must be an integer of 1 or more, not {short_repr(number)}")
    if "record" in made:
        for key in _OF_TENSOR:
            if key in made:
                rule.fail(f"it has both record and {key}; a record says the {key} of its tensors")
    return _Rule(pattern, made, dict.fromkeys(made, pattern), number)


def _read_value(rule: _Rule, key: str, value: Any) -> Any:
    """Return the value of a key."""
    if key == "dims":
        try:
            return checked_ints("dims", value)
        except MemdescError as error:
            rule.fail(str(error))
    if key == "scales":
        if not isinstance(value, list | tuple) or not all(isinstance(x, str) for x in value):
            rule.fail(f"scales must be a list of names of tensors, not {short_repr(value)}")
        return tuple(value)
    if not isinstance(value, str):
        rule.fail(f"{key} must be a string, not {short_repr(value)}")
    if key == "padding" and value != _ZERO:
        rule.fail(f'padding must be "zero", not {short_repr(value)}')
    if key == "dtype":
        try:
            return data_type(value)
        except MemdescError as error:
            rule.fail(str(error))
    if key == "record":
        found = read_format(Rule(rule.pattern, rule.pattern), key, value)
        if not is_record(found):
            rule.fail(f"there is no record {found.name!r}; memdesc.known_records() lists them")
        return found
    return value


def _assign(rules: Iterable[_Rule], held: _Model) -> tuple[dict[str, _Rule], list[Breach]]:
    """Return what the rules say of each tensor and record, and which match another number of them.

    Raises
    ------
    MemdescError
        If a rule without a count matches nothing, or two contradict each other.
    """
    chosen: dict[str, _Rule] = {}
    breaches = []
    for rule in rules:
        names = _matched(rule, held)
        if not names and rule.number is None:
            _fail_unmatched(rule, held)
        if rule.number not in (None, len(names)):
            problem = f"is {len(names)}, not {rule.number}"
            breaches.append(Breach(rule.pattern, "count", problem, rule.pattern))
        for name in names:
            chosen[name] = _joined(chosen.get(name), rule, name)
    ordered = {name: chosen[name] for name in (*held.entries, *held.groups) if name in chosen}
    return ordered, breaches


def _matched(rule: _Rule, held: _Model) -> list[str]:
    """Return the tensors and records that a rule applies to."""
    groups, tensors = (
        [name for name in names if stars_of(rule.pattern, name) is not None]
        for names in (held.groups, held.entries)
    )
    if "record" in rule.values:
        # a record in one tensor has the name of the tensor
        single_ones = [n for n in tensors if isinstance(held.entries[n].desc, RecordDesc)]
        alone = [name for name in tensors if name not in held.in_groups]
        return [*groups, *single_ones] or alone
    if rule.values.keys() == {"padding"}:
        known = [name for name in groups if held.groups[name].desc is not None]
        return list(dict.fromkeys((*tensors, *known))) or groups
    return tensors or ([] if {*_OF_TENSOR} & rule.values.keys() else groups)


def _joined(old: _Rule | None, new: _Rule, name: str) -> _Rule:
    """Return what two rules say together."""
    if old is None:
        return new
    for key, value in new.values.items():
        if key in old.values and old.values[key] != value:
            new.fail(
                f"it says {key} = {value}, and the rule {old.origin[key]!r} says "
                f"{key} = {old.values[key]}; both match {name!r}"
            )
    if "record" in new.values or "record" in old.values:
        both = {**old.values, **new.values}
        for key in _OF_TENSOR:
            if key in both:
                one = old.origin.get(key) or new.origin[key]
                new.fail(f"it and {one!r} say both record and {key} of {name!r}")
    return _Rule(new.pattern, {**old.values, **new.values}, {**old.origin, **new.origin})


def _fail_unmatched(rule: _Rule, held: _Model) -> NoReturn:
    import difflib  # only a wrong rule needs it

    what = "record" if "record" in rule.values else "tensor"
    names = [*dict.fromkeys((*held.groups, *held.entries))]
    short = [name for name in names if len(name) <= 200]  # noqa: PLR2004 - longer ones take long
    near = difflib.get_close_matches(rule.pattern[:200], short, 3, 0.3)
    shown = did_you_mean(tuple(near)) or f"; there are {len(names)}"
    rule.fail(f"it matches no {what} of {str(held.path)!r}{shown}")


# What must hold.


def _breaches(held: _Model, name: str, rule: _Rule, unconfirmed: list[str]) -> Iterator[Breach]:
    """Yield what a tensor or a record breaks of its rule."""

    def breach(key: str, problem: str) -> Breach:
        return Breach(name, key, problem, rule.origin[key])

    values = rule.values
    if held.is_whole(name, rule):
        group = held.group(name, values.get("record"))
        desc: MemoryDesc | RecordDesc | None = group.desc
        if desc is None:
            key = next(key for key in ("record", *values) if key in values)
            yield breach(key, group.reason if key == "record" else f"is unknown: {group.reason}")
            return
        if "dims" in values and desc.dims != values["dims"]:
            yield breach("dims", f"are {desc.dims}, not {values['dims']}")
    else:
        entry = held.entries[name]
        desc, problems = _held_by(entry, rule)
        yield from (breach(*each) for each in problems)
        if "layout" in values and not problems and desc != entry.desc:
            unconfirmed.append(name)
        if "scales" in values:
            wanted = {_named(rule.origin["scales"], name, each) for each in values["scales"]}
            found = {*siblings_of(held.entries, name).names[1:]}
            if wanted != found:
                yield breach("scales", f"are {_listed(found)}, not {_listed(wanted)}")
    whole = held, name, desc, values.get("record")
    if "padding" in values and (problem := _padding_problem(*whole)):
        yield breach("padding", problem)
    if "like" in values and (problem := _unlike(held, name, rule, desc)):
        yield breach("like", problem)


def _unlike(held: _Model, name: str, rule: _Rule, desc: MemoryDesc | RecordDesc | None) -> str:
    """Return how something differs from what it should be like; empty if it does not."""
    other = _named(rule.origin["like"], name, rule.values["like"])
    if other not in held.entries and other not in held.groups:
        return f"there is no {other!r} that it could be like"
    theirs = held.desc(other, is_whole=held.is_whole(name, rule))
    if theirs is None or desc is None:
        return f"nothing says what {name if desc is None else other!r} holds"
    return "" if theirs == desc else f"is {desc!r}, and {other} is {theirs!r}"


def _listed(names: Iterable[str]) -> str:
    return first_of(sorted(names), _SHOWN) or "none"


def _named(pattern: str, name: str, wanted: str) -> str:
    """Return the name that a rule means for one that its pattern matches."""
    return Rule(pattern, pattern, rename=wanted).renamed(name)


def _held_by(
    entry: Entry, rule: _Rule
) -> tuple[MemoryDesc | RecordDesc | None, list[tuple[str, str]]]:
    """Return what a tensor holds if it is as its rule says, and what contradicts that."""
    values = rule.values
    found = entry.desc
    dims = found.dims if found is not None else entry.shape
    kind = found.dtype if isinstance(found, MemoryDesc) else None
    if "layout" not in values or not (kind or "dtype" in values):
        problems = []
        if "layout" in values:
            problems.append(("layout", f"is unknown: it holds {entry.dtype}, and no dtype is said"))
        if "dims" in values and dims != values["dims"]:
            problems.append(("dims", f"are {dims}, not {values['dims']}"))
        if "dtype" in values and kind != values["dtype"]:
            problems.append(("dtype", f"is {kind or entry.dtype}, not {values['dtype']}"))
        return found, problems
    try:
        layout = parse_layout(
            values["layout"], values.get("dims"), values.get("dtype"), default=kind
        )
    except MemdescError as error:
        if "dims" in values and "dtype" in values:
            rule.fail(str(error))
        try:
            layout = parse_layout(
                values["layout"], values.get("dims", dims), values.get("dtype", kind), default=kind
            )
        except MemdescError as again:
            return found, [("layout", f"cannot be {short_repr(values['layout'])}: {again}")]
    wanted = layout.desc if isinstance(layout, ImageDesc) else layout
    return wanted, _contradictions(entry, wanted, values)


def _contradictions(
    entry: Entry, wanted: MemoryDesc, values: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Return what contradicts that an entry holds a layout, by the key of the rule."""
    found = entry.desc
    if found == wanted:
        return []
    if entry.is_described and isinstance(found, MemoryDesc):
        problems = []
        if found.dims != wanted.dims:
            key = "dims" if "dims" in values else "layout"
            problems.append((key, f"are {found.dims}, not {wanted.dims}"))
        if found.dtype != wanted.dtype:
            key = "dtype" if "dtype" in values else "layout"
            problems.append((key, f"is {found.dtype}, not {wanted.dtype}"))
        return problems or [("layout", f"is {found!r}, not {wanted!r}")]
    if entry.nbytes != wanted.nbytes:
        return [
            (
                "layout",
                (
                    f"takes {wanted.nbytes} bytes as {wanted!r}, but the tensor of shape "
                    f"{entry.shape} and {entry.dtype} has {entry.nbytes}"
                ),
            )
        ]
    is_word = entry.dtype in INTEGERS and (
        entry.dtype == "u8" or INTEGERS[entry.dtype].bits > wanted.dtype.bits
    )
    if entry.dtype != wanted.dtype.name and not is_word:
        return [
            ("dtype" if "dtype" in values else "layout", f"is {entry.dtype}, not {wanted.dtype}")
        ]
    shapes = {stored_layout("", wanted, each).shape for each in (None, entry.dtype)}
    is_packed = wanted != memory_desc(wanted.dims, wanted.dtype)
    # every program has a shape of its own for packed elements
    if is_packed or entry.shape in {*shapes, wanted.dims} or len(entry.shape) == 1:
        return []
    key = "dims" if "dims" in values else "layout"
    return [(key, f"of {wanted!r} are not those of the shape {entry.shape} of {entry.dtype}")]


def _padding_problem(
    held: _Model, name: str, desc: MemoryDesc | RecordDesc | None, wanted: FormatName | None
) -> str:
    """Return where padding is not zero; empty if it is zero, or there is none."""
    try:
        if isinstance(desc, RecordDesc):
            tensors = held.group(name, wanted).tensors
            Record(desc, {role: held.map(each) for role, each in tensors.items()}).check_padding()
        elif desc is not None and desc.has_padding and desc.nbytes <= held.entries[name].nbytes:
            entry = replace(held.entries[name], desc=desc)
            memory_of(entry, held.map(entry)).check_padding()
    except PaddingError as error:
        return str(error)
    return ""


# Values.


def _compare(
    held: _Model, reference: _Model, chosen: Mapping[str, _Rule]
) -> Iterator[tuple[str, list[Breach]]]:
    """Yield what was compared with the reference, and how it differs."""
    items, others = _items(held, chosen), _items(reference, chosen, is_reference=True)
    done: set[str] = set()
    places = _Places([*others.values()])
    for name, theirs in others.items():
        ours = items.get(name) or _by_names_of(theirs, held)
        if ours is not None and ours.group is not None:
            done |= {*ours.group.found.names}
        done.add(name)
        if ours is None:
            yield theirs.name, [Breach(theirs.name, "values", "are in the reference only")]
            continue
        try:
            found = _differences(ours, theirs)
        except MemdescError as error:
            found = [Breach(ours.name, "values", f"cannot be compared: {error}")]
        if any(not each.causes for each in found) and (other := places.find(ours, theirs)):
            cause = (f"it holds {other} of the reference",)
            found = [each._replace(causes=each.causes or cause) for each in found]
        rule = chosen.get(ours.name)
        yield ours.name, [each._replace(rule=rule.pattern if rule else "") for each in found]
    for name, item in items.items():
        if name not in done:
            yield item.name, [Breach(item.name, "values", "are not in the reference")]


def _by_names_of(theirs: _Item, held: _Model) -> _Item | None:
    """Return the tensors that a record of the reference has, if the model has all of them."""
    if theirs.group is None:
        return None
    found = theirs.group.found
    entries = {role: held.entries.get(each.name) for role, each in found.entries.items()}
    here = {role: entry for role, entry in entries.items() if entry is not None}
    if len(here) < len(entries):
        return None
    return _Item(theirs.name, held, Group(found._replace(entries=here), None), None, None)


class _Item(NamedTuple):
    """A tensor or a record of a checkpoint, with what its rule says that it holds."""

    name: str
    model: _Model
    group: Group | None
    entry: Entry | None
    desc: MemoryDesc | RecordDesc | None

    def tensors(self) -> dict[str, Entry]:
        """Return the tensors by role; those of an unknown weight by the ends of their names."""
        if self.group is None:
            return {} if self.entry is None else {"data": self.entry}
        return self.group.tensors or dict(self.group.found.entries)


class _Places:
    """Where the bytes of tensors are in the reference, whatever they are called there."""

    def __init__(self, items: list[_Item]) -> None:
        self._items = items

    @cached_property
    def _by_start(self) -> dict[object, list[tuple[Entry, _Model]]]:
        found: dict[object, list[tuple[Entry, _Model]]] = {}
        for item in self._items:
            for role, each in item.tensors().items():
                key = item.desc, role, _start(each, item.model)
                found.setdefault(key, []).append((each, item.model))
        return found

    def find(self, ours: _Item, theirs: _Item) -> str:
        """Return which tensors have the bytes of those that differ; empty if some have none."""
        names = []
        wanted = theirs.tensors()
        for role, each in ours.tensors().items():
            data = ours.model.map(each)
            if role in wanted and is_equal_bytes(data, theirs.model.map(wanted[role])):
                continue
            alike = self._by_start.get((ours.desc, role, _start(each, ours.model)), ())
            equal = (entry.name for entry, model in alike if is_equal_bytes(data, model.map(entry)))
            name = next(equal, "")
            if not name:
                return ""
            names.append(name)
        return ", ".join(names)


def _start(entry: Entry, model: _Model) -> tuple[int, bytes]:
    """Return what a tensor has in common with all equal ones, and with few others."""
    return entry.nbytes, model.map(entry)[:_START].tobytes()


def _items(
    held: _Model, chosen: Mapping[str, _Rule], *, is_reference: bool = False
) -> dict[str, _Item]:
    """Return what a checkpoint holds: a record has the name of the tensor that it decodes to.

    What the rules say of a reference counts only where its files do not say what it holds.
    """
    found: dict[str, _Item] = {}
    taken: set[str] = set()
    for prefix, group in held.groups.items():
        rule = chosen.get(prefix)
        wanted = rule.values.get("record") if rule else None
        if is_reference and group.desc is not None:
            wanted = None
        read = held.group(prefix, wanted) if wanted else group
        if read.desc is None and wanted is None:
            continue
        names = {each.name for each in read.tensors.values()} or {*group.found.names}
        taken |= names
        called = read.decoded_name(prefix)
        # another tensor may have that name; no tensor has one with a zero byte
        is_free = called not in held.entries.keys() - names
        found[called if is_free else f"{called}\0"] = _Item(prefix, held, read, None, read.desc)
    for name, entry in held.entries.items():
        if name in taken:
            continue
        rule = None if is_reference else chosen.get(name)
        desc = entry.desc
        if rule is not None and "layout" in rule.values:
            wanted_desc, _ = _held_by(entry, rule)
            desc = wanted_desc if isinstance(wanted_desc, MemoryDesc) else desc
        elif rule is not None and "record" in rule.values:
            desc = held.group(name, rule.values["record"]).desc or desc
        found[name] = _Item(name, held, None, entry, desc)
    return found


def _differences(ours: _Item, theirs: _Item) -> list[Breach]:
    """Return how the values of two items differ, and why if that is known."""
    if isinstance(theirs.desc, RecordDesc):
        return _record_differences(ours, theirs, theirs.desc)
    if isinstance(ours.desc, RecordDesc) or ours.entry is None or theirs.entry is None:
        return _number_differences(ours, theirs)
    one, other = ours.model.map(ours.entry), theirs.model.map(theirs.entry)
    if ours.desc == theirs.desc and is_equal_bytes(one, other):
        return []
    wanted = _read_like(ours, theirs)
    desc = ours.desc if isinstance(ours.desc, MemoryDesc) else wanted.desc
    if desc.dtype.bits != wanted.desc.dtype.bits and desc.dims == wanted.desc.dims:
        return _number_differences(ours, theirs)
    said = ""
    if desc.dims != wanted.desc.dims or desc.dtype != wanted.desc.dtype:
        said = f"are {desc!r}, and those of the reference {wanted.desc!r}"
        desc = wanted.desc
    if wanted.desc != desc:
        wanted = reorder(wanted, desc.with_extra(None))
    (part,) = parts_of_memory(ours.name, one, wanted, is_scale=_is_scale(desc))
    return _explained(ours, [part], said)


def _read_like(ours: _Item, theirs: _Item) -> Memory:
    """Return a tensor of the reference, read as the contract says if its file does not say it.

    Some programs store packed elements in the shape of plain ones. Then both readings are tried.
    """
    assert ours.entry is not None  # noqa: S101 - the caller has checked both
    assert theirs.entry is not None  # noqa: S101
    data, desc = theirs.model.map(theirs.entry), ours.desc
    own = memory_of(theirs.entry, data)
    is_said = isinstance(desc, MemoryDesc) and not theirs.entry.is_described
    if not is_said or not isinstance(desc, MemoryDesc) or desc.nbytes != theirs.entry.nbytes:
        return own
    same = memory_of(replace(theirs.entry, desc=desc), data)
    if own.desc.dims != desc.dims:
        return same
    if (ours.entry.shape, ours.entry.dtype) != (theirs.entry.shape, theirs.entry.dtype):
        return own
    found = ours.model.map(ours.entry)
    (part,) = parts_of_memory("", found, reorder(own, desc), is_scale=False)
    return own if part.is_equal else same


def _is_scale(desc: MemoryDesc) -> bool:
    names = {name for name in desc.tags() if name.vocabulary == "weights"}
    return any("scales" in name.domain for name in names)


def _explained(ours: _Item, parts: list[Part], said: str = "") -> list[Breach]:
    """Return the breach of tensors that differ, with its causes."""
    differing = total = 0
    for part in parts:
        if part.elements is None or part.expected is None:
            continue
        total += part.expected.size
        if not part.is_equal:
            differing += int((part.elements != part.expected).sum())
    # bytes may differ in padding alone, which holds no values
    is_short = any(len(part.found) < len(part.wanted) for part in parts)
    is_known = all(part.elements is not None for part in parts)
    if not said and is_known and not is_short and not differing:
        return []
    if all(part.is_equal for part in parts):
        return [Breach(ours.name, "values", said)] if said else []
    causes = find_causes(parts)
    names = ", ".join(part.name for part in parts if not part.is_equal)
    problem = said or (
        f"differ in {differing} of {total} elements"
        if is_known
        else f"differ in the bytes of {names}"
    )
    if len(parts) > 1:
        problem += f", in {names}"
    return [Breach(ours.name, "values", problem, causes=causes)]


def _record_differences(ours: _Item, theirs: _Item, desc: RecordDesc) -> list[Breach]:
    """Compare with a record, tensor by tensor, in the format of the model."""
    entries = theirs.tensors()
    wanted = Record(desc, {role: theirs.model.map(entry) for role, entry in entries.items()})
    tensors = ours.tensors()
    own = ours.desc
    said = "" if isinstance(own, RecordDesc) else f"are not those of {desc!r}"
    if isinstance(own, RecordDesc) and own.name == desc.name and own.dims != desc.dims:
        said = f"are those of {own!r}, and in the reference of {desc!r}"
    elif isinstance(own, RecordDesc) and own != desc:
        try:
            wanted = repack(wanted, own)
        except MemdescError:
            return _number_differences(ours, theirs)
    elif isinstance(own, MemoryDesc) and (len(desc.tensors) > 1 or own.nelems == prod(desc.dims)):
        # floats that the record was decoded to, rather than its bytes as a plain tensor
        return _number_differences(ours, theirs)
    if missing := [role for role in wanted.tensors if role not in tensors]:
        return [Breach(ours.name, "values", f"have no {', '.join(missing)}, as {desc!r} has")]
    found = {role: ours.model.map(tensors[role]) for role in wanted.tensors}
    return _explained(ours, parts_of_record(found, wanted.tensors, wanted.desc), said)


def _number_differences(ours: _Item, theirs: _Item) -> list[Breach]:
    """Compare the numbers that two items stand for."""
    one, other = (_numbers(each) for each in (ours, theirs))
    turned = in_order_of(other, theirs.desc, one, ours.desc)
    differing = min(compare_values(one, each).differing for each in turned)
    if not differing:
        return []
    problem = f"differ in {differing} of {one.desc.nelems} elements"
    return [Breach(ours.name, "values", problem)]


def _numbers(item: _Item) -> Memory:
    if item.group is not None:
        return dequantize(value_of(item.group, item.model.map))
    assert item.entry is not None  # noqa: S101 - one of them is there
    data = item.model.map(item.entry)
    if isinstance(item.desc, RecordDesc):
        return dequantize(Record(item.desc, data))
    return memory_of(replace(item.entry, desc=item.desc), data)


# Writing a contract.


def contract_of(model: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the contract that a checkpoint holds: a rule for each tensor or record.

    Equal rules of names that differ in numbers alone, such as layers, become one, which says how
    many there are. Tensors without a rule are refused.

    *Law*: the model holds it.

    Parameters
    ----------
    model : path
        A checkpoint that is right.

    Returns
    -------
    dict of str to dict
        Rules by pattern, and ``others``, for `check`.

    Raises
    ------
    MemdescError
        If the checkpoint cannot be read, has no tensors, or has padding that is not zero.

    Examples
    --------
    >>> import os, tempfile, numpy as np, reorder
    >>> path = os.path.join(tempfile.mkdtemp(), "x.npz")
    >>> w = reorder.reorder(np.ones((20, 8), np.float16), "Ab8a")
    >>> reorder.save(path, {f"layers.{k}.weight": w for k in range(3)})
    >>> print(reorder.contract_to_toml(reorder.contract_of(path)))
    others = "refused"
    <BLANKLINE>
    ["layers.*.weight"]
    layout = "Ab8a"
    dims = [20, 8]
    dtype = "f16"
    padding = "zero"
    count = 3
    <BLANKLINE>
    """
    held = _Model(model)
    rules: dict[str, dict[str, Any]] = {}
    for prefix, group in held.groups.items():
        if group.desc is not None:
            rules[prefix] = _rule_of_record(group.desc)
    for name, entry in held.entries.items():
        if name not in held.in_groups:
            rules[name] = _rule_of_tensor(held, entry)
    if not rules:
        msg = f"{str(held.path)!r} has no tensors, so there is nothing to expect of it"
        raise MemdescError(msg)
    exact = {glob.escape(name): rule for name, rule in rules.items()}
    found = _merged(rules, held)
    for each in (found, exact):
        # a tensor of this name gets a pattern that matches it alone
        named = {"[o]thers" if key == _OTHERS else key: rule for key, rule in each.items()}
        contract: dict[str, Any] = {_OTHERS: _REFUSED, **named}
        report = _checked(held, _read_contract(contract))
        if report.holds:
            return contract
    breach = report.breaches[0]
    msg = f"{str(held.path)!r} is not right: {breach.name}: {breach.key} {breach.problem}"
    raise MemdescError(msg)


def _rule_of_record(desc: RecordDesc) -> dict[str, Any]:
    shown = [(k, str(v).lower() if isinstance(v, bool) else v) for k, v in desc.options]
    return {"record": str(FormatName(desc.name, tuple(shown))), "dims": [*desc.dims]}


def _rule_of_tensor(held: _Model, entry: Entry) -> dict[str, Any]:
    desc = entry.desc
    if isinstance(desc, RecordDesc):
        return _rule_of_record(desc)
    rule: dict[str, Any] = {"dims": [*entry.shape]}
    if desc is not None:
        rule = {"dims": [*desc.dims], "dtype": desc.dtype.name}
        if text := _spelled(desc):
            rule = {"layout": text, **rule}
        if desc.has_padding:
            rule["padding"] = _ZERO
    if others := siblings_of(held.entries, entry.name).names[1:]:
        rule["scales"] = [*others]
    return rule


def _spelled(desc: MemoryDesc) -> str:
    """Return a string that `parse_layout` reads as this layout; empty if there is none."""
    is_plain = desc == memory_desc(desc.dims, desc.dtype)
    names = sorted(desc.tags(), key=lambda name: name.vocabulary != "weights")
    spellings = ["plain"] if is_plain else [name.text for name in names[:1]]
    for system in ("strides", "verbose"):
        with suppress(MemdescError):
            spellings.append(to_notation(desc, system))
    for text in spellings:
        with suppress(MemdescError):
            if parse_layout(text, desc.dims, desc.dtype) == desc:
                return text
    return ""


def _merged(rules: Mapping[str, dict[str, Any]], held: _Model) -> dict[str, dict[str, Any]]:
    """Return rules of which those of numbered layers are one."""
    alike: dict[str, dict[str, dict[str, Any]]] = {}
    for name, rule in rules.items():
        if "*" not in name:
            starred = {**rule}
            if "scales" in rule:
                starred["scales"] = [_starred(each) for each in rule["scales"]]
            alike.setdefault(glob.escape(_starred(name)).replace("[*]", "*"), {})[name] = starred
    merged: dict[str, dict[str, Any]] = {}
    done: set[str] = set()
    for pattern, found in alike.items():
        first = next(iter(found.values()))
        matched = {*_matched(_Rule(pattern, first, {}), held)}
        if len(found) > 1 and matched == {*found} and all(r == first for r in found.values()):
            merged[pattern] = {**first, "count": len(found)}
            done |= {*found}
    rest = {glob.escape(name): rule for name, rule in rules.items() if name not in done}
    return {**merged, **rest}


def _starred(name: str) -> str:
    """Return a name with stars for its numbers between dots."""
    return re.sub(r"(?<![^.])[0-9]+(?![^.])", "*", name)


def contract_to_toml(rules: Mapping[str, Mapping[str, Any] | str]) -> str:
    """Return a contract as TOML.

    Parameters
    ----------
    rules : mapping of str to mapping
        As `check` takes them, and `contract_of` returns them.

    Returns
    -------
    str
        A table for each pattern.

    Examples
    --------
    >>> import reorder
    >>> print(reorder.contract_to_toml({"a.*": {"layout": "AB8b8a", "dims": [16, 64]}}))
    ["a.*"]
    layout = "AB8b8a"
    dims = [16, 64]
    <BLANKLINE>
    """
    tables = [
        "\n".join([f"[{_text(name)}]", *(f"{key} = {_text(value)}" for key, value in rule.items())])
        for name, rule in rules.items()
        if not isinstance(rule, str)
    ]
    # in TOML, what precedes the tables
    head = [f"{key} = {_text(value)}" for key, value in rules.items() if isinstance(value, str)]
    return "\n\n".join([*head, *tables]) + "\n"


def _text(value: Any) -> str:
    """Return a value in TOML, which writes strings and lists as JSON does, except DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
