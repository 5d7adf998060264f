"""Contracts of checkpoints: rules that say what tensors must hold, read, checked and written.

A contract is TOML: a table for each rule, named by a pattern of names, with what must hold.
"""

from __future__ import annotations

import glob
import json
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from memdesc import (
    ImageDesc,
    MemdescError,
    MemoryDesc,
    PaddingError,
    RecordDesc,
    UnknownFormatError,
    data_type,
    memory_desc,
    parse_layout,
    to_notation,
)
from memdesc.disk import as_path, read_small
from memdesc.errors import first_of, short_repr, starred
from memdesc.int64 import checked_ints
from reorder.records.record import Record
from reorder.storage.convert.rules import (
    FormatName,
    Rule,
    is_record,
    names_matching,
    read_format,
    similar,
)
from reorder.storage.differences import PACKED, PLAIN, can_hold, differences
from reorder.storage.items import Model
from reorder.storage.siblings import siblings_of
from reorder.storage.stored import ONE, stored_layout

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from reorder.storage.containers.entry import Entry
    from reorder.storage.items import Held, Item

    Expected = str | os.PathLike[str] | Mapping[str, Mapping[str, Any] | str]

# bytes of a contract
_MAX_FILE = 1 << 24
_SHOWN = 4
_ZERO = "zero"
# keys that are about one tensor, and about a record
_OF_TENSOR = ("layout", "dtype", "scales")
# keys that say what a tensor holds
_KIND = {"layout", "dims", "dtype"}
# the key of a contract, and its only value, by which every tensor needs a rule
_OTHERS, _REFUSED = "others", "refused"
_QUOTED = '; quote patterns that have dots: ["model.*.weight"]'
_KEYS = ("layout", "record", "dims", "dtype", "padding", "scales", "like", "count")


class Breach(NamedTuple):
    """One way in which a checkpoint breaks its contract, or differs from the reference.

    Parameters
    ----------
    name : str
        A tensor, or the common prefix of a record's tensors.
    key : str
        What does not hold: a key of the rule, ``values`` if the reference differs, or ``reference``
        if values are equal in only one of two readings of it.
    problem : str
        What is wrong, in words.
    rule : str
        The pattern of the rule; empty if there is none.
    causes : tuple of str
        What explains every byte that differs; several causes may predict the same.

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
        Tensors whose file does not say their layout, so that only type and size are known to fit,
        and whose values no reference confirms.
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
        """Whether there are no breaches."""
        return not self.breaches


def check(
    model: str | os.PathLike[str],
    expect: Expected | None = None,
    *,
    reference: str | os.PathLike[str] | None = None,
    reference_is: str | None = None,
) -> CheckReport:
    """Check a checkpoint against a contract, and its values against another checkpoint.

    A rule is a pattern of names, with ``*``, ``?`` and ``[...]`` as in shells, and what must hold
    for what it matches:

    * ``layout``: any notation that `memdesc.parse_layout` reads; with ``dims`` and ``dtype``,
      unless the file says them.
    * ``record``: a name of `memdesc.known_records`, with options as in ``gptq(group=128)``. The
      pattern matches what comes before the names of the record's tensors.
    * ``padding = "zero"``.
    * ``scales``: the names of the tensors that scale the codes, all of them.
    * ``like``: the name of a tensor or a record that has the same dims, type and layout.
    * ``count``: how many tensors or records the pattern matches. Without it, one is enough.

    ``others = "refused"``, before the rules, makes a breach of each tensor that no rule applies to.
    In the names of ``scales`` and ``like``, the first ``*`` stands for what the first one in the
    pattern matches, and so on.

    If neither a descriptor in the reference nor `reference_is` says whether one of its tensors is
    packed as the contract says or plain, both readings must agree. If values are equal in only one
    of them, the tensor stays unconfirmed, which is a breach.

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
    reference_is : {"packed", "plain"}, optional
        What tensors of the reference without descriptors hold: elements packed as in the model, or
        row by row.

    Returns
    -------
    CheckReport
        What does not hold, and what was checked.

    Raises
    ------
    MemdescError
        If a rule has an unknown key or value, contradicts another one, compares tensors only with
        themselves, or matches nothing and has no count; if a checkpoint cannot be read.

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
    if reference_is is not None and reference is None:
        msg = "reference_is says how to read a reference, and there is none"
        raise MemdescError(msg)
    if expect is None and reference is None:
        msg = "check needs what to expect: a contract, or a reference to compare with"
        raise MemdescError(msg)
    if reference_is not in (None, PACKED, PLAIN):
        msg = f"reference_is must be {PACKED!r} or {PLAIN!r}, not {short_repr(reference_is)}"
        raise MemdescError(msg)
    contract = (False, []) if expect is None else _read_contract(expect)
    return _checked(
        Model(model), contract, None if reference is None else Model(reference), reference_is
    )


def _checked(
    model: Model,
    contract: tuple[bool, list[_Clause]],
    reference: Model | None = None,
    reference_is: str | None = None,
) -> CheckReport:
    """Check a model against a contract that is already read, as `check` does."""
    is_complete, rules = contract
    chosen, breaches = _assign(rules, model)
    said: dict[str, FormatName | MemoryDesc] = {}
    covered: set[str] = set()
    items: dict[str, Item] = {}
    # what only a reference can confirm: tensors by name, each with those that it should be like
    unconfirmed: dict[str, set[str]] = {}
    for name, rule in chosen.items():
        item, found = _breaches(model, name, rule)
        breaches += found
        items[name] = item
        covered |= {*item.group.found.names} if name in model.groups else {name}
        if "record" in rule.values:
            said[name] = rule.values["record"]
        elif "layout" in rule.values and isinstance(item.desc, MemoryDesc):
            said[name] = item.desc
            if item.desc != model.entries[name].desc and not {each.key for each in found} & _KIND:
                unconfirmed[name] = {name}
    unlike, alike = _compared_inside(chosen, items)
    breaches += [each for each in unlike if (each.name, "like") not in {b[:2] for b in breaches}]
    for name, both in alike.items():
        unconfirmed.setdefault(name, set()).update(both)
    compared: list[str] = []
    confirmed: set[str] = set()
    if reference is not None:
        for name, differs in differences(model, reference, said, reference_is):
            compared.append(name)
            if differs is None:
                confirmed.add(name)
            else:
                pattern = chosen[name].pattern if name in chosen else ""
                key = "reference" if differs.is_unclear else "values"
                breaches.append(Breach(name, key, differs.problem, pattern, differs.causes))
    without_rule = tuple(name for name in model.entries if name not in covered)
    if is_complete:
        breaches += [
            Breach(each, _OTHERS, "are refused: no rule applies to it") for each in without_rule
        ]
    still_open = tuple(name for name, alike in unconfirmed.items() if not alike <= confirmed)
    return CheckReport(tuple(breaches), tuple(chosen), without_rule, still_open, tuple(compared))


class _Clause(NamedTuple):
    """A rule, or what several say about one tensor: the values by key, and the pattern of each.

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


def _read_contract(given: Expected) -> tuple[bool, list[_Clause]]:
    """Return whether a contract refuses tensors without a rule, and its rules."""
    found = given if isinstance(given, Mapping) else read_toml(as_path(given))
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


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a file of TOML says. Fails if it is not one."""
    try:
        return tomllib.loads(read_small(path, _MAX_FILE).decode())
    except MemdescError:
        raise
    except (ValueError, RecursionError) as error:
        msg = f"{str(path)!r} is not TOML: {error}"
        raise MemdescError(msg) from None


def _read_rule(pattern: object, values: object) -> _Clause:
    rule = _Clause(str(pattern), {}, {})
    if not isinstance(pattern, str) or not isinstance(values, Mapping):
        rule.fail(f"it must be a table of {', '.join(_KEYS)}, not {short_repr(values)}{_QUOTED}")
    made: dict[str, Any] = {}
    for key, value in values.items():
        if key not in _KEYS:
            hint = _QUOTED if isinstance(value, Mapping) else ""
            rule.fail(f"{key!r} is not a key; the keys are {', '.join(_KEYS)}{hint}")
        made[key] = value if key == "count" else _read_value(rule, key, value)
    if not made:
        rule.fail(f"it is empty; the keys are {', '.join(_KEYS)}")
    number = made.pop("count", None)
    if number is not None and (type(number) is not int or number < 1):
        rule.fail(f"count must be an integer of 1 or more, not {short_repr(number)}")
    if "record" in made:
        for key in _OF_TENSOR:
            if key in made:
                rule.fail(f"it has both record and {key}; a record says the {key} of its tensors")
    return _Clause(pattern, made, dict.fromkeys(made, pattern), number)


def _read_value(rule: _Clause, key: str, value: Any) -> Any:
    """Return the value of a key."""
    if key == "scales":
        if not isinstance(value, list | tuple) or not all(isinstance(x, str) for x in value):
            rule.fail(f"scales must be a list of names of tensors, not {short_repr(value)}")
        return tuple(value)
    if key != "dims" and not isinstance(value, str):
        rule.fail(f"{key} must be a string, not {short_repr(value)}")
    if key == "padding" and value != _ZERO:
        rule.fail(f'padding must be "zero", not {short_repr(value)}')
    if key in {"dims", "dtype"}:
        try:
            return checked_ints("dims", value) if key == "dims" else data_type(value)
        except MemdescError as error:
            rule.fail(str(error))
    if key == "record":
        found = read_format(Rule(rule.pattern, rule.pattern), key, value)
        if not is_record(found):
            rule.fail(f"{found.name!r} is not a record; memdesc.known_records() lists them")
        return found
    return value


def _assign(rules: Iterable[_Clause], model: Model) -> tuple[dict[str, _Clause], list[Breach]]:
    """Return what the rules say about each tensor and record, and the rules whose count is wrong.

    Fails if a rule without a count matches nothing, or two contradict each other.
    """
    chosen: dict[str, _Clause] = {}
    breaches = []
    for rule in rules:
        names = _matched(rule, model)
        if not names and rule.number is None:
            what = "record" if "record" in rule.values else "tensor"
            shown = similar(rule.pattern, {*model.groups, *model.entries})
            rule.fail(f"it matches no {what} of {str(model.path)!r}{shown}")
        if rule.number not in (None, len(names)):
            problem = f"is {len(names)}, not {rule.number}"
            breaches.append(Breach(rule.pattern, "count", problem, rule.pattern))
        like = rule.values.get("like")
        if like and names and all(_named(rule.pattern, name, like) == name for name in names):
            rule.fail(f"like = {short_repr(like)} compares each tensor with itself only")
        for name in names:
            chosen[name] = _joined(chosen.get(name), rule, name)
    ordered = {name: chosen[name] for name in (*model.entries, *model.groups) if name in chosen}
    return ordered, breaches


def _matched(rule: _Clause, model: Model) -> list[str]:
    """Return the tensors and records that a rule applies to."""
    groups, tensors = (
        names_matching(rule.pattern, names) for names in (model.groups, model.entries)
    )
    if "record" in rule.values:
        # a record in one tensor has the name of the tensor
        single_ones = [n for n in tensors if isinstance(model.entries[n].desc, RecordDesc)]
        alone = [name for name in tensors if name not in model.in_groups]
        return [*groups, *single_ones] or alone
    if rule.values.keys() == {"padding"}:
        known = [name for name in groups if model.groups[name].desc is not None]
        return list(dict.fromkeys((*tensors, *known))) or groups
    return tensors or ([] if {*_OF_TENSOR} & rule.values.keys() else groups)


def _joined(old: _Clause | None, new: _Clause, name: str) -> _Clause:
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
    return _Clause(new.pattern, {**old.values, **new.values}, {**old.origin, **new.origin})


# What must hold.


def _is_about_record(model: Model, name: str, rule: _Clause) -> bool:
    """Whether a rule is about a record, rather than about the tensor of the same name."""
    return "record" in rule.values or name not in model.entries


def _breaches(model: Model, name: str, rule: _Clause) -> tuple[Item, list[Breach]]:
    """Return what a tensor or a record holds by its rule, and how it breaks the rule."""
    values = rule.values
    found: list[tuple[str, str]] = []
    if _is_about_record(model, name, rule):
        item = model.record(name, values.get("record"))
        if item.desc is None:
            key = next(key for key in ("record", *values) if key in values)
            reason = item.group.reason
            found = [(key, reason if key == "record" else f"is unknown: {reason}")]
        elif "dims" in values and item.desc.dims != values["dims"]:
            found = [("dims", f"are {item.desc.dims}, not {values['dims']}")]
    else:
        desc, found = _held_by(model.entries[name], rule)
        item = model.tensor(name, desc)
        if "scales" in values:
            wanted = {_named(rule.origin["scales"], name, each) for each in values["scales"]}
            beside = {*siblings_of(model.entries, name).names[1:]}
            if wanted != beside:
                found.append(("scales", f"are {_listed(beside)}, not {_listed(wanted)}"))
    if "padding" in values and (problem := _padding_problem(item)):
        found.append(("padding", problem))
    return item, [Breach(name, key, problem, rule.origin[key]) for key, problem in found]


def _compared_inside(
    chosen: Mapping[str, _Clause], items: Mapping[str, Item]
) -> tuple[list[Breach], dict[str, set[str]]]:
    """Return the breaches of ``like``, and what only seems to be like another one.

    The latter by name, with the names of both: their layouts are equal by rules, and no file says
    them.
    """
    breaches: list[Breach] = []
    alike = {}
    for name, rule in chosen.items():
        if "like" not in rule.values:
            continue
        problem, both = _unlike(items[name], rule, items)
        if problem:
            breaches.append(Breach(name, "like", problem, rule.origin["like"]))
        elif both:
            alike[name] = both
    return breaches, alike


def _unlike(item: Item, rule: _Clause, items: Mapping[str, Item]) -> tuple[str, set[str]]:
    """Return how something differs from what it should be like; empty if it does not.

    If it does not, also both names, unless files say both layouts. `items` are what rules say that
    tensors and records hold.
    """
    model, name, desc = item.model, item.name, item.desc
    other = _named(rule.origin["like"], name, rule.values["like"])
    if other == name:
        return "", set()  # all the others are compared with it
    if other not in model.entries and other not in model.groups:
        return f"refers to {other!r}, which does not exist", set()
    is_record = other in model.groups and (
        _is_about_record(model, name, rule) or other not in model.entries
    )
    theirs = model.record(other) if is_record else model.tensor(other)
    if not _is_said(theirs):
        theirs = items.get(other, theirs)
    if theirs.desc is None or desc is None:
        return f"nothing says what {name if desc is None else other!r} holds", set()
    if theirs.desc != desc:
        return f"is {desc!r}, and {other} is {theirs.desc!r}", set()
    return "", set() if _is_said(item) and _is_said(theirs) else {name, other}


def _is_said(item: Item) -> bool:
    """Whether the file says the layout of what it holds."""
    return isinstance(item.desc, RecordDesc) or (
        ONE in item.tensors and item.tensors[ONE].is_described
    )


def _padding_problem(item: Item) -> str:
    """Return where padding is not zero, or an empty string."""
    desc = item.desc
    try:
        if isinstance(desc, RecordDesc):
            Record(desc, item.data).check_padding()
        elif desc is not None and desc.has_padding and desc.nbytes <= item.tensors[ONE].nbytes:
            item.memory().check_padding()
    except PaddingError as error:
        return str(error)
    return ""


def _named(pattern: str, name: str, wanted: str) -> str:
    """Return the name that a rule means for one that its pattern matches."""
    return Rule(pattern, pattern, rename=wanted).renamed(name)


def _listed(names: Iterable[str]) -> str:
    return first_of(sorted(names), _SHOWN) or "none"


def _held_by(entry: Entry, rule: _Clause) -> tuple[Held, list[tuple[str, str]]]:
    """Return what a tensor holds if it is as its rule says, and what contradicts that."""
    values = rule.values
    found = entry.desc
    dims = found.dims if found is not None else entry.shape
    kind = found.dtype if isinstance(found, MemoryDesc) else None
    if "layout" not in values or not (kind or "dtype" in values):
        problems = []
        if "layout" in values:
            problems.append(
                ("layout", f"is unknown: it holds {entry.dtype}, and the rule gives no dtype")
            )
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
        except UnknownFormatError as again:
            rule.fail(str(again))  # not a layout of any tensor
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
    of_dims, of_dtype = (key if key in values else "layout" for key in ("dims", "dtype"))
    if entry.is_described and isinstance(found, MemoryDesc):
        problems = []
        if found.dims != wanted.dims:
            problems.append((of_dims, f"are {found.dims}, not {wanted.dims}"))
        if found.dtype != wanted.dtype:
            problems.append((of_dtype, f"is {found.dtype}, not {wanted.dtype}"))
        return problems or [("layout", f"is {found!r}, not {wanted!r}")]
    held = f"the tensor of shape {entry.shape} and {entry.dtype}"
    if entry.nbytes != wanted.nbytes:
        problem = f"takes {wanted.nbytes} bytes as {wanted!r}, but {held} has {entry.nbytes}"
        return [("layout", problem)]
    if not can_hold(entry.dtype, wanted):
        return [(of_dtype, f"is {entry.dtype}, not {wanted.dtype}")]
    shapes = {stored_layout("", wanted, each).shape for each in (None, entry.dtype)}
    is_packed = wanted != memory_desc(wanted.dims, wanted.dtype)
    # programs give packed elements different shapes, and merge dims in words of row-major ones
    merges = entry.dtype != wanted.dtype.name and _rows(entry.shape) <= _rows(wanted.dims)
    if is_packed or merges or entry.shape in {*shapes, wanted.dims} or len(entry.shape) == 1:
        return []
    return [(of_dims, f"of {wanted!r} are not those of {held}")]


def _rows(shape: tuple[int, ...]) -> set[int]:
    """Return in how many equal parts the dims divide row-major memory, from the first dim on.

    Dims of size 1 divide nothing: a column of words is as flat as a vector.
    """
    return {1, *accumulate([each for each in shape if each != 1][:-1], mul)}


# Writing a contract.


def contract_of(model: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the contract that a checkpoint holds: a rule for each tensor or record.

    Equal rules for names that differ only in numbers, such as those of layers, become one. Each
    rule has the count of its tensors, and tensors without a rule are refused. A tensor without a
    descriptor is taken to be plain.

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
    return _contract_of(Model(model))


def written_contract(model: str | os.PathLike[str]) -> tuple[str, int, dict[str, str]]:
    """Return the contract that a checkpoint holds, as TOML, and the number of its rules.

    Also, by pattern, the layouts that are assumed because no descriptor gives them; a comment in
    the TOML marks each.
    """
    held = Model(model)
    contract = _contract_of(held)
    assumed = {
        rule.pattern: rule.values["layout"]
        for rule in _read_contract(contract)[1]
        if "layout" in rule.values
        and not all(held.entries[name].is_described for name in _matched(rule, held))
    }
    text = contract_to_toml(contract)
    for pattern, layout in assumed.items():
        line = f"[{_text(pattern)}]\nlayout = {_text(layout)}\n"
        text = text.replace(line, f"{line[:-1]}  # assumed: the file does not say it\n")
    return text, len(contract) - 1, assumed


def _contract_of(held: Model) -> dict[str, Any]:
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
    rules = {name: {**rule, "count": 1} for name, rule in rules.items()}
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


def _rule_of_tensor(model: Model, entry: Entry) -> dict[str, Any]:
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
    if others := siblings_of(model.entries, entry.name).names[1:]:
        rule["scales"] = [*others]
    return rule


def _spelled(desc: MemoryDesc) -> str:
    """Return a string that `parse_layout` reads as this layout; empty if there is none."""
    is_plain = desc == memory_desc(desc.dims, desc.dtype)
    # codes have the name of a packing rather than a tag; floats only where there is no short tag
    first = ("weights", "onednn") if desc.dtype.bits <= 8 else ("onednn", "weights")  # noqa: PLR2004 - a byte
    by_vocabulary = {name.vocabulary: name.text for name in reversed(desc.tags())}
    names = [by_vocabulary[each] for each in (*first, *by_vocabulary) if each in by_vocabulary]
    spellings = ["plain"] if is_plain else names[:1]
    for system in ("strides", "verbose"):
        with suppress(MemdescError):
            spellings.append(to_notation(desc, system))
    for text in spellings:
        with suppress(MemdescError):
            if parse_layout(text, desc.dims, desc.dtype) == desc:
                return text
    return ""


def _merged(rules: Mapping[str, dict[str, Any]], model: Model) -> dict[str, dict[str, Any]]:
    """Return the rules by pattern, with those of numbered layers merged into one."""
    alike: dict[str, list[str]] = {}
    for name in rules:
        alike.setdefault(starred(name), []).append(name)
    merged: dict[str, dict[str, Any]] = {}
    for like, names in alike.items():
        pattern = glob.escape(like).replace("[*]", "*")
        first, *others = (
            {k: [*map(starred, v)] if k == "scales" else v for k, v in rules[name].items()}
            for name in names
        )
        is_one = others and all(each == first for each in others) and "*" not in "".join(names)
        if is_one and {*_matched(_Clause(pattern, first, {}), model)} == {*names}:
            merged[pattern] = {**first, "count": len(names)}
        else:
            merged |= {glob.escape(name): rules[name] for name in names}
    return merged


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

    Raises
    ------
    MemdescError
        If a rule has an unknown key or value.

    Examples
    --------
    >>> import reorder
    >>> print(reorder.contract_to_toml({"a.*": {"layout": "AB8b8a", "dims": [16, 64]}}))
    ["a.*"]
    layout = "AB8b8a"
    dims = [16, 64]
    <BLANKLINE>
    """
    if not isinstance(rules, Mapping):
        msg = f"a contract is a mapping of patterns to rules, not {short_repr(rules)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    is_complete, clauses = _read_contract(rules)
    # in TOML, what precedes the tables
    parts = [f"{_OTHERS} = {_text(_REFUSED)}"] if is_complete else []
    for clause in clauses:
        rule = rules[clause.pattern]
        table: dict[str, Any] = {} if isinstance(rule, str) else dict(rule)
        if "dims" in table:  # any sequence
            table["dims"] = clause.values["dims"]
        lines = [f"{key} = {_text(value)}" for key, value in table.items()]
        parts.append("\n".join([f"[{_text(clause.pattern)}]", *lines]))
    return "\n\n".join(parts) + "\n"


def _text(value: Any) -> str:
    """Return a value in TOML, which writes strings and lists as JSON does, except DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
