"""What a conversion writes: a file, or a folder of shards with all other files of a model."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.errors import short_repr
from reorder.checkpoints.config import CONFIG, KEY, MAX_CONFIG, OLD_CONFIGS
from reorder.checkpoints.convert.declaring import moved_config, undeclared
from reorder.checkpoints.convert.plan import copied_step
from reorder.checkpoints.formats.entry import (
    NOT_BYTES,
    Entry,
    FileState,
    PlannedFile,
    Tensor,
    is_order_hidden,
    safe_path,
)
from reorder.checkpoints.formats.safetensors import find_indices, plan_shards, stem_of
from reorder.checkpoints.formats.table import FOREIGN_ENDINGS, FORMATS, format_of, plan_file
from reorder.disk import read_small, reason_of
from reorder.messages import first_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reorder.checkpoints.convert.plan import Plan
    from reorder.checkpoints.formats.entry import Container

_SHARDS = "safetensors"
# endings of files of weights: those of other programs, other types or other parts of a model
_WEIGHTS = {*FOREIGN_ENDINGS, ".safetensors", ".gguf", ".onnx", ".onnx_data"}
# the size of shards if the source is one file, which stays one: larger than any file
_UNBOUNDED = 1 << 62
_HIDDEN = "."
_GGUF, _ARCHITECTURE = "gguf", "general.architecture"


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
        # a file may have any name, which says nothing about the folder that it becomes
        stem = stem_of(path.name for path in container.files if path != source)
        files = _beside(source, stem, plan, others)
        if shard_bytes is None:
            sizes = [FileState.at(path).nbytes for path in container.files]
            shard_bytes = max(sizes) if len(sizes) > 1 else _UNBOUNDED
        files += plan_shards(tensors, metadata, shard_bytes, stem=stem)
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
        plan.warnings += undeclared(plan)
    known = {x.targets[role].name: data for x in plan.steps for role, data in x.constants.items()}
    return [file.with_data(known) for file in files]


def _beside(source: Path, stem: str, plan: Plan, paths: Sequence[Path]) -> list[PlannedFile]:
    """Plan what the other files of a model become in a folder; add steps and warnings."""
    is_changed = not all(step.change.is_copy for step in plan.steps)
    files, told, config = list[PlannedFile](), dict[str, list[str]](), list[Path]()
    for path in paths:
        name, why = path.relative_to(source).as_posix(), ""
        has_weights = path.suffix in _WEIGHTS or path.match("*.index*.json")
        if path.is_dir():
            why = "left out, because they are links to folders"
        elif not safe_path(source, name, "the file").exists():
            raise MemdescError(
                f"{str(path)!r} is a link that leads nowhere; remove it, or put the file there"
            )
        elif name == f"{stem}.safetensors":
            raise MemdescError(
                f"{str(path)!r} is not a file of the checkpoint that was read, but loaders prefer "
                "it; move away the weights that are wrong, or the index"
            )
        elif has_weights and path.parent == source:
            why = "left out, because they are not files of the checkpoint that was read"
        elif name in OLD_CONFIGS and plan.is_redeclared:
            why = "left out, because they describe the input"
            if plan.left and plan.model.configs.sections[0] != CONFIG:
                raise MemdescError(
                    f"{name} would be left out, because it describes the input, but {CONFIG} does "
                    f"not declare {plan.left}, which stays as it was; convert all layers, or write "
                    f"what {name} says into {CONFIG}, as its {KEY}"
                )
        elif name == CONFIG:
            config = [path]
        else:
            why = "copied, but not converted" if has_weights and is_changed else ""
            state, inner = FileState.at(path), f"\0{name}"
            nbytes, shape = state.nbytes, (state.nbytes,)
            entry = Entry(path.name, "u8", shape, path, 0, nbytes, state)
            plan.copied.append(copied_step(entry, Tensor(inner, "u8", shape, nbytes)))
            files.append(PlannedFile(name, nbytes, (), {inner: (0, nbytes)}))
        if why:
            told.setdefault(why, []).append(name)
    plan.warnings += [f"{why}: {first_of(names)}" for why, names in told.items()]
    for path in config:
        text = moved_config(read_small(path, MAX_CONFIG), plan)
        files.append(PlannedFile(CONFIG, len(text), ((0, text),), {}))
    return files


def _other_files(source: Path, container: Container) -> Iterator[Path]:
    """Return the files of a folder that do not hold tensors, and its links, except hidden ones."""

    def fail(error: OSError) -> None:
        raise MemdescError(f"{str(source)!r} cannot be read: {reason_of(error)}")

    shards = {*map(_real, container.files)}
    for folder, folders, names in os.walk(source, onerror=fail) if source.is_dir() else ():
        folders[:] = sorted(name for name in folders if not name.startswith(_HIDDEN))
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
    permuted = [short_repr(tensor.name) for tensor in moved if is_order_hidden(tensor)]
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
