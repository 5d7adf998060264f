"""What the tensors of a quantised weight are together: one record, or why they are not.

All sources must agree: types and shapes of the words, descriptors that
are stored with them, the tensors beside them, `g_idx`, the files of the model, and who names it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import DATA_TYPES, MemdescError, RecordDesc, known_records
from memdesc.record.names import read_name
from reorder.storage.containers.descriptors import record_of
from reorder.storage.fitting import check_tensors, desc_of_tensors
from reorder.storage.quantization import CONFIG, KEY, Declared, declared_record
from reorder.storage.siblings import (
    ORDER,
    Siblings,
    find_siblings,
    optional_tensors,
    siblings_of,
    tensors_of,
)
from reorder.storage.stored import ONE
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from reorder.storage.containers.entry import Container, Entry

__all__ = [
    "PARTIAL",
    "Group",
    "Said",
    "find_groups",
    "group_at",
    "partial_of",
    "read_group",
    "said_of",
    "single",
]

# the key of metadata that names tensors whose codes or scales were changed alone
PARTIAL = "memdesc_partial"
# the codes of AutoGPTQ, AutoAWQ and vLLM
_USUAL = "qweight"
# prefixes that a message names
_SHOWN = 4


class Said(NamedTuple):
    """What is said of the quantised weights of a checkpoint, beside their tensors.

    Attributes
    ----------
    declared : Declared, optional
        What the files of the model declare.
    partial : mapping of str to str
        Tensors that an earlier conversion changed without those that belong to them -> its rule.
    name, options : str and mapping of str to object, optional
        The record that the caller names.
    is_partial : bool
        Whether tensors that the record does not use may be left behind.
    has_nodes : bool
        Whether there is a graph, whose nodes may give tensors their scales.
    """

    declared: Declared | None = None
    partial: Mapping[str, str] = {}
    name: str | None = None
    options: Mapping[str, Any] = {}
    is_partial: bool = False
    has_nodes: bool = False


class Group(NamedTuple):
    """The tensors of a quantised weight, and what they are together.

    Attributes
    ----------
    found : Siblings
        All of them.
    desc : RecordDesc, optional
        The record; None if there is none.
    reason : str
        Why there is none.
    """

    found: Siblings
    desc: RecordDesc | None
    reason: str = ""

    @property
    def prefix(self) -> str:
        """What is in front of the names of its tensors."""
        return self.found.prefix

    @property
    def tensors(self) -> dict[str, Entry]:
        """The entry of each tensor of the record, by its name there."""
        names = [] if self.desc is None else self.desc.tensors
        return {name: self.found.entries[name] for name in names}


def said_of(path: Path, container: Container) -> Said:
    """Return what is said of the checkpoint at a path by files beside it, and by its metadata.

    Raises
    ------
    MemdescError
        As of `declared_record`.
    """
    folder = path if path.is_dir() else path.parent
    return Said(declared_record(folder), partial_of(container))


def find_groups(path: Path, container: Container) -> list[Group]:
    """Return the quantised weights of the checkpoint at a path."""
    found = find_siblings(container.entries)
    try:
        said = said_of(path, container) if found else Said()
    except MemdescError as error:
        return [Group(each, None, str(error)) for each in found]
    return [read_group(each, said) for each in found]


def partial_of(container: Container) -> dict[str, str]:
    """Return the tensors that an earlier conversion changed alone, each with its rule."""
    try:
        notes = json.loads(container.metadata.get(PARTIAL, "{}"))
        return {name: str(rule) for rule, names in notes.items() for name in names}
    except (AttributeError, TypeError, ValueError, RecursionError):
        return {}  # not a note of this program


def group_at(entries: Mapping[str, Entry], prefix: str, said: Said) -> Group:
    """Return the record of a prefix; its codes are called as the record that is said calls them.

    Raises
    ------
    MemdescError
        If there are no such codes.
    """
    declared = said.declared.name if said.declared else None
    name = said.name if said.name is not None else declared
    # what nothing names is most often called so
    names = (_USUAL,) if name is None else tensors_of(read_name(name)[0])
    is_single = names == (ONE,)
    full = prefix if is_single else f"{prefix}.{names[0]}".removeprefix(".")
    if full not in entries:
        weights = {each.prefix: each for each in find_siblings(entries)}
        if prefix in weights and said.name is None:
            return read_group(weights[prefix], said)
        held = ", ".join(weights[prefix].names) if prefix in weights else ""
        known = ", ".join(map(repr, [*weights][:_SHOWN]))
        hint = (
            f"it has {held}"
            if held
            else f"prefixes of its {len(weights)} quantised weights: {known}"
            if known
            else "it has no quantised weights"
        )
        msg = f"the checkpoint has no tensor {full!r}; {hint}"
        raise MemdescError(msg)
    found = siblings_of(entries, full)
    return read_group(single(found) if is_single else found, said)


def single(found: Siblings) -> Siblings:
    """Return a tensor that is a record for itself, with what is beside it."""
    codes = found.codes
    rest = {name: entry for name, entry in found.entries.items() if entry is not codes}
    return Siblings(codes.name, {ONE: codes, **rest})


def read_group(found: Siblings, said: Said) -> Group:
    """Decide what the tensors of a quantised weight are together.

    Of the data only `g_idx` is read.
    """
    try:
        stored = _stored(found)
        name, options = _named(said, found, stored)
    except MemdescError as error:
        return Group(found, None, str(error))
    try:
        desc = desc_of_tensors(found, name, options)
        _check_declared(found, desc, said)
        check_tensors(found, desc)
        _check_rest(found, desc, said)
        _check_stored(found, desc, stored)
    except MemdescError as error:
        declared = said.declared if said.name is None else None
        by = f"{declared.file} declares {name}: " if declared else ""
        return Group(found, None, f"{by}{error}")
    return Group(found, desc)


def _stored(found: Siblings) -> RecordDesc | None:
    """Return the record that a descriptor says the tensors are together."""
    values = (entry.value for entry in found.entries.values() if entry.value)
    return next((record_of(value) for value in values if "record" in value), None)


def _named(said: Said, found: Siblings, stored: RecordDesc | None) -> tuple[str, dict[str, Any]]:
    """Return the record that is said, and its options."""
    declared = said.declared
    kept = {} if stored is None else dict(stored.options)
    if said.name is not None:
        name = read_name(said.name)[0]
        if declared is not None and declared.name not in (None, name):
            msg = (
                f"{declared.file} declares {declared.name}, not {name}: name {declared.name}, or "
                f"correct {declared.file} if it is wrong"
            )
            raise MemdescError(msg)
        is_stored = stored is not None and stored.name == name
        return name, {**(kept if is_stored else {}), **said.options}
    if stored is not None and (declared is None or declared.name in (None, stored.name)):
        options = declared.options if declared and declared.name else {}
        return str(stored.name), {**kept, **options, **said.options}
    if declared is None or declared.name is None:
        why = declared.reason if declared else f"no {CONFIG} has a {KEY}"
        names = " or ".join(_fitting(found))
        hint = f"its tensors fit {names}: give the name" if names else "no known record fits it"
        msg = f"nothing declares what {found.prefix!r} holds: {why}; {hint}"
        raise MemdescError(msg)
    return declared.name, {**declared.options, **said.options}


def _fitting(found: Siblings) -> list[str]:
    """Return the records that types and shapes of all tensors fit."""
    names = []
    for name in known_records():
        if tensors_of(name)[0] in found.entries and tensors_of(name) != (ONE,):
            with suppress(MemdescError):
                desc = desc_of_tensors(found, name, {})
                check_tensors(found, desc)
                names += [name] if {*found.entries} <= {*desc.tensors, ORDER} else []
    return names


def _check_declared(found: Siblings, desc: RecordDesc, said: Said) -> None:
    """Refuse options of a record that the files of the model contradict."""
    declared = said.declared
    if declared is None or declared.name != desc.name:
        return
    held = dict(desc.options)
    for key, value in declared.options.items():
        if key not in said.options and held.get(key, value) != value:
            msg = (
                f"{declared.file} declares {key}={value}, and {desc.name} has {key}={held[key]}; "
                f"say {desc.name}({key}={value}), or {desc.name}({key}={held[key]}) if "
                f"{declared.file} is wrong"
            )
            raise MemdescError(msg)
    inputs, group = desc.dims[desc.letters.index("i")], held.get("group")
    is_one = group == -1
    if declared.group not in (None, group) and not (is_one and declared.group >= inputs):
        msg = (
            f"{declared.file} declares group_size {declared.group}, but the shapes of the tensors "
            f"say {'one group' if is_one else f'groups of {group}'} of {inputs} inputs; correct "
            f"{declared.file} if it is wrong"
        )
        raise MemdescError(msg)
    if declared.is_ordered and not is_one and ORDER not in found.entries:
        msg = (
            f"{declared.file} declares desc_act, which assigns inputs to groups by data, but there "
            f"is no {ORDER} that says how; correct {declared.file} if the inputs are in order"
        )
        raise MemdescError(msg)


def _check_stored(found: Siblings, desc: RecordDesc, stored: RecordDesc | None) -> None:
    """Refuse another record than the one that was stored."""
    if stored not in (None, desc):
        msg = (
            f"{found.codes.name!r} is stored as part of {stored!r}, as its descriptor says, not of "
            f"{desc!r}"
        )
        raise MemdescError(msg)


def _check_rest(found: Siblings, desc: RecordDesc, said: Said) -> None:
    """Refuse tensors that the record does not use, an order that is data, and partial changes."""
    rest = [name for name in found.entries if name not in desc.tensors and name != ORDER]
    if rest and not said.is_partial:
        options = [optional_tensors(desc.name).get(name) for name in rest]
        hint = "".join(f"; leave {option}= out" for option in options if option)
        msg = (
            f"{', '.join(found.entries[name].name for name in rest)} belong to {found.codes.name}, "
            f"and {desc!r} does not use them: its numbers would be other ones{hint}"
        )
        raise MemdescError(msg)
    if ORDER in found.entries:
        _check_order(found.entries[ORDER], desc)
    names = [found.entries[name].name for name in desc.tensors]
    changed = [name for name in names if name in said.partial]
    if changed and len(changed) < len(names):
        msg = (
            f"an earlier conversion changed {', '.join(changed)} without the other tensors of "
            f"{found.prefix!r}, by the rule {said.partial[changed[0]]!r}; convert the original "
            "with a rule over the whole record"
        )
        raise MemdescError(msg)


def _check_order(entry: Entry, desc: RecordDesc) -> None:
    """Refuse an arbitrary order of inputs: it is a gather."""
    group = dict(desc.options).get("group")
    inputs = desc.dims[desc.letters.index("i")]
    wanted = np.arange(inputs) // (inputs if group in (-1, None) else int(str(group)))
    nbytes = inputs * INTEGERS[entry.dtype].bits // 8 if entry.dtype in INTEGERS else -1
    if entry.nbytes != nbytes:
        msg = (
            f"{entry.name} of {entry.dtype} and shape {entry.shape} is not an integer for each of "
            f"the {inputs} inputs"
        )
        raise MemdescError(msg)
    if not np.array_equal(entry.read().view(DATA_TYPES[entry.dtype].numpy), wanted):
        msg = (
            f"{entry.name} assigns inputs to groups in an arbitrary order (act-order), which is a "
            "gather, not a layout; the page on checkpoints shows how to decode it with numpy, by "
            f"indexing the scales and zero points of a Record with {ORDER}"
        )
        raise MemdescError(msg)
