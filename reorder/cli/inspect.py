"""`memdesc inspect`: the tensors of checkpoints, and which layers are quantised."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from math import prod
from operator import itemgetter
from typing import Any

from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.dtypes import BYTE_BITS
from memdesc.errors import counted
from memdesc.layout_names import dense_tag
from memdesc.names import dim_letters
from memdesc.record import BIT_PLANES, Constant, Field, RecordDesc
from memdesc.record.scheme import block_sizes
from reorder.checkpoints.formats.entry import NOT_BYTES, ONE, UNQUANTISED, WEIGHT, Container, Entry
from reorder.checkpoints.formats.safetensors import index_of
from reorder.checkpoints.formats.table import read_container
from reorder.checkpoints.weights import Model, Weight, find_misfits
from reorder.cli.command import Columns, Command, Facts, Options, is_wanted, tabulate
from reorder.cli.tensors import Operand
from reorder.messages import first_of, starred
from reorder.records.numbers import number_bits

_HEAD = ("name", "dims", "dtype", "layout", "bytes", "padding")
# how many names a line shows
_SHOWN = 8
# what shares a scale if each input names its group
_ACT_ORDER = "groups of inputs in any order"
# types of weights that are not quantised
_FLOATS = ("f64", *UNQUANTISED)


def _answer(options: Options) -> tuple[Facts, int]:
    operand = Operand(options.path)
    container = read_container(operand.path, skip_unreadable=True)
    operand.check_named(container)
    model = Model(operand.path, container)
    rows = [row for row in _rows(container, model.weights) if operand.name in {None, row["name"]}]
    wanted = [row for row in rows if is_wanted(row["name"], options.filter)]
    alike = {} if options.all else {"alike": _alike(wanted)}
    for table in (wanted, *alike.values()):
        # numbers from the largest on
        table.sort(key=lambda row: -v if isinstance(v := row[options.sort], int) else v)
    shown = {row["name"] for row in wanted}
    weights = _weights(container, model.weights)
    chosen = [weight for weight in weights if weight.codes.name in shown]
    chosen.sort(key=lambda weight: weight.prefix)
    is_quantised = model.claims.said is not None or any(x.desc for x in model.weights)
    # files that are not shown may hold what is missing
    is_whole = not container.unread and index_of(operand.path) is None
    misfits = dict(find_misfits(model)) if is_quantised and is_whole else {}
    facts: Facts = {
        "files": [*map(str, container.files)],
        "tensors": wanted,
        **alike,
        "count": len(wanted),
        "of": len(rows),
        "bytes": sum(row["bytes"] for row in wanted),
        "padding": sum(row["padding"] for row in wanted),
        "kinds": _kinds(wanted),
        "weights": [
            {
                "name": weight.prefix,
                "scheme": weight.desc.name,
                "dims": weight.desc.dims,
                "options": dict(weight.desc.options),
                "bytes": _nbytes(weight),
            }
            for weight in chosen
            if weight.desc is not None
        ],
        **_layers(chosen),
        "unread": {file: [*unread.names] for file, unread in container.unread.items()},
        "misfits": sorted(misfits),
        "notes": _notes(model, misfits),
    }
    return facts, 1 if facts["unread"] or misfits or not wanted else 0


def _notes(model: Model, misfits: dict[str, str]) -> list[str]:
    """Say which weights are not read as records, what is missing, and what config.json changes."""
    container, groups = model.container, model.weights
    notes = _noted(map(_why_codes, (group for group in groups if group.desc is None)))
    notes += _noted((name, why, f"it {why}") for name, why in misfits.items())
    if container.left_out:
        notes.append(f"{first_of(container.left_out, _SHOWN)}: not shown: {NOT_BYTES}")
    # a tensor may be a record by itself, as in GGUF
    has_blocks = any(isinstance(entry.desc, RecordDesc) for entry in container.entries.values())
    is_plain = not (groups or misfits or container.unread or has_blocks)
    try:  # config files may say that weights mean other numbers, or that plain ones are quantised
        if any(group.desc is not None for group in groups):
            model.configs.refuse_changed()
        elif is_plain and model.path.is_dir():
            model.configs.refuse_unknown()
    except MemdescError as error:
        notes.append(str(error))
    for file, unread in container.unread.items():
        names = [*unread.names]
        count = f", with {len(names)} tensors such as {names[0]}" if names else ""
        notes.append(f"{file} is not shown{count}: {unread.reason}")
    return notes


def _totals(
    rows: Iterable[Facts], key: Callable[[Facts], object], shown: Iterable[str]
) -> list[Facts]:
    names = ("count", "bytes", "padding")
    totals: dict[object, Facts] = {}
    for row in rows:
        first = {name: row[name] for name in shown} | dict.fromkeys(names, 0)
        total = totals.setdefault(key(row), first)
        for name in names:
            total[name] += row.get(name, 1)
    return [*totals.values()]


def _kinds(rows: Iterable[Facts]) -> list[Facts]:
    """Return the totals of tensors of the same type and layout, those with most bytes first."""
    key = itemgetter("dtype", "layout")
    return sorted(_totals(rows, key, ("dtype", "layout")), key=lambda kind: -kind["bytes"])


def _alike(rows: Iterable[Facts]) -> list[Facts]:
    """Merge the rows of tensors whose names differ only in numbers."""
    alike = itemgetter("dims", "dtype", "layout")
    totals = _totals(rows, lambda row: (starred(row["name"]), *map(str, alike(row))), _HEAD)
    for total in totals:
        if total["count"] > 1:
            total["name"] = starred(total["name"])
    return totals


def _weights(container: Container, groups: Sequence[Weight]) -> list[Weight]:
    """Return the quantised weights of a checkpoint, and the matrices that are not quantised."""
    weights = [group for group in groups if group.desc is not None]
    taken = {name for group in groups for name in group.names}
    for name, entry in container.entries.items():
        desc, layer = entry.desc, name.removesuffix(WEIGHT)
        if isinstance(desc, RecordDesc):
            weights.append(Weight(layer, {ONE: entry}, desc=desc))
        elif name in taken or layer == name or desc is None:
            continue
        elif desc.ndims >= len("oi") and desc.dtype.name in _FLOATS:
            weights.append(Weight(layer, {ONE: entry}))
    return weights


def _nbytes(weight: Weight) -> int:
    return sum(entry.stored_nbytes for entry in (weight.tensors or weight.entries).values())


def _layers(weights: Iterable[Weight]) -> Facts:
    """Return the layers of each record and those that are not quantised."""
    alike: dict[tuple[Any, ...], Facts] = {}
    plain: Facts = {"layers": [], "bytes": 0}
    for weight in weights:
        if (desc := weight.desc) is None:
            row, elements = plain, 0
        else:
            code, elements = desc.rule.code, prod(desc.dims)
            scales = _ACT_ORDER if weight.is_looked_up else _scales(desc)
            # where several elements share a code, the whole bits of one
            bits = int(desc.bits_per_element) if code.codebook else number_bits(desc, code)
            facts = {"record": desc.name, "bits": bits, "scales": scales, "layers": []}
            row = alike.setdefault((desc.name, bits, scales), facts | {"bytes": 0, "weights": 0})
            row["weights"] += elements
        row["layers"].append(weight.prefix)
        row["bytes"] += _nbytes(weight)
    return {"quantised": [*alike.values()], "not_quantised": plain}


def _scales(desc: RecordDesc) -> str:
    """Return what shares a scale, in words; empty for blocks of GGUF, whose name says it."""
    if len(desc.tensors) == 1:
        return ""
    groups = desc.scales.groups
    # a matrix smaller than a block has a part of one
    block = block_sizes(desc.name, dict(desc.options).get("block", 1))
    blocks = dict(zip("oi", block, strict=True))
    sizes = {
        letter: (max(g, blocks.get(letter, 1)) if g == n > 1 else g, n)
        for letter, g, n in zip(desc.letters, groups, desc.dims, strict=True)
    }
    (outputs, rows), (inputs, columns) = sizes["o"], sizes["i"]
    if (outputs, inputs) == (rows, columns):
        return "one scale"
    if outputs == 1:
        return "a scale for each output" if inputs == columns else f"groups of {inputs} inputs"
    return f"blocks of {outputs} x {inputs}"


def _rows(container: Container, groups: Sequence[Weight]) -> list[Facts]:
    """Return a row for each tensor; tensors of a record are described as its fields."""
    fields: dict[str, tuple[Field | Constant, RecordDesc]] = {}
    for group in groups:
        if group.desc is not None:
            stored: tuple[Field | Constant, ...] = (*group.desc.fields, *group.desc.constants)
            for item in stored:
                fields[group.tensors[item.tensor].name] = item, group.desc
    return [_row(entry, fields.get(name)) for name, entry in container.entries.items()]


def _why_codes(group: Weight) -> tuple[str, str, str]:
    """Return which codes are not read as a record, the pattern of the reason, and the reason."""
    reason = group.reason.replace(repr(group.prefix), "it")
    # if reasons differ only in names and numbers, the first is enough
    pattern = reason
    for role, entry in group.entries.items():
        pattern = pattern.replace(repr(entry.name), role)
    why = f"codes scaled by other tensors, not read as a record: {reason}"
    return group.codes.name, re.sub("[0-9]+", "*", pattern), why


def _noted(reasons: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a note for each pattern of reasons: its names, and the first of its reasons."""
    alike: dict[str, tuple[str, list[str]]] = {}
    for name, pattern, reason in reasons:
        alike.setdefault(pattern, (reason, []))[1].append(name)
    return [f"{first_of(names, 1)}: {reason}" for reason, names in alike.values()]


def _row(entry: Entry, part: tuple[Field | Constant, RecordDesc] | None) -> Facts:
    desc = entry.desc
    dims, dtype, layout, padding = entry.shape, entry.dtype, "unknown", 0
    if part is not None:
        field, record = part
        dtype, layout = field.kind, f"{record.name} {field.tensor}"
        if isinstance(field, Field):
            dims = field.layout.dims
            if prod(dims) * field.bits > entry.nbytes * BYTE_BITS:
                # looked up for each input (act-order), and stored for each group
                dims = (*entry.shape[:1], *dims[1:])
            if field.kind in BIT_PLANES and field.name != field.tensor:  # one of several planes
                dtype = entry.dtype
            else:
                layout = f"{record.name} {field.name}"
        if isinstance(field, Field) and field.kind not in BIT_PLANES:
            padding = entry.nbytes - field.desc.dtype.nbytes(prod(dims))
    elif isinstance(desc, MemoryDesc):
        dims = desc.dims if entry.is_described else entry.shape
        dtype, layout = str(desc.dtype), _layout_name(desc, desc.spelling)
        padding = desc.nbytes - desc.dtype.nbytes(desc.nelems)
    elif desc is not None:
        dims, dtype, layout = desc.dims, desc.name, "record"
    facts: Facts = {
        "name": entry.name,
        "dims": dims,
        "dtype": dtype,
        "layout": layout,
        "bytes": entry.nbytes,
        "padding": padding,
        "stored_as": {"dtype": entry.dtype, "shape": entry.shape},
        "file": str(entry.file),
    }
    return facts if desc is not None else facts | {"why_unknown": entry.reason}


@lru_cache(maxsize=1024)
def _layout_name(desc: MemoryDesc, _spelling: str) -> str:
    """Return ``plain``, or a name, in the letters that the writer of the layout gave the dims."""
    if desc == memory_desc(desc.dims, desc.dtype, "plain"):
        return "plain"
    names = desc.names()
    if desc.letters is not None and names:
        tag = dense_tag(desc.layout).spelled(desc.letters)
        with suppress(MemdescError):  # these are not letters of a tag
            if memory_desc(desc.dims, desc.dtype, tag) == desc:
                return tag
    written = [name for name in names if dim_letters(name.text) == (desc.letters or "")]
    # oneDNN's is the first; a packing that has none is called what loaders call it
    packings = [name for name in names if name.vocabulary == "weights"]
    is_tag = bool(names) and names[0].vocabulary == "onednn"
    if candidates := [*written, *([] if is_tag else packings), *names]:
        return candidates[0].text
    return str(desc).removeprefix(f"memory_desc({desc.dims}, '{desc.dtype}', ").removesuffix(")")


_COLUMNS: Columns = {
    "name": lambda row: row["name"] + (f" ({row['count']})" if row.get("count", 1) > 1 else ""),
    "dims": lambda row: "x".join(map(str, row["dims"])) or "scalar",
    **{name: f"{{{name}}}" for name in ("dtype", "layout", "bytes", "padding")},
}


def _lay_out(facts: Facts) -> list[str]:
    """Return a line for each tensor or all alike, then totals for each kind and for all."""
    rows = facts["alike" if "alike" in facts else "tensors"]
    lines = tabulate(_COLUMNS, rows, _HEAD[:4]) if rows else []
    lines += [""] if rows else []
    lines += [
        f"{counted(kind['count'], 'tensor')} of {kind['dtype']}, {kind['layout']}: {_sizes(kind)}"
        for kind in facts["kinds"]
    ]
    shown = "" if facts["count"] == facts["of"] else f" of {facts['of']}"
    count = f"{facts['count']}{shown} tensors" if shown else counted(facts["count"], "tensor")
    lines.append(f"all: {count} in {counted(len(facts['files']), 'file')}, {_sizes(facts)}")
    for row in facts["quantised"]:
        bits = 8 * row["bytes"] / max(row["weights"], 1)
        scales = f", {row['scales']}" if row["scales"] else ""
        head = f"{row['record']}, {row['bits']} bits{scales}, {bits:.4g} bits per weight"
        lines.append(f"{head}: {_patterns(row['layers'])}")
    if facts["quantised"] and facts["not_quantised"]["layers"]:
        plain = facts["not_quantised"]
        lines.append(f"not quantised, {plain['bytes']} bytes: {_patterns(plain['layers'])}")
    return [*lines, *facts["notes"]]


def _patterns(layers: Sequence[str]) -> str:
    """Return the names of layers with a star for each number, and how many there are of each."""
    counts = Counter(map(starred, layers))
    shown = [name + (f" ({count})" if "*" in name else "") for name, count in counts.items()]
    return first_of(shown, _SHOWN)


def _sizes(facts: Facts) -> str:
    nbytes, padding = facts["bytes"], facts["padding"]
    share = f", of which {padding} are padding ({padding / nbytes:.1%})" if padding else ""
    return f"{counted(nbytes, 'byte')}{share}"


COMMAND = Command(
    _answer,
    _lay_out,
    settings={"--sort": {"choices": ["name", "bytes", "padding", "dtype", "layout"]}},
)
