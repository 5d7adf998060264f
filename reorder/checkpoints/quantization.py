"""What the config files of a model declare about its quantised weights.

Source: `quantization_config` as AutoAWQ 0.2, AutoGPTQ 0.7 and GPTQModel 2 write it, the files of
their earlier versions, and `hf_quant_config.json` of ModelOpt 0.47.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from memdesc import MemdescError
from memdesc.errors import about, short_repr
from memdesc.record.names import read_name
from reorder.checkpoints.declarations import (
    ACT_ORDER,
    IGNORED,
    inside,
    is_known_method,
    listing_keys,
    plain_layers,
    read_section,
    split_section,
)
from reorder.checkpoints.experts import stacked_name
from reorder.checkpoints.patterns import NamePattern
from reorder.disk import read_if_exists

CONFIG = "config.json"
# the section of config.json, and what older versions of compressed-tensors call it
KEY = "quantization_config"
_OLD_KEY = "compression_config"
# the section that MLX writes beside it, with the same content; neither names a method
_MLX_KEY, _MLX = "quantization", "mlx"
_MLX_OPTIONS = ("group_size", "bits")
# files of earlier versions and other programs -> the method that they mean if they name none
OLD_CONFIGS = MappingProxyType(
    {
        "quantize_config.json": "gptq",
        "quant_config.json": "awq",
        "hf_quant_config.json": "modelopt",
    }
)
# the most bytes of a config file
MAX_CONFIG = 2**24
# the prefix of regular expressions for names
_PATTERN = "re:"
# method -> other names of its keys: of AutoAWQ's own file, and of GPTQModel
_ALIASES = {
    "awq": {
        "w_bit": "bits",
        "q_group_size": "group_size",
        "format": "version",
        "checkpoint_format": "version",
    },
    "gptq": {"format": "checkpoint_format"},
}


class Declared(NamedTuple):
    """What one config file of a model declares, about all layers or about a group of them."""

    # the name of the file
    file: str
    # the record; None if there is none
    name: str | None
    # options of the record that the file gives
    options: Mapping[str, Any] = {}
    # how many inputs share a scale, -1 for all of them
    group: int | None = None
    # whether inputs belong to groups in an arbitrary order (``desc_act``); None if the file does
    # not say so
    is_ordered: bool | None = None
    # why there is no record
    reason: str = ""
    # the layers, by name, by class, or by a regular expression after ``re:``
    targets: tuple[str, ...] = ()
    # what groups of layers have, if the file declares them by their names or classes
    parts: tuple[Declared, ...] = ()
    # layers that are not in any group, whatever their class; named like `targets`
    ignored: tuple[str, ...] = ()
    # whether a layer is in the first of `parts` that matches it, whatever kind of target that is
    in_order: bool = False
    # layers that are not quantised: the first or the last parts of their names, where ``*`` stands
    # for one part; or regular expressions
    plain: tuple[str, ...] = ()
    # whether this is what the file says about a layer that it ignores
    is_ignored: bool = False
    # whether this is what it says about a layer that is not in any of its groups
    is_unlisted: bool = False
    # what other files declare; they agree on the record
    others: tuple[Declared, ...] = ()
    # what the file may declare too, by other names of tensors
    alike: tuple[Declared, ...] = ()

    def at(self, layer: str) -> tuple[Declared, ...]:
        """Return what is declared about a layer.

        That is one declaration; or several, if the class of the layer decides between them, because
        a checkpoint does not say which class a layer has. Names take precedence over regular
        expressions, and these over classes. Source: compressed-tensors 0.20, `utils/match.py`,
        `match_targets`.

        Fails if a target is not a regular expression, or one that `NamePattern` refuses.
        """
        for each in (self, *self.others):
            by = _listed(each, layer)
            if by is not None:
                reason = f"{each.file} ignores {layer}" + ("" if by == layer else f", by {by!r}")
                return (Declared(each.file, None, reason=reason, is_ignored=True),)
        if not self.parts:
            return (self, *self.alike)
        named = self.named(layer)
        if named is not None:
            return (named, *named.alike)
        classes = [part for part in self.parts if any(map(_is_class, part.targets))]
        targets = ", ".join(target for part in self.parts for target in part.targets)
        reason = f"{self.file} declares {targets or 'no layers'}, none of which is {layer}"
        return tuple(classes) or (Declared(self.file, None, reason=reason, is_unlisted=True),)

    def named(self, layer: str) -> Declared | None:
        """Return the part that names a layer; None if no part does.

        Fails where `at` does.
        """
        if any(_listed(each, layer) is not None for each in (self, *self.others)):
            return None
        targets = tuple(part.targets for part in self.parts)
        found = _targets(targets, self.file, in_order=self.in_order).find(layer)
        return None if found is None else self.parts[found.part]


def _listed(declared: Declared, layer: str) -> str | None:
    """Return the entry of a file that says that a layer is not quantised; None if there is none."""
    patterns = tuple(text for text in declared.plain if text.startswith(_PATTERN))
    by = _targets((declared.ignored, patterns), declared.file).find(layer)
    if by is not None:
        return by.text
    return next((text for text in declared.plain if _is_part(text, layer)), None)


class _Target(NamedTuple):
    """A target, and the part that has it."""

    text: str
    part: int


class _Targets(NamedTuple):
    """Targets of several parts: names, and regular expressions in their order."""

    names: Mapping[str, _Target]
    patterns: Sequence[tuple[NamePattern, _Target]]

    def find(self, layer: str) -> _Target | None:
        """Return the target that has a layer: its name, or the first expression that matches.

        The stack that an expert is in has a name too.
        """
        for name in (layer, stacked_name(layer)):
            if name in self.names:
                return self.names[name]
        return next((target for pattern, target in self.patterns if pattern.matches(layer)), None)


@lru_cache(maxsize=64)  # a model has thousands of layers
def _targets(
    targets: tuple[tuple[str, ...], ...], file: str, *, in_order: bool = False
) -> _Targets:
    """Return the targets of all parts for `find`; the last one of equal targets counts.

    Without `in_order`, expressions are sorted, as in compressed-tensors.

    Fails if one is not a regular expression, or one that `NamePattern` refuses.
    """
    found = {text: _Target(text, k) for k, part in enumerate(targets) for text in part}
    patterns = []
    texts = [text for text in found if text.startswith(_PATTERN)]
    for text in texts if in_order else sorted(texts):
        with about(file):
            patterns.append((NamePattern(text.removeprefix(_PATTERN)), found[text]))
    return _Targets(found, patterns)


def _is_class(target: str) -> bool:
    """Whether a target is the name of a class, which starts with a capital letter."""
    return target.isidentifier() and target[0].isupper()


def _is_part(text: str, layer: str) -> bool:
    """Whether a text is the first or the last parts of a layer's name.

    Source: transformers 5.24, `should_convert_module`, without its regular expressions.
    """
    parts, names = text.split("."), layer.split(".")
    count = len(parts)
    return count <= len(names) and any(
        all(part in {"*", name} for part, name in zip(parts, run, strict=True))
        for run in (names[:count], names[-count:])
    )


class Configs:
    """The config files of a model, each of which is read once, when it is asked for."""

    def __init__(self, source: Path) -> None:
        self.folder = source if source.is_dir() else source.parent
        self._read: dict[str, Any] = {}

    def _parsed(self, file: str) -> Any:
        """Return the JSON of a file; None if there is no file. Fails if it is not JSON."""
        if file not in self._read:
            text = read_if_exists(self.folder / file, MAX_CONFIG)
            try:
                self._read[file] = None if text is None else json.loads(text)
            except (ValueError, RecursionError) as error:
                msg = f"{str(self.folder / file)!r} is not JSON: {error}"
                raise MemdescError(msg) from None
        return self._read[file]

    def sections(self, file: str) -> list[dict[str, Any]]:
        """Return the sections in a file, if there is one. Fails if it is not a JSON object."""
        config = self._parsed(file)
        if config is None:
            return []
        sections = [config]
        if file == CONFIG:
            try:
                sections = [each for part in holders(config) for each in sections_of(part).values()]
            except RecursionError as error:
                msg = f"{str(self.folder / file)!r} is not JSON: {error}"
                raise MemdescError(msg) from None
        for found in (config, *sections):
            if not isinstance(found, dict):
                what = "it" if found is config else KEY
                where = str(self.folder / file)
                msg = f"{where!r}: {what} is not a JSON object, but {short_repr(found)}"
                raise MemdescError(msg)
        return sections

    @property
    def model_type(self) -> str | None:
        """What config.json calls the architecture of the model; None if it does not say."""
        found = None
        with suppress(MemdescError, AttributeError):  # `sections` says what is wrong
            found = self._parsed(CONFIG).get("model_type")
        return found if isinstance(found, str) else None

    @cached_property
    def declared(self) -> Declared | None:
        """What the files declare; None if they declare nothing.

        Fails if a file is not a JSON object, has a value of the wrong type, or contradicts another.
        """
        return _declared_by(self)


def declared_record(folder: Path) -> Declared | None:
    """Return what the config files of a model declare. Fails where `Configs.declared` does."""
    return Configs(folder).declared


def _declared_by(configs: Configs) -> Declared | None:
    found = [
        _declared(file, section)
        for file in (CONFIG, *OLD_CONFIGS)
        for section in configs.sections(file)
    ]
    for other in found[1:]:
        first = found[0]
        said, told = (_facts(each) for each in (first, other))
        is_same = all(said[k] == told[k] for k in said.keys() & told.keys())
        is_same &= _parts_of(first) == _parts_of(other)
        if first.name != other.name or not is_same:
            where = f"{first.file} in {str(configs.folder)!r}"
            msg = (
                f"{where} declares {_shown(first)}, and {other.file} {_shown(other)}; correct the "
                "one that is wrong"
            )
            raise MemdescError(msg)
    return found[0]._replace(others=tuple(found[1:])) if found else None


def _facts(declared: Declared) -> dict[str, Any]:
    """Return what a file says about weights, without keys that older files do not have."""
    facts = {"group_size": declared.group, "desc_act": declared.is_ordered}
    return {**declared.options, **{k: v for k, v in facts.items() if v is not None}}


def _parts_of(declared: Declared) -> tuple[Any, ...]:
    """Return what a file declares about groups of layers."""
    parts = [(part.targets, part.name, part.options) for part in declared.parts]
    return (*parts, declared.ignored)  # not `plain`, which older files leave out


def holders(config: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a config that have a section: the whole, or one like text_config."""
    if isinstance(config, dict):
        if any(sections_of(config)):
            yield config
        for part in config.values():
            yield from holders(part)


def sections_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of an object by key."""
    mlx = config.get(_MLX_KEY)
    is_mlx = isinstance(mlx, dict) and {*_MLX_OPTIONS} <= mlx.keys()
    found = {key: config.get(key) for key in (KEY, _OLD_KEY)} | {_MLX_KEY: mlx if is_mlx else None}
    return {key: section for key, section in found.items() if section is not None}


def _declared(file: str, section: Mapping[str, Any]) -> Declared:
    method, declared = _declared_whole(file, section)
    is_split = declared.parts or declared.ignored
    return declared if is_split else declared._replace(plain=plain_layers(method, section))


def _declared_whole(file: str, section: Mapping[str, Any]) -> tuple[str, Declared]:
    """Return the method of a section, and its declaration for layers that it does not list."""
    named = section.get("quant_method")
    method = named.lower() if isinstance(named, str) else _usual_method(file, section)
    config = _with_usual_keys(file, method, section)
    held = {**config, **inside(method, config)}
    is_read = is_known_method(method)
    types = {"quant_method": str, IGNORED: list, **(_TYPES if is_read else {})}
    for key, kind in (types | dict.fromkeys(listing_keys(method), list)).items():
        found = held.get(key)
        is_right = found is None or type(found) is kind
        if not is_right or (kind is list and not all(isinstance(x, str) for x in found or ())):
            msg = f"{file}: {key} must be {_KINDS[kind]}, not {short_repr(found)}"
            raise MemdescError(msg)
    if is_read and (dynamic := config.get("dynamic")):
        return method, _split_dynamic(file, section, dynamic)
    return method, _read_section(file, method, config)


def _with_usual_keys(file: str, method: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section in which no key has another name.

    Fails if two names of a key have different values.
    """
    aliases = _ALIASES.get(method, {})
    config = {key: value for key, value in section.items() if key not in aliases}
    for other, key in aliases.items():
        held, value = config.get(key), section.get(other)
        if held is None:
            config[key] = value
        elif value is not None and str(held).lower() != str(value).lower():
            msg = (
                f"{file}: {key} is {short_repr(held)}, but {other} is {short_repr(value)}; correct "
                "the one that is wrong"
            )
            raise MemdescError(msg)
    return config


def _split_dynamic(file: str, section: Mapping[str, Any], dynamic: dict[str, Any]) -> Declared:
    """Return what GPTQModel says about layers by regular expressions; the first match applies.

    Source: GPTQModel 7.7, `quantization/config.py`, `_resolve_dynamic_override`.
    """
    rest = {key: value for key, value in section.items() if key != "dynamic"}
    method, usual = _declared_whole(file, rest)
    parts = []
    for key, own in dynamic.items():
        if key.startswith("-:"):
            reason = f"{file} says in dynamic, by {short_repr(key)}, that it is not quantised"
            part = Declared(file, None, reason=reason, is_ignored=True)
        else:
            options = own if isinstance(own, dict) else {}
            part = _declared_whole(file, {**rest, **options})[1]
        pattern = key.removeprefix("-:").removeprefix("+:")
        parts.append(part._replace(targets=(f"{_PATTERN}{pattern}",)))
    parts.append(usual._replace(targets=(_PATTERN,)))
    return usual._replace(parts=tuple(parts), in_order=True, plain=plain_layers(method, rest))


def _usual_method(file: str, config: Mapping[str, Any]) -> str:
    """Return the method of a section that does not name it."""
    is_mlx = file == CONFIG and {*_MLX_OPTIONS} <= config.keys()
    return _MLX if is_mlx else OLD_CONFIGS.get(file, "")


def _read_section(file: str, method: str, section: Mapping[str, Any]) -> Declared:
    """Return what a section declares, for one kind of layers or for several."""
    groups, ignored = split_section(method, section)
    if not groups:
        return _read_layers(file, method, section)
    parts = tuple(
        _read_layers(file, method, layers.section)._replace(targets=layers.targets)
        for layers in groups
    )
    same = {(part.name, *sorted(part.options.items())) for part in parts}
    whole = parts[0] if len(same) == 1 else Declared(file, None, reason=_several(parts))
    return whole._replace(targets=(), parts=parts, ignored=ignored)


def _read_layers(file: str, method: str, section: Mapping[str, Any]) -> Declared:
    """Return what a section with one kind of layers declares."""
    # older files do not have later keys
    declared = read_section(method, section, is_whole=file not in OLD_CONFIGS)
    if isinstance(declared, str):
        reason = f"there is no record for quant_method {short_repr(method)}"
        return Declared(file, None, reason=f"{file}: {reason}{declared and f': {declared}'}")
    row, options = declared
    is_ordered = options.pop(ACT_ORDER, section.get("desc_act"))
    found = Declared(file, row.record, options, section.get(row.group), is_ordered)
    alike = [
        found._replace(name=name, options={k: options[k] for k in legal.keys() & options.keys()})
        for name in row.others
        for _, _, legal in [read_name(name)]
    ]
    return found._replace(alike=tuple(alike))


def _several(parts: Sequence[Declared]) -> str:
    names = dict.fromkeys(part.name or part.reason for part in parts)
    return f"{parts[0].file} declares different records for different layers: {', '.join(names)}"


# what messages call the types of JSON
_KINDS = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    dict: "an object",
    list: "a list of strings",
}
# keys of any method that is read
_TYPES = {
    **dict.fromkeys(("checkpoint_format", "version"), str),
    **dict.fromkeys(("bits", "group_size"), int),
    **dict.fromkeys(("desc_act",), bool),
    **dict.fromkeys(("dynamic", "config_groups", "quantized_layers"), dict),
}


def _shown(found: Declared) -> str:
    if found.name is None:
        return f"something else ({found.reason})"
    options = ", ".join(f"{key}={value}" for key, value in _facts(found).items())
    return f"{found.name}({options})" if options else found.name
