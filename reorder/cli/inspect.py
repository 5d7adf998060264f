"""`memdesc inspect`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memdesc import MemoryDesc, memory_desc
from memdesc.disk import as_path
from memdesc.record import BIT_PLANES
from reorder.cli.command import Command, Facts, one_line, table
from reorder.storage.containers.table import read_container
from reorder.storage.groups import find_groups, partial_of

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from memdesc import RecordDesc
    from memdesc.record import Field
    from reorder.storage.containers.entry import Container, Entry

__all__ = ["COMMAND"]

_SORTS = ("name", "bytes", "padding", "dtype", "layout")
_HEAD = ("name", "dims", "dtype", "layout", "bytes", "padding")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="a .safetensors, .gguf, .npz, .npy or .onnx, an index of shards, or the folder of a "
        "model",
    )
    parser.add_argument(
        "--filter",
        metavar="PATTERN",
        default="",
        help="only names that contain this, or match a pattern such as '*.mlp.*.weight'",
    )
    parser.add_argument(
        "--sort",
        choices=_SORTS,
        help="the order of the table, largest numbers first; by default that of the files",
    )


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    rows: list[Facts] = []
    notes: list[str] = []
    files: list[Path] = []
    for given in options.paths:
        path = as_path(given)
        container = read_container(path)
        files += container.files
        rows += _rows(path, container, notes)
    found = [row for row in rows if _is_wanted(row["name"], options.filter)]
    if options.sort:
        found.sort(key=lambda row: _key(row[options.sort]))
    kinds: dict[tuple[str, str], list[int]] = {}
    for row in found:
        total = kinds.setdefault((row["dtype"], row["layout"]), [0, 0, 0])
        for k, amount in enumerate((1, row["bytes"], row["padding"])):
            total[k] += amount
    facts: Facts = {
        "files": [str(file) for file in files],
        "tensors": found,
        "count": len(found),
        "of": len(rows),
        "bytes": sum(row["bytes"] for row in found),
        "padding": sum(row["padding"] for row in found),
        "kinds": [
            dict(
                zip(("dtype", "layout", "count", "bytes", "padding"), (*kind, *total), strict=True)
            )
            for kind, total in sorted(kinds.items(), key=lambda item: -item[1][1])
        ],
        "notes": notes,
    }
    return facts, 0 if found else 1


def _is_wanted(name: str, wanted: str) -> bool:
    if any(mark in wanted for mark in "*?["):
        return fnmatchcase(name, wanted)
    return wanted in name


def _key(value: Any) -> Any:
    return -value if isinstance(value, int) else value


def _rows(path: Path, container: Container, notes: list[str]) -> list[Facts]:
    """Return a row for each tensor; tensors of a record are described as its fields."""
    fields: dict[str, tuple[Field, RecordDesc]] = {}
    reasons: dict[str, list[str]] = {}
    for group in find_groups(path, container):
        if group.desc is None:
            reason = group.reason.replace(repr(group.prefix), "it")
            reasons.setdefault(reason, []).append(group.found.codes.name)
            continue
        for part in group.desc.fields:
            fields[group.tensors[part.tensor].name] = part, group.desc
    for reason, names in reasons.items():
        notes.append(
            f"{_first(names)}: codes scaled by other tensors, not read as a record: {reason}"
        )
    changed: dict[str, list[str]] = {}
    for name, rule in partial_of(container).items():
        changed.setdefault(rule, []).append(name)
    for rule, names in changed.items():
        one, they = ("it", "it and what belongs to it") if len(names) == 1 else ("them", "they")
        notes.append(
            f"{_first(names)}: an earlier conversion changed {one} alone, by the rule {rule!r}; "
            f"{they} no longer mean the same numbers"
        )
    return [_row(entry, fields.get(name)) for name, entry in container.entries.items()]


def _first(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _row(entry: Entry, part: tuple[Field, RecordDesc] | None) -> Facts:
    desc = entry.desc
    dims, dtype, layout, padding = entry.shape, entry.dtype, "unknown", 0
    if part is not None:
        field, record = part
        dims, dtype = field.layout.dims, field.kind
        if field.kind in BIT_PLANES and field.name != field.tensor:  # one of several planes
            dtype = entry.dtype
        layout = f"{record.name} {field.name if dtype == field.kind else field.tensor}"
        if field.kind not in BIT_PLANES:
            padding = entry.nbytes - field.desc.dtype.nbytes(field.layout.nelems)
    elif isinstance(desc, MemoryDesc):
        dims = desc.dims if entry.is_described else entry.shape
        dtype, layout = str(desc.dtype), _layout_name(desc)
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
        "offset": entry.offset,
    }
    return facts if desc is not None else facts | {"why_unknown": entry.reason}


@lru_cache(maxsize=1024)
def _layout_name(desc: MemoryDesc) -> str:
    """Return ``plain``, the name of a packing, or another name or tag of a layout."""
    if desc == memory_desc(desc.dims, desc.dtype, "plain"):
        return "plain"
    names = desc.tags()
    packing = next((name.text for name in names if name.vocabulary == "weights"), None)
    if packing or names:
        return packing or names[0].text
    return str(desc).removeprefix(f"memory_desc({desc.dims}, '{desc.dtype}', ").removesuffix(")")


def _lay_out(facts: Facts) -> list[str]:
    """Return a line for each tensor, then totals for each kind and for all."""
    rows = [
        (
            # names in a hostile file may contain terminal commands
            row["name"] if row["name"].isprintable() else repr(row["name"]),
            "x".join(map(str, row["dims"])) or "scalar",
            row["dtype"],
            row["layout"],
            str(row["bytes"]),
            str(row["padding"]),
        )
        for row in facts["tensors"]
    ]
    right = range(_HEAD.index("bytes"), len(_HEAD))
    lines = table([_HEAD, *rows], right) if rows else []
    lines += [""] if rows else []
    lines += [
        f"{_tensors(kind['count'])} of {kind['dtype']}, {kind['layout']}: {_sizes(kind)}"
        for kind in facts["kinds"]
    ]
    shown = "" if facts["count"] == facts["of"] else f" of {facts['of']}"
    count = f"{facts['count']}{shown} tensors" if shown else _tensors(facts["count"])
    nfiles = len(facts["files"])
    lines.append(f"all: {count} in {nfiles} file{'' if nfiles == 1 else 's'}, {_sizes(facts)}")
    return [*lines, *map(one_line, facts["notes"])]


def _tensors(count: int) -> str:
    return "1 tensor" if count == 1 else f"{count} tensors"


def _sizes(facts: Facts) -> str:
    nbytes, padding = facts["bytes"], facts["padding"]
    share = f", of which {padding} are padding ({padding / nbytes:.1%})" if padding else ""
    return f"{nbytes} bytes{share}"


COMMAND = Command(
    "inspect",
    "List the tensors of checkpoints: dims, type, layout or record, bytes; exit code 1 if none.",
    "inspect model.safetensors --filter '*.weight' --sort bytes",
    _add_arguments,
    _answer,
    _lay_out,
)
