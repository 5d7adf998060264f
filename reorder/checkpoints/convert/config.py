"""config.json of an output: its sections must declare the quantised weights that it has."""

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
    KEY,
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
)
from reorder.checkpoints.experts import block_of, holds_experts
from reorder.checkpoints.formats.entry import UNQUANTISED, WEIGHT, model_axes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reorder.checkpoints.convert.plan import Plan
    from reorder.checkpoints.convert.steps import Step

    Json = Mapping[str, Any]

# the last parts of names of embeddings
_EMBEDDING = re.compile(r".*embed(ding)?s?(_tokens\w*|_in|_positions)?|wte|wpe")
# What config.json calls the types of weights that are not quantised, and the keys that say the type
# of a model: transformers 5 writes the second and reads both, earlier versions know the first.
_DTYPES = {name: DATA_TYPES[name].numpy.name for name in UNQUANTISED}
_DTYPE_KEYS = ("torch_dtype", "dtype")
# how DeepSeek-V4 stores experts, beside the section; loaders believe it
_EXPERT_DTYPE = "expert_dtype"
# the part of a model whose type is that of the model, if the model says none
_TEXT = "text_config"


def moved_config(text: bytes, plan: Plan) -> tuple[bytes, list[str]]:
    """Return the config.json of the output, unchanged if it stays true, and warnings.

    Fails if it is not a JSON object, or declares weights that become what no loader reads from it.
    """
    if not plan.moved and plan.target.dtype is None:
        return text, []
    with about(CONFIG):
        config, holders = read_config(text)
    if plan.target.dtype is not None:
        _set_dtype(config, _DTYPES[plan.target.dtype])
    for holder in holders if plan.moved else ():
        before = sections_of(holder)
        layers = _layers(plan, config, next(iter(before.values()), {}))
        sections = _sections(plan, layers, before)
        if sections is None:
            if before:
                raise MemdescError(_why_undeclared(plan))
            return text, undeclared(plan)
        _check_plain(sections, layers)
        for key in (*before, *(() if sections else [_EXPERT_DTYPE])):
            holder.pop(key, None)
        holder.update(sections)
    is_same = config == json.loads(text)
    return text if is_same else json.dumps(config, indent=2).encode() + b"\n", []


def _sections(plan: Plan, layers: Layers, before: Json) -> Json | None:
    """Return the sections that declare the output instead of others, by key; None if none can."""
    held: Json = next(iter(before.values()), {})
    method, wanted = method_in(held), plan.target.method
    is_same = held.get("quant_method", method) == method and wanted in (None, method)
    if before:
        _check_experts(plan, layers)
    if before and (plan.made or plan.left) and is_same:
        said = declared_by(CONFIG, held)
        stays = (
            any(_stays(step, each, method) for each in said.at(_layer_name(step)))
            for step, _ in plan.made
        )
        is_listed = any(row.method == method for row in ROWS)
        is_whole = len(plan.made) == len(plan.moved)
        if (is_whole or is_listed) and all(stays):
            how = method_of(method)
            return before if is_whole else {k: how.without(x, layers) for k, x in before.items()}
    if plan.left and (plan.made or before):
        return None
    _check_embeddings(plan, wanted or method)
    return declare(layers, held, wanted) if plan.made else {}


def _stays(step: Step, said: Said, method: str) -> bool:
    """Whether a section says of a new record what it says of the old one, in the same tensors."""
    src, dst = step.src, step.dst
    if not (isinstance(src, RecordDesc) and isinstance(dst, RecordDesc) and said.name == dst.name):
        return False
    old, new = (dict(desc.options) for desc in (src, dst))
    rows = ((row_of(desc.name, x, method), x) for desc, x in ((src, old), (dst, new)))
    one, two = (row and row.keys(x) for row, x in rows)
    return (
        said.options.items() <= new.items()
        and src.tensors.keys() == dst.tensors.keys()
        and one == two
    )


def _layers(plan: Plan, config: Json, held: Json) -> Layers:
    """Return the layers of the output; `held` is the section of the input.

    Experts in one tensor count as a layer, and so does the output layer, even if it has no tensor
    because the embeddings are its weight.
    """
    groups = {dict(desc.options).get("group") for _, desc in plan.made} - {-1, None}
    made, plain, quantised = dict[str, Said](), dict[str, None](), dict[str, None]()
    for step in plan.steps:
        src, desc = step.src, step.dst
        is_record = isinstance(desc, RecordDesc)
        if isinstance(desc, RecordDesc):
            options: dict[str, Any] = dict(desc.options)
            # one group for all inputs is one of that size, if the other layers have such groups
            if options.get("group") == -1 and {desc.dims[desc.letters.index("i")]} == groups:
                (options["group"],) = groups
            if isinstance(src, RecordDesc):
                is_symmetric = src.rule.is_symmetric or desc.rule.is_symmetric
                options[IS_SYMMETRIC] = is_symmetric or says_symmetric(held)
            made[_layer_name(step)] = Said(CONFIG, desc.name, options)
        for tensor in step.tensors:
            owner, is_float = tensor.name.rpartition(".")[0], tensor.dtype in _DTYPES
            is_layer = tensor.name.endswith(WEIGHT) and len(tensor.shape) == len("oi")
            # codes with scales beside them are no record
            if not is_float and (step.is_copy or is_record):
                quantised[owner] = None
            elif is_float and (is_layer or holds_experts(tensor)) and not is_record:
                plain[owner] = None
    if not any(OUTPUT in layer.split(".") for layer in quantised):
        plain[OUTPUT] = None
    is_composite = any(isinstance(x, dict) and "model_type" in x for x in config.values())
    return Layers(made, [*plain], quantised, is_composite)


def _layer_name(step: Step) -> str:
    """Return the name of the layer whose weight a step writes."""
    role, tensor = next(iter(step.targets.items()))
    if not isinstance(step.dst, RecordDesc):
        return tensor.name.rpartition(".")[0]
    return tensor.name.removesuffix(role).removesuffix(".")


def undeclared(plan: Plan) -> list[str]:
    """Return a warning if the output has records that no config.json declares."""
    names = sorted({desc.name for step, desc in plan.made if len(step.targets) > 1})
    told = (
        f"no {CONFIG} is written to declare {', '.join(names)}: programs that do not read the "
        "descriptors in the output must be told"
    )
    return [told] if names else []


def _set_dtype(config: dict[str, Any], name: str) -> None:
    """Declare the type of a model, and of its parts that had the same type."""
    # compared as a list, because a part may hold an object here, which no set takes
    old = [config[key] for key in _DTYPE_KEYS if config.get(key) in _DTYPES.values()]
    if not old:
        config[_DTYPE_KEYS[0]] = name
        text = config.get(_TEXT)
        held = text if isinstance(text, dict) else {}
        old = [held[key] for key in _DTYPE_KEYS if held.get(key) in _DTYPES.values()]
    parts: list[Any] = [config]
    while parts:
        part = parts.pop()
        parts += [each for each in part.values() if isinstance(each, dict)]
        part |= {key: name for key in _DTYPE_KEYS if part.get(key) in old}


def _check_experts(plan: Plan, layers: Layers) -> None:
    """Refuse to decode only some experts of a layer: loaders merge them and expect one format."""
    quantised = {*map(block_of, layers.quantised)} - {""}
    decoded = (_layer_name(step) for step in plan.moved if not isinstance(step.dst, RecordDesc))
    mixed = next((layer for layer in decoded if block_of(layer) in quantised), None)
    if mixed is not None:
        raise MemdescError(
            f"{mixed} would be floats beside quantised experts of {block_of(mixed)}, and loaders "
            "merge the experts of a layer, so they expect all of them in one format; decode all, "
            "or none"
        )


def _check_embeddings(plan: Plan, method: str) -> None:
    """Refuse quantised embeddings if loaders do not find quantised layers by their tensors."""
    for step, dst in plan.made:
        src, layer = step.src, _layer_name(step)
        row = row_of(dst.name, dict(dst.options), method)
        if not _EMBEDDING.fullmatch(layer.rpartition(".")[2]) or not row:
            continue
        if not method_of(row.method).lists:
            continue
        way = "leave it as it is"
        if isinstance(src, RecordDesc):
            axes = f"(axes={model_axes(src)})" if model_axes(src) != src.letters else ""
            way = f"--map '{layer}: {src.name} -> plain{axes}, bf16' decodes it"
        raise MemdescError(
            f"{CONFIG} cannot say that {layer} is {dst.name}: loaders of {row.method} do not "
            f"expect embeddings to be quantised; {way}"
        )


def _check_plain(sections: Json, layers: Layers) -> None:
    """Refuse to list a plain layer whose name a loader also finds in a quantised one.

    Source: transformers 5.24, `should_convert_module`: a listed name excludes each layer whose
    name begins with it, up to a dot, or ends with it.
    """
    listed = tuple(name for each in sections.values() for name in each.get(IGNORED) or ())
    begins = tuple(f"{name}." for name in listed)
    for layer in layers.quantised:
        if layer.startswith(begins) or layer.endswith(listed):
            plain = next(x for x in listed if layer.startswith(f"{x}.") or layer.endswith(x))
            raise MemdescError(
                f"{CONFIG} would list {plain} as not quantised, in {IGNORED}, and transformers "
                f"also finds that name in {layer}, so it would load the codes as numbers; "
                "--to bf16 and --to f16 decode all layers"
            )


def check_left_out(text: bytes | None, file: str, plan: Plan) -> None:
    """Refuse to leave out a file if only that file declares the weights that are not converted."""
    if plan.left and not any(sections_of(read_config(text or b"{}")[1][0])):
        raise MemdescError(
            f"{file} would be left out, because it describes the input, but {CONFIG} does not "
            f"declare {plan.left}, which stays as it was; convert all layers, or write what {file} "
            f"says into {CONFIG}, as its {KEY}"
        )


def _why_undeclared(plan: Plan) -> str:
    """Return why no config.json declares the output, and the way out."""
    way = f"name a single file, such as OUT.safetensors, which has no {CONFIG}"
    made = [desc for _, desc in plan.made]
    known = {row.scheme for row in ROWS}
    unread = {
        str(Said(CONFIG, each.name, dict(each.options) if each.name in known else {}))
        for each in made
        if row_of(each.name, dict(each.options)) is None
    }
    if unread:
        return (
            f"{CONFIG} would declare {' and '.join(sorted(unread))}, which no loader of "
            f"checkpoints reads from it; {way}, or a format that loaders read, such as gptq or awq"
        )
    kinds = " and others ".join(sorted({each.name for each in made})) or "floats"
    more = f" while {plan.left} stays as it was" if plan.left else ""
    return (
        f"{CONFIG} cannot say that some layers are {kinds}{more}: its readers would take all "
        f"layers for one format; convert all of them to one, or {way}"
    )
