"""What a conversion writes: a file, or a folder of shards with all other files of a model.

The sections of its config.json must declare the quantised weights that it has.
"""

from __future__ import annotations

import json
import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import about, short_repr
from memdesc.record import RecordDesc
from reorder.checkpoints.config import (
    CONFIG,
    IGNORED,
    IS_SYMMETRIC,
    KEY,
    MAX_CONFIG,
    OLD_CONFIGS,
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
from reorder.checkpoints.convert.plan import copied_step
from reorder.checkpoints.convert.rules import FormatName
from reorder.checkpoints.convert.targets import decoded_format
from reorder.checkpoints.experts import block_of, holds_experts
from reorder.checkpoints.formats.entry import (
    NOT_BYTES,
    UNQUANTISED,
    WEIGHT,
    Entry,
    FileState,
    PlannedFile,
    Tensor,
    is_order_hidden,
    safe_path,
)
from reorder.checkpoints.formats.safetensors import find_indices, plan_shards, shard_stem, stem_of
from reorder.checkpoints.formats.table import FOREIGN_ENDINGS, FORMATS, format_of, plan_file
from reorder.disk import read_small, reason_of
from reorder.messages import first_of
from reorder.values.formats import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reorder.checkpoints.convert.plan import Plan
    from reorder.checkpoints.formats.entry import Container, Desc

    Json = Mapping[str, Any]

_SHARDS = "safetensors"
_WEIGHTS = ".safetensors"
# the size of shards if the source is one file, which stays one: larger than any file
_UNBOUNDED = 1 << 62
_HIDDEN = "."
_GGUF, _ARCHITECTURE = "gguf", "general.architecture"
# the same weights as pickles, in Mistral's files, or in another type; none of these are read
_SAME = re.compile(
    r"(pytorch_model.*\.bin|pytorch_model\.bin\.index\.json|.*\.pth"
    r"|consolidated.*\.safetensors(\.index\.json)?"
    r"|(diffusion_pytorch_)?model(-\d+-of-\d+)?\.(?!safetensors)[\w-]+\.safetensors(\.index\.json)?"
    r"|(diffusion_pytorch_)?model\.safetensors\.index\.[\w-]+\.json)"
)


def is_folder(target: Path) -> bool:
    """Whether an output is a folder: its name does not have the ending of a container."""
    return not any(target.name.endswith(row.ending) for row in FORMATS.values())


def output_format(target: Path, *, may_be_folder: bool) -> str:
    """Return the key of the format of an output; folders hold safetensors.

    Names of models have dots, as in ``Llama-3.1-8B``, so the ending of what may be a folder belongs
    to its name, unless it resembles that of a format.
    """
    ending = target.suffix.lower()
    endings = [row.ending for row in FORMATS.values()]
    is_file = ending in FOREIGN_ENDINGS or get_close_matches(ending, endings) or not may_be_folder
    if is_folder(target) and not (ending and is_file):
        return _SHARDS
    return format_of(target).name  # its error lists the endings


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike `resolve`, this accepts links in a circle


def check_paths(source: Path, container: Container, target: Path) -> None:
    """Refuse an output that is the input, contains it, or is inside it."""
    real, read = _real(target), _real(source)
    inputs = {read, *map(_real, container.files)}
    within = source.is_dir() and real.is_relative_to(read)
    if real in inputs or within or any(path.is_relative_to(real) for path in inputs):
        raise MemdescError(
            f"{str(target)!r} is, contains or is inside the input {str(source)!r}, which is never "
            "changed; write elsewhere"
        )
    if not target.parent.is_dir():
        raise MemdescError(
            f"{str(target)!r} cannot be written: there is no folder {str(target.parent)!r}"
        )


def plan_output(target: Path, plan: Plan, shard_bytes: int | None) -> list[PlannedFile]:
    """Return all files of an output; add steps that copy those of the input, and warnings.

    A copied file holds one span, named after the file with a zero byte before it, so that no tensor
    has its name.
    """
    source, container, tell = plan.model.path, plan.model.container, plan.warnings.append
    is_same = container.format == plan.format
    metadata = dict(container.metadata) if is_same else {}
    tensors = [tensor for step in plan.steps for tensor in step.tensors]
    plan.warnings += _tensor_warnings(container, plan)
    if container.left_out and not (is_same and not is_folder(target)):
        tell(f"{first_of(map(short_repr, container.left_out))} are not written: {NOT_BYTES}")
    others = [*_other_files(source, container)]
    if is_folder(target):
        stem = stem_of(path.name for path in container.files if source.is_dir())
        files = _beside(source, stem, plan, others)
        # weights that are not tensors of this checkpoint: an index leaves them out
        is_indexed = any("/" not in x.name and x.name.endswith(_WEIGHTS) for x in files)
        if shard_bytes is None:
            sizes = [FileState.at(path).nbytes for path in container.files]
            shard_bytes = max(sizes) if len(sizes) > 1 else _UNBOUNDED
        files += plan_shards(tensors, metadata, shard_bytes, stem=stem, is_indexed=is_indexed)
    elif shard_bytes is not None:
        raise MemdescError(f"{str(target)!r} is one file; name a folder for shards")
    else:
        files = [plan_file(target, tensors, metadata)]
        if others:
            shown = first_of(path.relative_to(source).as_posix() for path in others)
            tell(
                f"the output is one file, without {shown} of the input; name a folder to keep them"
            )
    if all(file.name != CONFIG for file in files):
        plan.warnings += _undeclared(plan)
    known = {x.targets[role].name: data for x in plan.steps for role, data in x.constants.items()}
    return [file.with_data(known) for file in files]


def _beside(source: Path, stem: str, plan: Plan, found: Sequence[Path]) -> list[PlannedFile]:
    """Plan what the other files of a model become in a folder; add steps and warnings."""
    is_changed = not all(step.change.is_copy for step in plan.steps)
    files, left, config = list[PlannedFile](), dict[str, list[str]](), list[Path]()
    for path in found:
        name = path.relative_to(source).as_posix()
        if path.is_dir():
            why = "they are links to folders"
        elif not safe_path(source, name, "the file").exists():
            raise MemdescError(
                f"{str(path)!r} is a link that leads nowhere; remove it, or put the file there"
            )
        elif name == f"{stem}{_WEIGHTS}":
            raise MemdescError(
                f"{str(path)!r} is not a file of the checkpoint, whose index names other files, "
                "but transformers loads it instead of these; move away the weights that are "
                "wrong, or the index"
            )
        elif shard_stem(name):
            why = "they are not part of the model that was read"
        elif is_changed and _SAME.fullmatch(path.name):
            why = "their weights are not converted"
        elif name in OLD_CONFIGS and plan.is_redeclared:
            why = "they describe the input"
            if plan.left and plan.model.configs.sections[0] != CONFIG:
                raise MemdescError(
                    f"{name} would be left out, because it describes the input, but {CONFIG} does "
                    f"not declare {plan.left}, which stays as it was; convert all layers, or write "
                    f"what {name} says into {CONFIG}, as its {KEY}"
                )
        elif name == CONFIG:
            config = [path]
            continue
        else:
            state, inner = FileState.at(path), f"\0{name}"
            nbytes, shape = state.nbytes, (state.nbytes,)
            entry = Entry(path.name, "u8", shape, path, 0, nbytes, state)
            plan.copied.append(copied_step(entry, Tensor(inner, "u8", shape, nbytes)))
            files.append(PlannedFile(name, nbytes, (), {inner: (0, nbytes)}))
            continue
        left.setdefault(why, []).append(name)
    plan.warnings += [f"left out, because {why}: {first_of(x)}" for why, x in left.items()]
    for path in config:
        text = _moved_config(read_small(path, MAX_CONFIG), plan)
        files.append(PlannedFile(CONFIG, len(text), ((0, text),), {}))
    return files


def _other_files(source: Path, container: Container) -> Iterator[Path]:
    """Return the files of a folder that do not hold tensors, and its links, except hidden ones."""

    def fail(error: OSError) -> None:
        raise MemdescError(f"{str(source)!r} cannot be read: {reason_of(error)}")

    shards = {*map(_real, container.files)}
    for folder, folders, names in os.walk(source, onerror=fail) if source.is_dir() else ():
        folders[:] = sorted(each for each in folders if not each.startswith(_HIDDEN))
        links = [name for name in folders if Path(folder, name).is_symlink()]
        read = find_indices(names) if Path(folder) == source else ()
        for name in sorted((*names, *links)):
            path = Path(folder, name)
            is_other = not name.startswith(_HIDDEN) and name not in read
            if is_other and _real(path) not in shards and (path.is_file() or path.is_symlink()):
                yield path


def _tensor_warnings(container: Container, plan: Plan) -> Iterator[str]:
    """Warn about what the format of an output does not show or cannot hold."""
    form = FORMATS[plan.format]
    moved = [tensor for step in plan.steps if not step.change.is_copy for tensor in step.tensors]
    permuted = [short_repr(each.name) for each in moved if is_order_hidden(each)]
    if permuted and not form.is_array:
        yield (
            f"the shapes of {first_of(permuted)} do not show that they are permuted: readers that "
            "ignore the descriptors of memdesc see the physical arrays"
        )
    keys = sorted(container.metadata, key=lambda key: (key != _ARCHITECTURE, key))
    if (container.format, plan.format) == (_SHARDS, _GGUF):
        yield (
            f"a .gguf without {_ARCHITECTURE} is a container of tensors: llama.cpp does not load "
            "it; its convert_hf_to_gguf.py writes the names and the metadata that it needs"
        )
    elif container.format == _GGUF != plan.format and keys:
        yield (
            f"the metadata of the .gguf, {first_of(keys)}, are left out: a {form.ending} has no "
            "place for them, and no config.json or tokenizer is made from them"
        )
    scalars = [short_repr(x.name) for step in plan.steps for x in step.tensors if not x.shape]
    if scalars and not form.has_scalars:
        yield f"a {form.ending} stores {first_of(scalars)}, which are scalars, with shape (1,)"


# --- config.json ---

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


def _moved_config(text: bytes, plan: Plan) -> bytes:
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
            plan.warnings += _undeclared(plan)
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
    """Whether a section says of a new record what it says of the old one, in the same tensors."""
    if not isinstance(src, RecordDesc) or src.tensors.keys() != dst.tensors.keys():
        return False
    old, new = (dict(desc.options) for desc in (src, dst))
    one, two = ((row := row_of(src.name, x, method)) and row.keys(x) for x in (old, new))
    declared = [x.options for x in said if x.name == src.name == dst.name]
    return one == two and any(options.items() <= new.items() for options in declared)


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


def _undeclared(plan: Plan) -> list[str]:
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
        [each[key] for key in _DTYPE_KEYS if each.get(key) in _DTYPES.values()]
        for each in (config, held if isinstance(held, dict) else {})
    )
    if own:
        old = own
    else:
        config[_DTYPE_KEYS[0]] = name
    parts: list[Any] = [config]
    while parts:
        part = parts.pop()
        parts += [each for each in part.values() if isinstance(each, dict)]
        part |= {key: name for key in _DTYPE_KEYS if part.get(key) in old}
    wide = [
        kind for kind in _DTYPES if not FLOATS[dtype].holds(FLOATS[kind]) and _DTYPES[kind] in old
    ]
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


def _why_undeclared(plan: Plan) -> str:
    """Return why no config.json declares the output, and the way out."""
    made = {
        desc.name
        if row_of(desc.name, dict(desc.options))
        else str(FormatName(desc.name, desc.options))
        for _, _, desc in plan.made
    }
    kinds = " and others ".join(sorted(made)) or "floats"
    more = f" while {plan.left} stays as it was" if plan.left else ""
    return (
        f"{CONFIG} cannot say that some layers are {kinds}{more}, as no loader reads "
        "that from it; convert all of them to one format that loaders read, such as gptq or awq, "
        f"or name a single file, such as OUT.safetensors, which has no {CONFIG}"
    )
