"""Quantised weights: which tensors belong together, and what they are: a record, a Quantized.

The first tensor of a saved Quantized or Record has a note that lists them. Others are recognised by
name, as AutoGPTQ, AutoAWQ, GPTQModel, compressed-tensors, DeepSeek, ModelOpt, MLX, bitsandbytes,
gpt-oss, onnxruntime, quanto, HQQ, torchao, ExLlama, AQLM, QuIP#, QServe, Nunchaku, ComfyUI,
TensorRT-LLM, Mistral and Marlin name them. All sources must agree on what they are: types and
shapes, the descriptors and the note stored with them, the tensors beside them, `g_idx`, the config
files of the model, and a name given by the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from functools import lru_cache
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from memdesc import MemdescError
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.errors import about, short_repr
from memdesc.lazy import cached_property
from memdesc.record import RecordDesc, record_desc
from memdesc.record.bind import SHOWN, Stored, bind, difference
from memdesc.record.rows import SCHEMES, read_name
from memdesc.tuples import NamedTuple
from reorder.checkpoints.config import CONFIG, KEY, Configs, Declared, Said
from reorder.checkpoints.experts import holds_experts
from reorder.checkpoints.formats.entry import (
    BARE_ROLES,
    ONE,
    QUANTIZED,
    UNQUANTISED,
    WEIGHT,
    Container,
    Entry,
    record_of,
    stem_of,
    stored_desc,
)
from reorder.messages import first_of
from reorder.values.formats import INTEGERS

Entries = Mapping[str, Entry]


# names of the tensor that has each input's group, in GPTQ and in compressed-tensors before 0.20
ORDERS = ("g_idx", "weight_g_idx")
# bits of codes as floats, and of words of packed codes; wider integers are indices
_CODE_BITS, _WORD_BITS = 8, 32
# names of tensors of codes that other tensors have too
_COMMON = ("weight", "data", "blocks")
# The ends of names of tensors that serve activations, kernels, or the KV cache, about which an
# output's config.json says nothing; those of the cache are beside attention layers.
SERVING = (
    *(".input_scale", ".input_scale_ub", ".input_global_scale", ".input_zero_point"),
    *(".activation_scale", ".output_scale", ".workspace"),
)
CACHE = (".k_scale", ".v_scale", ".q_scale", ".kv_scale", ".k_zero_point", ".v_zero_point")
# the ends of names of scales beside codes that are called `weight` elsewhere
_BARE_SCALES = ("scale_inv", "weight_scale")
# scales of few codes may have this many elements: kernels pad them
_MIN_SCALES = 512
# metadata key in which ComfyUI says how layers are quantised
_COMFYUI = "_quantization_metadata"
# tensors of formats that are not decoded -> the name whose error says why
_REFUSED = {"weight.nested_absmax": "bnb_nested", "SCB": "bnb_int8"}
# dims of records whose scales are (groups, out)
_MATRIX = "io"


class Weight(NamedTuple):
    """The tensors of a quantised weight, and what they are together, once that is decided."""

    # what the names of its tensors have in common
    prefix: str
    # codes first, by the ends of their names; with a note, by role
    entries: Entries
    # what `save` stores with the first tensor of a Quantized or a Record: the name of the whole,
    # those of its tensors by role, and what they are together
    note: Mapping[str, Any] | None = None
    # the record; None if there is none, and why
    desc: RecordDesc | None = None
    reason: str = ""
    # whether its scales are looked up by an indirection table for each input (act-order)
    is_looked_up: bool = False

    @property
    def codes(self) -> Entry:
        """The tensor of the codes."""
        return next(iter(self.entries.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, codes first."""
        return tuple(entry.name for entry in self.entries.values())

    @property
    def is_dotted(self) -> bool:
        """Whether a dot precedes the role of the codes; experts in one tensor have no role."""
        return self.codes.name.startswith(f"{self.prefix}.") or not self.prefix

    @property
    def quantized(self) -> Mapping[str, Any] | None:
        """The axis and the groups of a saved Quantized, which is not a record."""
        return self.note.get("quantized") if self.note else None

    @property
    def order(self) -> Entry | None:
        """The tensor that has each input's group, if there is one."""
        return next((self.entries[name] for name in ORDERS if name in self.entries), None)

    @property
    def tensors(self) -> dict[str, Entry]:
        """The entry of each tensor that the numbers need, by its role; none if it is not known."""
        needed = self.desc.tensors if self.desc else self.entries if self.quantized else ()
        return {name: self.entries[name] for name in needed}

    @property
    def single(self) -> Weight:
        """The codes as a whole record by themselves, with the tensors beside them."""
        rest = {name: entry for name, entry in self.entries.items() if entry is not self.codes}
        return Weight(self.codes.name, {ONE: self.codes, **rest})

    def called(self, prefix: str) -> str:
        """Return the name of the whole under a prefix: the one that was saved, or the prefix."""
        name = self.prefix if self.note is None else str(self.note["name"])
        is_below = name.startswith(self.prefix)
        return prefix + name.removeprefix(self.prefix) if is_below else name

    def decoded_name(self, prefix: str) -> str:
        """Return the name of the plain tensor that it becomes under a prefix."""
        has_ending = len(self.tensors) != 1 and self.is_dotted
        return f"{prefix}.weight".removeprefix(".") if has_ending else prefix


class Claims(NamedTuple):
    """What files and the caller claim about the weights of a checkpoint."""

    # what the model's config files declare, or why that is not known
    said: Declared | None = None
    problem: str = ""
    # the record that the caller names
    name: str | None = None
    options: Mapping[str, Any] = MappingProxyType({})

    @property
    def declared(self) -> Declared | None:
        """What the config files declare. Fails if they are damaged, or contradict each other."""
        if self.problem:
            raise MemdescError(self.problem)
        return self.said


class Model:
    """A checkpoint: its tensors, its config files, and its quantised weights, decided once."""

    def __init__(self, path: Path, container: Container) -> None:
        self.path, self.container, self.configs = path, container, Configs(path)
        # the tensors by name
        self.entries: Entries = container.entries
        # what weights are, by the names of their codes
        self._known: dict[str, Weight] = {}

    def keeping(self, entries: dict[str, Entry]) -> Model:
        """Return the same model with other tensors; what its weights are stays decided."""
        model = Model(self.path, self.container._replace(entries=entries))
        model.configs, model._known = self.configs, self._known
        return model

    @cached_property
    def claims(self) -> Claims:
        """What the metadata and the files beside the checkpoint claim."""
        if _COMFYUI in self.container.metadata:
            why = (
                f"the header has {_COMFYUI}, by which ComfyUI may order scales for a kernel, or "
                "rotate weights, which no record here does; decode it with ComfyUI"
            )
            return Claims(problem=why)
        try:
            return Claims(self.configs.declared)
        except MemdescError as error:
            return Claims(problem=str(error))

    @cached_property
    def quantised(self) -> list[Weight]:
        """The quantised weights, without what they are."""
        return find_weights(self.entries)

    @cached_property
    def weights(self) -> list[Weight]:
        """The quantised weights, and what each is."""
        return [*map(self.decided, self.quantised)]

    def decided(self, weight: Weight) -> Weight:
        """Return a quantised weight with what it is, decided once."""
        name = weight.codes.name
        if name not in self._known or self._known[name].tensors.items() - weight.entries.items():
            self._known[name] = decide(weight, self.claims)
        return self._known[name]

    def items(self, *, is_strict: bool) -> dict[str, Weight | Entry]:
        """Return single tensors, and weights with a note or that config.json declares, by name.

        If a weight is something else, `is_strict` refuses it; otherwise its tensors are returned
        one by one.
        """
        taken, items = dict[str, Weight](), dict[str, Weight | Entry]()
        is_undeclared = self.claims.said is None and not self.claims.problem
        for undecided in find_weights(self.entries):
            has_note = undecided.codes.note is not None
            if is_undeclared and not has_note:
                continue
            weight = decide(undecided, Claims()) if has_note else self.decided(undecided)
            if weight.tensors:
                taken |= dict.fromkeys(weight.names, weight)
            elif is_strict:
                way = "load_all(path, reorder.Memory) reads its tensors as they are stored"
                raise MemdescError(f"{weight.reason}; {way}")
        for name, entry in self.entries.items():
            whole = taken.get(name)
            if whole is None or whole.codes.name == name:
                called = name if whole is None else whole.called(whole.prefix)
                if called in items:
                    raise MemdescError(f"two tensors are called {short_repr(called)}")
                items[called] = whole or entry
        return items

    def weight_at(self, prefix: str, claims: Claims) -> Weight:
        """Return the weight with a prefix, which may also be the name of its codes."""
        codes = None if claims.name is None else tensors_of(read_name(claims.name)[0])[0]
        for name in (prefix, f"{prefix}.weight"):
            entry = self.entries.get(name)
            if entry is not None and codes is None and isinstance(entry.desc, RecordDesc):
                claims = Claims(name=entry.desc.name, options=claims.options)
            elif entry is None or codes != ONE:
                continue
            return decide(weight_of(self.entries, name).single, claims)
        for weight in self.quantised:
            if prefix in {weight.prefix, weight.codes.name}:
                return decide(weight, claims)
        known = first_of(repr(weight.prefix) for weight in self.quantised)
        hint = f": {known}" if known else ""
        raise MemdescError(
            f"no quantised weight is called {prefix!r}; the file has {len(self.quantised)}{hint}"
        )


# --- which tensors belong together ---


# ends of names of tensors that change the layer around its weight, or what its codes mean, as the
# order of scales and the rotation that ComfyUI notes; they belong to the codes
_CHANGING = ".pre_quant_scale .svdquant_lora_a .svdquant_lora_b .comfy_quant"
# ends of names of tensors that scale codes, whatever those are called
_SCALING = (
    "_scale _scales _scale_2 _scale_inv _scale_inverse _global_scale _zero_point _zero_points "
    "_zeros _g_idx _weight_scale _weight_scale_2"
)
# Names besides those of the schemes, mostly of formats that are not decoded: how the name of codes
# ends, and those of the tensors that belong to them. `*` is any name, and `!` marks codes that are
# recognised by their name whatever their type: bitsandbytes keeps codes in words of bf16. A name
# may match several rows: its longest ending gives the prefix, and each row adds tensors.
_TABLE = f"""
.qweight!       .zeros .scales_and_zeros .s1_scales .s2_scales .s2_zeros .s1_szeros .wscales
.qweight!       .wzeros .wtscale .wcscales
.weight_packed! .weight_g_idx
.weight         .zero .zeros .zero_point .qzeros .g_idx .scale_inv .scale_weight .qscale_weight
.weight         .global_scale .dequant_scale .SCB .weight_format .per_channel_scale
.weight         .weights_scaling_factor .weights_scaling_factor_2 {_CHANGING}
.B              .s
.q_weight!      .q_scale .q_scale_max .q_groups .q_group_map .q_perm .q_invperm
.trellis!       .suh .svh .su .sv .mcg .mul1
.codes          .codebooks .scales
.Qidxs!         .SU .SV .codebook_id
._data          ._scale ._shift ._zeropoint
._data._data    ._scale ._shift ._zeropoint
_qdata!         _scale _zero_point _per_tensor_scale _scale_and_zero _act_pre_scale
:qdata!         :scale :zero_point :per_tensor_scale :scale_and_zero :act_pre_scale
_quantized      _scale _zero_point
_Q4             _scales _zero_points
_Q8             _scales _zero_points
*               {_SCALING}
*!              .absmax .quant_map .nested_absmax .nested_quant_map
*!              .quant_state.bitsandbytes__nf4 .quant_state.bitsandbytes__fp4
"""


@lru_cache(maxsize=1)
def _rows() -> tuple[tuple[str, bool, tuple[str, ...]], ...]:
    """Return the end of the name of codes, whether it suffices, and those of other tensors.

    The rows are those of the table, and the records of several tensors by their own names.
    """
    lines = [line.split() for line in _TABLE.split("\n") if line]
    for scheme in SCHEMES.values():
        names = [f"{scheme.joint}{name}" for name in (*scheme.tensors(), *scheme.optional)]
        is_certain = scheme.tensors()[0] not in _COMMON
        lines.append([f"{names[0]}!" if is_certain else names[0], *names[1:]])
    rows = ((x.strip("*!"), x.endswith("!"), tuple(others)) for x, *others in lines)
    return tuple(dict.fromkeys(rows))


def find_weights(entries: Entries) -> list[Weight]:
    """Return the quantised weights in the order of a checkpoint, without what they are."""
    every = ((name, weight_of(entries, name)) for name in entries)
    weights = {name: x for name, x in every if len(x.entries) > 1 or entries[name].note is not None}
    noted = {name for weight in weights.values() if weight.note for name in weight.names[1:]}
    return [weight for name, weight in weights.items() if name not in noted]


def weight_of(entries: Entries, name: str) -> Weight:
    """Return a tensor with those that turn its codes into numbers; just itself if it has none."""
    held, dotted, reason = entries[name], f".{name}", ""
    if held.note is not None:
        try:
            return _as_noted(entries, held)
        except MemdescError as error:
            reason = str(error)
    # each code has at least one bit
    most = max(8 * held.nbytes, _MIN_SCALES)
    prefix, tensors, may_have_codes = name, {name: held}, holds_codes(held)
    for codes, is_certain, endings in _rows():
        if not dotted.endswith(codes):
            continue
        start = dotted[1 : len(dotted) - len(codes)]
        prefix = min(prefix, start, key=len)
        for ending in endings if may_have_codes or is_certain else ():
            # without a prefix, endings are whole names
            full = start + ending if start else ending.removeprefix(".")
            entry = entries.get(full)
            if entry is not None and (codes or is_certain or prod(entry.shape) <= most):
                tensors[full] = entry
    roles = {full.removeprefix(prefix).lstrip("._:"): entry for full, entry in tensors.items()}
    if "" in roles and not roles.keys().isdisjoint(_BARE_SCALES):
        # codes without an ending are called `weight`
        roles = {BARE_ROLES.get(role, role): entry for role, entry in roles.items()}
    return Weight(prefix, roles, reason=reason)


def _as_noted(entries: Entries, first: Entry) -> Weight:
    """Return the tensors that a note lists, of which this is the first."""
    note, who = first.note or {}, f"the descriptor of {short_repr(first.name)} does not say"
    name, tensors, facts = (note.get(key) for key in ("name", "tensors", "quantized"))
    listed = [*tensors.values()] if isinstance(tensors, dict) else []
    is_joined = listed[:1] == [first.name] and len({*map(repr, listed)}) == len(listed)
    if not isinstance(name, str) or not isinstance(tensors, dict) or not is_joined:
        raise MemdescError(f"{who} which tensors belong to it")
    for tensor in listed:
        if not isinstance(tensor, str) or tensor not in entries:
            raise MemdescError(
                f"{short_repr(name)} is stored as {', '.join(map(short_repr, listed))}, but there "
                f"is no {short_repr(tensor)}; reorder.open_checkpoint reads the others"
            )
    is_whole = isinstance(facts, dict) and facts.keys() == {"axis", "groups"}
    roles = [*QUANTIZED]
    # zero points may all be 0
    if facts is not None and not (is_whole and [*tensors] in (roles, roles[:-1])):
        raise MemdescError(f"{who} what scales its codes")
    stem = stem_of(first.name, next(iter(tensors)), str(note.get("record")))
    return Weight(stem, {role: entries[tensor] for role, tensor in tensors.items()}, note)


def holds_codes(entry: Entry) -> bool:
    """Whether a tensor may hold codes: integers, narrow floats, blocks, or an unknown type."""
    element = entry.element
    if isinstance(entry.desc, RecordDesc) or element not in DATA_TYPES:
        return True
    most = _WORD_BITS if element in INTEGERS else _CODE_BITS
    return DATA_TYPES[element].bits <= most and element != "boolean"


def tensors_of(name: str, held: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the tensors of a record, with the optional ones among those given."""
    scheme = SCHEMES.get(name)
    return (ONE,) if scheme is None else scheme.tensors(**scheme.shown(held))


# --- what does not fit in a model ---


def find_misfits(model: Model) -> Iterator[tuple[str, str]]:
    """Yield tensors that look like parts of quantised weights, but are of none here, and why."""
    declared = model.claims.said
    said = (SCHEMES.get(said.name or "") for said in declared.every) if declared else ()
    # how names of codes end, and those of what scales them; without a dot only in stacked experts
    codes, scaled = {f"{x.joint}{x.tensors()[0]}" for x in said if x}, dict[str, str]()
    for weight in filter(lambda weight: weight.tensors, model.weights):
        start = f".{weight.prefix}" if weight.prefix else ""
        first, *ends = (f".{x.name}".removeprefix(start) for x in weight.tensors.values())
        codes.add(first)
        scaled |= dict.fromkeys(ends, first)
    known = {name for weight in model.weights for name in weight.names}
    prefixes = {weight.prefix for weight in model.weights if weight.is_dotted}
    for name, entry in model.entries.items():
        prefix, dotted = name.rpartition(".")[0], f".{name}"
        starts = "" if prefix.endswith(".experts") else "."
        ends = [end for end in scaled if end.startswith(starts) and dotted.endswith(end)]
        whole = f"{dotted.removesuffix(ends[0])}{scaled[ends[0]]}"[1:] if ends else None
        # called like codes, like a weight, or like all experts of a layer
        is_stack = holds_experts(entry)
        is_called = name.endswith(WEIGHT) or is_stack
        is_weight = (is_called and not known) or any(
            dotted.endswith(end) and end.startswith(starts) if end else is_stack for end in codes
        )
        if name in known:
            continue
        if whole is not None and whole not in known:
            why = f"scales a weight, as other tensors of that name do, but there is no {whole}"
        elif entry.dtype in UNQUANTISED and (scale := _scale_beside(model.entries, name)):
            why = (
                f"holds plain {entry.dtype}, but {scale} is beside it, as beside codes, or as in "
                "models that are calibrated and not yet compressed"
            )
        elif prefix in prefixes and not dotted.endswith((".bias", *SERVING, *CACHE)):
            why = f"is beside the codes of {prefix}, and may change what they mean"
        elif is_weight and holds_codes(entry) and not isinstance(entry.desc, RecordDesc):
            why = f"holds codes of {entry.dtype}, but nothing beside it scales them"
        else:
            continue
        yield name, why


def _scale_beside(entries: Entries, name: str) -> str | None:
    """Return a tensor beside a weight of floats that only codes should have."""
    layer = name.removesuffix(WEIGHT)
    names = [*(f"{name}{end}" for end in _SCALING.split())]
    names += [f"{layer}{end}" for end in _CHANGING.split()]
    return next((x for x in names if x in entries), None) if layer != name else None


# --- what the tensors of a weight are ---


def decide(weight: Weight, claims: Claims) -> Weight:
    """Return a quantised weight with what its tensors are together, or with why that is unknown.

    The only data that is read is `g_idx`, and the tensors that have options of the record.
    """
    reason = weight.reason  # its note is damaged
    if weight.quantized is not None:
        name = weight.called(weight.prefix)
        loaded = f"reorder.load_all(path, reorder.Quantized)[{name!r}]"
        way = f"reorder.dequantize({loaded}) decodes it, and no conversion does"
        reason = reason or f"{name!r} is a Quantized: {way}"
    if reason:
        return weight._replace(reason=reason)
    try:
        noted = None if weight.note is None else record_of(weight.note)
        said = (None,) if claims.declared is None else claims.declared.at(weight.prefix)
    except MemdescError as error:
        return weight._replace(reason=str(error))
    held = weight.entries
    present = [x for x in said if not x or not x.name or {*tensors_of(x.name, held)} <= {*held}]
    read = [_read(weight, claims, noted, declaration) for declaration in present or said]
    made = {decided.desc: decided for decided in read if decided.desc is not None}
    if len(made) > 1:
        names = " and ".join(map(repr, made))
        fits = f"{weight.prefix!r} fits {names}, which are declared for different classes"
        return weight._replace(reason=f"{fits}: give the name")
    return next(iter(made.values()), read[0])


def _read(weight: Weight, claims: Claims, noted: RecordDesc | None, said: Said | None) -> Weight:
    """Return what tensors are, or why that is unknown, given what is declared about the layer."""
    try:
        name, options = _named(claims, weight, noted, said)
        by = f"{said.file} declares {name}" if said and claims.name is None else ""
        with about(by) if by else nullcontext():
            desc = desc_of_tensors(weight, name, options)
            _check_said(weight, desc, claims, noted, said)
            looked_up = _looked_up(weight, desc)
            if looked_up is not weight:
                desc = desc_of_tensors(looked_up, name, options)
    except MemdescError as error:
        return weight._replace(reason=str(error))
    return looked_up._replace(desc=desc)


def _named(
    claims: Claims, weight: Weight, noted: RecordDesc | None, said: Said | None
) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of the record that the sources name."""
    if said is not None and said.is_ignored:
        raise MemdescError(
            f"{said.reason}, but its tensors are quantised: correct {said.file} if it is wrong, or "
            "leave them as they are, with a rule that does not match them"
        )
    held = None if noted is None else noted.name
    given = held if claims.name is None else claims.name
    declared = None if said is None else said.name
    name = declared if given is None else read_name(given)[0]
    if name is None:
        names = _fitting(weight)
        if said is not None or len(names) != 1 or not SCHEMES[names[0]].is_told:
            raise MemdescError(_undeclared(weight, said, names))
        return names[0], dict(claims.options)
    options = dict(noted.options) if noted is not None and held == name else {}
    if said is None:
        return name, {**options, **claims.options}
    correct = f"correct {said.file} if it is wrong"
    if declared not in (None, name):
        msg = f"{said.file} declares {declared}, not {name}: name {declared}, or {correct}"
        raise MemdescError(msg)
    if declared is None and not said.is_unlisted and claims.name is None:
        msg = f"the descriptors of {weight.prefix!r} say {name}, but {said.reason}; {correct}"
        raise MemdescError(msg)
    return name, {**options, **(said.options if declared == name else {}), **claims.options}


def _undeclared(weight: Weight, said: Said | None, names: list[str]) -> str:
    """Return why nothing says which record it is, and the way out."""
    why = said.reason if said else f"no {CONFIG} has a {KEY}"
    hint = "no known record fits it"
    if names:
        axes = "(axes=oi)" if read_name(names[0])[1] == _MATRIX else ""
        hint = (
            f"its tensors fit {' or '.join(names)}: give the name, in a rule such as --map "
            f"'{weight.prefix}: {names[0]} -> plain{axes}, bf16'"
        )
    return f"nothing declares what {weight.prefix!r} holds: {why}; {hint}"


def _fitting(weight: Weight) -> list[str]:
    """Return the schemes that fit the types and shapes of all tensors, whatever their options."""
    names = []
    for name, scheme in SCHEMES.items():
        known = {*scheme.tensors(), *scheme.optional, *ORDERS}
        if scheme.tensors()[0] in weight.entries and weight.entries.keys() <= known:
            hidden = (o for o in scheme.options.values() if o.means)
            variants = [f"{name}({o.name}={value})" for o in hidden for value in o.legal[1:]]
            names += [name, *variants] if bind(scheme, _stored(weight), {}).descs else []
    return names


def _looked_up(weight: Weight, desc: RecordDesc) -> Weight:
    """Return a weight with scales for each input, if a table gives groups in another order."""
    if (order := weight.order) is None:
        return weight
    at = desc.letters.find("i")
    inputs, own = desc.dims[at] if at >= 0 else 0, DATA_TYPES.get(order.dtype)
    if own is None or own.name not in INTEGERS or not inputs * own.bits == 8 * order.nbytes > 0:
        who = f"{order.name} of {order.dtype} and shape {order.shape}"
        raise MemdescError(f"{who} is not an integer for each of the {inputs} inputs")
    table, group = order.read().view(own.numpy), dict(desc.options).get("group")
    size = inputs if group in (-1, None) else int(str(group))
    if np.array_equal(table, np.arange(inputs) // size):
        return weight
    scheme = SCHEMES.get(desc.name)
    parts = () if scheme is None else scheme.parts
    roles = [part.tensor for part in parts if part.by in weight.entries]
    if not roles:
        how = "assigns inputs to groups in an arbitrary order (act-order)"
        raise MemdescError(f"{order.name} {how}, which is not decoded for {desc.name}")
    count, groups = desc.scales.layout.dims[at], f"groups {table.min()} to {table.max()}"
    if table.min() < 0 or table.max() >= count:
        raise MemdescError(f"{order.name} has {groups}, but there are {count}")
    held = dict(weight.entries)
    for role in roles:
        if held[role].is_described or held[role].shape[:1] != (count,):
            raise MemdescError(f"{held[role].name} does not have a row for each of {count} groups")
        held[role] = held[role].by_rows(tuple(table.tolist()))
    return weight._replace(entries=held, is_looked_up=True)


def _check_said(
    weight: Weight, desc: RecordDesc, claims: Claims, noted: RecordDesc | None, said: Said | None
) -> None:
    """Refuse what contradicts the files of the model, and tensors that are not used."""
    if noted not in (None, desc):
        held = f"{weight.codes.name!r} is stored as part of {noted!r}"
        raise MemdescError(f"{held}, as its descriptor says, not of {desc!r}")
    if said is not None and said.name == desc.name:
        inputs, group = desc.dims[desc.letters.index("i")], dict(desc.options).get("group")
        is_one = group == -1
        if said.group not in (None, group) and not (is_one and said.group >= inputs):
            groups = f"{'one group' if is_one else f'groups of {group}'} of {inputs} inputs"
            raise MemdescError(
                f"{said.file} declares group_size {said.group}, but the shapes of the tensors say "
                f"{groups} of {weight.prefix!r}; correct {said.file} if it is wrong"
            )
        if said.is_ordered and not is_one and weight.order is None:
            raise MemdescError(
                f"{said.file} declares act-order, which assigns inputs to groups by data, but "
                f"there is no {ORDERS[0]}; correct {said.file} if the inputs are in order"
            )
    rest = [name for name in weight.entries if name not in {*desc.tensors, *ORDERS}]
    if rest:
        scheme, hint = SCHEMES.get(desc.name), ""
        for option in filter(None, (scheme.optional.get(name) for name in rest) if scheme else ()):
            if said is None or option in claims.options:
                hint += f"; leave {option}= out"
            else:
                hint += f"; correct {said.file} if there are {option}"
        names = ", ".join(weight.entries[name].name for name in rest)
        raise MemdescError(
            f"{names} belong to {weight.codes.name}, and {desc!r} does not use them: its numbers "
            f"would be different{hint}"
        )


def desc_of_tensors(weight: Weight, name: str, given: Mapping[str, Any]) -> RecordDesc:
    """Return the named record that tensors are. Fails if there is none, or several."""
    for role, refused in _REFUSED.items():
        if role in weight.entries:
            read_name(refused)
    scheme = SCHEMES.get(read_name(name)[0])
    if scheme is None:
        if (entry := weight.entries.get(ONE)) is None:
            msg = f"{weight.prefix!r} has no tensor {ONE!r}, in which {name} is stored"
            raise MemdescError(msg)
        return _single_desc(entry, name, given)
    bound = bind(scheme, _stored(weight), given)
    if not bound.descs:
        shown = "; ".join(bound.tried[:SHOWN])
        more = f"; and {len(bound.tried) - SHOWN} more" if len(bound.tried) > SHOWN else ""
        is_named = weight.prefix in shown and len(bound.tried) == 1
        raise MemdescError(
            f"{'' if is_named else f'{weight.prefix!r} is not {name}: '}{shown}{more}"
        )
    if len(bound.descs) > 1:
        fits, names = difference(bound.descs)
        asked = " and ".join(f"{option}=" for option in names)
        raise MemdescError(f"{weight.prefix!r}: {fits}: give {asked}")
    return bound.descs[0]


def _stored(weight: Weight) -> dict[str, Stored]:
    made = {}
    for role, entry in weight.entries.items():
        # an order of inputs that is looked up, or wider, is checked, but not a tensor of the record
        if role not in ORDERS or (entry.element == "s32" and not weight.is_looked_up):
            plain = [stored_desc(dtype, entry.shape)[0] for dtype in (entry.dtype, entry.element)]
            # a stored descriptor, or a column-major array
            is_described = entry.desc is not None and entry.desc not in plain
            facts = (entry.name, entry.dtype, entry.shape, entry.nbytes, entry.desc, is_described)
            made[role] = Stored(*facts, entry.read)
    return made


def _single_desc(entry: Entry, name: str, options: Mapping[str, Any]) -> RecordDesc:
    """Return the record in a single tensor: the one that its type says, or the named one."""
    if isinstance(entry.desc, RecordDesc) and entry.desc.name == name:
        return entry.desc
    if isinstance(entry.desc, RecordDesc) or entry.nbytes != prod(entry.shape):
        raise MemdescError(f"{entry.name!r} holds {entry.dtype}, and {name} is stored as bytes")
    rows, last = entry.shape[:-1], entry.shape[-1:]
    bits = record_desc((8, 256), name, **options).bits_per_element
    sizes = [size * BYTE_BITS / bits for size in last]
    if not all(size.is_integer() for size in sizes):
        why = f"{last[0]} bytes are not whole elements of {bits:g} bits"
        raise MemdescError(f"{entry.name!r} of shape {entry.shape} does not hold {name}: {why}")
    return record_desc((*rows, *map(int, sizes)), name, **options)
