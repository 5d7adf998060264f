"""What config.json says about the layers of a model: which scheme each has; and back.

Each row of `ROWS` serves for reading and writing: keys that match its form declare its scheme, and
a converted weight is declared by the first row that has its scheme. A `Method` says how sections of
a `quant_method` name groups of layers, and how they list layers that are not quantised.

Sources: AutoAWQ 0.2, AutoGPTQ 0.7 and GPTQModel 7.7 (`quantization/config.py`), vLLM 0.10
(`gptq_marlin.py`; `fp8.py`: without `weight_block_size`, a scale is for a whole tensor),
transformers 5.24 (`utils/quantization_config.py`), compressed-tensors 0.20 (`QuantizationConfig`,
`utils/match.py`), ModelOpt 0.47 (`hf_quant_config.json`), mlx-lm 0.32 (`utils.py`, `load_model`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from math import comb
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memdesc import MemdescError
from memdesc.errors import about, short_repr
from memdesc.lazy import cached_property
from memdesc.record.rows import SCHEMES
from memdesc.record.scheme import block_sizes
from memdesc.tuples import NamedTuple
from reorder.checkpoints.experts import block_of, stacked_name
from reorder.checkpoints.formats.entry import read_json
from reorder.disk import read_if_exists

Json = Mapping[str, Any]

CONFIG = "config.json"
# the section of config.json, and what older versions of compressed-tensors call it
KEY, _OLD_KEY = "quantization_config", "compression_config"
# the section that MLX writes beside it, with the same content; neither names a method
_MLX_KEY, _MLX, _MLX_OPTIONS = "quantization", "mlx", ("group_size", "bits")
# files that loaders read if config.json declares nothing -> the method that they mean
OLD_CONFIGS: Mapping[str, str] = MappingProxyType(
    {"quantize_config.json": "gptq", "quant_config.json": "awq", "hf_quant_config.json": "modelopt"}
)
# the most bytes of a config file
MAX_CONFIG = 1 << 24
_NOTHING: Mapping[str, Any] = MappingProxyType({})
# the usual key of the layers that are not quantised, and what models call their output layer
IGNORED, OUTPUT = "modules_to_not_convert", "lm_head"
# what sections say besides options: how many inputs share a scale, whether inputs belong to groups
# in an arbitrary order, and whether all stored zero points are the middle code
_GROUP, _ACT_ORDER, IS_SYMMETRIC = "group_size", "act_order", "is_symmetric"
# the prefix of regular expressions for names; a target of compressed-tensors for all experts
_PATTERN, _EXPERTS = "re:", r"re:.*\.experts\.[0-9]+\..*"
# an expression for all layers whose names end like this
_BY_END = rf"{_PATTERN}(.*\.)?{{}}$"
# the rows and columns of the blocks of schemes without the option
_BLOCK = 128


# --- rows: keys that declare a scheme ---

_FMT = "fmt=e4m3:codes=f8_e4m3|e5m2:codes=f8_e5m2"
# `scale_fmt` is not read: DeepSeek-V3.1 stores f32 and says ue8m0, as its scales are powers of two
_DYNAMIC = (
    "+activation_scheme=dynamic "
    "+scale_fmt=ue8m0:scales=e8m0|float:scales=f32|float:scales=bf16|float:scales=f16"
)
_IMPLIED = "*codes=f8_e4m3 *scale_inv=false"
_FLOATS = "dynamic=false|null type=float symmetric=true|null"
_IN_FP8 = f"format=float-quantized|naive-quantized num_bits=8 {_FLOATS} {_IMPLIED}"
_IN_16 = "strategy=tensor_group group_size=16 scale_dtype=torch.float8_e4m3fn|null"
_IN_32 = "strategy=group group_size=32 scale_dtype=torch.uint8|null"
_INTEGERS = (
    "dynamic=false|null type=int symmetric=true:zeros=false|false:zeros=true|null:zeros=false "
    "actorder=null:act_order=false|false:act_order=false|weight:act_order=false"
    "|static:act_order=false|true:act_order=true|group:act_order=true|dynamic:act_order=true"
)
_PACKED = f"format=pack-quantized num_bits=<bits>|null:bits=8 {_INTEGERS}"
# codes with fewer bits are stored in bytes too
_BYTES = f"format=int-quantized|naive-quantized num_bits=8|7|6|5|4|3|2 {_INTEGERS}"
_FOUR = "load_in_4bit=true bnb_4bit_use_double_quant=false|null"
# A line has a method, a scheme and words. KEY=VALUES must be in a section, +KEY=VALUES are what
# readers need besides, and the method implies *OPTION=VALUE. Values are joined by |, the one to
# write first; VALUE:OPTION=VALUE also means an option. <OPTION> is a positive integer or -1
# (<group_size> a group that may exceed the inputs of a layer), and [ROWS,COLUMNS] or [BLOCK] a list
# of two sizes. The names of their tensors tell the schemes of FP8 apart. What ModelOpt quantises
# besides weights is not read; it has blocks of 128 x 128 (`quantization/config.py`,
# `FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG`).
_TABLE = f"""
awq awq version=gemm|null bits=4|null group_size=<group_size> +zero_point=true
gptq gptq checkpoint_format=gptq:zeros=v1|gptq_v2:zeros=v2|null:zeros=v1 bits=<bits>
    group_size=<group_size> desc_act=false:act_order=false|true:act_order=true +sym=<is_symmetric>
fp8 fp8_block weight_block_size=[block] {_FMT} *scale_inv=true {_DYNAMIC}
fp8 deepseek_fp8 weight_block_size=[block] {_FMT} {_DYNAMIC}
fp8 deepseek_fp4 weight_block_size=[block] {_FMT} {_DYNAMIC}
fp8 fp8_tensor weight_block_size=null {_FMT} {_DYNAMIC}
fbgemm_fp8 fp8_channel {_IMPLIED}
compressed-tensors fp8_tensor {_IN_FP8} strategy=tensor
compressed-tensors fp8_channel {_IN_FP8} strategy=channel
compressed-tensors fp8_block {_IN_FP8} strategy=block block_structure=[block]
compressed-tensors compressed_nvfp4 format=nvfp4-pack-quantized num_bits=4 {_FLOATS} {_IN_16}
compressed-tensors compressed_mxfp4 format=mxfp4-pack-quantized num_bits=4 {_FLOATS} {_IN_32}
compressed-tensors mxfp8 format=mxfp8-quantized num_bits=8 {_FLOATS} {_IN_32}
compressed-tensors pack_quantized {_PACKED} strategy=channel *rows=1 *group=-1
compressed-tensors pack_quantized {_PACKED} strategy=tensor *rows=-1 *group=-1
compressed-tensors pack_quantized {_PACKED} strategy=group group_size=<group> *rows=1
compressed-tensors pack_quantized {_PACKED} strategy=block block_structure=[rows,group]
compressed-tensors int_quantized {_BYTES} strategy=channel *rows=1 *group=-1
compressed-tensors int_quantized {_BYTES} strategy=tensor *rows=-1 *group=-1
compressed-tensors int_quantized {_BYTES} strategy=group group_size=<group> *rows=1
compressed-tensors int_quantized {_BYTES} strategy=block block_structure=[rows,group]
mxfp4 gpt_oss_mxfp4
modelopt fp8_tensor quant_algo=FP8 {_IMPLIED}
modelopt fp8_channel quant_algo=FP8_PER_CHANNEL_PER_TOKEN {_IMPLIED}
modelopt fp8_block quant_algo=FP8_PB_WO {_IMPLIED} *block=128
modelopt modelopt_nvfp4 quant_algo=NVFP4|W4A16_NVFP4|W4A8_NVFP4_FP8 group_size=16|null
modelopt modelopt_mxfp4 quant_algo=W4A8_MXFP4_FP8|mxfp4 group_size=32|null
modelopt mxfp8 quant_algo=MXFP8 group_size=32|null
bitsandbytes bnb_nf4 {_FOUR} bnb_4bit_quant_type=nf4
bitsandbytes bnb_fp4 {_FOUR} bnb_4bit_quant_type=fp4
bitsandbytes bnb_nested load_in_4bit=true bnb_4bit_use_double_quant=true
bitsandbytes bnb_int8 load_in_8bit=true
hqq hqq
mlx mlx mode=affine|null bits=<bits> group_size=<group>
mlx mlx_mxfp4 mode=mxfp4 bits=4|null group_size=32|null
mlx mlx_mxfp8 mode=mxfp8 bits=8|null group_size=32|null
mlx mlx_nvfp4 mode=nvfp4 bits=4|null group_size=16|null
"""


def _json(text: str) -> Any:
    return json.loads(text) if re.fullmatch(r"-?\d+|true|false|null", text) else text


def _options(words: Iterable[str]) -> Json:
    pairs = (word.partition("=") for word in words)
    return {name: _json(value) for name, _, value in pairs}


@lru_cache(maxsize=256)
def _values(form: str) -> tuple[tuple[Any, Json], ...]:
    """Return the values in JSON that a key may have, and the options that each means."""
    words = (word.partition(":") for word in form.split("|") if word[0] not in "<[")
    return tuple((_json(value), _options([option] if option else [])) for value, _, option in words)


def _named(form: str) -> list[str]:
    """Return the options that a positive integer, or a list of two sizes, stands for."""
    match = re.search(r"[<\[](.*)[>\]]", form)
    return match[1].split(",") if match else []


def _read(form: str, value: Any) -> Json | None:
    """Return the options that the value of a key means; None if the key may not have it."""
    for choice, options in _values(form):
        # programs write words such as GEMM in upper or lower case
        if type(choice) is type(value) and str(choice).casefold() == str(value).casefold():
            return options
    # a key that says what a scheme is like, not which it is: the tensors show what null leaves open
    if value is None and "[" not in form and ("<" in form or ":" in form):
        return _NOTHING
    names = _named(form)
    if "<" in form and type(value) is int and (value > 0 or value == -1):
        return {names[0]: value}
    is_list = isinstance(value, list) and [*map(type, value)] == [int, int]
    if "[" not in form or not is_list or min(value) <= 0:
        return None
    rows, columns = value
    both = value if len(names) > 1 else [rows if rows == columns else f"{rows}x{columns}"]
    return dict(zip(names, both, strict=True))


def _written(form: str, options: Json) -> Any:
    """Return the value that means options; the first one if they do not say which."""
    names = _named(form)
    if "<" in form:
        return options.get(names[0])
    if len(names) == 1:
        return [*block_sizes(names[0], options.get(names[0], _BLOCK))]
    fitting = [choice for choice, meant in _values(form) if meant.items() <= options.items()]
    return [options[option] for option in names] or [*fitting, _values(form)[0][0]][0]


class Row(NamedTuple):
    """How a section of a method declares a scheme."""

    method: str
    scheme: str
    # what keys must say, what readers need besides, and options that the method implies
    form: Mapping[str, str]
    rest: Mapping[str, str]
    implied: Json

    @staticmethod
    def of(line: str) -> Row:
        """Return a line of the table."""
        method, scheme, *words = line.split()
        pairs = [word.partition("=")[::2] for word in words]
        form = {key: values for key, values in pairs if key[0] not in "+*"}
        rest = {key[1:]: values for key, values in pairs if key[0] == "+"}
        return Row(method, scheme, form, rest, _options(x[1:] for x in words if x[0] == "*"))

    def keys(self, options: Json) -> dict[str, Any]:
        """Return the keys that declare the scheme with such options."""
        held = {_GROUP: options.get("group"), **options}
        forms = {**self.rest, **self.form}
        made = {key: _written(form, held) for key, form in forms.items()}
        # null is a value too, but not a number
        return {key: x for key, x in made.items() if x is not None or "<" not in forms[key]}

    def read(self, section: Json) -> dict[str, Any] | tuple[str, str]:
        """Return the options that keys mean, or what one of them is and what it should be."""
        options = dict(self.implied)
        for key, form in self.form.items():
            value = section.get(key)
            meant = _read(form, value)
            if meant is None:
                shown = f"{key} is {'missing' if value is None else short_repr(value)}"
                words = ("null" if choice is None else str(choice) for choice, _ in _values(form))
                numbers = {"<": "a positive integer", "[": "two positive integers"}
                return shown, numbers.get(form[0], " or ".join(words))
            options |= meant
        return options


ROWS = tuple(map(Row.of, re.split(r"\n(?! )", _TABLE.strip())))


def row_of(scheme: str, options: Json, method: str | None = None) -> Row | None:
    """Return the first row that declares a scheme with such options, those of a method first."""
    rows = [row for row in ROWS if row.scheme == scheme and row.implied.items() <= options.items()]
    return min(rows, key=lambda row: row.method != method, default=None)


# --- methods: groups of layers, and layers that are not quantised ---


class Said(NamedTuple):
    """What a file says about a layer."""

    file: str
    # the scheme, or None, and its options
    name: str | None
    options: Json = _NOTHING
    # how many inputs share a scale, -1 for all of them; the number may exceed those of a layer
    group: int | None = None
    # whether inputs belong to groups in an arbitrary order (``desc_act``); None if it is not said
    is_ordered: bool | None = None
    # why there is no scheme
    reason: str = ""
    # whether the layer is said not to be quantised, or is in none of the groups of the file
    is_ignored: bool = False
    is_unlisted: bool = False

    def __str__(self) -> str:
        if self.name is None:
            return f"something else ({self.reason})"
        facts = {**self.options, "group_size": self.group, "desc_act": self.is_ordered}
        options = ", ".join(f"{key}={value}" for key, value in facts.items() if value is not None)
        return f"{self.name}({options})" if options else self.name


class Layers(NamedTuple):
    """The layers of a model, as a section must declare them."""

    # the quantised ones that it must declare anew
    made: Mapping[str, Said]
    # those whose weights are matrices of floats, and all that are quantised
    plain: Sequence[str]
    quantised: Collection[str]
    # Whether the model has parts that are models. In a program, layers may then have other prefixes
    # than their tensors have in files, and loaders may not translate lists: transformers 5.24
    # translates them only for FP8.
    is_composite: bool = False

    def listed(self, names: Sequence[str], form: str) -> list[str]:
        """Return names for a list, of a composite also by their ends in a form, if there is one.

        Such an end is the fewest last words that no layer of another list ends with.
        """
        if not (form and self.is_composite):
            return [*names]
        others = {*self.plain, *self.quantised} - {*names}
        taken = {end for name in others for end in _ends_of(name)}
        ends = (next((end for end in _ends_of(x) if end not in taken), "") for x in names)
        escape = re.escape if form.startswith(_PATTERN) else str
        return [*dict.fromkeys((*names, *(form.format(escape(end)) for end in ends if end)))]


def _ends_of(name: str) -> list[str]:
    """Return the ends of a name in whole words, the shortest first."""
    words = name.split(".")
    return [".".join(words[-count:]) for count in range(1, len(words) + 1)]


class Method(NamedTuple):
    """How the sections of a `quant_method` name layers; by default, only those left as floats."""

    # the keys that may list the layers that are not quantised; if a section has none, the first
    lists: tuple[str, ...] = (IGNORED,)
    # how a list names all layers whose names end the same way; empty if it need not do that
    ends: str = ""
    # whether loaders compare whole names with such a list
    is_exact: bool = False
    # The key of an object that says something of groups of layers: by expressions, of which the
    # first that matches a layer applies; by targets; or by names, perhaps in the section itself.
    groups: str = ""
    # whether such expressions, instead of a list, say which layers are not quantised
    is_ruled: bool = False
    # the keys of config.json that have the section; several only if it does not name the method
    keys: tuple[str, ...] = (KEY,)
    # other names of its keys
    aliases: Json = _NOTHING
    # keys that say nothing about weights, which stay in a section of the same method
    kept: tuple[str, ...] = ()


_RULES, _GROUPED, _LAYERS, _TOP = "dynamic", "config_groups", "quantized_layers", "."
_METHODS: Mapping[str, Method] = {
    # transformers looks for a name of this list at the end of a layer's, even within a word; the
    # other names of keys are of AutoAWQ's own file, and of GPTQModel
    "awq": Method(
        ends=".{}",
        groups=_RULES,
        aliases={
            "w_bit": "bits",
            "q_group_size": "group_size",
            "format": "version",
            "checkpoint_format": "version",
        },
    ),
    # its loader replaces all layers in the repeated blocks
    "gptq": Method(groups=_RULES, is_ruled=True, aliases={"format": "checkpoint_format"}),
    # vLLM looks for the second key first
    "fp8": Method((IGNORED, "ignored_layers")),
    "compressed-tensors": Method(
        ("ignore",),
        _BY_END,
        is_exact=True,
        groups=_GROUPED,
        kept=("kv_cache_scheme",),
    ),
    "modelopt": Method(("ignore", "exclude_modules"), groups=_LAYERS),
    "bitsandbytes": Method(("llm_int8_skip_modules",)),
    "hqq": Method(("skip_modules",)),
    # layers are found by their names first, then by their tensors; its loader reads the first key
    _MLX: Method((), is_exact=True, groups=_TOP, keys=(_MLX_KEY, KEY)),
}


def method_of(name: str) -> Method:
    """Return how sections of a method name layers."""
    return _METHODS.get(name) or Method()


def is_inner(name: str) -> bool:
    """Whether a layer is within the repeated blocks of a model, as their number in it shows."""
    return any(word.isdecimal() for word in name.split("."))


def _groups(how: Method, section: Json) -> Iterator[tuple[Sequence[str] | None, Json | None]]:
    """Yield names of layers, or None for all others, and their keys, or None for plain layers."""
    is_whole = True
    named: Json = section if how.groups == _TOP else {}
    named = _value(section, how.groups, dict) if how.groups not in {"", _TOP} else named
    for key, own in named.items():
        if how.groups == _RULES:
            keys = {**section, **(own if isinstance(own, dict) else {})}
            text = key.removeprefix("-:").removeprefix("+:")
            yield (f"{_PATTERN}{text}",), None if key.startswith("-:") else keys
        elif how.groups == _GROUPED:
            # the name of a preset has only the targets, and its form is not read
            group = own if isinstance(own, dict) else {"targets": own}
            if group.get("weights", group) is not None:
                is_whole = False
                form = {"format": group.get("format") or section.get("format")}
                yield _value(group, "targets", list), form | _value(group, "weights", dict)
        elif isinstance(own, dict) or (own is False and how.groups == _TOP):
            is_whole = how.groups == _TOP
            yield (key,), own if isinstance(own, dict) else None
    if is_whole:
        yield None, section


def declare(layers: Layers, before: Json, method: str | None) -> dict[str, Any] | None:
    """Return the sections that declare layers, by their keys, instead of one; None if none can."""
    alike: dict[str, tuple[str, Json, list[str]]] = {}
    old = method_in(before)
    for name, said in layers.made.items():
        row = row_of(said.name or "", said.options, method or old)
        if row is None:
            return None
        keys = row.keys(said.options)
        key = json.dumps((row.method, keys), sort_keys=True)
        alike.setdefault(key, (row.method, keys, []))[2].append(name)
    made, *others = dict.fromkeys(method for method, _, _ in alike.values())
    # the keys of most layers first
    ordered = sorted(((names, keys) for _, keys, names in alike.values()), key=lambda x: -len(x[0]))
    how, (_, usual), rules = method_of(made), ordered[0], dict[str, Any]()
    for names, special in () if how.groups == _GROUPED else ordered[1:]:
        own = {key: value for key, value in special.items() if value != usual.get(key)}
        others += [] if how.is_ruled and own.keys() <= {"bits", "group_size", "sym"} else [made]
        rules |= {f"+:^{re.escape(name)}$": own for name in names}
    if others:
        return None
    joined = _config_groups(ordered, layers) if how.groups == _GROUPED else usual
    named = {"quant_method": made} if len(how.keys) == 1 else {}
    kept = {key: before[key] for key in how.kept if key in before and old == made}
    section = {**named, **kept, **joined, **({_RULES: rules} if rules else {})}
    return dict.fromkeys(how.keys, without_plain(made, section, layers))


def _config_groups(alike: Sequence[tuple[Sequence[str], Json]], layers: Layers) -> Json:
    """Return groups, which name their layers if they are several, unless experts differ."""
    groups, owner = {}, ""
    for k, (names, keys) in enumerate(alike):
        # transformers takes the group with such a target for all experts of a model, or else
        # the first group with a target of another format (5.24, `get_experts_scheme`)
        others = [name for name in names if not block_of(name)]
        expert = next((name for name in names if block_of(name)), "")
        if owner and expert:
            raise MemdescError(
                f"{owner} and {expert} have different formats, and transformers decodes all "
                "experts as the first group with experts says; --to bf16 and --to f16 decode any"
            )
        owner = owner or expert
        targets = layers.listed(others, _BY_END) + ([_EXPERTS] if expert else [])
        groups[f"group_{k}"] = {
            "targets": targets if len(alike) > 1 else ["Linear"],
            "weights": {key: value for key, value in keys.items() if key != "format"},
            "input_activations": None,
            "output_activations": None,
            "format": keys["format"],
        }
    forms = {keys["format"] for _, keys in alike}
    return {
        "quantization_status": "compressed",
        "format": forms.pop() if len(forms) == 1 else "mixed-precision",
        "config_groups": groups,
    }


def without_plain(method: str, section: Json, layers: Layers) -> dict[str, Any]:
    """Return a section that says which layers are not quantised."""
    how, plain, made = method_of(method), layers.plain, dict(section)
    if how.groups == _TOP:
        return made | {name: False for name in plain if name in section}
    if how.is_ruled:
        rules: Json = {f"-:^{re.escape(name)}$": {} for name in plain if is_inner(name)}
        made |= {_RULES: {**rules, **(section.get(_RULES) or {})}} if rules else {}
    else:
        if own := _value(section, _LAYERS, dict):
            made[_LAYERS] = {name: own[name] for name in own if name not in plain}
        names = layers.listed(plain, how.ends)
        for key in [key for key in how.lists if key in section] or how.lists[:1]:
            made[key] = [*dict.fromkeys([*(section.get(key) or []), *names])]
    is_plain = OUTPUT in plain
    if how.groups == _RULES and (section.get(OUTPUT) or not is_plain):
        made[OUTPUT] = not is_plain  # loaders assume that the output layer is not quantised
    return made


# --- reading ---


class Listed(NamedTuple):
    """What a section says about the layers that it lists, but nothing about those that stay floats.

    In a list that is not exact, a name may be the first or the last words of the layer's
    (transformers 5.24, `should_convert_module`), and ``*`` stands for any letters.
    """

    said: Mapping[str, tuple[Said, ...]]
    # those texts that are expressions, after ``re:``, or have a ``*``
    expressions: tuple[str, ...]
    is_exact: bool = True

    @classmethod
    def of(cls, said: Mapping[str, tuple[Said, ...]], *, is_exact: bool = True) -> Listed:
        """Return a list of texts that name layers."""
        expressions = (x for x in said if x.startswith(_PATTERN) or ("*" in x and not is_exact))
        return cls(said, tuple(expressions), is_exact)

    def find(self, layer: str) -> str | None:
        """Return the text that has a layer, or the stack of an expert; names come first."""
        names, words = [layer, stacked_name(layer)], layer.split(".")
        for count in () if self.is_exact else range(1, len(words)):
            names += [".".join(words[:count]), ".".join(words[-count:])]
        for name in names:
            if name in self.said:
                return name
        for text in self.expressions:
            if text.startswith(_PATTERN):
                is_it = matches_pattern(text, layer)
            else:
                is_it = any(fnmatchcase(layer, x) for x in (text, f"{text}.*", f"*.{text}"))
            if is_it:
                return text
        return None


class Declared(NamedTuple):
    """What the config files of a model say about its layers; the first one decides."""

    file: str
    # What it says about layers without a target; empty if nothing. These are several if the names
    # of tensors decide between them.
    rest: tuple[Said, ...]
    # what it says about groups of layers, by names, classes, or expressions
    targets: Listed
    # the layers that are not quantised
    ignored: Listed

    @property
    def every(self) -> tuple[Said, ...]:
        """All that it says about layers that are quantised."""
        return (*chain(self.rest, *self.targets.said.values()),)

    def __str__(self) -> str:
        return f"{self.file} declares {' and '.join(dict.fromkeys(map(str, self.every)))}"

    def at(self, layer: str) -> tuple[Said, ...]:
        """Return what is said about a layer, by its name, an expression, or the usual for a class.

        These are several if the names of its tensors decide between them, or its class, which a
        checkpoint does not say. Fails if a target is not a regular expression, or takes long.
        """
        for listed in (self.ignored, self.targets):
            with about(self.file):
                by = listed.find(layer)
            if by is not None and listed.said[by]:
                return listed.said[by]
            if by is not None:
                # expressions of GPTQModel have a prefix of their own
                is_dynamic = listed is self.targets and by.startswith(_PATTERN)
                shown = f"-:{by.removeprefix(_PATTERN)}" if is_dynamic else by
                reason = f"{self.file} ignores {layer}{'' if by == layer else f', by {shown!r}'}"
                return (Said(self.file, None, reason=reason, is_ignored=True),)
        if self.rest:
            return self.rest
        said = self.targets.said
        # the name of a class starts with a capital letter
        classes = [
            x for name in said if name.isidentifier() and name[0].isupper() for x in said[name]
        ]
        names = ", ".join(said) or "no layers"
        reason = f"{self.file} declares {names}, none of which is {layer}"
        return tuple(classes) or (Said(self.file, None, reason=reason, is_unlisted=True),)


# the most steps that a name may take; expressions of real models need some thousands
_MAX_STEPS = 10**7


@lru_cache(maxsize=4096)
def _compiled(text: str) -> re.Pattern[str]:
    """Return a regular expression. Fails if it is not one, or repeats a group."""
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise MemdescError(f"{short_repr(text)} is not a regular expression: {error}") from None
    # comments, and spaces of (?x), may stand between a group and its repeat
    if re.search(r"\)[*+{]|\(\?[^:=!]", text):
        why = "repeats a group, or has one with flags or a name; list names"
        raise MemdescError(f"{short_repr(text)} {why}")
    return pattern


def matches_pattern(text: str, name: str) -> bool:
    """Whether a regular expression, after ``re:`` or alone, matches at the start of a name.

    `re` backtracks, so an expression of a few letters can take years. One that repeats no group
    takes at most as many steps as there are ways to place its repeats in a name and to choose among
    its alternatives. Fails if it is not an expression, repeats a group, or may take too long.
    """
    text = text.removeprefix(_PATTERN)
    pattern = _compiled(text)
    repeats = sum(map(text.count, "*+?{")) - text.count("(?")
    steps = comb(len(name) + repeats, repeats) << text.count("|")
    if steps > _MAX_STEPS:
        many = f"2**{steps.bit_length()} steps to compare with a name of {len(name)} letters"
        raise MemdescError(f"{short_repr(text)} could take {many}; write it with fewer repeats")
    return pattern.match(name) is not None


class Configs:
    """The config files of a model, which are read once, when they are needed."""

    def __init__(self, source: Path) -> None:
        self.folder = source if source.is_dir() else source.parent

    @cached_property
    def sections(self) -> tuple[str, list[dict[str, Any]]]:
        """The first file that has a section, and its sections."""
        every = ((file, self._sections_in(file)) for file in (CONFIG, *OLD_CONFIGS))
        return next((held for held in every if held[1]), (CONFIG, []))

    def _sections_in(self, file: str) -> list[dict[str, Any]]:
        path = self.folder / file
        text = read_if_exists(path, MAX_CONFIG)
        with about(repr(str(path))):
            config, held = read_config(text or b"{}")
        if text is None or file not in OLD_CONFIGS:
            return [section for holder in held for section in sections_of(holder).values()]
        inside = config.get("quantization")  # in ModelOpt's own file
        own = inside if isinstance(inside, dict) else config
        return [{"quant_method": OLD_CONFIGS[file], **own}]

    @cached_property
    def declared(self) -> Declared | None:
        """What the sections declare; None if there is none. Fails if they contradict each other."""
        file, sections = self.sections
        declared = [declared_by(file, section) for section in sections]
        for declaration in declared[1:]:
            if declared[0] != declaration:
                said = f"{declared[0]}, and {declaration}; correct the one that is wrong"
                raise MemdescError(f"in {str(self.folder)!r} {said}")
        # GPTQModel reads how zero points are stored from its own file first
        if file == CONFIG and declared and method_in(sections[0]) == "gptq":
            said, *old = map(_version, (sections[0], *self._sections_in("quantize_config.json")))
            if any(version and ("v2" in version) != ("v2" in said) for version in old):
                raise MemdescError(
                    f"in {str(self.folder)!r} quantize_config.json says checkpoint_format "
                    f"{old[0]!r}, but config.json {said or None!r}; correct the one that is wrong"
                )
        return declared[0] if declared else None

    def refuse_changed(self) -> None:
        """Refuse a model whose files say that the stored weights mean other numbers."""
        file, sections = self.sections
        for section in sections:
            for key, (what, plain) in _CHANGES.items():
                value = section.get(key)
                held = value.get("format") if isinstance(value, dict) else value
                # neither null, false or empty, nor a value that changes nothing
                values = value.values() if isinstance(value, dict) else [value]
                if any(values) and held not in plain:
                    raise MemdescError(
                        f"{file} says {key} {value!r}, which {what}, and no conversion keeps that: "
                        f"convert it with the program that made it, or remove {key} if it is wrong"
                    )

    def refuse_unknown(self) -> None:
        """Refuse a model whose files declare quantised weights, but whose tensors show none."""
        file, sections = self.sections
        for section in sections:
            if section:
                what = short_repr(section.get("quant_method", section))
                raise MemdescError(
                    f"{file} declares quantised weights, by {what}, but no tensors have the names "
                    f"of a known format; correct {file} if its weights are plain floats, or let "
                    "--map 'PATTERN: bf16' convert those of a file beside them, such as an adapter"
                )


# keys that make the stored weights mean other numbers, unless their values are empty or as listed
_CHANGES: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "transform_config": ("rotates weights or activations", ()),
    "sparsity_config": ("stores sparse weights", ("dense",)),
    "adapter": ("adds a low-rank adapter to the weights", ()),
    "rotation": ("rotates weights or activations", ()),
    "pre_quant_scale": ("scales inputs before the weights", ()),
    "expert_dtype": ("stores experts in another type than other layers", ("fp8", "fp4")),
}


def says_symmetric(section: Json) -> bool:
    """Whether a section of GPTQ or AWQ says that all stored zero points are the middle code.

    For AWQ, transformers 5 writes `sym` too, whatever the zero points are.
    """
    has_zeros = section.get("zero_point")
    return has_zeros is False or (has_zeros is None and section.get("sym") is True)


def read_config(text: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the object of a config file, and those in it that have a section, or else itself."""
    config = read_json(text, "it is not JSON", "utf-8-sig")
    holders = [*_holders(config)] or [config]
    sections = [x for held in holders if isinstance(held, dict) for x in sections_of(held).values()]
    for value in (config, *sections):
        if not isinstance(value, dict):
            what = "it" if value is config else KEY
            raise MemdescError(f"{what} is not a JSON object, but {short_repr(value)}")
    return config, holders


def _holders(config: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a config that have a section: the whole, or one like text_config."""
    left = [config]
    while left:
        held = left.pop()
        if isinstance(held, dict):
            left += reversed(held.values())
            if any(sections_of(held)):
                yield held


def sections_of(config: Json) -> dict[str, Any]:
    """Return the sections of an object by key."""
    mlx = config.get(_MLX_KEY)
    is_mlx = isinstance(mlx, dict) and {*_MLX_OPTIONS} <= mlx.keys()
    held = {key: config.get(key) for key in (KEY, _OLD_KEY)} | {_MLX_KEY: mlx if is_mlx else None}
    return {key: section for key, section in held.items() if section is not None}


def _version(section: Json) -> str:
    """Return what a section calls the format of gptq; empty if it does not say."""
    return str(section.get("checkpoint_format", section.get("format")) or "").lower()


def method_in(section: Json) -> str:
    """Return the `quant_method` of a section in lower case; empty if it names none."""
    usual = _MLX if {*_MLX_OPTIONS} <= section.keys() else ""
    method = section.get("quant_method")
    return str(method).lower() if method is not None else usual


def declared_by(file: str, section: Json) -> Declared:
    """Return what a section of a file declares. Fails if a value has the wrong type."""
    with about(file):
        _value(section, "quant_method", str)
        name = method_in(section)
        how = method_of(name)
        keys = _renamed(section, how.aliases)
        groups = [*_groups(how, keys)]
        listed = [text for key in how.lists for text in _value(keys, key, list)]
    rest, said = tuple[Said, ...](), dict[str, tuple[Said, ...]]()
    for names, own in groups:
        declared = () if own is None else _said(file, name, own)
        said |= dict.fromkeys(names or (), declared)
        rest = declared if names is None else rest
    targets = said if how.groups == _RULES else dict(sorted(said.items()))
    ignored = Listed.of(dict.fromkeys(sorted(listed), ()), is_exact=how.is_exact)
    return Declared(file, rest, Listed.of(targets), ignored)


def _renamed(section: Json, aliases: Mapping[str, str]) -> dict[str, Any]:
    """Return a section in which no key has another name. Fails if two names have two values."""
    renamed = {key: value for key, value in section.items() if key not in aliases}
    for alias, key in aliases.items():
        held, value = renamed.get(key), section.get(alias)
        if held is None:
            renamed[key] = value
        elif value is not None and str(held).lower() != str(value).lower():
            one, two = f"{key} is {short_repr(held)}", f"{alias} is {short_repr(value)}"
            raise MemdescError(f"{one}, but {two}; correct the one that is wrong")
    return renamed


def _value(section: Json, key: str, cls: type[Any]) -> Any:
    """Return the value of a key; empty if it is left out. Fails if it is of another type."""
    value = cls() if section.get(key) is None else section[key]
    if not isinstance(value, cls) or (cls is list and not {*map(type, value)} <= {str}):
        what = "an object" if cls is dict else "a list of strings" if cls is list else "a string"
        raise MemdescError(f"{key} must be {what}, not {short_repr(value)}")
    return value


def _said(file: str, method: str, keys: Json) -> tuple[Said, ...]:
    """Return what keys declare for some layers: a scheme for each row that they match."""
    declared = []
    # what the keys say -> what rows want instead
    problems: dict[str, dict[str, None]] = {}
    for row in (row for row in ROWS if row.method == method):
        options = row.read(keys)
        if isinstance(options, tuple):
            problems.setdefault(options[0], {})[options[1]] = None
            continue
        group, is_ordered = options.pop(_GROUP, None), options.pop(_ACT_ORDER, None)
        legal = SCHEMES[row.scheme].defaults if row.scheme in SCHEMES else {}
        own = {key: value for key, value in options.items() if key in legal}
        declared.append(Said(file, row.scheme, own, group, is_ordered))
    why = "; ".join(f"{said}, not {' or '.join(wanted)}" for said, wanted in problems.items())
    reason = f"{file}: there is no record for quant_method {short_repr(method)}"
    return tuple(declared) or (Said(file, None, reason=f"{reason}{why and f': {why}'}"),)
