"""`memdesc check`: zero padding of saved tensors, or a checkpoint against a contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.disk import as_path, write_file
from memdesc.errors import counted, starred
from reorder.cli.command import Command, Facts, flag, lines, value
from reorder.cli.tensors import LIMIT, NPY, kind_of, padding_facts, split_name, tensors_in
from reorder.storage.contracts import check, read_toml, written_contract
from reorder.storage.differences import PACKED, PLAIN

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    if options.write is not None:
        return _write(options)
    if options.overwrite:
        msg = "--overwrite is for the file of --write; leave it out"
        raise MemdescError(msg)
    if (options.expect, options.reference, options.reference_is) != (None, None, None):
        return _check_contract(options)
    return _check_padding(options)


def _write(options: argparse.Namespace) -> tuple[Facts, int]:
    """Write the contract that a model holds."""
    if (options.expect, options.reference, options.reference_is) != (None, None, None):
        msg = "--write makes a contract, and --expect and --reference check one; run them apart"
        raise MemdescError(msg)
    target = as_path(options.write)
    if target.exists():
        if not options.overwrite:
            msg = f"{options.write!r} exists; --overwrite replaces it"
            raise MemdescError(msg)
        _check_replaced(target)
    text, number, assumed = written_contract(options.file)
    write_file(target, lambda out: out.write(text.encode()))
    facts: Facts = {"file": options.file, "written": options.write, "rules": number}
    if assumed:
        facts["assumed"] = [{"rule": name, "layout": each} for name, each in assumed.items()]
    return facts, 0


def _check_replaced(target: Path) -> None:
    """Refuse to replace what is not a contract, such as the model or another file of it."""
    try:
        read_toml(target)
    except MemdescError as error:
        msg = f"--overwrite replaces contracts only, and {error}; name another file"
        raise MemdescError(msg) from None


def _check_contract(options: argparse.Namespace) -> tuple[Facts, int]:
    """Check a model against a contract or a reference."""
    report = check(
        options.file,
        options.expect,
        reference=options.reference,
        reference_is=options.reference_is,
    )
    facts: Facts = {
        "file": options.file,
        "holds": report.holds,
        "breaches": [each._asdict() for each in report.breaches],
        "checked": len(report.checked),
        # only a contract can lack a rule
        "without_rule": [*report.without_rule] if options.expect is not None else [],
        "unconfirmed": [*report.unconfirmed],
        "compared": len(report.compared),
    }
    return facts, 0 if report.holds else 1


def _check_padding(options: argparse.Namespace) -> tuple[Facts, int]:
    if as_path(options.file).is_dir():
        msg = (
            f"{options.file!r} is a folder: --expect and --reference check one, and --write makes "
            "a contract of it; padding is checked in one .safetensors or .npz"
        )
        raise MemdescError(msg)
    tensors = tensors_in(options.file)
    if kind_of(split_name(options.file)[0]) is NPY:
        msg = (
            f"{options.file!r} is a .npy, which has no place for a descriptor, so nothing says "
            "what is padding; save the tensor as a .safetensors or a .npz"
        )
        raise MemdescError(msg)
    if not tensors:
        msg = f"{options.file!r} has no tensors, so there is no padding to check"
        raise MemdescError(msg)
    checked = [
        {"name": name, **padding_facts(memory, options.limit, "zero")}
        for name, memory in tensors.items()
    ]
    is_zero = all(facts["zero"] for facts in checked)
    return {"file": options.file, "zero": is_zero, "tensors": checked}, 0 if is_zero else 1


def _lay_out(facts: Facts) -> list[str]:
    """Return facts as lines; an empty line precedes each of several tensors."""
    if "breaches" in facts:
        shown = {**facts, "breaches": _folded(facts["breaches"])}
        if any(each["key"] == "others" for each in facts["breaches"]):
            del shown["without_rule"]  # each of them is listed as a breach
        if not facts["unconfirmed"]:
            del shown["unconfirmed"]
        if not facts["compared"]:
            shown["compared"] = "no values, which takes a --reference"
        return lines(shown)
    if "tensors" not in facts:
        return lines(facts)
    tensors = facts["tensors"]
    if len(tensors) == 1:
        return lines({"file": facts["file"], **tensors[0]})
    whole = {key: value for key, value in facts.items() if key != "tensors"}
    return lines(whole) + [line for one in tensors for line in ("", *lines(one))]


def _folded(breaches: Sequence[Facts]) -> list[str]:
    """Return a line for each breach; layers that differ in their number share the first one's."""
    alike: dict[str, list[Facts]] = {}
    for each in breaches:
        alike.setdefault(_line({**each, "name": starred(each["name"])}), []).append(each)
    return [
        _line(first) + (f"; and {counted(len(rest), 'such tensor')}, see --json" if rest else "")
        for first, *rest in alike.values()
    ]


def _line(breach: Facts) -> str:
    """Return a breach as a line."""
    causes = f": {', or '.join(breach['causes'])}" if breach["causes"] else ""
    rule = f" (rule {breach['rule']!r})" if breach["rule"] else ""
    return f"{breach['name']}: {breach['key']} {breach['problem']}{causes}{rule}"


COMMAND = Command(
    "check",
    "Check that padding is zero, or a checkpoint against a contract; exit code 1 if it fails.",
    "check model.safetensors --expect rules.toml --reference good.safetensors",
    (
        value(
            "file FILE",
            "a .safetensors or .npz, or one tensor of it as FILE:NAME; for a contract, any "
            "checkpoint",
        ),
        value("--expect RULES", "a contract, in TOML: what layouts, types and dims must be"),
        value(
            "--reference MODEL",
            "a checkpoint that is known to be right: compare values, and name likely causes",
        ),
        value(
            "--reference-is WHAT",
            "how tensors of MODEL without descriptors hold their elements: packed, as FILE should "
            "be, or plain, row by row",
            choices=[PACKED, PLAIN],
        ),
        value("--write RULES", "write the contract that FILE holds"),
        flag("--overwrite", "replace an existing file"),
        LIMIT,
    ),
    _answer,
    _lay_out,
)
