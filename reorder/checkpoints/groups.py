"""Decide what the tensors of a quantised weight are together: a record, a Quantized, or neither.

All sources must agree: the types and shapes of the words, the descriptors and the note stored with
them, the tensors beside them, `g_idx`, the model's config files, and a name given by the caller.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import MemdescError, MemoryDesc, data_type
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.errors import about, short_repr
from memdesc.record import RecordDesc, known_records, record_desc
from memdesc.record.names import experts_of, read_name
from reorder.checkpoints.formats.entry import Entry, FileState, record_of, stored_desc
from reorder.checkpoints.quantization import CONFIG, KEY, Declared, declared_record
from reorder.checkpoints.siblings import (
    ORDERS,
    Siblings,
    find_siblings,
    holds_codes,
    note_of,
    optional_tensors,
    order_of,
    shown_options,
    siblings_of,
    tensors_of,
)
from reorder.checkpoints.stored import ONE, QUANTIZED, has_split_codes, written_tensors
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from reorder.checkpoints.formats.entry import Container, Tensor

# metadata key in which ComfyUI says how layers are quantised
_COMFYUI = "_quantization_metadata"
# the codes of AutoGPTQ, AutoAWQ and vLLM
_USUAL = "qweight"
# the targets of a declaration that applies to every layer, whatever its name
_REST = ("re:",)
# how many prefixes a message lists
_SHOWN = 4
# records whose options give the same tensors other numbers, and these options
_SAME_TENSORS = {"gptq": ("gptq(zeros=v2)",)}


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


def claims_of(path: Path, container: Container) -> Claims:
    """Return what a checkpoint's metadata and the files beside it claim.

    Fails where `declared_record` does, and if ComfyUI says how layers are quantised.
    """
    if _COMFYUI in container.metadata:
        msg = (
            f"the header has {_COMFYUI}, in which ComfyUI says how layers are quantised; it may "
            "order their scales as a kernel reads them, or rotate the weights, which no record "
            "here does; decode it with ComfyUI"
        )
        raise MemdescError(msg)
    folder = path if path.is_dir() else path.parent
    return Claims(declared_record(folder))


def find_groups(path: Path, container: Container) -> list[Group]:
    """Return the quantised weights of the checkpoint at a path.

    A weight is not a record if some of its tensors are in shards that were not read.
    """
    homes = {name: file for file, each in container.unread.items() for name in each.names}
    absent = {name: elsewhere(name, path) for name in homes}
    found = [
        each
        for each in find_siblings(container.entries | absent)
        if not container.entries.keys().isdisjoint(each.names)
    ]
    try:
        claims = claims_of(path, container) if found else Claims()
    except MemdescError as error:
        return [Group(each, None, str(error)) for each in found]
    groups = []
    for each in found:
        away = [f"{name} is in {homes[name]}, unread" for name in each.names if name in homes]
        groups.append(Group(each, None, ", ".join(away)) if away else read_group(each, claims))
    return groups


def find_plain(path: Path, container: Container, layers: Iterable[str]) -> dict[str, str]:
    """Return the layers that a config file declares quantised, but whose weights are plain floats.

    The values are the reasons.
    """
    found = {}
    with suppress(MemdescError):  # `find_groups` says that a file is damaged
        declared = claims_of(path, container).declared or Declared("", None)
        for layer in layers:
            part = declared.named(layer)
            if part is not None and part.name is not None and part.targets != _REST:
                found[layer] = f"{declared.file} declares {part.name}, but its weight is plain"
    return found


def find_unscaled(path: Path, container: Container, groups: Iterable[Group]) -> dict[str, str]:
    """Return the layers that a config file declares quantised, and that have codes but no scales.

    The values are the reasons.
    """
    found = {}
    taken = {name for group in groups for name in group.found.names}
    with suppress(MemdescError):  # `find_groups` says that a file is damaged
        declared = claims_of(path, container).declared or Declared("", None)
        for name, entry in container.entries.items():
            layer, _, role = name.rpartition(".")
            if name in taken or len(entry.shape) < len(_MATRIX) or not holds_codes(entry):
                continue
            for part in declared.at(layer):
                if part.name is not None and tensors_of(part.name)[0] == role:
                    found[layer] = (
                        f"{part.file} declares {part.name}, but no scales are beside its codes "
                        f"of {entry.dtype}"
                    )
    return found


def find_orphans(container: Container, groups: Iterable[Group]) -> dict[str, str]:
    """Return tensors named like scales of other layers whose own weight is in no group.

    The values are the names that these weights would have. What scales are called is taken from the
    known groups.
    """
    known = {name for group in groups for name in group.found.names}
    scaled = {role: next(iter(each.tensors)) for each in groups for role in [*each.tensors][1:]}
    found = {}
    for name in container.entries:
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
        declared = claims.declared.at(found.prefix) if claims.declared else (None,)
    except MemdescError as error:
        return Group(found, None, str(error))
    groups = [_read(found, claims._replace(declared=each), noted) for each in declared]
    known = {group.desc: group for group in groups if group.desc is not None}
    if len(known) > 1:
        names = " and ".join(map(repr, known))
        reason = f"{groups[0].prefix!r} fits {names}, which are declared for different classes"
        return Group(found, None, f"{reason}: give the name")
    return next(iter(known.values()), groups[0])


def _read(found: Siblings, claims: Claims, noted: RecordDesc | None) -> Group:
    """Decide what tensors are, given what is declared about this layer."""
    try:
        name, options = _named(claims, found, noted)
    except MemdescError as error:
        return Group(found, None, str(error))
    try:
        _check_bits(claims, name, options)
        desc = desc_of_tensors(found, name, options)
        _check_declared(found, desc, claims)
        check_tensors(found, desc)
        _check_rest(found, desc, claims)
        _check_noted(found, desc, noted)
    except MemdescError as error:
        declared = claims.declared if claims.name is None else None
        by = f"{declared.file} declares {name}: " if declared else ""
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


def _named(claims: Claims, found: Siblings, noted: RecordDesc | None) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of the record that the sources name."""
    declared = claims.declared
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
        if claims.name is None and declared is not None and declared.name is not None:
            options |= declared.options
        return name, {**options, **claims.options}
    if declared is None or declared.name is None:
        why = declared.reason if declared else f"no {CONFIG} has a {KEY}"
        names = _fitting(found)
        if declared is None and len(names) == 1 and _tells_options(names[0]):
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


def _check_unlisted(declared: Declared, found: Siblings, name: str) -> None:
    """Refuse a declared format without a record if the descriptors in a file name a record."""
    if not declared.is_unlisted:
        msg = (
            f"the descriptors of {found.prefix!r} say {name}, but {declared.reason}; correct "
            f"{declared.file} if it is wrong"
        )
        raise MemdescError(msg)


def _fitting(found: Siblings) -> list[str]:
    """Return the known records that fit the types and shapes of all tensors."""
    names = []
    for name in known_records():
        if tensors_of(name)[0] in found.entries and tensors_of(name) != (ONE,):
            with suppress(MemdescError):
                desc = desc_of_tensors(found, name, {})
                check_tensors(found, desc)
                if {*found.entries} <= {*desc.tensors, *ORDERS}:
                    names += [name, *_SAME_TENSORS.get(name, ())]
    return names


def _check_declared(found: Siblings, desc: RecordDesc, claims: Claims) -> None:
    """Refuse options of a record that contradict the files of the model."""
    declared = claims.declared
    if declared is None or declared.name != desc.name:
        return
    held = dict(desc.options)
    for key, value in declared.options.items():
        if key in claims.options or held.get(key, value) == value:
            continue
        # with one row, a scale for each row is the same as one for all rows
        if _with_option(desc, key, value) != desc:
            raise MemdescError(_contradiction(declared, desc.name, key, held[key]))
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


def _contradiction(declared: Declared, name: str, key: str, held: Any) -> str:
    """Return the message for a file that declares another value of an option."""
    value = declared.options[key]
    return (
        f"{declared.file} declares {key}={value}, and {name} has {key}={held}; say "
        f"{name}({key}={value}), or {name}({key}={held}) if {declared.file} is wrong"
    )


def _check_bits(claims: Claims, name: str, options: Mapping[str, Any]) -> None:
    """Refuse bits that contradict the files of the model, before dims are derived from them."""
    declared, usual = claims.declared, read_name(name)[2].get("bits")
    if declared is None or declared.name != name or "bits" in claims.options:
        return
    if record_desc(_SAMPLE, name).constants:
        return  # the tensors say their dims, and so the bits
    held = options.get("bits", usual)
    if declared.options.get("bits", held) != held:
        raise MemdescError(_contradiction(declared, name, "bits", held))


def _with_option(desc: RecordDesc, option: str, value: Any) -> RecordDesc | None:
    """Return a record with another value of an option; None if it cannot have that value."""
    try:
        return record_desc(desc.dims, desc.name, **dict(desc.options) | {option: value})
    except MemdescError:
        return None


def _check_rest(found: Siblings, desc: RecordDesc, claims: Claims) -> None:
    """Refuse tensors that the record does not use, and act-order."""
    rest = [name for name in found.entries if name not in {*desc.tensors, *ORDERS}]
    if rest:
        options = [optional_tensors(desc.name).get(name) for name in rest]
        hint = "".join(
            f"; leave {option}= out"
            if option in claims.options or claims.declared is None
            else f"; correct {claims.declared.file} if there are {option}"
            for option in options
            if option
        )
        msg = (
            f"{', '.join(found.entries[name].name for name in rest)} belong to {found.codes.name}, "
            f"and {desc!r} does not use them: its numbers would be different{hint}"
        )
        raise MemdescError(msg)
    if (order := order_of(found)) is not None:
        _check_order(order, desc)


def _check_noted(found: Siblings, desc: RecordDesc, noted: RecordDesc | None) -> None:
    """Refuse a record other than the one in the note."""
    if noted not in (None, desc):
        msg = (
            f"{found.codes.name!r} is stored as part of {noted!r}, as its descriptor says, not of "
            f"{desc!r}"
        )
        raise MemdescError(msg)


def _check_order(entry: Entry, desc: RecordDesc) -> None:
    """Refuse a tensor that assigns inputs to groups in an arbitrary order (act-order)."""
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
            f"indexing the scales and zero points of a Record with {ORDERS[0]}"
        )
        raise MemdescError(msg)


# how the JSON of a quant_state begins
_STATE = b"{"
# tensors that hold an option of their record
_NUMBERS = {"group_size": "group", "nbits": "bits"}
# tensors of formats that are not decoded -> the name whose error says why
_REFUSED = {"weight.nested_absmax": "bnb_nested", "SCB": "bnb_int8"}
# dims of records whose scales are (groups, out)
_MATRIX = "io"
# dims of a matrix, and of stacked ones; records of these show which axes of tensors follow which
_SAMPLE, _STACKED = (4096, 4096), (64, 4096, 4096)
# bits of codes whose dims another tensor has
_WIDTHS = (4, 8)
# options that say how many adjacent elements along a dim share a scale -> that dim
_STEPS = {"rows": -2, "group": -1}


def desc_of_tensors(found: Siblings, name: str, given: Mapping[str, Any]) -> RecordDesc:
    """Return the named record, with dims, group and type of scales from the tensors."""
    # an order of inputs in wider integers is checked, but not a tensor of the record
    roles = {
        role for role, each in found.entries.items() if role not in ORDERS or _kind(each) == "s32"
    }
    for role, refused in _REFUSED.items():
        if role in found.entries:
            read_name(refused)
    has = {option: given.get(option, value) for option, value in shown_options(name, roles).items()}
    sample = record_desc(_SAMPLE, name, **has)
    for each in sample.tensors:
        if each not in found.entries:
            msg = (
                f"{found.prefix!r} has no tensor {each!r}; {name} has the tensors "
                f"{', '.join(sample.tensors)}"
            )
            raise MemdescError(msg)
    if [*sample.tensors] == [ONE]:
        return _single_desc(found.codes, name, given)
    _, letters, legal = read_name(name)
    scales = found.entries[sample.field(sample.rule.scale[0].parts[0][0]).tensor]
    bits = {**legal, **given}.get("bits", sample.fields[0].bits)
    options = {"codes": _kind(found.codes), "scales": _kind(scales), **has}
    if letters == _MATRIX:
        dims, groups = _dims_by_scales(found, name, scales, bits)
        options["group"] = dims[0] // groups if groups > 1 else -1
    else:
        state = _state(found, sample)
        options |= (stated := _dims_by_constant(found, sample)) | state
        held = state.get("shape") or stated.get("dims")
        dims = held or _dims_by_codes(found, name, bits)
        if held is not None and "bits" in legal.keys() - options.keys():
            options["bits"] = _bits(found.codes, held, sample)
        for option in _STEPS.keys() & legal.keys():
            if option not in given and option not in options:
                options[option] = _group_size(scales, dims, name, option)
    kept = {option: value for option, value in options.items() if option in legal}
    with about(f"{found.codes.name!r} of {found.codes.dtype} and shape {found.codes.shape}"):
        return record_desc(dims, name, **(kept | dict(given)))


def _dims_by_scales(
    found: Siblings, name: str, scales: Entry, bits: Any
) -> tuple[tuple[int, ...], int]:
    """Return (in, out) and the number of groups, from scales (groups, out) and the codes' bytes.

    Fails if the record cannot have such bits.
    """
    shape = scales.desc.dims if isinstance(scales.desc, MemoryDesc) else scales.shape
    if len(shape) != len(_MATRIX):
        msg = f"{scales.name!r} has the shape {scales.shape}; scales of records have 2 dims"
        raise MemdescError(msg)
    groups, columns = shape
    codes = found.codes
    record_desc(_SAMPLE, name, **({"bits": bits} if "bits" in read_name(name)[2] else {}))
    count = codes.nbytes * BYTE_BITS // bits
    if not groups or not columns or not count or count % (groups * columns):
        msg = (
            f"{codes.name!r}: {codes.nbytes} bytes of {bits}-bit codes are not a multiple of the "
            f"{groups} x {columns} scales"
        )
        raise MemdescError(msg)
    return (count // columns, columns), groups


def _dims_by_codes(found: Siblings, name: str, bits: Any) -> tuple[int, ...]:
    """Return the dims of a matrix, or of stacked ones, from codes packed into words along one."""
    codes = found.codes
    words = data_type(codes.dtype).bits
    # groups of codes may have an axis of their own
    ndims = len(codes.shape) - has_split_codes(name)
    is_legal = ndims == len(_SAMPLE) or (ndims, bool(experts_of(name))) == (len(_STACKED), True)
    if not is_legal or type(bits) is not int or not 0 < bits <= words:
        msg = (
            f"{codes.name!r} of {codes.dtype} and shape {codes.shape} cannot hold {bits}-bit codes"
        )
        raise MemdescError(msg)
    sizes = [*codes.shape[: ndims - 1], prod(codes.shape[ndims - 1 :])]
    packed = _packed(name, ndims)
    if sizes[packed] * words % bits:
        msg = f"{codes.name!r} has rows of {sizes[packed] * words} bits, which {bits} do not divide"
        raise MemdescError(msg)
    sizes[packed] = sizes[packed] * words // bits
    return tuple(sizes)


@lru_cache(maxsize=64)
def _packed(name: str, ndims: int) -> int:
    """Return the dim along which several codes of a record share a word."""
    desc = record_desc(_STACKED[-ndims:], name)
    codes = desc.field(desc.rule.code.parts[0][0]).tensor
    sizes = zip(desc.dims, written_tensors("", desc, "")[codes].shape, strict=False)
    return next((dim for dim, (size, words) in enumerate(sizes) if size != words), ndims - 1)


def _dims_by_constant(found: Siblings, sample: RecordDesc) -> dict[str, Any]:
    """Return the dims that a tensor of the record holds, and its type; empty if there is none."""
    for each in sample.constants:
        if each.values != sample.dims:
            continue
        entry = found.entries[each.tensor]
        kind = _kind(entry)
        if kind not in INTEGERS or entry.nbytes * BYTE_BITS != (
            INTEGERS[kind].bits * len(sample.dims)
        ):
            msg = (
                f"{entry.name!r} of {entry.dtype} and shape {entry.shape} does not hold the "
                f"{len(sample.dims)} dims of a matrix as {each.kind}"
            )
            raise MemdescError(msg)
        return {"dims": tuple(entry.read().view(DATA_TYPES[kind].numpy).tolist()), "shape": kind}
    return {}


def _bits(codes: Entry, dims: tuple[int, ...], sample: RecordDesc) -> int:
    """Return the fewest bits with which the codes of a matrix take as many bytes."""
    role = sample.field(sample.rule.code.parts[0][0]).tensor
    for bits in _WIDTHS:
        desc = record_desc(dims, sample.name, bits=bits, group=-1)
        if desc.tensors[role] == codes.nbytes:
            return bits
    return _WIDTHS[0]


def _state(found: Siblings, sample: RecordDesc) -> dict[str, Any]:
    """Return the dims and options that are stored beside the codes, by HQQ and bitsandbytes."""
    counts = {name: _NUMBERS[name] for name in sample.tensors if name in _NUMBERS}
    if counts:
        return {option: _number(found.entries[name]) for name, option in counts.items()}
    for each in sample.constants:
        if bytes(each.data[:1]) != _STATE:
            continue
        entry = found.entries[each.tensor]
        try:
            state = json.loads(entry.read().tobytes())
            outputs, inputs = state["shape"]
            found_state = {"block": state["blocksize"], "dtype": state["dtype"]}
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            msg = f"{entry.name!r} is not the JSON of bitsandbytes's quant_state: {error!r}"
            raise MemdescError(msg) from None
        return {**found_state, "shape": (outputs, inputs)}
    return {}


@lru_cache(maxsize=64)
def _tells_options(name: str) -> bool:
    """Whether the tensors of a record say what they are, so that no file needs to declare it."""
    sample = record_desc(_SAMPLE, name)
    is_state = any(bytes(each.data[:1]) == _STATE for each in sample.constants)
    return is_state or not _NUMBERS.keys().isdisjoint(sample.tensors)


def _number(entry: Entry) -> int:
    """Return the one integer that a tensor holds."""
    kind = INTEGERS.get(entry.dtype)
    if kind is None or entry.nbytes * BYTE_BITS != kind.bits:
        msg = f"{entry.name!r} of {entry.dtype} and shape {entry.shape} is not an integer"
        raise MemdescError(msg)
    return int(entry.read().view(DATA_TYPES[entry.dtype].numpy)[0])


def _group_size(scales: Entry, dims: tuple[int, ...], name: str, option: str) -> int:
    """Return how many elements along a dim share a scale, from the shape of scales; -1: all."""
    size, axis = dims[_STEPS[option]], _axis(name, option) + len(dims) - len(_SAMPLE)
    count = scales.shape[axis] if axis < len(scales.shape) else 1
    if count == size and option == "rows":
        return 1
    if not count or size % count:
        what = "outputs" if option == "rows" else "inputs"
        msg = f"{scales.name!r} has {count} groups for {size} {what}, which they do not divide"
        raise MemdescError(msg)
    return size // count if count > 1 else -1


@lru_cache(maxsize=64)
def _axis(name: str, option: str) -> int:
    """Return the axis of a record's scales whose size depends on an option."""
    shapes = []
    for step in (64, 128):
        desc = record_desc(_SAMPLE, name, **{option: step})
        tensor = desc.field(desc.rule.scale[0].parts[0][0]).tensor
        shapes.append(written_tensors("", desc, "")[tensor].shape)
    return next(axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len({*sizes}) > 1)


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


def check_tensors(found: Siblings, desc: RecordDesc) -> None:
    """Refuse tensors whose types, shapes or descriptors are not those of the record."""
    if [*desc.tensors] == [ONE]:
        return
    for name, tensor in written_tensors(found.prefix, desc, "").items():
        if problem := _misfit(found.entries[name], tensor):
            msg = f"{found.entries[name].name!r} {problem}, so it does not fit {desc!r}"
            raise MemdescError(msg)
    for constant in desc.constants:
        entry = found.entries[constant.tensor]
        is_checked = constant.tensor in ORDERS  # with its own message
        if not is_checked and entry.read().tobytes() != constant.data:
            msg = f"{entry.name!r} does not hold what {desc!r} has in {constant.tensor}"
            raise MemdescError(msg)


def _misfit(entry: Entry, tensor: Tensor) -> str:
    """Return how an entry differs from a record's tensor; empty if it does not."""
    if tensor.desc is not None and entry.desc == tensor.desc:
        return ""
    kind = _kind(entry)
    plain = [stored_desc(each, entry.shape)[0] for each in (entry.dtype, kind)]
    if entry.desc not in plain:  # a stored descriptor, or a column-major array
        wanted = tensor.desc or f"{tensor.dtype} of {tensor.shape}"
        says = ", as the descriptor stored with it says" if entry.is_described else ""
        return f"holds {_shown_desc(entry.desc)}{says}, not {wanted!r}"
    if entry.dtype == "u8" and len(entry.shape) == 1 and entry.nbytes == tensor.nbytes:
        return ""  # flat bytes
    is_flat = all(len(_trimmed(each.shape)) == 1 for each in (entry, tensor))
    if is_flat and tensor.dtype == "u8" and entry.nbytes == tensor.nbytes:
        return ""  # bytes in wider words, which bitsandbytes calls quant_storage
    is_same = kind == tensor.dtype
    # the same words as integers of another width, or the bits of a type that the container lacks;
    # integers that are not words mean other numbers in another type
    held = tensor.desc
    is_word = not (isinstance(held, MemoryDesc) and held.dtype.name == tensor.dtype)
    is_alike = kind == f"u{data_type(tensor.dtype).bits}"
    if tensor.dtype in INTEGERS:
        is_alike = kind in INTEGERS and is_word
    shapes = [_trimmed(each.shape) if is_same else each.shape[:-1] for each in (entry, tensor)]
    if is_same and _is_spread(entry.shape, tensor.shape):
        shapes[0] = shapes[1]
    if not (is_same or is_alike) or shapes[0] != shapes[1] or entry.nbytes != tensor.nbytes:
        return (
            f"of {kind} has the shape {entry.shape} and {entry.nbytes} bytes, not "
            f"{tensor.shape} of {tensor.dtype} and {tensor.nbytes} bytes"
        )
    return ""


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the 1s at its end: a scalar is also written as (1,) or (1, 1)."""
    count = next((k for k in range(len(shape), 0, -1) if shape[k - 1] != 1), 0)
    return shape[:count]


def _is_spread(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether each axis is followed by one of size 1, as ModelOpt stores scales of blocks."""
    return shape[::2] == wanted and shape[1::2] == (1,) * len(wanted)


def _shown_desc(desc: MemoryDesc | RecordDesc | None) -> str:
    """Return a descriptor, and the name of its packing if it has one."""
    names = desc.names() if isinstance(desc, MemoryDesc) else ()
    packing = next((name.text for name in names if name.vocabulary == "weights"), None)
    return f"{desc!r} ({packing})" if packing else repr(desc)


def _kind(entry: Entry) -> str:
    """Return the type of the elements: a .npz has bf16 as words of 16 bits, with a descriptor."""
    return entry.desc.dtype.name if isinstance(entry.desc, MemoryDesc) else entry.dtype
