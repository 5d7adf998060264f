"""`memdesc identify`: which known layouts the bytes of a file may have."""

from __future__ import annotations

from typing import Any

import numpy as np

from memdesc import MemdescError, data_type, memory_desc
from memdesc.errors import counted
from reorder.cli.command import Command, Facts, Options, table
from reorder.cli.tensors import Operand, Reading
from reorder.identification.identify import Candidate, Identification, dims_in_order, identify
from reorder.memory.memory import Memory
from reorder.messages import first_of

# endings of files with several tensors
_SETS = (".npz", ".safetensors")

# how many layouts are printed, and how many names of each
_SHOWN, _NAMES = 20, 4


def _answer(options: Options) -> tuple[Facts, int]:
    if options.like is not None and options.like.endswith(_SETS) and options.dump.endswith(_SETS):
        if (options.dims, options.offset) != (None, None):
            raise MemdescError(
                "--dims and --offset are for one tensor; name one as FILE:NAME, or leave them out"
            )
        return _answer_for_set(options)
    if (options.like is None) == (options.dims is None):
        msg = "give --like, a tensor of the same values, or --dims, the logical sizes"
        raise MemdescError(msg if options.like is None else f"{msg}, not both")
    like = None if options.like is None else Operand(options.like).load()
    operand = Operand(options.dump, Reading(offset=options.offset))
    if operand.is_raw:
        data: Any = operand.raw_bytes()
    else:
        data = operand.words(None if options.dtype is None else data_type(options.dtype))
    answer = identify(data, like, dims=options.dims, **_how(options))
    facts = {"file": options.dump, **_facts(data, answer)}
    return facts, int(len(answer.candidates) != 1)


def _answer_for_set(options: Options) -> tuple[Facts, int]:
    tensors, plain = (Operand(path).loaded() for path in (options.dump, options.like))
    common = [name for name in tensors if name in plain]
    if not common:
        raise MemdescError(f"{options.dump!r} and {options.like!r} have no tensor of the same name")
    answers = {name: identify(tensors[name], plain[name], **_how(options)) for name in common}
    facts = {
        "file": options.dump,
        "tensors": [{"tensor": name, **_facts(tensors[name], answers[name])} for name in common],
        "not_compared": sorted(tensors.keys() ^ plain.keys()),
    }
    return facts, int(any(len(answer.candidates) != 1 for answer in answers.values()))


def _how(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("dtype", "atol", "rtol")}


def _facts(data: Memory | np.ndarray[Any, Any], answer: Identification) -> Facts:
    return {
        "bytes": data.nbytes,
        "verdict": answer.verdict,
        "row_major": any(
            x.desc == memory_desc(x.desc.dims, x.desc.dtype) for x in answer.candidates
        ),
        "layouts": [_layout(candidate) for candidate in answer.candidates],
        "near": [_layout(candidate) for candidate in answer.near],
    }


def _layout(candidate: Candidate) -> Facts:
    desc, bits = candidate.desc, candidate.desc.dtype.bits
    # several types of this width are possible if none is known
    size = f"{bits} bits" if desc.dtype.is_packed else counted(bits // 8, "byte")
    return {
        "layout": repr(desc) if candidate.is_type_known else f"{desc.dims} elements of {size}",
        "dtype": str(desc.dtype) if candidate.is_type_known else None,
        "names": [name._asdict() for name in candidate.names],
        "order": candidate.order,
        "agreement": candidate.agreement,
        "padding_elements": desc.padded_nelems - desc.nelems,
        "padding_zero": candidate.is_padding_zero,
    }


def _lay_out(facts: Facts) -> list[str]:
    """Return the verdict and the layouts; for a set, a line for each tensor."""
    if "tensors" in facts:
        tensors = [
            (
                row["tensor"],
                "plain" if row["row_major"] and len(row["layouts"]) == 1 else row["verdict"],
            )
            for row in facts["tensors"]
        ]
        return table([*tensors, *((name, "not in both files") for name in facts["not_compared"])])
    rows = [f"{facts['file']}, {facts['bytes']} bytes: {facts['verdict']}"]
    for layout in facts["layouts"][:_SHOWN]:
        names = first_of((name["text"] for name in layout["names"]), _NAMES)
        names += dims_in_order(layout["order"])
        padding = layout["padding_elements"]
        rows.append(f"{layout['layout']}: {names}" + (f"; {padding} padding" if padding else ""))
    if len(facts["layouts"]) > _SHOWN:
        rows.append(f"... and {len(facts['layouts']) - _SHOWN} more; --json lists them")
    return rows


COMMAND = Command(_answer, _lay_out)
