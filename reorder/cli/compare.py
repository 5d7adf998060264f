"""`memdesc compare`: compare two tensors, checkpoints or folders by their values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.tags import LETTERS
from reorder.checkpoints.compare import (
    Content,
    Contents,
    Pair,
    compare_contents,
    contents_of,
    numbers_of,
)
from reorder.checkpoints.files import read_model
from reorder.checkpoints.formats.table import FORMATS, read_container
from reorder.checkpoints.weights import Weight
from reorder.cli.command import Command, Facts, Options, Said, facts_of
from reorder.cli.tensors import Operand, Reading
from reorder.comparison import Difference, compare_values
from reorder.disk import as_path
from reorder.memory.memory import Memory

# how many ranges of one dim are printed
_SHOWN = 8
# endings of checkpoints, which have several tensors
_CHECKPOINTS = (".index.json", *(row.ending for row in FORMATS.values() if row.has_metadata))
# what says how far apart two tensors are
_AMOUNTS = ("max_ulp", "mean_error", "cosine")


def _answer(options: Options) -> tuple[Facts, int]:
    paths = options.a, options.b
    has_folder = any(as_path(path).is_dir() for path in paths)
    absent = [path for path in paths if has_folder and not as_path(path).exists()]
    if absent and Operand(absent[0]).path.exists():
        msg = f"{absent[0]!r} is one tensor; name one of the other side, as FOLDER:NAME"
        raise MemdescError(msg)
    if absent:
        raise MemdescError(f"{absent[0]!r} cannot be read: there is no such file or folder")
    if all(map(_is_folder_of_files, paths)):
        (left, unread_a), (right, unread_b) = (_files(options, side) for side in "ab")
        if left or right:
            return _compare_sets(options, left, right, unread_a | unread_b)
    layouts = (options.from_a, options.from_b, options.dims, options.offset)
    if layouts != (None,) * 4 or not (has_folder or all(map(_is_checkpoint, paths))):
        return _compare_tensors(options)
    if options.dtype is not None:
        raise MemdescError(
            f"--dtype is for raw bytes; {options.a!r} and {options.b!r} give the types of their "
            "tensors"
        )
    left, right, unread = contents_of(*paths)
    return _compare_sets(options, left, right, unread | _beside(options.a) | _beside(options.b))


def _operand(options: Options, side: str, a: str, b: str) -> Operand:
    """Return the file of a side with what the options say about it."""
    layout, path = (options.from_a, a) if side == "a" else (options.from_b, b)
    operand, dtype = Operand(path), options.dtype
    has_raw = any(Operand(each).is_raw for each in (a, b))
    if layout is None and has_raw and not operand.is_raw and operand.entry.dtype in DATA_TYPES:
        dtype = None  # the type of raw bytes is not that of an array that says its own
    offset = options.offset if operand.is_raw else None
    return Operand(path, Reading(layout, options.dims, dtype, f"--from-{side}", offset))


def _numbers(operand: Operand) -> Memory:
    """Return what a file holds, or what its weight stands for."""
    weight = _only_weight(operand)
    return operand.read()[0] if weight is None else numbers_of(weight)


def _read(options: Options, side: str, a: str, b: str) -> Memory:
    return _numbers(_operand(options, side, a, b))


def _only_weight(operand: Operand) -> Weight | None:
    """Return the weight that a file holds and nothing else, as `reorder --scale` writes it."""
    said = operand.name, operand.how.layout, operand.how.dims
    if operand.is_raw or operand.is_npy or said != (None,) * 3:
        return None
    items = [*read_model(operand.path).items(is_strict=False).values()]
    return items[0] if len(items) == 1 and isinstance(items[0], Weight) else None


def _memory_order(dims: tuple[int, ...], axes: tuple[int, ...]) -> str | None:
    """Return a tag whose order of memory turns dims into the sizes of axes; None for no order."""
    if sorted(dims) != sorted(axes):
        return None
    # if dims have equal sizes, several orders fit: channels last is the usual one
    if axes == (dims[0], *dims[2:], dims[1]):
        return "".join(LETTERS[dim] for dim in (0, *range(2, len(dims)), 1))
    by_size = (np.argsort(sizes, kind="stable").tolist() for sizes in (axes, dims))
    return "".join(LETTERS[dim] for _, dim in sorted(zip(*by_size, strict=True)))


def _compare_tensors(options: Options) -> tuple[Facts, int]:
    paths = options.a, options.b
    if options.offset is not None and not any(Operand(path).is_raw for path in paths):
        raise MemdescError(
            f"--offset is for raw bytes; {options.a!r} and {options.b!r} say where theirs are"
        )
    operands = [_operand(options, side, *paths) for side in "ab"]
    a, b = map(_numbers, operands)
    if a.desc.dims != b.desc.dims:
        order = _memory_order(a.desc.dims, b.desc.dims)
        hint = (
            "for the words of a packed tensor say what they are, such as --from-a u4:gptq:4096x4096"
            if order is None
            else f"if the axes of {options.b!r} are the same dims in another order, say which, "
            f"such as --from-b {order}"
        )
        raise MemdescError(
            f"{options.a!r} has dims {a.desc.dims}, {options.b!r} has {b.desc.dims}; {hint}"
        )
    result = compare_values(a, b, limit=options.limit, **_tolerance(options))
    facts: Facts = {
        "a": repr(a.desc),
        "b": repr(b.desc),
        "elements": a.desc.nelems,
        "differing": result.differing,
        **{key: Said(fact, f"{fact:.8g}") for key, fact in facts_of(result, *_AMOUNTS).items()},
    }
    if result.worst:
        worst, *first = map(_said, (result.worst, *result.first))
        # what the layouts call the dims; a and b alone are the tensors here
        letters = a.desc.letters or b.desc.letters
        names = [f"dim {k}" + (f" ({letters[k]})" if letters else "") for k in range(a.desc.ndims)]
        where = [_where(*pair) for pair in zip(names, result.by_dim, strict=True)]
        facts |= {"worst": worst, "first": first, "where": where}
    codes = [operand for operand in operands if _only_weight(operand) is None]
    if notes := [note for operand in codes if (note := operand.codes_note())]:
        facts["notes"] = notes
    padding = dict(zip("ab", result.padding, strict=True))
    facts |= {"padding_not_zero": padding, "padding_differs": result.padding_differs}
    return facts, 0 if result.is_equal else 1


def _tolerance(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("atol", "rtol", "resolution")}


def _said(place: Difference) -> Said:
    facts = {
        "index": place.at,
        **facts_of(place, "a", "b", "difference"),
        "offsets": (place.offset_a, place.offset_b),
        "bytes": (place.byte_a, place.byte_b),
    }
    a, b, apart = map(_number, (place.a, place.b, place.difference))
    text = (
        f"{place.at}: {a} and {b}, {apart} apart; offset {place.offset_a} (byte {place.byte_a}) in "
        f"a, {place.offset_b} (byte {place.byte_b}) in b"
    )
    return Said(facts, text)


def _number(number: Any) -> str:
    """Return a number as text: one of f32 without the digits that only f64 needs."""
    with np.errstate(over="ignore"):
        is_short = isinstance(number, float) and float(np.float32(number)) == number
    return str(np.float32(number) if is_short else number)


def _ranges(counts: NDArray[np.int64]) -> list[list[int]]:
    """Return the indices at which elements differ, as ranges [first, last]."""
    at = np.flatnonzero(counts).tolist()
    ends = [k for k, (index, following) in enumerate(pairwise(at)) if following != index + 1]
    starts = [0, *(k + 1 for k in ends)]
    return [[at[first], at[last]] for first, last in zip(starts, [*ends, len(at) - 1], strict=True)]


def _line(pair: Pair) -> str:
    result, said = pair.comparison, pair.problem
    if result is not None and result.worst is not None:
        at, a, b, *_ = result.worst
        amounts = (f"{name.replace('_', ' ')} {getattr(result, name):.8g}" for name in _AMOUNTS)
        said = f"{result.differing} of {prod(result.dims)} elements, worst {at}: {_number(a)} and "
        said += ", ".join((_number(b), *amounts))
    if pair.causes:
        said += f"; {', or '.join(pair.causes)}"
    what_a, what_b = pair.a.what, pair.b.what
    return f"{pair.name}: " + ("" if what_a == what_b else f"{what_a} and {what_b}: ") + said


def _where(dim: str, counts: NDArray[np.int64]) -> Said:
    """Return at which indices of a dim elements differ."""
    size, ranges = len(counts), _ranges(counts)
    shown = [str(low) if low == high else f"{low} to {high}" for low, high in ranges]
    listed = ", ".join(shown[:_SHOWN]) + (f", ... ({len(shown)} ranges)" if shown[_SHOWN:] else "")
    text = f"{dim}: {'all' if ranges == [[0, size - 1]] else listed} of {size}"
    return Said({"dim": dim, "differing": ranges, "of": size}, text)


def _is_folder_of_files(path: str) -> bool:
    """Whether a path is a folder of dumps, rather than that of a model."""
    folder = as_path(path)
    return folder.is_dir() and not any(
        entry.name.endswith(_CHECKPOINTS) for entry in folder.iterdir()
    )


def _files(options: Options, side: str) -> tuple[Contents, dict[str, str]]:
    """Return the files of a side by name, and why everything else in its folder is not read."""
    files, unread = {}, {}
    for entry in sorted(as_path(getattr(options, side)).iterdir()):
        name = entry.name
        if entry.is_file():
            pair = (str(as_path(folder) / name) for folder in (options.a, options.b))
            files[name] = Content(name, name, partial(_read, options, side, *pair))
        elif entry.is_dir():
            unread[name] = "it is a folder; compare it by its path"
        else:
            unread[name] = "it is not a file"
    return files, unread


def _beside(path: str) -> dict[str, str]:
    """Return which arrays a folder has beside its checkpoint, unless it is that of a model."""
    folder, arrays = as_path(path), (row.ending for row in FORMATS.values() if not row.has_metadata)
    if (folder / "config.json").exists():
        return {}
    why = "it is not in the checkpoint; compare it by its path"
    return {file.name: why for ending in arrays for file in folder.glob(f"*{ending}")}


def _is_checkpoint(path: str) -> bool:
    """Whether a path has several tensors, or a format for several."""
    file = as_path(path)
    if file.is_dir() or (file.is_file() and file.name.endswith(_CHECKPOINTS)):
        return True
    try:
        return file.name.endswith(FORMATS["npz"].ending) and len(read_container(file).entries) > 1
    except MemdescError:  # reading it will report the error
        return False


def _compare_sets(
    options: Options, left: Contents, right: Contents, unread: Mapping[str, str]
) -> tuple[Facts, int]:
    """Compare what has the same name on both sides; `unread` says why something is left out."""
    pairs = [*compare_contents(left, right, **_tolerance(options))]
    apart = [pair for pair in pairs if not pair.is_equal]
    facts: Facts = {
        "a": options.a,
        "b": options.b,
        "compared": len(pairs),
        "differing": Said([*map(_row, apart)], [*map(_line, apart)] or "none"),
        "only_in_a": [content.name for name, content in left.items() if name not in right],
        "only_in_b": [content.name for name, content in right.items() if name not in left],
        "raw_codes": [pair.name for pair in pairs if pair.a.missing or pair.b.missing],
    }
    if unread:
        facts["not_compared"] = [f"{name}: {why}" for name, why in sorted(unread.items())]
    is_equal = not (apart or unread or facts["only_in_a"] or facts["only_in_b"])
    return facts, 0 if is_equal and pairs else 1


def _row(pair: Pair) -> Facts:
    row = {"name": pair.name, "a": pair.a.what, "b": pair.b.what, "causes": [*pair.causes]}
    if pair.comparison is None:
        return row | {"problem": pair.problem}
    worst = pair.comparison.worst
    return row | {
        "elements": prod(pair.comparison.dims),
        "differing": pair.comparison.differing,
        "worst": None if worst is None else (worst.at, str(worst.a), str(worst.b)),
        **facts_of(pair.comparison, *_AMOUNTS),
    }


COMMAND = Command(_answer)
