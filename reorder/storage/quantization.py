"""What the config files of a model declare about its quantised weights.

Source: `quantization_config` as AutoAWQ 0.2, AutoGPTQ 0.7 and GPTQModel 2 write it, the files of
their earlier versions, and `hf_quant_config.json` of ModelOpt 0.47.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError, known_records
from memdesc.disk import read_if_exists
from memdesc.errors import short_repr
from memdesc.record.names import read_name
from reorder.storage.declarations import read_section

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["CONFIG", "KEY", "OLD_CONFIGS", "Declared", "declared_record", "holders", "sections_of"]

CONFIG = "config.json"
# the section of config.json
KEY = "quantization_config"
# the section that MLX writes beside it, with the same content; neither names a method
_MLX_KEY, _MLX = "quantization", "mlx"
_MLX_OPTIONS = ("group_size", "bits")
# files of earlier versions and other programs -> the method meant where they name none
OLD_CONFIGS = {
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
    "hf_quant_config.json": "modelopt",
}
_MAX_CONFIG = 2**24
# keys of AutoAWQ's own file -> those of config.json
_OLD_KEYS = {"w_bit": "bits", "q_group_size": "group_size"}


class Declared(NamedTuple):
    """What one config file of a model declares.

    Attributes
    ----------
    file : str
        The name of the file.
    name : str, optional
        The record; None if there is none.
    options : mapping of str to object
        Options of the record that the file gives.
    group : int, optional
        How many inputs share a scale, -1 for all of them.
    layers : mapping of str to Declared
        What it declares of single layers instead, by their names.
    is_ordered : bool
        Whether inputs belong to groups in an arbitrary order (``desc_act``).
    reason : str
        Why there is no record.
    """

    file: str
    name: str | None
    options: Mapping[str, Any] = {}
    group: int | None = None
    is_ordered: bool = False
    reason: str = ""
    layers: Mapping[str, Declared] = {}

    def at(self, prefix: str) -> Declared:
        """Return what it declares of the layer with a prefix."""
        return self.layers.get(prefix, self)


def declared_record(folder: Path) -> Declared | None:
    """Return what the config files of a model declare; None if they declare nothing.

    Raises
    ------
    MemdescError
        If a file is not a JSON object, has a value of the wrong type, or contradicts another.
    """
    found = [
        _declared(file, section)
        for file in (CONFIG, *OLD_CONFIGS)
        for section in _read(folder, file)
    ]
    for other in found[1:]:
        first = found[0]
        keys = first.options.keys() & other.options.keys()
        is_same = all(first.options[k] == other.options[k] for k in keys)
        if first.name != other.name or first.layers != other.layers or not is_same:
            msg = (
                f"{first.file} in {str(folder)!r} declares {_told(first)}, and {other.file} "
                f"{_told(other)}; correct the one that is wrong"
            )
            raise MemdescError(msg)
    return found[0] if found else None


def holders(config: Any) -> Iterator[dict[str, Any]]:
    """Return the objects in a config that have a section: the whole, or one like text_config."""
    if isinstance(config, dict):
        if any(sections_of(config)):
            yield config
        for part in config.values():
            yield from holders(part)


def sections_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of an object by key."""
    mlx = config.get(_MLX_KEY)
    is_mlx = isinstance(mlx, dict) and {*_MLX_OPTIONS} <= mlx.keys()
    found = {KEY: config.get(KEY), _MLX_KEY: mlx if is_mlx else None}
    return {key: section for key, section in found.items() if section is not None}


def _read(folder: Path, file: str) -> list[dict[str, Any]]:
    """Return the sections in a file."""
    text = read_if_exists(folder / file, _MAX_CONFIG)
    if text is None:
        return []
    try:
        config = json.loads(text)
        sections = [config]
        if file == CONFIG:
            sections = [each for part in holders(config) for each in sections_of(part).values()]
    except (ValueError, RecursionError) as error:
        msg = f"{str(folder / file)!r} is not JSON: {error}"
        raise MemdescError(msg) from None
    for found in (config, *sections):
        if not isinstance(found, dict):
            what = "it" if found is config else KEY
            msg = f"{str(folder / file)!r}: {what} is not a JSON object, but {short_repr(found)}"
            raise MemdescError(msg)
    return sections


def _declared(file: str, section: Mapping[str, Any]) -> Declared:
    config = {_OLD_KEYS.get(key, key): value for key, value in section.items()}

    def value(key: str, kind: type, default: Any = None) -> Any:
        found = config.get(key)
        if found is None:
            return default
        if type(found) is not kind:
            msg = f"{file}: {key} must be {_KINDS[kind]}, not {short_repr(found)}"
            raise MemdescError(msg)
        return found

    is_mlx = file == CONFIG and {*_MLX_OPTIONS} <= config.keys()
    usual = _MLX if is_mlx else OLD_CONFIGS.get(file, "")
    method = value("quant_method", str, usual).lower()
    form = value("checkpoint_format", str, "gptq").lower()
    version = value("version", str, "gemm").lower()
    bits = value("bits", int)
    group = value("group_size", int)
    if value("dynamic", dict) or method == _MLX:  # layers of their own; an option of the record
        group = None
    options = {} if bits is None else {"bits": bits}
    if value("is_marlin_format", bool, default=False):
        form = "marlin"
    common = {"group": group, "is_ordered": value("desc_act", bool, default=False)}
    if method == "awq" and version == "gemm" and bits in (None, 4):
        return Declared(file, "awq", {}, **common)
    if method == "gptq" and form in {"gptq", "gptq_v2"}:
        if "checkpoint_format" in config or file == CONFIG:
            options["zeros"] = "v2" if form == "gptq_v2" else "v1"
        return Declared(file, "gptq", options, **common)
    if (method, version) == ("awq", "marlin") or (method, form) == ("gptq", "marlin"):
        return Declared(file, "marlin", options, **common)
    if method in known_records() and method not in {"awq", "gptq", _MLX}:
        # as outputs have it of records that other programs do not declare
        kept = {key: value for key, value in options.items() if key in read_name(method)[2]}
        return Declared(file, method, kept, **common)
    declared = read_section(method, section)
    if not isinstance(declared, str):
        layers = _layers(file, section) if method == _MLX else {}
        return Declared(file, *declared, **common, layers=layers)
    what = {"awq": f", version {version}, {bits} bits", "gptq": f", checkpoint_format {form}"}
    more = what.get(method, declared and f": {declared}")
    reason = f"there is no record for quant_method {short_repr(method)}{more}"
    return Declared(file, None, reason=f"{file}: {reason}")


def _layers(file: str, section: Mapping[str, Any]) -> dict[str, Declared]:
    """Return what a section of MLX declares of single layers: options, or that they are floats."""
    found = {}
    for key, value in section.items():
        if isinstance(value, dict):
            read = read_section(_MLX, value)
            is_read = not isinstance(read, str)
            reason = f"{file}: {key}.{read}"
            found[key] = Declared(file, *read) if is_read else Declared(file, None, reason=reason)
        elif value is False:
            reason = f"{file} declares that {key} is not quantised"
            found[key] = Declared(file, None, reason=reason)
    return found


# what messages call the types of JSON
_KINDS = {str: "a string", int: "an integer", bool: "true or false", dict: "an object"}


def _told(found: Declared) -> str:
    if found.name is None:
        return f"something else ({found.reason})"
    options = ", ".join(f"{key}={value}" for key, value in found.options.items())
    return f"{found.name}({options})" if options else found.name
