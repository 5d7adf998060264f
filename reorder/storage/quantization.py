"""Records of several tensors in a checkpoint: what config.json declares, and their dims.

Source: `quantization_config` as AutoAWQ 0.2, AutoGPTQ 0.7 and GPTQModel 2 write it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError, MemoryDesc, RecordDesc, record_desc
from memdesc.disk import read_if_exists
from memdesc.errors import short_repr
from memdesc.record.names import read_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from reorder.storage.containers.entry import Entry

__all__ = ["Declared", "declared_record", "optional_tensors", "record_at", "record_prefixes"]

_MAX_CONFIG = 2**24
# what the tensors of these records are called behind the prefix, and the last of them
_CODES, _SCALES = "qweight", "scales"
_BYTE_BITS = 8


class Declared(NamedTuple):
    """The record that a config.json declares: its name and options, or why there is none."""

    name: str | None
    options: dict[str, Any]
    reason: str = ""


def declared_record(folder: Path) -> Declared | None:
    """Return the record that the config.json of a model declares; None where it says nothing.

    Raises
    ------
    MemdescError
        If config.json is no JSON object.
    """
    path = folder / "config.json"
    text = read_if_exists(path, _MAX_CONFIG)
    if text is None:
        return None
    try:
        config = json.loads(text)
        found = config.get("quantization_config")
    except (ValueError, AttributeError, RecursionError) as error:
        msg = f"{str(path)!r} is no JSON object: {error}"
        raise MemdescError(msg) from None
    return _declared(found) if isinstance(found, dict) else None


def _declared(config: Mapping[str, Any]) -> Declared:
    method, form = config.get("quant_method"), config.get("checkpoint_format", "gptq")
    if method == "awq" and str(config.get("version", "gemm")).lower() == "gemm":
        return Declared("awq", {})
    if method == "gptq" and config.get("desc_act"):
        return Declared(None, {}, "desc_act reorders input channels by data; see gptq_act_order")
    bits = config.get("bits", 4)
    if method == "gptq" and form in {"gptq", "gptq_v2"}:
        return Declared("gptq", {"bits": bits, "zeros": "v2" if form == "gptq_v2" else "v1"})
    if method == "gptq" and form == "marlin":
        return Declared("marlin", {"bits": bits})
    return Declared(None, {}, f"no record for quant_method {short_repr(method)}")


def record_prefixes(entries: Mapping[str, Entry]) -> list[str]:
    """Return what stands before ``.qweight`` where ``.scales`` are beside it."""
    return [
        prefix
        for name in entries
        if name.endswith(f".{_CODES}")
        and f"{(prefix := name.removesuffix(f'.{_CODES}'))}.{_SCALES}" in entries
    ]


@lru_cache(maxsize=64)
def optional_tensors(name: str) -> dict[str, str]:
    """Return the tensors that a record has only with an option, such as qzeros of marlin."""
    found: dict[str, str] = {}
    for option, default in read_name(name)[2].items():
        if default is False:
            less, more = (
                record_desc((4096, 4096), name, **{option: held}).tensors for held in (False, True)
            )
            found |= {tensor: option for tensor in more if tensor not in less}
    return found


def record_at(
    entries: Mapping[str, Entry], prefix: str, name: str, options: Mapping[str, Any]
) -> tuple[RecordDesc, dict[str, Entry]]:
    """Return the record whose tensors have a prefix: its dims from the shape of the scales.

    Parameters
    ----------
    entries : mapping of str to Entry
        Of a container.
    prefix : str
        What stands before ``.qweight``.
    name : str
        A record of matrices in several tensors, such as ``awq``.
    options : mapping of str to object
        Of `record_desc`; ``group``, ``scales`` and tensors that are optional are read from the
        tensors that there are.

    Returns
    -------
    (RecordDesc, dict of str to Entry)
        The record, and the entry of each of its tensors.

    Raises
    ------
    MemdescError
        If a tensor is missing, has other bytes than the record, or is none of its tensors.
    """
    found, letters, legal = read_name(name)
    codes, scales = (_part(entries, prefix, part) for part in (_CODES, _SCALES))
    if letters != "io" or not isinstance(scales.desc, MemoryDesc) or scales.desc.ndims != len("io"):
        msg = (
            f"{prefix!r} is no {found} of tensors {_CODES} and {_SCALES} of 2 dims; its "
            f"{_SCALES} have the shape {scales.shape}"
        )
        raise MemdescError(msg)
    bits = options.get("bits", 4)
    groups, columns = scales.desc.dims
    count = codes.nbytes * _BYTE_BITS // bits if bits in (4, 8) else 0
    if not count or not groups or not columns or count % (groups * columns):
        msg = (
            f"{prefix!r}: {codes.nbytes} bytes of {bits}-bit codes are no multiple of the "
            f"{groups} x {columns} scales"
        )
        raise MemdescError(msg)
    rows = count // columns
    group = -1 if groups == 1 else rows // groups
    more = optional_tensors(found)
    has = {option: f"{prefix}.{tensor}" in entries for tensor, option in more.items()}
    given = {"group": group, "scales": scales.desc.dtype.name, **has, **options}
    desc = record_desc((rows, columns), found, **{k: v for k, v in given.items() if k in legal})
    for tensor, option in more.items():
        if has[option] and tensor not in desc.tensors:
            msg = f"{prefix!r} has {tensor}, which {desc!r} leaves out; leave {option}= out"
            raise MemdescError(msg)
    parts = {tensor: _part(entries, prefix, tensor) for tensor in desc.tensors}
    for tensor, nbytes in desc.tensors.items():
        if parts[tensor].nbytes != nbytes:
            msg = (
                f"{parts[tensor].name!r} has {parts[tensor].nbytes} bytes, but {desc!r} has "
                f"{nbytes} there"
            )
            raise MemdescError(msg)
    return desc, parts


def _part(entries: Mapping[str, Entry], prefix: str, tensor: str) -> Entry:
    entry = entries.get(f"{prefix}.{tensor}")
    if entry is None:
        msg = (
            f"{prefix!r} has no tensor {tensor!r}; the checkpoint has none called {prefix}.{tensor}"
        )
        raise MemdescError(msg)
    return entry
