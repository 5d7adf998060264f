"""The config.json of an output, whose sections must declare the quantised weights that it has."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import about
from memdesc.record import RecordDesc
from reorder.checkpoints.config import (
    CONFIG,
    IGNORED,
    IS_SYMMETRIC,
    OUTPUT,
    ROWS,
    Layers,
    Said,
    declare,
    declared_by,
    method_in,
    method_of,
    read_config,
    row_of,
    says_symmetric,
    sections_of,
    without_plain,
)
from reorder.checkpoints.convert.rules import FormatName
from reorder.checkpoints.convert.targets import decoded_format
from reorder.checkpoints.experts import block_of, holds_experts
from reorder.checkpoints.formats.entry import UNQUANTISED, WEIGHT
from reorder.messages import first_of
from reorder.values.formats import FLOATS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reorder.checkpoints.config import Json
    from reorder.checkpoints.convert.plan import Plan
    from reorder.checkpoints.formats.entry import Desc

# the last parts of names of embeddings
_EMBEDDING = re.compile(r".*embed(ding)?s?(_tokens\w*|_in|_positions)?|wte|wpe")
# What config.json calls the types of weights that are not quantised, and the keys that say the type
# of a model: transformers 5 writes the second and reads both, earlier versions know the first.
_DTYPES = {name: DATA_TYPES[name].numpy.name for name in UNQUANTISED}
_DTYPE_KEYS = ("torch_dtype", "dtype")
# how DeepSeek-V4 stores experts, beside the section; loaders believe it
_EXPERT_DTYPE = "expert_dtype"
# the part of a model whose type is that of the model, if the model declares none
_TEXT = "text_config"


def moved_config(text: bytes, plan: Plan) -> bytes:
    """Return the config.json of the output, unchanged if it stays true; add to the warnings."""
    if not plan.is_redeclared and plan.target.dtype is None:
        return text
    with about(CONFIG):
        config, holders = read_config(text)
    if plan.target.dtype is not None:
        _set_dtype(config, plan, plan.target.dtype)
    for holder in holders if plan.is_redeclared else ():
        before = sections_of(holder)
        layers = _layers(plan, config, next(iter(before.values()), {}))
        sections = _sections(plan, layers, before)
        if sections is None and before:
            raise MemdescError(_why_undeclared(plan))
        if sections is None:
            plan.warnings += undeclared(plan)
            break
        _check_plain(sections, layers)
        for key in (*before, *(() if sections else [_EXPERT_DTYPE])):
            holder.pop(key, None)
        holder.update(sections)
    is_same = config == json.loads(text)
    return text if is_same else json.dumps(config, indent=2).encode() + b"\n"


def _sections(plan: Plan, layers: Layers, before: Json) -> Json | None:
    """Return the sections that declare the output instead of others, by key; None if none can."""
    held: Json = next(iter(before.values()), {})
    method, wanted = method_in(held), plan.target.method
    if before:
        _check_experts(plan, layers)
    is_same = held.get("quant_method", method) == method and wanted in (None, method)
    if before and (plan.made or plan.left) and is_same:
        said = declared_by(CONFIG, held)
        is_listed = any(row.method == method for row in ROWS)
        stays = (_stays(said.at(x), src, dst, method) for x, src, dst in plan.made)
        if (is_listed or not plan.decoded) and all(stays):
            made = {key: without_plain(method, x, layers) for key, x in before.items()}
            return made if plan.decoded else before
    if plan.left and (plan.made or before):
        return None
    _check_embeddings(plan, wanted or method)
    return declare(layers, held, wanted) if plan.made else {}


def _stays(said: Sequence[Said], src: Desc, dst: RecordDesc, method: str) -> bool:
    """Whether a section is as true of a new record as of the old one, in the same tensors."""
    # options of another scheme are not what the keys of this one say
    if not isinstance(src, RecordDesc) or src.name != dst.name:
        return False
    old, new = (dict(desc.options) for desc in (src, dst))
    before, after = ((row := row_of(dst.name, x, method)) and row.keys(x) for x in (old, new))
    declared = [x.options for x in said if x.name == dst.name]
    is_same = src.tensors.keys() == dst.tensors.keys() and before == after
    return is_same and any(options.items() <= new.items() for options in declared)


def _layers(plan: Plan, config: Json, held: Json) -> Layers:
    """Return the layers of the output; `held` is the section of the input.

    Experts in one tensor count as a layer, and so does the output layer, even if it has no tensor
    because the embeddings are its weight.
    """
    groups = {dict(desc.options).get("group") for _, _, desc in plan.made} - {-1, None}
    made, plain, quantised = dict[str, Said](), dict[str, None](), dict[str, None]()
    for layer, src, desc in plan.made:
        options: dict[str, Any] = dict(desc.options)
        # one group for all inputs is one of that size, if the other layers have such groups
        if options.get("group") == -1 and {desc.dims[desc.letters.index("i")]} == groups:
            (options["group"],) = groups
        if isinstance(src, RecordDesc):
            is_symmetric = src.rule.is_symmetric or desc.rule.is_symmetric
            options[IS_SYMMETRIC] = is_symmetric or says_symmetric(held)
        made[layer] = Said(CONFIG, desc.name, options)
    for step in plan.steps:
        is_record = isinstance(step.change.dst, RecordDesc)
        for tensor in step.tensors:
            owner, is_float = tensor.name.rpartition(".")[0], tensor.dtype in _DTYPES
            is_layer = tensor.name.endswith(WEIGHT) and len(tensor.shape) == len("oi")
            # codes with scales beside them are not a record
            if not is_float and (step.change.is_copy or is_record):
                quantised[owner] = None
            elif is_float and (is_layer or holds_experts(tensor)) and not is_record:
                plain[owner] = None
    if not any(OUTPUT in layer.split(".") for layer in quantised):
        plain[OUTPUT] = None
    is_composite = any(isinstance(x, dict) and "model_type" in x for x in config.values())
    return Layers(made, [*plain], quantised, is_composite)


def undeclared(plan: Plan) -> list[str]:
    """Return a warning if the output has records that no config.json declares."""
    names = sorted({desc.name for _, _, desc in plan.made if len(desc.tensors) > 1})
    told = (
        f"no {CONFIG} is written to declare {', '.join(names)}: programs that do not read the "
        "descriptors in the output must be told"
    )
    return [told] if names else []


def _set_dtype(config: dict[str, Any], plan: Plan, dtype: str) -> None:
    """Declare the type of a model, and of its parts that had the same; warn of what is rounded."""
    name, held = _DTYPES[dtype], config.get(_TEXT)
    # compared as a list, because a part may hold an object here, which no set takes
    own, old = (
        [section[key] for key in _DTYPE_KEYS if section.get(key) in _DTYPES.values()]
        for section in (config, held if isinstance(held, dict) else {})
    )
    if own:
        old = own
    else:
        config[_DTYPE_KEYS[0]] = name
    parts: list[Any] = [config]
    while parts:
        part = parts.pop()
        parts += [value for value in part.values() if isinstance(value, dict)]
        part |= {key: name for key in _DTYPE_KEYS if part.get(key) in old}
    wide = [own for own in _DTYPES if not FLOATS[dtype].holds(FLOATS[own]) and _DTYPES[own] in old]
    copied = [tensor for step in plan.steps if step.change.is_copy for tensor in step.tensors]
    if names := [x.name for x in copied if x.dtype in wide]:
        why = f"{CONFIG} now says {name}, not {' and '.join(old)}"
        plan.warnings.append(f"loaders will round {first_of(names)} too: {why}")


def _check_experts(plan: Plan, layers: Layers) -> None:
    """Refuse to decode only some experts of a layer: loaders merge them and expect one format."""
    quantised = {*map(block_of, layers.quantised)} - {""}
    for layer in plan.decoded:
        if (block := block_of(layer)) in quantised:
            raise MemdescError(
                f"{layer} would be floats beside quantised experts of {block}, and loaders merge "
                "the experts of a layer, so they expect all of them in one format; decode all, or "
                "none"
            )


def _check_embeddings(plan: Plan, method: str) -> None:
    """Refuse quantised embeddings if loaders do not find quantised layers by their tensors."""
    for layer, src, dst in plan.made:
        row = row_of(dst.name, dict(dst.options), method)
        if _EMBEDDING.fullmatch(layer.rpartition(".")[2]) and row and method_of(row.method).lists:
            way = "leave it as it is"
            if isinstance(src, RecordDesc):
                way = f"--map '{layer}: {src.name} -> {decoded_format(src)}, bf16' decodes it"
            raise MemdescError(
                f"{CONFIG} cannot say that {layer} is {dst.name}: loaders of {row.method} do not "
                f"expect embeddings to be quantised; {way}"
            )


def _check_plain(sections: Json, layers: Layers) -> None:
    """Refuse to list a plain layer whose name a loader also finds in a quantised one.

    Source: transformers 5.24, `should_convert_module`: a listed name excludes each layer whose
    name begins with it, up to a dot, or ends with it.
    """
    listed = tuple(name for section in sections.values() for name in section.get(IGNORED) or ())
    begins = tuple(f"{name}." for name in listed)
    for layer in layers.quantised:
        if layer.startswith(begins) or layer.endswith(listed):
            plain = next(x for x in listed if layer.startswith(f"{x}.") or layer.endswith(x))
            raise MemdescError(
                f"{CONFIG} would list {plain} as not quantised, in {IGNORED}, and transformers "
                f"also finds that name in {layer}, so it would load the codes as numbers; "
                "--to bf16 and --to f16 decode all layers"
            )


def _why_undeclared(plan: Plan) -> str:
    """Return why no config.json declares the output, and the way out."""
    made = {
        desc.name
        if row_of(desc.name, dict(desc.options))
        else str(FormatName(desc.name, desc.options))
        for _, _, desc in plan.made
    }
    formats = " and others ".join(sorted(made)) or "floats"
    more = f" while {plan.left} stays as it was" if plan.left else ""
    return (
        f"{CONFIG} cannot say that some layers are {formats}{more}, as no loader reads "
        "that from it; convert all of them to one format that loaders read, such as gptq or awq, "
        f"or name a single file, such as OUT.safetensors, which has no {CONFIG}"
    )
