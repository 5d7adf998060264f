"""Decide what the tensors of a quantised weight are together: a record, a Quantized, or neither.

All sources must agree: the types and shapes of the words, the descriptors and the note stored with
them, the tensors beside them, `g_idx`, the model's config files, and a name given by the caller.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import MemdescError, MemoryDesc
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.errors import short_repr
from memdesc.record import RecordDesc, record_desc
from memdesc.record.bind import SHOWN, Stored, bind, difference
from memdesc.record.names import read_name, scheme_of
from memdesc.record.rows import SCHEMES
from reorder.checkpoints.config import CONFIG, KEY, Configs, Declared, Said
from reorder.checkpoints.formats.descriptors import record_of
from reorder.checkpoints.formats.entry import Entry, FileState, stored_desc
from reorder.checkpoints.siblings import (
    ORDERS,
    Siblings,
    find_siblings,
    holds_codes,
    note_of,
    order_of,
    siblings_of,
    tensors_of,
)
from reorder.checkpoints.stored import ONE, QUANTIZED
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from reorder.checkpoints.formats.entry import Container

# metadata key in which ComfyUI says how layers are quantised
_COMFYUI = "_quantization_metadata"
# the codes of AutoGPTQ, AutoAWQ and vLLM
_USUAL = "qweight"
# how many prefixes a message lists
_SHOWN = 4


class Claims(NamedTuple):
    """What files and the caller claim about the weights of a checkpoint."""

    # what the model's config files declare
    declared: Declared | None = None
    # the record that the caller names
    name: str | None = None
    options: Mapping[str, Any] = {}
    # whether there is a graph, whose nodes may give tensors their scales
    has_nodes: bool = False


class Group(NamedTuple):
    """The tensors of a quantised weight, and what they are together."""

    # all of them
    found: Siblings
    # the record; None if there is none
    desc: RecordDesc | None
    # why there is none
    reason: str = ""
    # the axis and the groups of a saved Quantized, which is not a record
    quantized: Mapping[str, Any] | None = None
    # whether its scales are looked up by an indirection table for each input (act-order)
    is_looked_up: bool = False

    @property
    def is_known(self) -> bool:
        """Whether its numbers are known."""
        return self.desc is not None or self.quantized is not None

    @property
    def prefix(self) -> str:
        """The prefix that the names of its tensors share."""
        return self.found.prefix

    @property
    def tensors(self) -> dict[str, Entry]:
        """The entry of each tensor that the numbers need, by its role."""
        if self.quantized is not None:
            return dict(self.found.entries)
        names = [] if self.desc is None else self.desc.tensors
        return {name: self.found.entries[name] for name in names}

    def decoded_name(self, prefix: str) -> str:
        """Return the name of the plain tensor that it becomes under a prefix.

        That is the prefix itself for codes without an ending, such as experts in one tensor.
        """
        has_ending = len(self.tensors) != 1 and self.found.is_dotted
        return f"{prefix}.weight".removeprefix(".") if has_ending else prefix


class Model:
    """A checkpoint: its tensors, what its config files say, and its quantised weights.

    Config files are read once, and each weight is decided once, when it is asked for.
    """

    def __init__(self, path: Path, container: Container, configs: Configs | None = None) -> None:
        self.path = path
        self.container = container
        self.configs = configs or Configs(path)

    def of(self, entries: dict[str, Entry]) -> Model:
        """Return the same model with other tensors."""
        return Model(self.path, self.container._replace(entries=entries), self.configs)

    def keeping(self, entries: dict[str, Entry]) -> Model:
        """Return the same model with some of its tensors; what its weights are stays decided."""
        made = self.of(entries)
        made.__dict__["_known"] = self._known
        return made

    @cached_property
    def claims(self) -> Claims:
        """What the metadata and the files beside the checkpoint claim.

        Fails where `Configs.declared` does, and if ComfyUI says how layers are quantised.
        """
        return claims_of(self.configs, self.container)

    @cached_property
    def weights(self) -> list[Siblings]:
        """The tensors of each quantised weight; some may be in files that were not read."""
        absent = {name: elsewhere(name, self.path) for name in self._homes}
        entries = self.container.entries
        return [
            each
            for each in find_siblings(entries | absent)
            if not entries.keys().isdisjoint(each.names)
        ]

    @cached_property
    def _homes(self) -> dict[str, str]:
        """The files of tensors that were not read."""
        unread = self.container.unread.items()
        return {name: file for file, each in unread for name in each.names}

    @cached_property
    def groups(self) -> list[Group]:
        """The quantised weights, and what each is."""
        return [self.group(each) for each in self.weights]

    @cached_property
    def _known(self) -> dict[str, Group]:
        return {}

    def group(self, found: Siblings) -> Group:
        """Return what a quantised weight is.

        It is not a record if some of its tensors are in files that were not read.
        """
        name = found.codes.name
        if name not in self._known or self._known[name].tensors.items() - found.entries.items():
            self._known[name] = self._decided(found)
        return self._known[name]

    def _decided(self, found: Siblings) -> Group:
        away = [
            f"{name} is in {self._homes[name]}, unread"
            for name in found.names
            if name in self._homes
        ]
        if away:
            return Group(found, None, ", ".join(away))
        try:
            return read_group(found, self.claims)
        except MemdescError as error:
            return Group(found, None, str(error))


def claims_of(configs: Configs, container: Container) -> Claims:
    """Return what a checkpoint's metadata and the files beside it claim.

    Fails where `Configs.declared` does, and if ComfyUI says how layers are quantised.
    """
    if _COMFYUI in container.metadata:
        msg = (
            f"the header has {_COMFYUI}, in which ComfyUI says how layers are quantised; it may "
            "order their scales as a kernel reads them, or rotate the weights, which no record "
            "here does; decode it with ComfyUI"
        )
        raise MemdescError(msg)
    return Claims(configs.declared)


def find_plain(model: Model, layers: Iterable[str]) -> dict[str, str]:
    """Return the layers that a config file declares quantised, but whose weights are plain floats.

    The values are the reasons.
    """
    found = {}
    with suppress(MemdescError):  # `Model.groups` says that a file is damaged
        declared = model.claims.declared
        for layer in layers if declared else ():
            said = declared.named(layer) if declared else None
            if said is not None and said.name is not None:
                found[layer] = f"{said.file} declares {said.name}, but its weight is plain"
    return found


def find_unscaled(model: Model) -> dict[str, str]:
    """Return the layers that a config file declares quantised, and that have codes but no scales.

    The values are the reasons.
    """
    found: dict[str, str] = {}
    taken = {name for group in model.groups for name in group.found.names}
    with suppress(MemdescError):  # `Model.groups` says that a file is damaged
        declared = model.claims.declared or Declared(Said("", None))
        for name, entry in model.container.entries.items():
            layer, _, role = name.rpartition(".")
            if name in taken or len(entry.shape) < len(_MATRIX) or not holds_codes(entry):
                continue
            for part in declared.at(layer):
                if part.name is not None and tensors_of(part.name)[0] == role:
                    why = f"no scales are beside its codes of {entry.dtype}"
                    found.setdefault(layer, f"{part.file} declares {part.name}, but {why}")
    return found


def find_orphans(model: Model) -> dict[str, str]:
    """Return tensors named like scales of other layers whose own weight is in no group.

    The values are the names that these weights would have. What scales are called is taken from the
    known groups.
    """
    known = {name for group in model.groups for name in group.found.names}
    scaled = {
        role: next(iter(each.tensors)) for each in model.groups for role in [*each.tensors][1:]
    }
    found = {}
    for name in model.container.entries:
        prefix, _, role = name.rpartition(".")
        if role in scaled and name not in known:
            weight = f"{prefix}.{scaled[role]}".removeprefix(".")
            if weight not in known:
                found[name] = weight
    return found


def elsewhere(name: str, source: Path) -> Entry:
    """Return a stand-in for a tensor of another shard, which is not read."""
    return Entry(name, "unknown", (), source, 0, 0, FileState(0, 0))


def group_at(entries: Mapping[str, Entry], prefix: str, claims: Claims) -> Group:
    """Return the quantised weight with a prefix; the expected record gives the name of its codes.

    The prefix may also be the name of the codes.

    Fails if there are no such codes.
    """
    for single_name in (prefix, f"{prefix}.weight"):
        entry = entries.get(single_name)
        if entry is not None and isinstance(entry.desc, RecordDesc) and claims.name is None:
            claims = claims._replace(declared=None, name=entry.desc.name)
            return read_group(single(siblings_of(entries, single_name)), claims)
    declared = claims.declared.at(prefix)[0].name if claims.declared else None
    name = claims.name if claims.name is not None else declared
    # the most common name, if nothing says which record it is
    names = (_USUAL,) if name is None else tensors_of(read_name(name)[0])
    is_single = names == (ONE,)
    full = prefix if is_single else f"{prefix}.{names[0]}".removeprefix(".")
    if full not in entries:
        weights = {each.prefix: each for each in find_siblings(entries)}
        of_codes = {each.codes.name: each.prefix for each in weights.values()}
        if of_codes.get(prefix, prefix) != prefix:
            return group_at(entries, of_codes[prefix], claims)
        if prefix in weights and (claims.name is None or names[0] in weights[prefix].entries):
            return read_group(weights[prefix], claims)
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
    return read_group(single(found) if is_single else found, claims)


def single(found: Siblings) -> Siblings:
    """Return a tensor that is a whole record by itself, with the tensors beside it."""
    codes = found.codes
    rest = {name: entry for name, entry in found.entries.items() if entry is not codes}
    return Siblings(codes.name, {ONE: codes, **rest})


def read_group(found: Siblings, claims: Claims) -> Group:
    """Decide what the tensors of a quantised weight are together.

    The only data that is read is `g_idx`, and the tensors that have options of the record.
    """
    try:
        noted = _noted(found)
        if isinstance(noted, dict):
            reason = (
                f"{found.prefix!r} is a Quantized, which reorder.load_all(path, reorder.Quantized) "
                "reads"
            )
            return Group(found, None, reason, noted)
        declared: Sequence[Said | None] = (None,)
        if claims.declared is not None:
            declared = claims.declared.at(found.prefix)
    except MemdescError as error:
        return Group(found, None, str(error))
    present = [each for each in declared if each is None or _has_tensors_of(found, each.name)]
    groups = [_read(found, claims, noted, each) for each in present or declared]
    known = {group.desc: group for group in groups if group.desc is not None}
    if len(known) > 1:
        names = " and ".join(map(repr, known))
        reason = f"{groups[0].prefix!r} fits {names}, which are declared for different classes"
        return Group(found, None, f"{reason}: give the name")
    return next(iter(known.values()), groups[0])


def _has_tensors_of(found: Siblings, name: str | None) -> bool:
    """Whether a weight has all tensors of a record."""
    scheme = None if name is None else scheme_of(name)
    if scheme is None:
        return True
    return {*scheme.tensors(**scheme.shown(found.entries))} <= found.entries.keys()


def _read(
    found: Siblings, claims: Claims, noted: RecordDesc | None, declared: Said | None
) -> Group:
    """Decide what tensors are, given what is declared about this layer."""
    try:
        name, options = _named(claims, found, noted, declared)
    except MemdescError as error:
        return Group(found, None, str(error))
    try:
        desc = desc_of_tensors(found, name, options)
        _check_declared(found, desc, declared)
        if (looked_up := _looked_up(found, desc)) is not None:
            _check_rest(looked_up, desc, claims, declared)
            order = {role: found.entries[role] for role in ORDERS if role in found.entries}
            held = Siblings(found.prefix, {**looked_up.entries, **order})
            return Group(held, desc_of_tensors(looked_up, name, options), is_looked_up=True)
        _check_rest(found, desc, claims, declared)
        _check_noted(found, desc, noted)
    except MemdescError as error:
        is_said = declared is not None and claims.name is None
        by = f"{declared.file} declares {name}: " if declared and is_said else ""
        return Group(found, None, f"{by}{error}")
    return Group(found, desc)


def _noted(found: Siblings) -> RecordDesc | dict[str, Any] | None:
    """Return the record, or the facts of the Quantized, that a saved file has; else None.

    Fails if they are damaged.
    """
    if found.codes.note is None:
        return None
    note = found.note or note_of(
        {each.name: each for each in found.entries.values()}, found.codes.name
    )
    facts = note.facts.get("quantized")
    if facts is None:
        return record_of(note.facts)
    is_whole = isinstance(facts, dict) and facts.keys() == {"axis", "groups"}
    roles = [*QUANTIZED]
    if not is_whole or [*found.entries] not in (roles, roles[:-1]):  # zero points may all be 0
        msg = f"the descriptor of {short_repr(found.codes.name)} does not say what scales its codes"
        raise MemdescError(msg)
    return dict(facts)


def _named(
    claims: Claims, found: Siblings, noted: RecordDesc | None, declared: Said | None
) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of the record that the sources name."""
    if declared is not None and declared.is_ignored:
        msg = (
            f"{declared.reason}, but its tensors are quantised: correct {declared.file} if it is "
            "wrong; a conversion can leave them as they are, with a rule that does not match them"
        )
        raise MemdescError(msg)
    given = claims.name if claims.name is not None else noted.name if noted is not None else None
    if given is not None:
        name = read_name(given)[0]
        if declared is not None and declared.name not in (None, name):
            msg = (
                f"{declared.file} declares {declared.name}, not {name}: name {declared.name}, or "
                f"correct {declared.file} if it is wrong"
            )
            raise MemdescError(msg)
        if claims.name is None and declared is not None and declared.name is None:
            _check_unlisted(declared, found, name)
        options = dict(noted.options) if noted is not None and noted.name == name else {}
        if declared is not None and declared.name == name:
            options |= declared.options
        return name, {**options, **claims.options}
    if declared is None or declared.name is None:
        why = declared.reason if declared else f"no {CONFIG} has a {KEY}"
        names = _fitting(found)
        if declared is None and len(names) == 1 and SCHEMES[names[0]].is_told:
            return names[0], dict(claims.options)
        hint = "no known record fits it"
        if names:
            axes = "(axes=oi)" if read_name(names[0])[1] == _MATRIX else ""
            hint = (
                f"its tensors fit {' or '.join(names)}: give the name, in a rule such as --map "
                f"'{found.prefix}: {names[0]} -> plain{axes}, bf16'"
            )
        msg = f"nothing declares what {found.prefix!r} holds: {why}; {hint}"
        raise MemdescError(msg)
    return declared.name, {**declared.options, **claims.options}


def _check_unlisted(declared: Said, found: Siblings, name: str) -> None:
    """Refuse a declared format without a record if the descriptors in a file name a record."""
    if not declared.is_unlisted:
        msg = (
            f"the descriptors of {found.prefix!r} say {name}, but {declared.reason}; correct "
            f"{declared.file} if it is wrong"
        )
        raise MemdescError(msg)


def _fitting(found: Siblings) -> list[str]:
    """Return the schemes that fit the types and shapes of all tensors, whatever their options."""
    names = []
    for name, scheme in SCHEMES.items():
        known = {*scheme.tensors(), *scheme.optional, *ORDERS}
        if scheme.tensors()[0] in found.entries and found.entries.keys() <= known:
            others = [f"{name}({o.name}={each})" for o in scheme.hidden for each in o.legal[1:]]
            names += [name, *others] if bind(scheme, _stored(found), {}).descs else []
    return names


def _looked_up(found: Siblings, desc: RecordDesc) -> Siblings | None:
    """Return a weight with the scales of each input, if a table says in which group each is.

    None if there is no such table, or it has the order of the inputs.

    Fails if it names a group that does not exist.
    """
    scheme, order = scheme_of(desc.name), order_of(found)
    parts = () if scheme is None else scheme.parts
    roles = [part.tensor for part in parts if part.by in found.entries]
    if order is None or not roles or _is_in_order(order, desc):
        return None
    table, count = _integers_of(order), desc.scales.layout.dims[desc.letters.index("i")]
    if table.min() < 0 or table.max() >= count:
        msg = f"{order.name} has groups {table.min()} to {table.max()}, but there are {count}"
        raise MemdescError(msg)
    rows = tuple(table.tolist())
    for role in roles:
        if found.entries[role].is_described or found.entries[role].shape[:1] != (count,):
            msg = f"{found.entries[role].name} does not have a row for each of {count} groups"
            raise MemdescError(msg)
    held = {
        role: entry.by_rows(rows) if role in roles else entry
        for role, entry in found.entries.items()
        if entry is not order
    }
    return Siblings(found.prefix, held)


def _check_declared(found: Siblings, desc: RecordDesc, declared: Said | None) -> None:
    """Refuse options of a record that contradict the files of the model."""
    if declared is None or declared.name != desc.name:
        return
    held = dict(desc.options)
    inputs, group = desc.dims[desc.letters.index("i")], held.get("group")
    is_one = group == -1
    if declared.group not in (None, group) and not (is_one and declared.group >= inputs):
        msg = (
            f"{declared.file} declares group_size {declared.group}, but the shapes of the tensors "
            f"say {'one group' if is_one else f'groups of {group}'} of {inputs} inputs of "
            f"{found.prefix!r}; correct {declared.file} if it is wrong"
        )
        raise MemdescError(msg)
    if declared.is_ordered and not is_one and order_of(found) is None:
        msg = (
            f"{declared.file} declares act-order, which assigns inputs to groups by data, but "
            f"there is no {ORDERS[0]} that says how; correct {declared.file} if the inputs are in "
            "order"
        )
        raise MemdescError(msg)


def _check_rest(found: Siblings, desc: RecordDesc, claims: Claims, declared: Said | None) -> None:
    """Refuse tensors that the record does not use, and act-order."""
    rest = [name for name in found.entries if name not in {*desc.tensors, *ORDERS}]
    if rest:
        scheme = scheme_of(desc.name)
        options = [scheme.optional.get(name) if scheme else None for name in rest]
        hint = "".join(
            f"; leave {option}= out"
            if option in claims.options or declared is None
            else f"; correct {declared.file} if there are {option}"
            for option in options
            if option
        )
        msg = (
            f"{', '.join(found.entries[name].name for name in rest)} belong to {found.codes.name}, "
            f"and {desc!r} does not use them: its numbers would be different{hint}"
        )
        raise MemdescError(msg)
    if (order := order_of(found)) is not None and not _is_in_order(order, desc):
        msg = (
            f"{order.name} assigns inputs to groups in an arbitrary order (act-order), and no "
            f"scheme here looks up the scales of {desc.name} by such a table"
        )
        raise MemdescError(msg)


def _check_noted(found: Siblings, desc: RecordDesc, noted: RecordDesc | None) -> None:
    """Refuse a record other than the one in the note."""
    if noted not in (None, desc):
        msg = (
            f"{found.codes.name!r} is stored as part of {noted!r}, as its descriptor says, not of "
            f"{desc!r}"
        )
        raise MemdescError(msg)


def _integers_of(order: Entry) -> NDArray[Any]:
    return order.read().view(DATA_TYPES[order.dtype].numpy)


def _is_in_order(order: Entry, desc: RecordDesc) -> bool:
    """Whether a table assigns inputs to groups in their order. Fails if it is not for them all."""
    group = dict(desc.options).get("group")
    inputs = desc.dims[desc.letters.index("i")]
    nbytes = inputs * INTEGERS[order.dtype].bits // 8 if order.dtype in INTEGERS else -1
    if order.nbytes != nbytes or not inputs:
        msg = (
            f"{order.name} of {order.dtype} and shape {order.shape} is not an integer for each of "
            f"the {inputs} inputs"
        )
        raise MemdescError(msg)
    wanted = np.arange(inputs) // (inputs if group in (-1, None) else int(str(group)))
    return np.array_equal(_integers_of(order), wanted)


# tensors of formats that are not decoded -> the name whose error says why
_REFUSED = {"weight.nested_absmax": "bnb_nested", "SCB": "bnb_int8"}
# dims of records whose scales are (groups, out)
_MATRIX = "io"


def desc_of_tensors(found: Siblings, name: str, given: Mapping[str, Any]) -> RecordDesc:
    """Return the named record that tensors are. Fails if there is none, or several."""
    for role, refused in _REFUSED.items():
        if role in found.entries:
            read_name(refused)
    scheme = scheme_of(name)
    if scheme is None:
        if (entry := found.entries.get(ONE)) is None:
            msg = f"{found.prefix!r} has no tensor {ONE!r}, in which {name} is stored"
            raise MemdescError(msg)
        return _single_desc(entry, name, given)
    bound = bind(scheme, _stored(found), given)
    if not bound.descs:
        shown = "; ".join(bound.tried[:SHOWN])
        more = f"; and {len(bound.tried) - SHOWN} more" if len(bound.tried) > SHOWN else ""
        is_named = found.prefix in shown and len(bound.tried) == 1
        msg = f"{'' if is_named else f'{found.prefix!r} is not {name}: '}{shown}{more}"
        raise MemdescError(msg)
    if len(bound.descs) > 1:
        fits, names = difference(bound.descs)
        asked = " and ".join(f"{each}=" for each in names)
        msg = f"{found.prefix!r}: {fits}: give {asked}"
        raise MemdescError(msg)
    return bound.descs[0]


def _stored(found: Siblings) -> dict[str, Stored]:
    """Return the tensors of a weight, by role, for `bind`."""
    return {
        role: _stored_of(entry)
        for role, entry in found.entries.items()
        # an order of inputs in wider integers is checked, but not a tensor of the record
        if role not in ORDERS or _kind(entry) == "s32"
    }


def _stored_of(entry: Entry) -> Stored:
    plain = [stored_desc(kind, entry.shape)[0] for kind in (entry.dtype, _kind(entry))]
    return Stored(
        entry.name,
        entry.dtype,
        entry.shape,
        entry.nbytes,
        entry.desc,
        # a stored descriptor, or a column-major array
        entry.desc is not None and entry.desc not in plain,
        lambda: entry.read().tobytes(),
    )


def _single_desc(entry: Entry, name: str, options: Mapping[str, Any]) -> RecordDesc:
    """Return the record in a single tensor: the one that its type says, or the named one."""
    if isinstance(entry.desc, RecordDesc):
        if entry.desc.name != name:
            msg = f"it holds {entry.desc!r}, not {name}"
            raise MemdescError(msg)
        return entry.desc
    if entry.nbytes != prod(entry.shape):
        msg = f"{entry.name!r} holds {entry.dtype}, and {name} is stored as bytes"
        raise MemdescError(msg)
    rows, last = entry.shape[:-1], entry.shape[-1:]
    bits = record_desc((8, 256), name, **options).bits_per_element
    sizes = [size * BYTE_BITS / bits for size in last]
    if not all(size.is_integer() for size in sizes):
        msg = (
            f"{entry.name!r} of shape {entry.shape} does not hold {name}, which takes {bits:g} "
            f"bits per element: {last[0]} bytes are not a whole number of elements"
        )
        raise MemdescError(msg)
    desc = record_desc((*rows, *map(int, sizes)), name, **options)
    if desc.nbytes != entry.nbytes:
        msg = f"{entry.nbytes} bytes of shape {entry.shape} are not {desc!r}"
        raise MemdescError(msg)
    return desc


def _kind(entry: Entry) -> str:
    """Return the type of the elements: a .npz has bf16 as words of 16 bits, with a descriptor."""
    return entry.desc.dtype.name if isinstance(entry.desc, MemoryDesc) else entry.dtype
