"""Rewrite config.json: its sections must declare the quantised weights of the output."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import first_of
from memdesc.record import RecordDesc
from reorder.checkpoints.convert.sections import says_symmetric
from reorder.checkpoints.declarations import (
    DECLARATIONS,
    IGNORED,
    IS_SYMMETRIC,
    OUTPUT,
    Declaration,
    declaration_of,
    join_sections,
    kept_of,
    keys_with_values,
    own_declaration,
    section_of,
    with_ends,
    with_plain,
)
from reorder.checkpoints.experts import block_of, holds_experts
from reorder.checkpoints.quantization import CONFIG, KEY, holders, sections_of
from reorder.checkpoints.stored import UNQUANTISED, WEIGHT, model_axes
from reorder.records.encode import number_bits
from reorder.values.formats import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reorder.checkpoints.convert.plan import Plan
    from reorder.checkpoints.convert.steps import Step

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
    config, found = _read_config(text)
    if not plan.moved:
        warnings = _set_dtype(config, plan)
        return json.dumps(config, indent=2).encode() + b"\n", warnings
    is_declared, moved = any(sections_of(found[0])), _redeclared(plan, found[0])
    if not moved:
        return text, []
    if is_declared:
        _check_experts(plan)
    plain = _plain_layers(plan)
    kinds = [kind for kind in _kinds(moved) if isinstance(kind.step.dst, RecordDesc)]
    made: dict[str, list[str]] = {}
    for kind in kinds:
        made.setdefault(_sections_json(kind, found[0], plain, plan.target.method), []).extend(
            kind.layers
        )
    declared = [(json.loads(each), layers) for each, layers in made.items()]
    joined = join_sections(declared) if len(made) > 1 else {}
    unknown = _undeclarable(kinds)
    if unknown or (made and plan.left) or (len(made) > 1 and not joined):
        if not is_declared:
            return text, undeclared(plan)
        raise MemdescError(unknown or _why_undeclared(plan))
    if not (made or is_declared or plan.target.dtype):
        return text, []
    warnings = _set_dtype(config, plan)
    lost: list[str] = []
    for holder in found:
        before = sections_of(holder)
        if kinds:
            sections = joined or json.loads(
                _sections_json(kinds[0], holder, plain, plan.target.method)
            )
        else:
            sections = _sections_left(before, plan) if plan.left else {}
        _check_plain(sections, [layer for kind in kinds for layer in kind.layers])
        sections = _with_ends(sections, config, plan)
        lost += _replace_sections(holder, sections)
        warnings += _unread_warnings(sections)
    if lost:
        warnings.append(f"{CONFIG} has no place for {', '.join(lost)} of the input")
    return json.dumps(config, indent=2).encode() + b"\n", warnings


def _unread_warnings(sections: Mapping[str, Any]) -> Iterator[str]:
    """Return warnings about what transformers 5.24 does not read in sections of GPTQ or AWQ.

    Source: GPTQModel 7.7, `models/loader.py`, which reads both.
    """
    for section in sections.values():
        if section.get("lm_head") is True:
            yield (
                f"{CONFIG} says lm_head: GPTQModel loads it quantised, and transformers 5.24 gives "
                "it random weights instead; --map decodes it to a float type"
            )
        if any((section.get("dynamic") or {}).values()):
            yield (
                f"{CONFIG} says in dynamic which layers have other bits or groups: GPTQModel reads "
                "that, and transformers 5.24 refuses to load them"
            )


def _redeclared(plan: Plan, config: dict[str, Any]) -> list[Step]:
    """Return the steps whose records a config.json must declare, or declare anew.

    Records of one tensor need no declaration, since descriptors and types describe them. A record
    that is declared as before is redeclared only if another one is.
    """
    is_declared = any(sections_of(config))
    if not is_declared and all(len({*step.sources, *step.targets}) == 1 for step in plan.moved):
        return []
    may_stay = is_declared and plan.left
    return [step for step in plan.moved if not (may_stay and _is_declared_alike(step, config))]


def _read_config(text: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return config.json, and the objects in it that declare quantised weights, or all of it."""
    try:
        config = json.loads(text)
        found = [*holders(config)] or [config]
    except (ValueError, RecursionError) as error:
        msg = f"{CONFIG} is not JSON: {error}"
        raise MemdescError(msg) from None
    if not isinstance(config, dict):
        msg = f"{CONFIG} is not a JSON object"
        raise MemdescError(msg)
    return config, found


def _replace_sections(holder: dict[str, Any], sections: dict[str, Any]) -> list[str]:
    """Replace the sections of an object.

    Returns the keys of the old ones that say nothing about weights and are not in the new ones.
    """
    held = {key for each in sections_of(holder).values() for key in keys_with_values(each)}
    for key in sections_of(holder):
        del holder[key]
    if not sections:
        holder.pop(_EXPERT_DTYPE, None)
    holder.update(sections)
    made = {key for each in sections.values() for key in keys_with_values(each)}
    kept = dict.fromkeys(key for row in DECLARATIONS for key in (*row.kept, *row.kept_of_each))
    return [key for key in kept if key in held - made]


def loader_warnings(steps: Sequence[Step], *, is_folder: bool) -> tuple[str, ...]:
    """Return a warning for each record that becomes tensors which no known loader reads.

    A file may hold records of one tensor, as GGUF does; a folder is a model in safetensors.
    """
    made = {
        step.dst.name: dict(step.dst.options)
        for step in steps
        if isinstance(step.dst, RecordDesc) and (is_folder or len(step.targets) > 1)
    }
    reasons = {name: _row_of(name, options).unloaded for name, options in made.items()}
    return tuple(
        f"neither vLLM nor transformers loads {name} from a checkpoint{reason and f'; {reason}'}"
        for name, reason in reasons.items()
        if reason is not None
    )


def _is_declared_alike(step: Step, config: dict[str, Any]) -> bool:
    """Whether a section declares a record as before, in tensors of the same names."""
    if not (isinstance(step.src, RecordDesc) and isinstance(step.dst, RecordDesc)):
        return False
    before, after = (
        section_of(_row_of(each.name, options, _method(sections_of(config))), options)
        for each in (step.src, step.dst)
        for options in [{"bits": number_bits(each, each.rule.code), **dict(each.options)}]
    )
    return before == after and step.src.tensors.keys() == step.dst.tensors.keys()


def undeclared(plan: Plan) -> list[str]:
    """Return a warning if the output has records that no config.json declares."""
    made = [step for step in plan.moved if len(step.targets) > 1]
    names = sorted({step.dst.name for step in made if isinstance(step.dst, RecordDesc)})
    told = (
        f"no {CONFIG} is written to declare {', '.join(names)}: programs that do not read the "
        "descriptors in the output must be told"
    )
    return [told] if names else []


class _Kind(NamedTuple):
    """Records that one section can declare: one of them, its options, and the layers of all."""

    step: Step
    options: dict[str, Any]
    layers: list[str]


def _kinds(steps: Sequence[Step]) -> list[_Kind]:
    """Return the kinds of records that steps make.

    A layer with one group for all its inputs counts as one with groups of that size, if the other
    layers have such groups.
    """
    descs = [step.dst for step in steps if isinstance(step.dst, RecordDesc)]
    groups = {dict(desc.options).get("group") for desc in descs} - {-1, None}
    found: dict[str, _Kind] = {}
    for step in steps:
        options: dict[str, Any] = {}
        if isinstance(step.dst, RecordDesc):
            options = dict(step.dst.options)
            if (
                options.get("group") == -1
                and {step.dst.dims[step.dst.letters.index("i")]} == groups
            ):
                (options["group"],) = groups
        names = [each.name for each in (step.src, step.dst) if isinstance(each, RecordDesc)]
        kind = found.setdefault(repr((names, options)), _Kind(step, options, []))
        kind.layers.append(_layer_name(step))
    return [*found.values()]


def _with_fixed(name: str, options: Mapping[str, Any]) -> str:
    """Return the name of a record, with the options that decide which section declares it."""
    keys = {key for row in DECLARATIONS if row.record == name for key in row.fixed}
    shown = ", ".join(f"{key}={value}" for key, value in options.items() if key in keys)
    return f"{name}({shown})" if shown else name


def _undeclarable(kinds: Sequence[_Kind]) -> str:
    """Return why records cannot be declared that no loader knows from a config.json, or nothing."""
    descs = [(kind.step.dst, kind.options) for kind in kinds]
    names = {
        _with_fixed(desc.name, options)
        for desc, options in descs
        if isinstance(desc, RecordDesc) and declaration_of(desc.name, options) is None
    }
    if not names:
        return ""
    return (
        f"{CONFIG} would declare {' and '.join(sorted(names))}, which no loader of checkpoints "
        f"reads from it; write one file, such as OUT.safetensors, which has no {CONFIG}, or name a "
        "format that loaders read, such as gptq or awq"
    )


def _set_dtype(config: dict[str, Any], plan: Plan) -> list[str]:
    """Declare the type of a model, and of its parts that had the same type.

    Returns a warning if loaders round the weights that had this type, and are copied.
    """
    dtype = plan.target.dtype
    if dtype is None:
        return []
    name = _DTYPES[dtype]
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
    wide = {
        kind
        for kind, said in _DTYPES.items()
        if said in old and not FLOATS[dtype].holds(FLOATS[kind])
    }
    copied = [tensor for step in plan.steps if step.is_copy for tensor in step.tensors]
    names = [each.name for each in copied if each.dtype in wide]
    why = f"{CONFIG} now says {name}, not {' and '.join(old)}"
    return [f"loaders will round {first_of(names, 3)} too: {why}"] if names else []


def _plain_layers(plan: Plan) -> list[str]:
    """Return the names of the layers whose weights are matrices that stay floats.

    Experts in one tensor count as a layer. So does the output layer, even if it has no tensor
    because the embeddings are its weight.
    """
    names = dict[str, None]()
    for step in plan.steps:
        for tensor in () if isinstance(step.dst, RecordDesc) else step.targets.values():
            is_layer = tensor.name.endswith(WEIGHT) and len(tensor.shape) == len("oi")
            if tensor.dtype in _DTYPES and (is_layer or holds_experts(tensor)):
                names[tensor.name.rpartition(".")[0]] = None
    if not any(_has_output(step) for step in plan.steps):
        names[OUTPUT] = None
    return [*names]


def _with_ends(
    sections: Mapping[str, Any], config: Mapping[str, Any], plan: Plan
) -> dict[str, Any]:
    """Return sections whose lists also say how names of layers end, if a model has parts.

    These are models of their own, such as one for images and one for text.
    """
    if not any(isinstance(each, dict) and "model_type" in each for each in config.values()):
        return dict(sections)
    tensors = (tensor for step in plan.steps for tensor in step.tensors)
    quantised = {each.name.rpartition(".")[0] for each in tensors if each.dtype not in _DTYPES}
    return {key: with_ends(section, quantised) for key, section in sections.items()}


def _has_output(step: Step) -> bool:
    """Whether a step writes codes of the output layer that are part of a record."""
    is_of_record = step.is_copy or isinstance(step.dst, RecordDesc)
    return is_of_record and any(
        f".{OUTPUT}." in f".{tensor.name}" and tensor.dtype not in _DTYPES
        for tensor in step.tensors
    )


def _check_experts(plan: Plan) -> None:
    """Refuse to decode only some experts of a layer: loaders merge them and expect one format."""
    decoded = [_layer_name(step) for step in plan.moved if not isinstance(step.dst, RecordDesc)]
    tensors = (tensor for step in plan.steps for tensor in step.tensors)
    quantised = {block_of(each.name) for each in tensors if each.dtype not in _DTYPES} - {""}
    mixed = next((layer for layer in decoded if block_of(layer) in quantised), None)
    if mixed is not None:
        msg = (
            f"{mixed} would be floats beside quantised experts of {block_of(mixed)}, and loaders "
            "merge the experts of a layer, so they expect all of them in one format; decode all, "
            "or none"
        )
        raise MemdescError(msg)


def _check_plain(sections: Mapping[str, Any], layers: Sequence[str]) -> None:
    """Refuse to list a plain layer whose name a loader also finds in a quantised one.

    Source: transformers 5.24, `should_convert_module`: a listed name excludes each layer whose
    name begins with it, up to a dot, or ends with it.
    """
    for section in sections.values():
        listed = {*(section.get(IGNORED) or ())}
        for layer in layers if listed else ():
            parts = layer.split(".")
            starts = (".".join(parts[:k]) for k in range(1, len(parts)))
            ends = (layer[k:] for k in range(len(layer)))
            plain = next((each for each in (*starts, *ends) if each in listed), None)
            if plain is not None:
                msg = (
                    f"{CONFIG} would list {plain} as not quantised, in {IGNORED}, and transformers "
                    f"also finds that name in {layer}, so it would load the codes as numbers; "
                    "--to bf16 and --to f16 decode all layers"
                )
                raise MemdescError(msg)


def _layer_name(step: Step) -> str:
    """Return the name of the layer whose weight a step writes."""
    role, tensor = next(iter(step.targets.items()))
    if not role:  # floats
        return tensor.name.rpartition(".")[0]
    return tensor.name.removesuffix(role).removesuffix(".")


def _sections_left(before: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """Return the sections of the weights that are left, where all others became floats.

    Fails if the sections declare another method than that of the records, so that no layer can be
    excepted.
    """
    method, plain = _method(before), _plain_layers(plan)
    descs = [step.src for step in plan.moved if isinstance(step.src, RecordDesc)]
    rows = [_row_of(desc.name, dict(desc.options), method) for desc in descs]
    if method is not None and any(row.method != method for row in rows):
        raise MemdescError(_why_undeclared(plan))
    return {key: with_plain(rows[0], section, plain) for key, section in before.items()}


def _row_of(name: str, options: Mapping[str, Any], method: str | None = None) -> Declaration:
    """Return how a record is declared, with the given method if it can declare it."""
    return declaration_of(name, options, method) or own_declaration(name)


def check_left_out(text: bytes | None, file: str, plan: Plan) -> None:
    """Refuse to leave out a file if only that file declares the weights that are not converted."""
    if plan.left and not any(sections_of(_read_config(text or b"{}")[1][0])):
        msg = (
            f"{file} would be left out, because it describes the input, but {CONFIG} does not "
            f"declare {plan.left}, which stays as it was; convert all layers, or write what {file} "
            f"says into {CONFIG}, as its {KEY}"
        )
        raise MemdescError(msg)


def _why_undeclared(plan: Plan) -> str:
    """Return why no config.json declares the output, and the way out."""
    kinds = {step.dst.name for step in plan.moved if isinstance(step.dst, RecordDesc)}
    made = " and others ".join(sorted(kinds)) or "floats"
    more = f" while {plan.left} stays as it was" if plan.left else ""
    more = more or (" with several options" if len(kinds) == 1 else "")
    return (
        f"{CONFIG} cannot say that some layers are {made}{more}: its readers would take all layers "
        "for one format; convert all of them to one, or name a single file, such as "
        "OUT.safetensors, which has no config.json"
    )


def _method(sections: Mapping[str, Any]) -> str | None:
    """Return the `quant_method` of the first of some sections; None if there is none."""
    held = next(iter(sections.values()), None)
    found = held.get("quant_method") if isinstance(held, dict) else None
    return found.lower() if isinstance(found, str) else None


def _sections_json(
    kind: _Kind, config: dict[str, Any], plain: list[str], wanted: str | None
) -> str:
    """Return the sections that declare a kind of records, as JSON.

    `wanted` is the `quant_method` to declare, if several can declare the record.
    """
    src, desc, options = kind.step.src, kind.step.dst, kind.options
    assert isinstance(desc, RecordDesc)  # noqa: S101 - the caller has looked
    before = next(iter(sections_of(config).values()), None)
    held = before if isinstance(before, dict) else {}
    method = _method(sections_of(config))
    row = _row_of(desc.name, options, wanted or method)
    is_same = isinstance(src, RecordDesc) and src.name == desc.name
    kept = kept_of(row, held, is_same=is_same) if method == row.method else {}
    carried = {key: held[key] for key in row.carried if key in held}
    said = {"bits": number_bits(desc, desc.rule.code), **options}
    if isinstance(src, RecordDesc):
        is_symmetric = src.rule.is_symmetric or desc.rule.is_symmetric
        said[IS_SYMMETRIC] = is_symmetric or says_symmetric(held)
    section = section_of(row, said, kept)
    section |= with_plain(row, carried, plain)
    embedded = [each for each in kind.layers if _EMBEDDING.fullmatch(each.rpartition(".")[2])]
    # loaders of the other rows find quantised layers by their tensors
    if embedded and row.ignored and row.unloaded is None:
        way = "leave it as it is"
        if isinstance(src, RecordDesc):
            axes = f"(axes={model_axes(src)})" if model_axes(src) != src.letters else ""
            way = f"--map '{embedded[0]}: {src.name} -> plain{axes}, bf16' decodes it"
        msg = (
            f"{CONFIG} cannot say that {embedded[0]} is {desc.name}: loaders of {row.method} do "
            f"not expect embeddings to be quantised; {way}"
        )
        raise MemdescError(msg)
    return json.dumps(dict.fromkeys(row.keys, section), sort_keys=True)
