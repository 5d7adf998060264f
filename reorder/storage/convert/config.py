"""config.json of a model: what it says of quantised weights after these have moved.

Sources: `quantization_config` of AutoAWQ 0.2, AutoGPTQ 0.7 and GPTQModel 2 (`checkpoint_format`),
and vLLM 0.10, `gptq_marlin.py`, `marlin.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, RecordDesc
from reorder.storage.quantization import declared_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reorder.storage.convert.jobs import Job

__all__ = ["KEY", "check_declared", "loader_warnings", "moved_config"]

KEY = "quantization_config"
# what a reader looks for, beside bits and group_size
_METHODS: dict[str, dict[str, Any]] = {
    "awq": {"quant_method": "awq", "version": "gemm", "zero_point": True},
    "gptq": {"quant_method": "gptq", "checkpoint_format": "gptq", "desc_act": False},
    "marlin": {
        "quant_method": "gptq",
        "checkpoint_format": "marlin",
        "is_marlin_format": True,
        "desc_act": False,
    },
}
_LOADED = ("awq", "gptq")
# why records are not loaded
_REASONS = {
    "marlin": (
        "; vLLM packs AWQ and GPTQ weights for Marlin itself when it loads them, and its loader of "
        "checkpoint_format marlin reads tensors called B and s"
    )
}
# kept of what was said before
_KEPT = ("modules_to_not_convert", "lm_head", "dynamic")


def moved_config(text: bytes, jobs: Sequence[Job]) -> tuple[bytes, str]:
    """Return config.json after records have moved, and a warning, which may be empty.

    Raises
    ------
    MemdescError
        If it is no JSON object.
    """
    moved = [job for job in jobs if isinstance(job.src, RecordDesc) and len(job.sources) > 1]
    if not moved:
        return text, ""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"config.json is no JSON: {error}"
        raise MemdescError(msg) from None
    if not isinstance(config, dict):
        msg = "config.json is no JSON object"
        raise MemdescError(msg)
    holders = _holders(config)
    left = [job.name for job in jobs if job.is_copy and job.name.endswith(".qweight")]
    made = {_section(job, holders[0]) for job in moved}
    if left or len(made) > 1:
        what = f"{left[0]} stays as it was" if left else "records became several formats"
        return text, f"config.json keeps its {KEY}, which cannot say that {what}"
    for holder in holders:
        section = _section(moved[0], holder)
        holder.pop(KEY, None)
        if section is not None:
            holder[KEY] = json.loads(section)
    return json.dumps(config, indent=2).encode() + b"\n", ""


def loader_warnings(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Return a warning for each record that becomes tensors which no known loader reads."""
    made = [
        job.dst.name for job in jobs if isinstance(job.dst, RecordDesc) and len(job.targets) > 1
    ]
    return tuple(
        f"neither vLLM nor transformers loads {name} from a checkpoint{_REASONS.get(name, '')}"
        for name in dict.fromkeys(made)
        if name not in _LOADED
    )


def check_declared(source: Path, jobs: Sequence[Job]) -> None:
    """Refuse rules that take a record for another version than config.json declares.

    The bytes of versions fit each other: zero points of GPTQ v1 and v2 differ by 1.

    Raises
    ------
    MemdescError
        With the rule, and what it should say.
    """
    moved = [job for job in jobs if isinstance(job.src, RecordDesc) and len(job.sources) > 1]
    declared = declared_record(source if source.is_dir() else source.parent) if moved else None
    if declared is None:
        return
    for job in moved:
        if job.rule is None or not isinstance(job.src, RecordDesc) or job.rule.src is None:
            continue
        held, said = dict(job.src.options), dict(job.rule.src.options)
        for key, value in declared.options.items():
            if job.src.name == declared.name and key not in said and held.get(key, value) != value:
                job.rule.fail(
                    f"{job.name}: config.json declares {key}={value}, and {job.src.name} has "
                    f"{key}={held[key]}; say {job.src.name}({key}={value}), or "
                    f"{job.src.name}({key}={held[key]}) if config.json is wrong"
                )


def _holders(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what has the section: the whole, or parts, such as text_config; else the whole."""
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    return [part for part in parts if KEY in part] or [config]


def _section(job: Job, config: dict[str, Any]) -> str | None:
    """Return what is said of the record that a job makes, as JSON; None for plain numbers."""
    if not isinstance(job.dst, RecordDesc):
        return None
    desc = job.dst
    options = dict(desc.options)
    before = config.get(KEY)
    held = before if isinstance(before, dict) else {}
    found = {key: held[key] for key in _KEPT if key in held}
    found |= {"bits": options.get("bits", 4), "group_size": options.get("group", -1)}
    found |= _METHODS.get(desc.name, {"quant_method": desc.name})
    if options.get("zeros") == "v2":
        found["checkpoint_format"] = "gptq_v2"
    if found["quant_method"] == "gptq" and isinstance(job.src, RecordDesc):
        is_symmetric = job.src.rule.is_symmetric or desc.rule.is_symmetric
        found["sym"] = is_symmetric or bool(held.get("sym", False))
    return json.dumps(found, sort_keys=True)
