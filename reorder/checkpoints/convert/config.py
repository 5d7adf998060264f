"""config.json of an output: its sections must declare the quantised weights that it has."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import first_of
from memdesc.record import RecordDesc
from reorder.checkpoints.config import (
    CONFIG,
    IGNORED,
    IS_SYMMETRIC,
    KEY,
    METHODS,
    OUTPUT,
    ROWS,
    Row,
    holders,
    join_sections,
    kept_of,
    keys_with_values,
    method_in,
    method_of,
    own_row,
    row_of,
    says_symmetric,
    section_of,
    sections_of,
    with_ends,
    with_plain,
)
from reorder.checkpoints.experts import block_of, holds_experts
from reorder.checkpoints.stored import UNQUANTISED, WEIGHT, model_axes
from reorder.records.numbers import number_bits
from reorder.values.formats import FLOATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
# Keys of sections of GPTQ and AWQ, values in them, and what transformers 5.24 makes of these;
# GPTQModel reads both (7.7, `models/loader.py`).
_UNREAD: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "lm_head",
        lambda value: value is True,
        (
            "GPTQModel loads it quantised, and transformers 5.24 gives it random weights instead; "
            "--map decodes it to a float type"
        ),
    ),
    (
        "dynamic",
        lambda value: any((value or {}).values()),
        (
            "which layers have other bits or groups there: GPTQModel reads that, and transformers "
            "5.24 refuses to load them"
        ),
    ),
)


class _Kind(NamedTuple):
    """Weights that one section can declare: a step, how it is declared, and the layers of all."""

    step: Step
    desc: RecordDesc
    options: dict[str, Any]
    layers: list[str]

    def row(self, method: str | None) -> Row:
        """Return how it is declared, with the given method if that can declare it."""
        return row_of(self.desc.name, self.options, method) or own_row(self.desc.name)

    def section(self, before: Any, plain: Sequence[str], wanted: str | None) -> dict[str, Any]:
        """Return the section that declares it, which replaces another; `wanted` is its method."""
        held, src = before if isinstance(before, dict) else {}, self.step.src
        method = method_in(held)
        row = self.row(wanted or method)
        how = method_of(row.method)
        is_same = isinstance(src, RecordDesc) and src.name == self.desc.name
        kept = kept_of(row, held, is_same=is_same) if method == row.method else {}
        said = {"bits": number_bits(self.desc, self.desc.rule.code), **self.options}
        if isinstance(src, RecordDesc):
            is_symmetric = src.rule.is_symmetric or self.desc.rule.is_symmetric
            said[IS_SYMMETRIC] = is_symmetric or says_symmetric(held)
        carried = {key: held[key] for key in how.carried if key in held}
        return section_of(row, said, kept) | with_plain(row.method, carried, plain)


def moved_config(text: bytes, plan: Plan) -> tuple[bytes, list[str]]:
    """Return the config.json of the output, unchanged if it stays true, and warnings.

    Fails if it is not a JSON object, or declares weights that become what no loader reads from it.
    """
    dtype = plan.target.dtype
    if not plan.moved and dtype is None:
        return text, []
    config, found = _read_config(text)
    before = sections_of(found[0])
    moved = _redeclared(plan, before)
    if plan.moved and not moved:
        return text, []
    if before:
        _check_experts(plan)
    kinds, plain = _kinds(moved), _plain_layers(plan)
    _check_embeddings(kinds, before, plan.target.method)
    made = _sections(kinds, found[0], plain, plan)
    if made is None:
        if before:
            raise MemdescError(_undeclarable(kinds) or _why_undeclared(plan))
        return text, undeclared(plan)
    if plan.moved and not (made or before or dtype):
        return text, []
    warnings = _set_dtype(config, plan)
    lost: list[str] = []
    for holder in found if plan.moved else ():
        sections = _sections(kinds, holder, plain, plan) or {}
        if not kinds and plan.left:
            sections = _sections_left(sections_of(holder), plan, plain)
        _check_plain(sections, [layer for kind in kinds for layer in kind.layers])
        if any(isinstance(each, dict) and "model_type" in each for each in config.values()):
            sections = _with_ends(sections, plan)
        lost += _replace_sections(holder, sections)
        for section in sections.values():
            warnings += [
                f"{CONFIG} says {key}: {what}"
                for key, is_said, what in _UNREAD
                if is_said(section.get(key))
            ]
    if lost:
        warnings.append(f"{CONFIG} has no place for {', '.join(lost)} of the input")
    return json.dumps(config, indent=2).encode() + b"\n", warnings


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


def _sections(
    kinds: Sequence[_Kind], holder: Mapping[str, Any], plain: Sequence[str], plan: Plan
) -> dict[str, Any] | None:
    """Return the sections that declare all kinds of weights, by key; None if none can."""
    held = next(iter(sections_of(holder).values()), None)
    made: dict[str, tuple[Row, dict[str, Any], list[str]]] = {}
    for kind in kinds:
        row = kind.row(plan.target.method or method_in(held))
        section = kind.section(held, plain, plan.target.method)
        found = made.setdefault(json.dumps(section, sort_keys=True), (row, section, []))
        found[2].extend(kind.layers)
    if not made:
        return {}
    if plan.left or _undeclarable(kinds):
        return None
    row, only, _ = next(iter(made.values()))
    joined = only if len(made) == 1 else join_sections([*made.values()])
    return None if joined is None else dict.fromkeys(method_of(row.method).keys, joined)


def _redeclared(plan: Plan, before: Mapping[str, Any]) -> list[Step]:
    """Return the steps whose weights a config.json must declare, or declare anew.

    Records of one tensor need no declaration, since descriptors and types describe them. A weight
    that is declared as before is redeclared only if another one is.
    """
    if not before and all(len({*step.sources, *step.targets}) == 1 for step in plan.moved):
        return []
    method = method_in(next(iter(before.values()), None))
    may_stay = before and plan.left
    return [step for step in plan.moved if not (may_stay and _is_declared_alike(step, method))]


def _is_declared_alike(step: Step, method: str | None) -> bool:
    """Whether a section declares a weight as before, in tensors of the same names."""
    if not (isinstance(step.src, RecordDesc) and isinstance(step.dst, RecordDesc)):
        return False
    before, after = (
        section_of(row_of(each.name, options, method) or own_row(each.name), options)
        for each in (step.src, step.dst)
        for options in [{"bits": number_bits(each, each.rule.code), **dict(each.options)}]
    )
    return before == after and step.src.tensors.keys() == step.dst.tensors.keys()


def _kinds(steps: Sequence[Step]) -> list[_Kind]:
    """Return the kinds of records that steps make.

    A layer with one group for all its inputs counts as one with groups of that size, if the other
    layers have such groups.
    """
    descs = [(step, step.dst) for step in steps if isinstance(step.dst, RecordDesc)]
    groups = {dict(desc.options).get("group") for _, desc in descs} - {-1, None}
    found: dict[str, _Kind] = {}
    for step, desc in descs:
        options: dict[str, Any] = dict(desc.options)
        if options.get("group") == -1 and {desc.dims[desc.letters.index("i")]} == groups:
            (options["group"],) = groups
        src = step.src.name if isinstance(step.src, RecordDesc) else ""
        kind = found.setdefault(repr((src, desc.name, options)), _Kind(step, desc, options, []))
        kind.layers.append(_layer_name(step))
    return [*found.values()]


def _replace_sections(holder: dict[str, Any], sections: Mapping[str, Any]) -> list[str]:
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
    kept = dict.fromkeys(k for how in METHODS.values() for k in (*how.kept, *how.kept_of_each))
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
    rows = [row_of(name, options) or own_row(name) for name, options in made.items()]
    return tuple(
        f"neither vLLM nor transformers loads {row.scheme} from a checkpoint"
        for row in rows
        if not method_of(row.method).is_loaded
    )


def undeclared(plan: Plan) -> list[str]:
    """Return a warning if the output has records that no config.json declares."""
    made = [step for step in plan.moved if len(step.targets) > 1]
    names = sorted({step.dst.name for step in made if isinstance(step.dst, RecordDesc)})
    told = (
        f"no {CONFIG} is written to declare {', '.join(names)}: programs that do not read the "
        "descriptors in the output must be told"
    )
    return [told] if names else []


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
    # codes of the output layer that are part of a record
    is_quantised = any(
        f".{OUTPUT}." in f".{tensor.name}" and tensor.dtype not in _DTYPES
        for step in plan.steps
        if step.is_copy or isinstance(step.dst, RecordDesc)
        for tensor in step.tensors
    )
    return [*names] if is_quantised else [*dict.fromkeys((*names, OUTPUT))]


def _with_ends(sections: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """Return sections whose lists of layers also say how names end.

    This is for models with parts that are models of their own, such as one for images.
    """
    quantised = {layer for layer, _ in _quantised(plan)}
    return {
        key: with_ends(method_in(section) or "", section, quantised)
        for key, section in sections.items()
    }


def _quantised(plan: Plan) -> Iterator[tuple[str, str]]:
    """Return the layers of all tensors that are not floats, and the blocks of those of experts."""
    for step in plan.steps:
        for tensor in step.tensors:
            if tensor.dtype not in _DTYPES:
                yield tensor.name.rpartition(".")[0], block_of(tensor.name)


def _check_experts(plan: Plan) -> None:
    """Refuse to decode only some experts of a layer: loaders merge them and expect one format."""
    decoded = [_layer_name(step) for step in plan.moved if not isinstance(step.dst, RecordDesc)]
    quantised = {block for _, block in _quantised(plan)} - {""}
    mixed = next((layer for layer in decoded if block_of(layer) in quantised), None)
    if mixed is not None:
        msg = (
            f"{mixed} would be floats beside quantised experts of {block_of(mixed)}, and loaders "
            "merge the experts of a layer, so they expect all of them in one format; decode all, "
            "or none"
        )
        raise MemdescError(msg)


def _check_embeddings(
    kinds: Sequence[_Kind], before: Mapping[str, Any], wanted: str | None
) -> None:
    """Refuse quantised embeddings if loaders do not find quantised layers by their tensors."""
    method = wanted or method_in(next(iter(before.values()), None))
    for kind in kinds:
        row, src = kind.row(method), kind.step.src
        how = method_of(row.method)
        embedded = [each for each in kind.layers if _EMBEDDING.fullmatch(each.rpartition(".")[2])]
        if embedded and how.ignored and how.is_loaded:
            way = "leave it as it is"
            if isinstance(src, RecordDesc):
                axes = f"(axes={model_axes(src)})" if model_axes(src) != src.letters else ""
                way = f"--map '{embedded[0]}: {src.name} -> plain{axes}, bf16' decodes it"
            msg = (
                f"{CONFIG} cannot say that {embedded[0]} is {kind.desc.name}: loaders of "
                f"{row.method} do not expect embeddings to be quantised; {way}"
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


def _sections_left(
    before: Mapping[str, Any], plan: Plan, plain: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the sections of the weights that are left, where all others became floats.

    Fails if the sections declare another method than that of the records, so that no layer can be
    excepted.
    """
    method = method_in(next(iter(before.values()), None))
    descs = [step.src for step in plan.moved if isinstance(step.src, RecordDesc)]
    rows = [row_of(each.name, dict(each.options), method) or own_row(each.name) for each in descs]
    if method is not None and any(row.method != method for row in rows):
        raise MemdescError(_why_undeclared(plan))
    return {key: with_plain(rows[0].method, section, plain) for key, section in before.items()}


def check_left_out(text: bytes | None, file: str, plan: Plan) -> None:
    """Refuse to leave out a file if only that file declares the weights that are not converted."""
    if plan.left and not any(sections_of(_read_config(text or b"{}")[1][0])):
        msg = (
            f"{file} would be left out, because it describes the input, but {CONFIG} does not "
            f"declare {plan.left}, which stays as it was; convert all layers, or write what {file} "
            f"says into {CONFIG}, as its {KEY}"
        )
        raise MemdescError(msg)


def _undeclarable(kinds: Sequence[_Kind]) -> str:
    """Return why records cannot be declared that no loader knows from a config.json, or nothing."""
    unknown = [kind for kind in kinds if row_of(kind.desc.name, kind.options) is None]
    names = set()
    for kind in unknown:
        name = kind.desc.name
        keys = {key for row in ROWS if row.scheme == name for key in row.fixed}
        shown = ", ".join(f"{key}={each}" for key, each in kind.options.items() if key in keys)
        names.add(f"{name}({shown})" if shown else name)
    if not names:
        return ""
    return (
        f"{CONFIG} would declare {' and '.join(sorted(names))}, which no loader of checkpoints "
        f"reads from it; write one file, such as OUT.safetensors, which has no {CONFIG}, or name a "
        "format that loaders read, such as gptq or awq"
    )


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
