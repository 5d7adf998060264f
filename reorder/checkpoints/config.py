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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from math import comb
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError
from memdesc.errors import about, short_repr
from memdesc.record.rows import SCHEMES
from memdesc.record.scheme import block_sizes
from reorder.checkpoints.experts import block_of, stacked_name
from reorder.disk import read_if_exists

if TYPE_CHECKING:
    from pathlib import Path

    Json = Mapping[str, Any]

CONFIG = "config.json"
# the section of config.json, and what older versions of compressed-tensors call it
KEY, _OLD_KEY = "quantization_config", "compression_config"
# the section that MLX writes beside it, with the same content; neither names a method
_MLX_KEY, _MLX, _MLX_OPTIONS = "quantization", "mlx", ("group_size", "bits")
# files of earlier versions and other programs -> the method that they mean if they name none
OLD_CONFIGS: Mapping[str, str] = MappingProxyType(
    {
        "quantize_config.json": "gptq",
        "quant_config.json": "awq",
        "hf_quant_config.json": "modelopt",
    }
)
# the most bytes of a config file
MAX_CONFIG = 1 << 24
_NOTHING: Mapping[str, Any] = MappingProxyType({})
# the usual key of the layers that are not quantised, and what models call their output layer
IGNORED, OUTPUT = "modules_to_not_convert", "lm_head"
# the object of ModelOpt's own file that has what config.json has at its top
_INSIDE = "quantization"
# what is said besides options: how many inputs share a scale, whether they belong to groups in an
# arbitrary order, and whether all stored zero points are the middle code
_GROUP, _ACT_ORDER, IS_SYMMETRIC = "group_size", "act_order", "is_symmetric"
# the prefix of regular expressions for names; a target of compressed-tensors for all experts
_PATTERN, _EXPERTS = "re:", r"re:.*\.experts\.[0-9]+\..*"
# the rows and columns of the blocks of schemes without the option
_BLOCK = 128


# --- rows: keys that declare a scheme ---


class _Option(NamedTuple):
    """The value of a key is that of an option; a file may leave it out."""

    option: str
    # values in JSON and the same values of the option; empty if they are the same integers
    values: tuple[tuple[Any, Any], ...] = ()
    # what a file without the value means; None if the tensors show it
    usual: Any = None

    @property
    def types(self) -> set[type]:
        """The types of its values in JSON."""
        return {type(given) for given, _ in self.values} or {int}


class _Sizes(NamedTuple):
    """The value is a list of two sizes, which are two options, or one such as ``128x64``."""

    options: tuple[str, ...]


class Row(NamedTuple):
    """How a section of a method declares a scheme."""

    scheme: str
    method: str
    # what keys must say: a value, a tuple of values that mean the same, or the place of an option
    form: Json = _NOTHING
    # options that the method implies
    fixed: Json = _NOTHING
    # what readers need besides `form`, in the same form
    written: Json = _NOTHING

    def keys(self, options: Json) -> dict[str, Any]:
        """Return the keys that declare the scheme with such options."""
        held = {_GROUP: options.get("group"), **options}
        made = {key: _written(each, held) for key, each in {**self.written, **self.form}.items()}
        return {key: value for key, value in made.items() if value is not _UNSAID}


_UNSAID = object()


def _values(spec: Any) -> list[tuple[Any, Json]]:
    """Return the values that a key may have, and the options that each means."""
    if isinstance(spec, _Option):
        return [(given, {spec.option: value}) for given, value in spec.values]
    return [(given, _NOTHING) for given in (spec if isinstance(spec, tuple) else (spec,))]


def _read(spec: Any, value: Any, *, is_whole: bool) -> Json | None:
    """Return the options that the value of a key means; None if the key may not have it.

    A file that is not whole does not have keys of later versions.
    """
    if isinstance(spec, _Sizes):
        if not (isinstance(value, list) and [*map(type, value)] == [int, int] and min(value) > 0):
            return None
        one, other = value
        both = value if len(spec.options) > 1 else [one if one == other else f"{one}x{other}"]
        return dict(zip(spec.options, both, strict=True))
    is_option = isinstance(spec, _Option)
    if value is None and is_option and is_whole:
        value = spec.usual
    found = [options for given, options in _values(spec) if _is_same(given, value)]
    if found or not is_option:
        return found[0] if found else None
    is_count = not spec.values and type(value) is int and (value > 0 or value == -1)
    return {spec.option: value} if is_count else {} if value is None else None


def _is_same(wanted: Any, value: Any) -> bool:
    """Whether two JSON values are equal; programs write words such as GEMM in either case."""
    if isinstance(wanted, str) and isinstance(value, str):
        return wanted.casefold() == value.casefold()
    return type(value) is type(wanted) and bool(value == wanted)


def _written(spec: Any, options: Json) -> Any:
    """Return the value of a key for such options; the first that it may have if they lack one."""
    if isinstance(spec, _Sizes):
        one, *others = spec.options
        return (
            [options[each] for each in spec.options]
            if others
            else [*block_sizes(one, options.get(one, _BLOCK))]
        )
    values = _values(spec)
    fitting = [given for given, each in values if each.items() <= options.items()]
    if not values:
        value = options.get(spec.option)
        return _UNSAID if value is None else value
    return (fitting or [values[0][0]])[0]


def _shown(spec: Any) -> str:
    """Return what a message calls the values that a key may have."""
    if isinstance(spec, _Sizes):
        return "two positive integers"
    shown = ["null" if given is None else str(given) for given, _ in _values(spec)]
    return " or ".join(shown) or "a positive integer"


def _compressed(scheme: str, forms: tuple[str, ...], fixed: Json, bits: Any, **form: Any) -> Row:
    """Return how compressed-tensors declares weights; each group may have a format of its own."""
    form = {"format": forms, "num_bits": bits, "dynamic": (False, None), **form}
    return Row(scheme, "compressed-tensors", form, fixed)


_BLOCKS = _Sizes(("block",))
_ZEROS = _Option("zeros", (("gptq", "v1"), ("gptq_v2", "v2")), usual="gptq")
_FMT = {"fmt": _Option("codes", (("e4m3", "f8_e4m3"), ("e5m2", "f8_e5m2")))}
_KINDS = (("ue8m0", "e8m0"), *(("float", kind) for kind in ("f32", "bf16", "f16")))
# `scale_fmt` is not read: DeepSeek-V3.1 stores f32 and says ue8m0, as its scales are powers of two
_DYNAMIC = {"activation_scheme": "dynamic", "scale_fmt": _Option("scales", _KINDS)}
_PLAIN = {"codes": "f8_e4m3", "scale_inv": False}
# the strategies of integers: forms of the weights, and what they imply
_STRATEGIES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"strategy": "channel"}, {"rows": 1, "group": -1}),
    ({"strategy": "tensor"}, {"rows": -1, "group": -1}),
    ({"strategy": "group", "group_size": _Option("group")}, {"rows": 1}),
    ({"strategy": "block", "block_structure": _Sizes(("rows", "group"))}, {}),
)
_FLOATS = {"type": "float", "symmetric": (True, None)}
_INTEGERS = {
    "type": "int",
    "symmetric": _Option("zeros", ((True, False), (False, True)), usual=True),
    "actorder": _Option(
        _ACT_ORDER,
        (
            *((given, False) for given in (None, False, "weight", "static")),
            *((given, True) for given in (True, "group", "dynamic")),
        ),
    ),
}
_IN_16 = {
    "strategy": "tensor_group",
    "group_size": 16,
    "scale_dtype": ("torch.float8_e4m3fn", None),
}
_IN_32 = {"strategy": "group", "group_size": 32, "scale_dtype": ("torch.uint8", None)}
# of ModelOpt; what is quantised besides the weights is not read
_NVFP4 = ("NVFP4", "W4A16_NVFP4", "W4A8_NVFP4_FP8")
_MXFP4 = ("W4A8_MXFP4_FP8", "mxfp4")
_FOUR = {"load_in_4bit": True, "bnb_4bit_use_double_quant": (False, None)}

ROWS = (
    Row(
        "awq",
        "awq",
        {"version": ("gemm", None), "bits": (4, None), "group_size": _Option(_GROUP)},
        written={"zero_point": True},
    ),
    Row(
        "gptq",
        "gptq",
        {
            "checkpoint_format": _ZEROS,
            "bits": _Option("bits"),
            "group_size": _Option(_GROUP),
            "desc_act": _Option(_ACT_ORDER, ((False, False), (True, True))),
        },
        written={"sym": _Option(IS_SYMMETRIC)},
    ),
    # the names of their tensors tell these three apart
    *(
        Row(scheme, "fp8", {"weight_block_size": _BLOCKS, **_FMT}, fixed, _DYNAMIC)
        for scheme, fixed in (
            ("fp8_block", {"scale_inv": True}),
            ("deepseek_fp8", {}),
            ("deepseek_fp4", {}),
        )
    ),
    Row("fp8_tensor", "fp8", {"weight_block_size": None, **_FMT}, {}, _DYNAMIC),
    Row("fp8_channel", "fbgemm_fp8", fixed=_PLAIN),
    *(
        _compressed(scheme, ("float-quantized", "naive-quantized"), _PLAIN, 8, **_FLOATS, **more)
        for scheme, more in (
            ("fp8_tensor", {"strategy": "tensor"}),
            ("fp8_channel", {"strategy": "channel"}),
            ("fp8_block", {"strategy": "block", "block_structure": _BLOCKS}),
        )
    ),
    *(
        _compressed(scheme, (form,), {}, bits, **_FLOATS, **more)
        for scheme, form, bits, more in (
            ("compressed_nvfp4", "nvfp4-pack-quantized", 4, _IN_16),
            ("compressed_mxfp4", "mxfp4-pack-quantized", 4, _IN_32),
            ("mxfp8", "mxfp8-quantized", 8, _IN_32),
        )
    ),
    *(
        _compressed(scheme, forms, fixed, bits, **_INTEGERS, **more)
        for scheme, forms, bits in (
            ("pack_quantized", ("pack-quantized",), _Option("bits", usual=8)),
            # codes of fewer bits are stored in bytes too
            ("int_quantized", ("int-quantized", "naive-quantized"), (8, 7, 6, 5, 4, 3, 2)),
        )
        for more, fixed in _STRATEGIES
    ),
    Row("gpt_oss_mxfp4", "mxfp4"),
    *(
        Row(scheme, "modelopt", {"quant_algo": algorithm, **form}, fixed)
        for scheme, fixed, algorithm, form in (
            ("fp8_tensor", _PLAIN, "FP8", {}),
            ("fp8_channel", _PLAIN, "FP8_PER_CHANNEL_PER_TOKEN", {}),
            # in blocks of 128 x 128 (`quantization/config.py`, `FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG`)
            ("fp8_block", {**_PLAIN, "block": 128}, "FP8_PB_WO", {}),
            ("modelopt_nvfp4", {}, _NVFP4, {"group_size": (16, None)}),
            ("modelopt_mxfp4", {}, _MXFP4, {"group_size": (32, None)}),
            ("mxfp8", {}, "MXFP8", {"group_size": (32, None)}),
        )
    ),
    *(
        Row(scheme, "bitsandbytes", form)
        for scheme, form in (
            ("bnb_nf4", {**_FOUR, "bnb_4bit_quant_type": "nf4"}),
            ("bnb_fp4", {**_FOUR, "bnb_4bit_quant_type": "fp4"}),
            ("bnb_nested", {**_FOUR, "bnb_4bit_use_double_quant": True}),
            ("bnb_int8", {"load_in_8bit": True}),
        )
    ),
    Row("hqq", "hqq"),
    # all keys may be left out; then the mode is affine
    *(
        Row(scheme, _MLX, {"mode": mode, "bits": bits, "group_size": group})
        for scheme, mode, bits, group in (
            ("mlx", ("affine", None), _Option("bits"), _Option("group")),
            ("mlx_mxfp4", "mxfp4", (4, None), (32, None)),
            ("mlx_mxfp8", "mxfp8", (8, None), (32, None)),
            ("mlx_nvfp4", "nvfp4", (4, None), (16, None)),
        )
    ),
)


def row_of(scheme: str, options: Json, method: str | None = None) -> Row | None:
    """Return the first row that declares a scheme with such options; None if none does.

    Rows of a method go first.
    """
    rows = [row for row in ROWS if row.scheme == scheme and row.fixed.items() <= options.items()]
    return min(rows, key=lambda row: row.method != method, default=None)


# --- methods: groups of layers, and layers that are not quantised ---


class Said(NamedTuple):
    """What a file says about a layer."""

    # the name of the file
    file: str
    # the scheme; None if there is none
    name: str | None
    # options that the file gives
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

    @property
    def facts(self) -> dict[str, Any]:
        """What it says about weights, without keys that older files do not have."""
        facts = {"group_size": self.group, "desc_act": self.is_ordered}
        return {**self.options, **{k: v for k, v in facts.items() if v is not None}}

    def __str__(self) -> str:
        if self.name is None:
            return f"something else ({self.reason})"
        options = ", ".join(f"{key}={value}" for key, value in self.facts.items())
        return f"{self.name}({options})" if options else self.name


class Layers(NamedTuple):
    """The layers of a model, as a section must declare them."""

    # the quantised ones that it must declare anew
    made: Mapping[str, Said]
    # those whose weights are matrices of floats
    plain: Sequence[str]
    # all that are quantised
    quantised: Collection[str]
    # Whether the model has parts that are models. In a program, layers may then have other prefixes
    # than their tensors have in files, and loaders may not translate lists: transformers 5.24 does
    # so for FP8 only.
    is_composite: bool = False

    def listed(self, names: Sequence[str], end: Callable[[str], str] | None) -> list[str]:
        """Return names for a list, also by their ends if that is needed and the list can say it.

        Such an end is the fewest last words that no layer of another list ends with.
        """
        if end is None or not self.is_composite:
            return [*names]
        others = {*self.plain, *self.quantised} - {*names}
        taken = {each for name in others for each in _ends_of(name)}
        ends = [next((each for each in _ends_of(x) if each not in taken), None) for x in names]
        return [*dict.fromkeys((*names, *(end(each) for each in ends if each)))]


def _ends_of(name: str) -> list[str]:
    """Return the ends of a name in whole words, the shortest first."""
    words = name.split(".")
    return [".".join(words[-count:]) for count in range(1, len(words) + 1)]


class _Split(NamedTuple):
    """A section as the keys of each group of layers, which has targets."""

    # keys of None say that the layers are not quantised
    parts: Sequence[tuple[tuple[str, ...], Json | None]] = ()
    # what holds for layers without a target; None if they are not declared
    rest: Json | None = None
    ignored: tuple[str, ...] = ()


def _split_none(section: Json) -> _Split:
    return _Split(rest=section)


def _split_dynamic(section: Json) -> _Split:
    """Split what GPTQModel says of layers by regular expressions; the first match applies."""
    parts: list[tuple[tuple[str, ...], Json | None]] = []
    for key, own in _object(section, "dynamic").items():
        pattern = key.removeprefix("-:").removeprefix("+:")
        held = {**section, **(own if isinstance(own, dict) else {})}
        parts.append(((f"{_PATTERN}{pattern}",), None if key.startswith("-:") else held))
    return _Split(parts, section)


def _split_compressed(section: Json) -> _Split:
    """Split the `config_groups` of compressed-tensors; groups without weights are left out."""
    found: list[tuple[tuple[str, ...], Json | None]] = []
    for group in _object(section, "config_groups").values():
        # the name of a preset has only the targets, and its form is not read
        own = group if isinstance(group, dict) else {"targets": group}
        if own.get("weights", own) is not None:
            form = own.get("format") or section.get("format")
            found.append((_names(own, "targets"), {"format": form, **_object(own, "weights")}))
    return _Split(found, None if found else section)


def _split_mlx(section: Json) -> _Split:
    """Split the layers that MLX declares by name, with their own options or as not quantised."""
    ignored = tuple(name for name, value in section.items() if value is False)
    own = [((name,), value) for name, value in section.items() if isinstance(value, dict)]
    return _Split(own, section, ignored)


def _split_modelopt(section: Json) -> _Split:
    """Split the layers of ModelOpt that have different algorithms."""
    layers = _object(section, "quantized_layers").items()
    parts = [((name,), own) for name, own in layers if isinstance(own, dict)]
    return _Split(parts, None if parts else section)


# layers with their keys -> the section that declares them; None if it cannot
_Parts = Sequence[tuple[Sequence[str], "Json"]]


def _join_none(parts: _Parts, _: Layers) -> Json | None:
    return parts[0][1] if len(parts) == 1 else None


def _join_dynamic(parts: _Parts, _: Layers) -> Json | None:
    """Declare layers with other bits or groups by expressions."""
    usual, others = parts[0][1], parts[1:]
    rules: dict[str, Any] = {}
    for names, keys in others:
        own = {key: value for key, value in keys.items() if value != usual.get(key)}
        if not own.keys() <= {"bits", "group_size", "sym"}:
            return None
        rules |= {f"+:^{re.escape(name)}$": own for name in names}
    return {**usual, "dynamic": rules} if rules else usual


def _join_compressed(parts: _Parts, layers: Layers) -> Json:
    """Declare groups, which name their layers if they are several.

    Fails for experts of two formats.
    """
    groups = {}
    owner = ""
    for k, (names, keys) in enumerate(parts):
        # transformers takes the group with such a target for all experts of a model, or else the
        # first group with a target of another kind (5.24, `get_experts_scheme`)
        others = [name for name in names if not block_of(name)]
        expert = next((name for name in names if block_of(name)), "")
        if owner and expert:
            raise MemdescError(
                f"{owner} and {expert} have different formats, and transformers decodes all "
                "experts of a model as the first group of config.json with experts says; --to "
                "bf16 and --to f16 decode any"
            )
        owner = owner or expert
        targets = [*layers.listed(others, _by_expression), *([_EXPERTS] if expert else [])]
        groups[f"group_{k}"] = {
            "targets": targets if len(parts) > 1 else ["Linear"],
            "weights": {key: value for key, value in keys.items() if key != "format"},
            "input_activations": None,
            "output_activations": None,
            "format": keys["format"],
        }
    forms = {keys["format"] for _, keys in parts}
    return {
        "quantization_status": "compressed",
        "format": forms.pop() if len(forms) == 1 else "mixed-precision",
        "config_groups": groups,
    }


def _by_expression(end: str) -> str:
    return rf"{_PATTERN}(.*\.)?{re.escape(end)}$"


def _list_all(section: Json, plain: Sequence[str], keys: Sequence[str]) -> Json:
    """List layers under the keys that a section has, or else the first one."""
    held = [key for key in keys if key in section] or keys[:1]
    return {key: [*dict.fromkeys([*(section.get(key) or []), *plain])] for key in held}


def _list_and_output(section: Json, plain: Sequence[str], keys: Sequence[str]) -> Json:
    return {**_list_all(section, plain, keys), **_output(section, plain)}


def _exclude_inner(section: Json, plain: Sequence[str], _: Sequence[str]) -> Json:
    """Exclude layers for the loader of GPTQ, which replaces all layers in the repeated blocks."""
    rules: dict[str, Any] = {f"-:^{re.escape(name)}$": {} for name in plain if is_inner(name)}
    dynamic = {"dynamic": rules | (section.get("dynamic") or {})} if rules else {}
    return {**dynamic, **_output(section, plain)}


def _output(section: Json, plain: Sequence[str]) -> Json:
    """Say whether the output layer is quantised; loaders of AWQ and GPTQ assume not."""
    is_plain = OUTPUT in plain
    return {} if is_plain and not section.get(OUTPUT) else {OUTPUT: not is_plain}


def _exclude_named(section: Json, plain: Sequence[str], _: Sequence[str]) -> Json:
    """Exclude layers for the loader of MLX, which looks up names first, and then tensors."""
    return {name: False for name in plain if name in section}


def _list_unnamed(section: Json, plain: Sequence[str], keys: Sequence[str]) -> Json:
    """List layers for the loaders of ModelOpt, and remove them from `quantized_layers`."""
    named = _object(section, "quantized_layers").items()
    rest = {"quantized_layers": {name: own for name, own in named if name not in plain}}
    return {**_list_all(section, plain, keys), **(rest if named else {})}


def is_inner(name: str) -> bool:
    """Whether a layer is within the repeated blocks of a model, as their number in it shows."""
    return any(word.isdecimal() for word in name.split("."))


class Method(NamedTuple):
    """What all sections of a `quant_method` have in common."""

    # the keys that may list the layers that are not quantised
    ignored: tuple[str, ...] = (IGNORED,)
    # a section, such layers and these keys -> the keys that say so
    listing: Callable[[Json, Sequence[str], Sequence[str]], Json] = _list_all
    # splits a section into groups of layers, and joins them
    split: Callable[[Json], _Split] = _split_none
    join: Callable[[_Parts, Layers], Json | None] = _join_none
    # how a list names all layers whose names end in some words; None if that is not needed
    by_end: Callable[[str], str] | None = None
    # the keys of config.json that have the section; several only if it does not name the method
    keys: tuple[str, ...] = (KEY,)
    # other names of its keys
    aliases: Mapping[str, str] = _NOTHING
    # keys that say nothing about weights, which stay in a section of the same method
    kept: tuple[str, ...] = ()
    # whether loaders compare whole names with lists
    is_exact: bool = False

    def without(self, section: Json, layers: Layers) -> dict[str, Any]:
        """Return a section that says which layers are not quantised."""
        plain = layers.listed(layers.plain, self.by_end)
        return {**section, **self.listing(section, plain, self.ignored)}


_METHODS: Mapping[str, Method] = {
    "awq": Method(
        listing=_list_and_output,
        split=_split_dynamic,
        # transformers looks for a name of this list at the end of a layer's, even within a word,
        # so the dot before the words belongs to it
        by_end=lambda end: f".{end}",
        # of AutoAWQ's own file, and of GPTQModel
        aliases={
            "w_bit": "bits",
            "q_group_size": "group_size",
            "format": "version",
            "checkpoint_format": "version",
        },
    ),
    "gptq": Method(
        listing=_exclude_inner,
        split=_split_dynamic,
        join=_join_dynamic,
        aliases={"format": "checkpoint_format"},
    ),
    # vLLM reads the second key first
    "fp8": Method((IGNORED, "ignored_layers")),
    "compressed-tensors": Method(
        ("ignore",),
        split=_split_compressed,
        join=_join_compressed,
        by_end=_by_expression,
        kept=("kv_cache_scheme",),
        is_exact=True,
    ),
    "modelopt": Method(("ignore", "exclude_modules"), _list_unnamed, _split_modelopt),
    "bitsandbytes": Method(("llm_int8_skip_modules",)),
    "hqq": Method(("skip_modules",)),
    # it finds quantised layers by their tensors, and reads the first key
    _MLX: Method((), _exclude_named, _split_mlx, keys=(_MLX_KEY, KEY), is_exact=True),
}


def method_of(name: str) -> Method:
    """Return what sections of a method have in common."""
    return _METHODS.get(name) or Method()


def declare(layers: Layers, before: Json, method: str | None) -> dict[str, Any] | None:
    """Return the sections that declare layers, by their keys; None if none can.

    They replace a section, and have a method if that can declare the layers.
    """
    found: dict[str, tuple[str, Json, list[str]]] = {}
    for name, said in layers.made.items():
        row = row_of(said.name or "", said.options, method or method_in(before))
        if row is None:
            return None
        keys = row.keys(said.options)
        key = json.dumps((row.method, keys), sort_keys=True)
        found.setdefault(key, (row.method, keys, []))[2].append(name)
    (made, *_), *others = found.values()
    how = method_of(made)
    is_one = all(each == made for each, _, _ in others)
    parts = sorted(((names, keys) for _, keys, names in found.values()), key=lambda x: -len(x[0]))
    joined = how.join(parts, layers) if is_one else None
    if joined is None:
        return None
    named = {"quant_method": made} if len(how.keys) == 1 else {}
    kept = {key: before[key] for key in how.kept if key in before and method_in(before) == made}
    return dict.fromkeys(how.keys, how.without({**named, **kept, **joined}, layers))


# --- reading ---


class _Targets:
    """What is said about layers, by their names or by expressions after ``re:``.

    In a list of layers that are not quantised, a name may be the first or the last words of the
    layer's (transformers 5.24, `should_convert_module`), and ``*`` stands for any letters.
    """

    def __init__(
        self,
        file: str,
        said: Mapping[str, tuple[Said, ...]],
        *,
        is_list: bool = False,
        in_order: bool = False,
    ) -> None:
        self.file = file
        self.said = said
        self._is_list = is_list
        expressions = [text for text in said if text.startswith(_PATTERN)]
        self._expressions = expressions if in_order else sorted(expressions)
        named = said.keys() - {*expressions}
        self._stars = [text for text in named if is_list and "*" in text]

    @property
    def facts(self) -> list[tuple[str, str | None, Json]]:
        """What another file must agree on."""
        return [(by, each.name, each.options) for by, all_ in self.said.items() for each in all_]

    def find(self, layer: str) -> str | None:
        """Return the target that has a layer, or the stack that an expert is in; None if none has.

        Names take precedence over expressions.
        """
        names = [layer, stacked_name(layer)]
        if self._is_list:
            words = layer.split(".")
            for count in range(1, len(words)):
                names += [".".join(words[:count]), ".".join(words[-count:])]
        found = next((name for name in names if name in self.said), None)
        for text in self._stars if found is None else ():
            if any(fnmatchcase(layer, each) for each in (text, f"{text}.*", f"*.{text}")):
                return text
        with about(self.file):
            patterns = self._expressions if found is None else ()
            return next((text for text in patterns if matches_pattern(text, layer)), found)


class Declared(NamedTuple):
    """What the config files of a model say about its layers; the first one decides."""

    # what it says about all layers, or about those without a target
    whole: Said
    # the same for other names of tensors
    alike: tuple[Said, ...] = ()
    # what it says about groups of layers, by names, classes, or expressions
    targets: _Targets = _Targets("", _NOTHING)
    # the layers that each file says are not quantised
    ignored: tuple[_Targets, ...] = ()
    # whether `whole` holds for layers without a target
    has_rest: bool = True

    def at(self, layer: str) -> tuple[Said, ...]:
        """Return what is said about a layer.

        These are several if the names of its tensors decide between them, or its class, which a
        checkpoint does not say. Names take precedence over expressions, and these over classes.

        Fails if a target is not a regular expression, or one that takes long.
        """
        for listed in self.ignored:
            by = listed.find(layer)
            if by is not None:
                reason = f"{listed.file} ignores {layer}{'' if by == layer else f', by {by!r}'}"
                return (Said(listed.file, None, reason=reason, is_ignored=True),)
        found = self.targets.find(layer)
        if found is not None:
            return self.targets.said[found]
        if self.has_rest:
            return (self.whole, *self.alike)
        said = self.targets.said.items()
        # the name of a class starts with a capital letter
        classes = [x for each, of in said if each.isidentifier() and each[0].isupper() for x in of]
        names = ", ".join(self.targets.said) or "no layers"
        reason = f"{self.whole.file} declares {names}, none of which is {layer}"
        return tuple(classes) or (Said(self.whole.file, None, reason=reason, is_unlisted=True),)

    def named(self, layer: str) -> Said | None:
        """Return what is said about a layer by its name; None if it is not named. Fails as `at`."""
        said = self.at(layer)[0]
        return None if said.is_ignored or self.targets.find(layer) is None else said


# the most steps that a name may take; expressions of real models need some thousands
_MAX_STEPS = 10**7


@lru_cache(maxsize=4096)
def _compiled(text: str) -> re.Pattern[str]:
    """Return a regular expression. Fails if it is none, or repeats a group."""
    try:
        found = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise MemdescError(f"{short_repr(text)} is not a regular expression: {error}") from None
    # comments, and spaces of (?x), may stand between a group and its repeat
    if re.search(r"\)[*+{]|\(\?[^:=!]", text):
        raise MemdescError(
            f"{short_repr(text)} repeats a group, or has one with flags or a name; list names"
        )
    return found


def matches_pattern(text: str, name: str) -> bool:
    """Whether a regular expression, after ``re:`` or alone, matches at the start of a name.

    `re` backtracks: an expression of a few letters can take it years. One that repeats no group
    takes at most as many steps as there are ways to place its repeats in a name and to choose among
    its alternatives.

    Fails if it is no expression, repeats a group, or may take long.
    """
    text = text.removeprefix(_PATTERN)
    found = _compiled(text)
    repeats = sum(map(text.count, "*+?{")) - text.count("(?")
    steps = comb(len(name) + repeats, repeats) << text.count("|")
    if steps > _MAX_STEPS:
        raise MemdescError(
            f"{short_repr(text)} could take 2**{steps.bit_length()} steps to compare with a name "
            f"of {len(name)} letters; write it with fewer repeats and alternatives"
        )
    return found.match(name) is not None


class Configs:
    """The config files of a model, which are read once, when they are asked for."""

    def __init__(self, source: Path) -> None:
        self.folder = source if source.is_dir() else source.parent

    @cached_property
    def sections(self) -> list[tuple[str, dict[str, Any]]]:
        """The sections of all files, with the names of the files; those of old ones say a method.

        Fails if a file is not a JSON object.
        """
        found = []
        for file in (CONFIG, *OLD_CONFIGS):
            path = self.folder / file
            text = read_if_exists(path, MAX_CONFIG)
            if text is None:
                continue
            with about(repr(str(path))):
                config, held = read_config(text)
                if file == CONFIG:
                    found += [(file, each) for one in held for each in sections_of(one).values()]
                else:
                    inside = config.get(_INSIDE)
                    own = inside if isinstance(inside, dict) else config
                    found.append((file, {"quant_method": OLD_CONFIGS[file], **own}))
        return found

    @cached_property
    def declared(self) -> Declared | None:
        """What the files declare; None if they declare nothing.

        Fails if a file is not a JSON object, has a value of the wrong type, or contradicts another.
        """
        found = [declared_by(file, section) for file, section in self.sections]
        for other in found[1:]:
            said, told = found[0].whole, other.whole
            both = said.facts.keys() & told.facts.keys()
            is_same = said.name == told.name and all(said.facts[k] == told.facts[k] for k in both)
            if not is_same or found[0].targets.facts != other.targets.facts:
                raise MemdescError(
                    f"{said.file} in {str(self.folder)!r} declares {said}, and {told.file} {told}; "
                    "correct the one that is wrong"
                )
        ignored = tuple(each for one in found for each in one.ignored)
        return found[0]._replace(ignored=ignored) if found else None

    def refuse_changed(self) -> None:
        """Refuse a model whose files say that the stored weights mean other numbers."""
        for file, section in self.sections:
            for key, (what, plain) in _CHANGES.items():
                value = section.get(key)
                if is_set(value, plain):
                    raise MemdescError(
                        f"{file} says {key} {value!r}, which {what}; no conversion keeps that, so "
                        "the output would compute something else: convert it with the program that "
                        f"made it, or remove {key} if it is wrong"
                    )

    def refuse_unknown(self) -> None:
        """Refuse a model whose files declare quantised weights, but whose tensors show none."""
        for file, section in self.sections:
            if section:
                what = short_repr(section.get("quant_method", section))
                raise MemdescError(
                    f"{file} declares quantised weights, by {what}, but no tensors have the names "
                    "of a known format; convert the model with the program that made it, or "
                    f"correct {file} if its weights are plain floats"
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


def is_set(value: Any, plain: tuple[Any, ...] = ()) -> bool:
    """Whether a value says something: not null, false, empty, or one that changes nothing."""
    if isinstance(value, dict):
        return any(value.values()) and value.get("format") not in plain
    return bool(value) and value not in plain


def says_symmetric(section: Json) -> bool:
    """Whether a section of GPTQ or AWQ says that all zero points are the middle code.

    Both store them nevertheless. For AWQ, transformers 5 writes `sym` too, whatever the zero points
    are.
    """
    has_zeros = section.get("zero_point")
    return has_zeros is False or (has_zeros is None and section.get("sym") is True)


def read_config(text: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the object of a config file, and those in it that have a section, or else itself.

    Fails if it is not JSON, or something else than objects.
    """
    try:
        config = json.loads(text)
        holders = [*_holders(config)] or [config]
    except (ValueError, RecursionError) as error:
        raise MemdescError(f"it is not JSON: {error}") from None
    sections = [x for held in holders if isinstance(held, dict) for x in sections_of(held).values()]
    for each in (config, *sections):
        if not isinstance(each, dict):
            what = "it" if each is config else KEY
            raise MemdescError(f"{what} is not a JSON object, but {short_repr(each)}")
    return config, holders


def _holders(config: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a config that have a section: the whole, or one like text_config."""
    if isinstance(config, dict):
        if any(sections_of(config)):
            yield config
        for part in config.values():
            yield from _holders(part)


def sections_of(config: Json) -> dict[str, Any]:
    """Return the sections of an object by key."""
    mlx = config.get(_MLX_KEY)
    is_mlx = isinstance(mlx, dict) and {*_MLX_OPTIONS} <= mlx.keys()
    found = {key: config.get(key) for key in (KEY, _OLD_KEY)} | {_MLX_KEY: mlx if is_mlx else None}
    return {key: section for key, section in found.items() if section is not None}


def method_in(section: Json) -> str:
    """Return the `quant_method` of a section in lower case; empty if it names none."""
    usual = _MLX if {*_MLX_OPTIONS} <= section.keys() else ""
    method = section.get("quant_method")
    return str(method).lower() if method is not None else usual


def declared_by(file: str, section: Json) -> Declared:
    """Return what a section of a file declares. Fails if a value has the wrong type."""
    with about(file):
        if not isinstance(section.get("quant_method", ""), str | None):
            raise MemdescError(
                f"quant_method must be a string, not {short_repr(section['quant_method'])}"
            )
        name = method_in(section)
        how = method_of(name)
        keys = _renamed(section, how.aliases)
        split = how.split(keys)
        listed = [text for key in how.ignored for text in _names(keys, key)]
    found = [(targets, _said(file, name, own, targets)) for targets, own in split.parts]
    said = [_said(file, name, split.rest)] if split.rest is not None else [x for _, x in found]
    (whole, *alike), *others = {repr(each): each for each in said}.values()
    if others:
        names = ", ".join(dict.fromkeys(each.name or each.reason for each, *_ in said))
        reason = f"{file} declares different records for different layers: {names}"
        whole = Said(file, None, reason=reason)
    named = {target: each for targets, each in found for target in targets}
    ignored = dict.fromkeys((*split.ignored, *listed), ())
    return Declared(
        whole,
        tuple(alike),
        _Targets(file, named, in_order=how.split is _split_dynamic),
        (_Targets(file, ignored, is_list=not how.is_exact),),
        has_rest=split.rest is not None,
    )


def _renamed(section: Json, aliases: Mapping[str, str]) -> dict[str, Any]:
    """Return a section in which no key has another name. Fails if two names have two values."""
    found = {key: value for key, value in section.items() if key not in aliases}
    for other, key in aliases.items():
        held, value = found.get(key), section.get(other)
        if held is None:
            found[key] = value
        elif value is not None and str(held).lower() != str(value).lower():
            raise MemdescError(
                f"{key} is {short_repr(held)}, but {other} is {short_repr(value)}; correct the one "
                "that is wrong"
            )
    return found


def _names(section: Json, key: str) -> tuple[str, ...]:
    """Return the strings of a list, which may be left out."""
    found = section.get(key)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise MemdescError(f"{key} must be a list of strings, not {short_repr(found)}")
    return tuple(found)


def _object(section: Json, key: str) -> dict[str, Any]:
    """Return an object, which may be left out."""
    found = section.get(key)
    if found is not None and not isinstance(found, dict):
        raise MemdescError(f"{key} must be an object, not {short_repr(found)}")
    return found or {}


def _said(
    file: str, method: str, keys: Json | None, targets: Sequence[str] = ()
) -> tuple[Said, ...]:
    """Return what keys declare for one kind of layers: a scheme for each row that they match."""
    if keys is None:
        by = short_repr(f"-:{targets[0].removeprefix(_PATTERN)}")
        reason = f"{file} says in dynamic, by {by}, that it is not quantised"
        return (Said(file, None, reason=reason, is_ignored=True),)
    found = []
    # what the keys say -> what rows want instead
    problems: dict[str, list[str]] = {}
    for row in (row for row in ROWS if row.method == method):
        options = dict(row.fixed)
        for key, spec in row.form.items():
            value = keys.get(key)
            read = _read(spec, value, is_whole=file not in OLD_CONFIGS)
            if read is None:
                shown = "missing" if value is None else short_repr(value)
                if isinstance(spec, _Option) and type(value) not in spec.types:
                    # it may be meant for what a rule names, so that does not overrule it
                    raise MemdescError(f"{file}: {key} is {shown}, not {_shown(spec)}")
                problems.setdefault(f"{key} is {shown}", []).append(_shown(spec))
                break
            options |= read
        else:
            group, is_ordered = options.pop(_GROUP, None), options.pop(_ACT_ORDER, None)
            legal = SCHEMES[row.scheme].defaults if row.scheme in SCHEMES else {}
            own = {key: value for key, value in options.items() if key in legal}
            found.append(Said(file, row.scheme, own, group, is_ordered))
    why = "; ".join(
        f"{said}, not {' or '.join(dict.fromkeys(wanted))}" for said, wanted in problems.items()
    )
    reason = f"{file}: there is no record for quant_method {short_repr(method)}"
    return tuple(found) or (Said(file, None, reason=f"{reason}{why and f': {why}'}"),)
