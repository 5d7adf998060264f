"""What a conversion writes: a file, or a folder of shards with all other files of a model."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError
from memdesc.errors import first_of, short_repr
from reorder.checkpoints.config import CONFIG, MAX_CONFIG, OLD_CONFIGS
from reorder.checkpoints.convert.config import check_left_out, moved_config, undeclared
from reorder.checkpoints.convert.steps import Step
from reorder.checkpoints.formats.entry import (
    NOT_BYTES,
    Entry,
    FileState,
    PlannedFile,
    Span,
    Tensor,
    safe_path,
)
from reorder.checkpoints.formats.shards import find_indices, is_shard, plan_shards, stem_of
from reorder.checkpoints.formats.table import (
    FOREIGN_ENDINGS,
    FORMATS,
    format_of,
    plan_file,
)
from reorder.checkpoints.moves.changes import ONLY
from reorder.checkpoints.stored import is_order_hidden
from reorder.disk import read_if_exists, read_small, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reorder.checkpoints.convert.plan import Plan
    from reorder.checkpoints.formats.entry import Container

_SHARDS = "safetensors"
_WEIGHTS = ".safetensors"
# the size of shards if the source is one file, which stays one: larger than any file
_UNBOUNDED = 1 << 62
_HIDDEN = "."
_GGUF, _ARCHITECTURE = "gguf", "general.architecture"
# the same weights as pickles, in the files of Mistral, or in another type; none of them is read
_SAME = re.compile(
    r"(pytorch_model.*\.bin|pytorch_model\.bin\.index\.json|.*\.pth"
    r"|consolidated.*\.safetensors(\.index\.json)?"
    r"|(diffusion_pytorch_)?model(-\d+-of-\d+)?\.(?!safetensors)[\w-]+\.safetensors(\.index\.json)?"
    r"|(diffusion_pytorch_)?model\.safetensors\.index\.[\w-]+\.json)"
)
# how many files or tensors a warning names
_NAMED = 3


class Output(NamedTuple):
    """What is written."""

    # All files. A copied file holds one span, named after the file with a zero byte before it, so
    # that no tensor has its name.
    files: tuple[PlannedFile, ...]
    # the files that are copied, as tensors of bytes with such names
    copied: tuple[Step, ...]
    # whether the files make up a folder
    is_folder: bool
    # what a user may not expect
    warnings: tuple[str, ...]
    # all tensors, as headers describe them
    tensors: tuple[Tensor, ...] = ()


def is_folder(target: Path) -> bool:
    """Whether an output is a folder: its name does not have the ending of a container."""
    return not any(target.name.endswith(row.ending) for row in FORMATS.values())


def output_format(
    target: Path, *, may_be_folder: bool = False, is_named_folder: bool = False
) -> str:
    """Return the key of the format of an output; folders hold safetensors.

    Names of models have dots, as in ``Llama-3.1-8B``: with `may_be_folder`, an ending that does not
    look like that of a file of tensors belongs to the name of a folder; with `is_named_folder`,
    such as for a path with a slash at the end, any ending does unless a format has it.

    Fails if no container has the ending, and there is no folder of that name.
    """
    if is_folder(target):
        endings = [row.ending for row in FORMATS.values()]
        ending = target.suffix.lower()
        is_file = ending in FOREIGN_ENDINGS or get_close_matches(ending, endings)
        is_new = ending and not target.is_dir() and not is_named_folder
        if is_new and (is_file or not may_be_folder):
            format_of(target)  # its error lists the endings
        return _SHARDS
    return format_of(target).name


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike `resolve`, this accepts links in a circle


def check_paths(source: Path, container: Container, target: Path) -> None:
    """Refuse an output that is the input, contains it, or is inside it."""
    real, read = _real(target), _real(source)
    inputs = {read, *map(_real, container.files)}
    within = source.is_dir() and real.is_relative_to(read)
    if real in inputs or within or any(path.is_relative_to(real) for path in inputs):
        msg = (
            f"{str(target)!r} is, contains or is inside the input {str(source)!r}, which is never "
            "changed; write elsewhere"
        )
        raise MemdescError(msg)
    if not target.parent.is_dir():
        msg = f"{str(target)!r} cannot be written: there is no folder {str(target.parent)!r}"
        raise MemdescError(msg)


def plan_output(
    source: Path,
    container: Container,
    target: Path,
    plan: Plan,
    shard_bytes: int | None,
) -> Output:
    """Plan all files of an output.

    Fails if the container cannot hold a tensor, or a file beside the tensors cannot be read.
    """
    name = _SHARDS if is_folder(target) else format_of(target).name
    metadata = dict(container.metadata) if container.format == name else {}
    warnings = [
        *_hidden_order_warnings(plan.steps, name),
    ]
    warnings += _metadata_warnings(container, name)
    if container.format != name or is_folder(target):
        warnings += _left_out_warnings(container)
    warnings += _scalar_warnings(plan.steps, name)
    tensors = [tensor for step in plan.steps for tensor in step.tensors]
    if is_folder(target):
        made = _plan_folder(source, container, plan, tensors, metadata, shard_bytes)
    elif shard_bytes is not None:
        msg = f"{str(target)!r} is one file; name a folder for shards"
        raise MemdescError(msg)
    else:
        files = plan_file(target, tensors, metadata)
        told = tuple(_not_kept_warnings(source, container))
        made = Output(files, (), is_folder=False, warnings=told)
    warnings += made.warnings
    if all(file.name != CONFIG for file in made.files):
        warnings += undeclared(plan)
    return made._replace(warnings=tuple(warnings), tensors=tuple(tensors))


def _plan_folder(
    source: Path,
    container: Container,
    plan: Plan,
    tensors: Sequence[Tensor],
    metadata: dict[str, Any],
    shard_bytes: int | None,
) -> Output:
    """Plan the shards in a folder, and what the other files of a model become."""
    if shard_bytes is None:
        sizes = [FileState.at(path).nbytes for path in container.files]
        shard_bytes = max(sizes) if len(sizes) > 1 else _UNBOUNDED
    found = _other_files(source, container)
    others = [_checked_file(source, path) for path in found if not path.is_dir()]
    stem = stem_of(path.name for path in container.files)
    stale = [path for path in others if path.parent == source and is_shard(path.name)]
    others = [path for path in others if path not in stale]
    whole = next((path for path in stale if path.name == f"{stem}{_WEIGHTS}"), None)
    if whole is not None:
        msg = (
            f"{str(whole)!r} is not a file of the checkpoint, whose index names other files, but "
            "transformers loads it instead of these; move away the weights that are wrong, or the "
            "index"
        )
        raise MemdescError(msg)
    copied: list[Step] = []
    warnings = [
        f"{str(path)!r} is a link to a folder, which is not copied"
        for path in found
        if path.is_dir()
    ]
    if stale:
        names = first_of((path.name for path in stale), _NAMED)
        warnings.append(f"left out, because they are not part of the model that was read: {names}")
    same = [path for path in others if _SAME.fullmatch(path.name)]
    if same and not all(step.is_copy for step in plan.steps):
        others = [path for path in others if path not in same]
        names = first_of((path.relative_to(source).as_posix() for path in same), _NAMED)
        warnings.append(f"left out, because their weights are not converted: {names}")
    # weights that are not tensors of this checkpoint stay out of it, thanks to an index
    is_indexed = any(path.parent == source and path.name.endswith(_WEIGHTS) for path in others)
    planned = plan_shards(tensors, metadata, shard_bytes, stem=stem, is_indexed=is_indexed)
    files = [*planned]
    for path in others:
        name = path.relative_to(source).as_posix()
        if name == CONFIG:
            text, told = moved_config(read_small(path, MAX_CONFIG), plan)
            warnings += told
            files.insert(0, PlannedFile(name, len(text), ((0, text),), {}))
            continue
        if name in OLD_CONFIGS and plan.moved:
            check_left_out(read_if_exists(source / CONFIG, MAX_CONFIG), name, plan)
            warnings.append(f"{name} is left out: it describes the input")
            continue
        step = _copy_of(path, f"\0{name}")
        files.insert(0, PlannedFile(name, step.nbytes, (), {f"\0{name}": Span(0, step.nbytes)}))
        copied.append(step)
    return Output(tuple(files), tuple(copied), is_folder=True, warnings=tuple(warnings))


def _copy_of(path: Path, name: str) -> Step:
    """Return the step that copies a whole file."""
    state = FileState.at(path)
    shape = (state.nbytes,)
    entry = Entry(path.name, "u8", shape, path, 0, state.nbytes, state)
    return Step(path.name, {ONLY: entry}, {ONLY: Tensor(name, "u8", shape, state.nbytes)})


def _checked_file(source: Path, path: Path) -> Path:
    """Return a file of a model; refuse a link that leads nowhere, or out of the folder."""
    safe_path(source, path.relative_to(source).as_posix(), "the file")
    if not path.exists():
        msg = f"{str(path)!r} is a link that leads nowhere; remove it, or put the file in its place"
        raise MemdescError(msg)
    return path


def _hidden_order_warnings(steps: Sequence[Step], format_name: str) -> Iterator[str]:
    """Warn about permuted tensors that other readers would take to be row-major."""
    moved = [tensor for step in steps if not step.is_copy for tensor in step.targets.values()]
    names = [tensor.name for tensor in moved if is_order_hidden(tensor)]
    if names and not FORMATS[format_name].shows_order:
        yield (
            f"the shapes of {_first_names(names)} do not show that they are permuted: readers that "
            "ignore the descriptors of memdesc see the physical arrays"
        )


def _left_out_warnings(container: Container) -> Iterator[str]:
    """Warn about tensors that an output in another format does not have."""
    if container.left_out:
        yield f"{_first_names(container.left_out)} are not written: {NOT_BYTES}"


def _metadata_warnings(container: Container, format_name: str) -> Iterator[str]:
    """Warn about metadata that llama.cpp needs for a model, if the output has no place for it."""
    keys = sorted(container.metadata, key=lambda key: (key != _ARCHITECTURE, key))
    if (container.format, format_name) == (_SHARDS, _GGUF):
        yield (
            f"a .gguf without {_ARCHITECTURE} is a container of tensors: llama.cpp does not load "
            "it; its convert_hf_to_gguf.py writes the names and the metadata that it needs"
        )
    elif container.format == _GGUF != format_name and keys:
        yield (
            f"the metadata of the .gguf, {first_of(keys, _NAMED)}, are left out: a "
            f"{FORMATS[format_name].ending} has no place for them, and no config.json or tokenizer "
            "is made from them"
        )


def _scalar_warnings(steps: Sequence[Step], format_name: str) -> Iterator[str]:
    """Warn about scalars if the format cannot store them without a dim."""
    names = [tensor.name for step in steps for tensor in step.tensors if not tensor.shape]
    if names and not FORMATS[format_name].has_scalars:
        yield (
            f"a {FORMATS[format_name].ending} stores {_first_names(names)}, which are scalars, "
            "with shape (1,)"
        )


def _first_names(names: Sequence[str]) -> str:
    return first_of(map(short_repr, names), _NAMED)


def _not_kept_warnings(source: Path, container: Container) -> Iterator[str]:
    """Warn about the files of a model for which a single output file has no place."""
    if others := _other_files(source, container):
        names = first_of((path.relative_to(source).as_posix() for path in others), _NAMED)
        yield f"the output is one file, without {names} of the input; name a folder to keep them"


def _other_files(source: Path, container: Container) -> list[Path]:
    """Return the files of a model that do not hold tensors, and its links, except hidden ones.

    If the source is a file, there are none.

    Fails if the folder cannot be read.
    """

    def fail(error: OSError) -> None:
        msg = f"{str(source)!r} cannot be read: {reason_of(error)}"
        raise MemdescError(msg)

    shards = {*map(_real, container.files)}
    found: list[Path] = []
    if not source.is_dir():
        return found
    for folder, folders, names in os.walk(source, onerror=fail):
        folders[:] = sorted(each for each in folders if not each.startswith(_HIDDEN))
        links = [name for name in folders if Path(folder, name).is_symlink()]
        read = find_indices(names) if Path(folder) == source else ()
        for name in sorted((*names, *links)):
            path = Path(folder, name)
            if name.startswith(_HIDDEN) or name in read or _real(path) in shards:
                continue
            if path.is_file() or path.is_symlink():
                found.append(path)
    return found
