"""What config.json says about the layers of a model: which scheme each has; and back.

Each row of `ROWS` serves for reading and writing: a section of JSON that matches its form declares
its scheme, and a converted weight is declared by the first row that has its scheme. A scheme
without rows is declared by its name. `METHODS` says for each `quant_method` where its section is,
how it names groups of layers, and how it lists layers that are not quantised.

Sources: AutoAWQ 0.2, AutoGPTQ 0.7 and GPTQModel 7.7 (`quantization/config.py`), vLLM 0.10
(`gptq_marlin.py`; `fp8.py`: without `weight_block_size`, a scale is for a whole tensor),
transformers 5.24 (`utils/quantization_config.py`), compressed-tensors 0.20 (`QuantizationConfig`,
`utils/match.py`), ModelOpt 0.47 (`hf_quant_config.json`), mlx-lm 0.32 (`utils.py`, `load_model`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from math import comb
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError
from memdesc.errors import about, short_repr
from memdesc.record import known_records
from memdesc.record.names import read_name
from memdesc.record.scheme import block_sizes
from reorder.checkpoints.experts import block_of, stacked_name
from reorder.disk import read_if_exists

if TYPE_CHECKING:
    from pathlib import Path

    Json = Mapping[str, Any]
    # a key, the section so far, the layers that are not quantised -> the keys that list these
    Listing = Callable[[str, Json, Sequence[str]], Json]

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
_IGNORED = (IGNORED,)
# what is said besides options: whether inputs belong to groups in an arbitrary order, and whether
# all stored zero points are the middle code
_ACT_ORDER, IS_SYMMETRIC = "act_order", "is_symmetric"
# the prefix of regular expressions for names; a target of compressed-tensors for all experts
_PATTERN, _EXPERTS = "re:", r"re:.*\.experts\.[0-9]+\..*"


# --- forms of sections ---


class _Option(NamedTuple):
    """A place in JSON that has the value of an option; a file may leave it out."""

    option: str
    # values in JSON and the same values of the option; empty if they are the same integers
    values: tuple[tuple[Any, Any], ...] = ()
    # what a file without the value means; None if the tensors show it
    usual: Any = None


class _Block(NamedTuple):
    """A place with a list of two sizes, which are one option: equal ones as a number."""

    option: str


class _Each(NamedTuple):
    """An object all of whose values have the same form, and the key that is written."""

    key: str
    form: Any


def _read(form: Any, value: Any, path: str, options: dict[str, Any], *, is_whole: bool) -> str:
    """Collect the options at the places of a form; return what differs, which may be nothing."""
    parts: Sequence[tuple[Any, Any, str]]
    match form:
        case _Option():
            found = form.usual if value is None and is_whole else value
            return "" if found is None else _bind(form, found, path, options)
        case _Block() if isinstance(value, list) and [*map(type, value)] == [int, int]:
            rows, columns = value
            held = rows if rows == columns else f"{rows}x{columns}"
            is_right = min(value) > 0 and options.setdefault(form.option, held) == held
            return "" if is_right else _problem(path, value, _shown(form))
        case _Each() if isinstance(value, dict) and value:
            parts = [(form.form, each, f"{path}.{key}") for key, each in value.items()]
        case dict() if isinstance(value, dict):
            parts = [(each, value.get(key), f"{path}.{key}") for key, each in form.items()]
        case list() if isinstance(value, list) and len(value) == len(form):
            parts = [(each, value[k], path) for k, each in enumerate(form)]
        case tuple() if any(_is_same(each, value) for each in form):
            return ""
        case _:
            return "" if _is_same(form, value) else _problem(path, value, _shown(form))
    return next(
        (found for each in parts if (found := _read(*each, options, is_whole=is_whole))), ""
    )


def _bind(form: _Option, value: Any, path: str, options: dict[str, Any]) -> str:
    """Add the value of an option; return what is wrong with it, which may be nothing."""
    legal = [option for given, option in form.values if _is_same(given, value)]
    if form.values and not legal:
        return _problem(path, value, _shown(tuple(given for given, _ in form.values)))
    if not form.values and (type(value) is not int or value < 1):
        return _problem(path, value, "a positive integer")
    option = legal[0] if legal else value
    held = options.setdefault(form.option, option)
    return "" if held == option else _problem(path, value, f"the {held} given before")


def _is_same(form: Any, value: Any) -> bool:
    """Whether two JSON values are equal; programs write words such as GEMM in either case."""
    if isinstance(form, str) and isinstance(value, str):
        return form.casefold() == value.casefold()
    return type(value) is type(form) and bool(value == form)


def _shown(form: Any) -> str:
    """Return what a message calls a form."""
    match form:
        case dict() | _Each():
            return "an object"
        case _Block():
            return "two positive integers, the same for all layers"
        case list():
            return f"a list of {len(form)}"
        case tuple():
            return " or ".join(map(_shown, form))
    return "null" if form is None else str(form)


def _problem(path: str, value: Any, wanted: str) -> str:
    shown = "missing" if value is None else short_repr(value)
    return f"{path.removeprefix('.')} is {shown}, not {wanted}"


def _written(form: Any, options: Json) -> Any:
    """Return a form with the values of options at their places."""
    match form:
        case _Option():
            value = options.get(form.option)
            return next((given for given, option in form.values if option == value), value)
        case _Block():
            return [*block_sizes("block", options.get(form.option))]
        case _Each():
            return {form.key: _written(form.form, options)}
        case dict():
            return {key: _written(each, options) for key, each in form.items()}
        case list():
            return [_written(each, options) for each in form]
    return form[0] if isinstance(form, tuple) else form


def _joined(one: Any, other: Any) -> Any:
    """Merge two objects, and the objects in them."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    both = {key: _joined(one[key], other[key]) for key in one.keys() & other.keys()}
    return dict(one) | dict(other) | both


# --- methods: groups of layers, and layers that are not quantised ---


class _Split(NamedTuple):
    """A section as one for each group of layers, which has targets."""

    # a section of None says that the layers are not quantised
    parts: Sequence[tuple[tuple[str, ...], Json | None]] = ()
    # what holds for layers without a target; None if they are not declared
    rest: Json | None = None
    ignored: tuple[str, ...] = ()


def _split_none(section: Json) -> _Split:
    return _Split(rest=section)


def _split_dynamic(section: Json) -> _Split:
    """Split what GPTQModel says of layers by regular expressions; the first match applies."""
    rest = {key: value for key, value in section.items() if key != "dynamic"}
    parts = []
    for key, own in (section.get("dynamic") or {}).items():
        pattern = key.removeprefix("-:").removeprefix("+:")
        held = None if key.startswith("-:") else {**rest, **(own if isinstance(own, dict) else {})}
        parts.append(((f"{_PATTERN}{pattern}",), held))
    return _Split(parts, rest)


def _split_compressed(section: Json) -> _Split:
    """Split the `config_groups` of compressed-tensors; groups without weights are left out."""
    groups = section.get("config_groups")
    found: list[tuple[tuple[str, ...], Json | None]] = []
    for name, group in groups.items() if isinstance(groups, dict) else ():
        own = group if isinstance(group, dict) else {}
        if own.get("weights", own) is None:
            continue
        form = {"format": own["format"]} if own.get("format") is not None else {}
        # the name of a preset has only the targets, and its form is not read
        targets = _names(own.get("targets") if own else group)
        found.append((targets, {**section, **form, "config_groups": {name: group}}))
    return _Split(found, None if found else section)


def _split_mlx(section: Json) -> _Split:
    """Split the layers that MLX declares by name, with their own options or as not quantised."""
    own = {name: value for name, value in section.items() if isinstance(value, dict)}
    ignored = tuple(name for name, value in section.items() if value is False)
    rest = {key: section[key] for key in section.keys() - own.keys() - {*ignored}}
    return _Split([((name,), value) for name, value in own.items()], rest, ignored)


def _split_modelopt(section: Json) -> _Split:
    """Split the layers of ModelOpt that have different algorithms."""
    layers = _inside("modelopt", section).get("quantized_layers")
    found: dict[str, tuple[list[str], Any]] = {}
    for name, own in layers.items() if isinstance(layers, dict) else ():
        found.setdefault(repr(own), ([], own))[0].append(name)
    parts = [(tuple(names), own) for names, own in found.values() if isinstance(own, dict)]
    return _Split(parts, None if parts else section)


def _list_all(key: str, held: Json, plain: Sequence[str]) -> Json:
    return {key: [*dict.fromkeys([*(held.get(key) or []), *plain])]}


def _list_none(*_: object) -> Json:
    return {}


def _list_inner(key: str, held: Json, plain: Sequence[str]) -> Json:
    """List layers for the loader of AWQ, which replaces all layers except the last one."""
    listed = _list_all(key, held, plain)
    return {**(listed if any(map(is_inner, listed[key])) else {}), **_output(held, plain)}


def _exclude_inner(_: str, held: Json, plain: Sequence[str]) -> Json:
    """Exclude layers for the loader of GPTQ, which replaces all layers in the repeated blocks."""
    rules: dict[str, Any] = {f"-:^{re.escape(name)}$": {} for name in plain if is_inner(name)}
    dynamic = {"dynamic": rules | (held.get("dynamic") or {})} if rules else {}
    return {**dynamic, **_output(held, plain)}


def _output(held: Json, plain: Sequence[str]) -> Json:
    """Say whether the output layer is quantised; loaders of AWQ and GPTQ assume not."""
    is_plain = OUTPUT in plain
    return {} if is_plain and not held.get(OUTPUT) else {OUTPUT: not is_plain}


def _exclude_named(_: str, held: Json, plain: Sequence[str]) -> Json:
    """Exclude layers for the loader of MLX, which looks up names first, and then tensors."""
    return {name: False for name in plain if name in held}


def _list_unnamed(key: str, held: Json, plain: Sequence[str]) -> Json:
    """List layers for the loaders of ModelOpt, and remove them from `quantized_layers`."""
    named = held.get("quantized_layers")
    rest = {name: own for name, own in (named or {}).items() if name not in plain}
    return {**_list_all(key, held, plain), **({"quantized_layers": rest} if named else {})}


def is_inner(name: str) -> bool:
    """Whether a layer is within the repeated blocks of a model, as their number in it shows."""
    return any(word.isdecimal() for word in name.split("."))


def _join_compressed(parts: Sequence[tuple[Sequence[str], Json]]) -> Json:
    """Join sections of compressed-tensors, whose groups name their layers."""
    groups = {}
    owner = ""
    for k, (layers, section) in enumerate(parts):
        (group,) = section["config_groups"].values()
        # transformers takes the group with such a target for all experts of a model, or else the
        # first group with a target of another kind (5.24, `get_experts_scheme`)
        others = [name for name in layers if not block_of(name)]
        expert = next((name for name in layers if block_of(name)), "")
        if owner and expert:
            msg = (
                f"{owner} and {expert} have different formats, and transformers decodes all "
                "experts of a model as the first group of config.json with experts says; --to "
                "bf16 and --to f16 decode any"
            )
            raise MemdescError(msg)
        owner = owner or expert
        groups[f"group_{k}"] = {**group, "targets": [*others, _EXPERTS] if expert else others}
    forms = {section["format"] for _, section in parts}
    form = forms.pop() if len(forms) == 1 else "mixed-precision"
    return {**parts[0][1], "format": form, "config_groups": groups}


def _join_dynamic(parts: Sequence[tuple[Sequence[str], Json]]) -> Json | None:
    """Join sections of GPTQ: a layer with other bits or groups is an expression in `dynamic`."""
    (_, usual), *others = parts
    rules = dict(usual.get("dynamic") or {})
    for layers, section in others:
        own = {key: value for key, value in section.items() if value != usual.get(key)}
        if not own.keys() <= {"bits", "group_size", "sym"}:
            return None
        rules |= {f"+:^{re.escape(layer)}$": own for layer in layers}
    return {**usual, "dynamic": rules}


class Method(NamedTuple):
    """What all sections of a `quant_method` have in common."""

    # The keys that may list the layers that are not quantised. Those that a section has are
    # written, or else the first one.
    ignored: tuple[str, ...] = _IGNORED
    # returns the keys of a section that list such layers
    listing: Listing = _list_all
    # splits a section into groups of layers, and joins them; None if it cannot declare groups
    split: Callable[[Json], _Split] = _split_none
    join: Callable[[Sequence[tuple[Sequence[str], Json]]], Json | None] | None = None
    # keys that say nothing about weights, which stay in a section of the same method
    kept: tuple[str, ...] = ()
    # keys of each group of layers that stay if the scheme stays the same
    kept_of_each: tuple[str, ...] = ()
    # keys that stay in a new section, whatever the method of the old one was
    carried: tuple[str, ...] = ()
    # The key of how many inputs share a scale, if that is not an option: the number may exceed the
    # inputs of a layer.
    group: str = ""
    # the keys of config.json that have the section; several only if it does not name the method
    keys: tuple[str, ...] = (KEY,)
    # other names of its keys
    aliases: Mapping[str, str] = _NOTHING
    # the object of its own file that has what config.json has at its top
    inside: str = ""
    # how a list names all layers whose names end in some words; None if that is not needed
    by_end: Callable[[str], str] | None = None
    # whether vLLM or transformers loads such a model
    is_loaded: bool = True


_PACKED: dict[str, Any] = {"group": "group_size", "carried": (*_IGNORED, OUTPUT, "dynamic")}
_OWN = Method(listing=_list_none, is_loaded=False, **_PACKED)
_METHODS: dict[str, Method] = {
    "awq": Method(
        listing=_list_inner,
        split=_split_dynamic,
        # of AutoAWQ's own file, and of GPTQModel
        aliases={
            "w_bit": "bits",
            "q_group_size": "group_size",
            "format": "version",
            "checkpoint_format": "version",
        },
        # transformers looks for a name of this list at the end of a layer's, even within a word,
        # so the dot before the words belongs to it
        by_end=lambda end: f".{end}",
        **_PACKED,
    ),
    "gptq": Method(
        listing=_exclude_inner,
        split=_split_dynamic,
        join=_join_dynamic,
        aliases={"format": "checkpoint_format"},
        **_PACKED,
    ),
    # vLLM reads the second key first
    "fp8": Method((*_IGNORED, "ignored_layers")),
    "compressed-tensors": Method(
        ("ignore",),
        split=_split_compressed,
        join=_join_compressed,
        kept=("kv_cache_scheme",),
        kept_of_each=("input_activations", "output_activations"),
        by_end=lambda end: rf"{_PATTERN}(.*\.)?{re.escape(end)}$",
    ),
    "modelopt": Method(
        ("ignore", "exclude_modules"), _list_unnamed, _split_modelopt, inside="quantization"
    ),
    "bitsandbytes": Method(("llm_int8_skip_modules",)),
    "hqq": Method(("skip_modules",)),
    # it finds quantised layers by their tensors, and reads the first key
    _MLX: Method((), _exclude_named, _split_mlx, keys=(_MLX_KEY, KEY)),
}


METHODS: Mapping[str, Method] = MappingProxyType(_METHODS)


def method_of(name: str) -> Method:
    """Return what sections of a method have in common."""
    return METHODS.get(name) or (_OWN if name in known_records() else Method())


# --- rows ---


class Row(NamedTuple):
    """How a section of a method declares a scheme."""

    scheme: str
    method: str
    # what the section must say: values, tuples of values that mean the same, places of options, or
    # objects of them
    form: Json = _NOTHING
    # options that the method implies
    fixed: Json = _NOTHING
    # what readers need besides `form`, in the same form
    written: Json = _NOTHING
    # other schemes that it declares, with the options that they share; the names of their tensors
    # tell them apart
    others: tuple[str, ...] = ()
    # what it says of options that those do not have
    usual: Json = _NOTHING


def _compressed(scheme: str, forms: tuple[str, ...], fixed: Json, **weights: Any) -> Row:
    """Return how compressed-tensors declares weights; each group may have a format of its own."""
    group = {"targets": ["Linear"], "input_activations": None, "output_activations": None}
    weights = {"dynamic": (False, None), **weights}
    return Row(
        scheme,
        "compressed-tensors",
        {"format": forms, "config_groups": _Each("group_0", {"weights": weights})},
        fixed,
        {
            "quantization_status": "compressed",
            "config_groups": {"group_0": group | {"format": forms[0]}},
        },
    )


def _mlx(mode: Any, bits: Any, group: Any) -> dict[str, Any]:
    """Return the keys of MLX, all of which may be left out; then the mode is affine."""
    return {"mode": mode, "bits": bits, "group_size": group}


_BITS, _BLOCKS = {"bits": _Option("bits")}, _Block("block")
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
    ({"strategy": "block", "block_structure": [_Option("rows"), _Option("group")]}, {}),
)
_FLOATS = {"type": "float", "symmetric": (True, None)}
_INTEGERS = {
    "type": "int",
    "symmetric": _Option("zeros", ((True, False), (False, True)), usual=True),
    "actorder": _Option(
        _ACT_ORDER,
        ((None, False), ("weight", False), ("static", False), ("group", True), ("dynamic", True)),
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
    Row("awq", "awq", {"version": ("gemm", None), "bits": (4, None)}, written={"zero_point": True}),
    Row(
        "gptq",
        "gptq",
        {"checkpoint_format": _ZEROS, **_BITS},
        written={"desc_act": False, "sym": _Option(IS_SYMMETRIC)},
    ),
    Row(
        "fp8_block",
        "fp8",
        {"weight_block_size": _BLOCKS, **_FMT},
        {"scale_inv": True},
        _DYNAMIC,
        others=("deepseek_fp8", "deepseek_fp4"),
        usual={"codes": "f8_e4m3", "block": 128},
    ),
    Row("fp8_tensor", "fp8", {"weight_block_size": None, **_FMT}, {}, _DYNAMIC),
    Row("fp8_channel", "fbgemm_fp8", fixed=_PLAIN),
    *(
        _compressed(scheme, ("float-quantized", "naive-quantized"), _PLAIN, num_bits=8, **more)
        for scheme, more in (
            ("fp8_tensor", {**_FLOATS, "strategy": "tensor"}),
            ("fp8_channel", {**_FLOATS, "strategy": "channel"}),
            ("fp8_block", {**_FLOATS, "strategy": "block", "block_structure": _BLOCKS}),
        )
    ),
    *(
        _compressed(scheme, (form,), {}, num_bits=bits, **_FLOATS, **more)
        for scheme, form, bits, more in (
            ("compressed_nvfp4", "nvfp4-pack-quantized", 4, _IN_16),
            ("compressed_mxfp4", "mxfp4-pack-quantized", 4, _IN_32),
            ("mxfp8", "mxfp8-quantized", 8, _IN_32),
        )
    ),
    *(
        _compressed(scheme, forms, fixed, num_bits=bits, **_INTEGERS, **more)
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
    Row("mlx", _MLX, _mlx(("affine", None), _Option("bits"), _Option("group"))),
    Row("mlx_mxfp4", _MLX, _mlx("mxfp4", (4, None), (32, None))),
    Row("mlx_mxfp8", _MLX, _mlx("mxfp8", (8, None), (32, None))),
    Row("mlx_nvfp4", _MLX, _mlx("nvfp4", (4, None), (16, None))),
)


def own_row(scheme: str) -> Row:
    """Return how a scheme without rows is declared: by its name."""
    form = _BITS if "bits" in read_name(scheme)[2] else {}
    return Row(scheme, scheme, form, written=_BITS)


def _rows_of(method: str) -> list[Row]:
    """Return the rows of a method; none if it declares no scheme."""
    rows = [row for row in ROWS if row.method == method]
    return rows or ([own_row(method)] if method in known_records() else [])


def row_of(scheme: str, options: Json, method: str | None = None) -> Row | None:
    """Return the first row that declares a scheme with such options; None if none does.

    Rows of a method go first.
    """
    rows = [row for row in ROWS if row.scheme == scheme and row.fixed.items() <= options.items()]
    rows.sort(key=lambda row: row.method != method)
    return next(iter([*rows, *(row for row in ROWS if scheme in row.others)]), None)


# --- reading ---


class Said(NamedTuple):
    """What a file says about a layer."""

    # the name of the file
    file: str
    # the scheme; None if there is none
    name: str | None
    # options that the file gives
    options: Json = _NOTHING
    # how many inputs share a scale, -1 for all of them
    group: int | None = None
    # whether inputs belong to groups in an arbitrary order (``desc_act``); None if it is not said
    is_ordered: bool | None = None
    # why there is no scheme
    reason: str = ""
    # whether the layer is said not to be quantised, or is in none of the groups of the file
    is_ignored: bool = False
    is_unlisted: bool = False
    # what the file may say too, by other names of tensors
    alike: tuple[Said, ...] = ()

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


class Declared(NamedTuple):
    """What one config file of a model says about its layers."""

    # what it says about all layers, or about those without a target
    whole: Said
    # what it says about groups of layers, with their targets: names, classes, or regular
    # expressions after ``re:``
    parts: tuple[tuple[tuple[str, ...], Said], ...] = ()
    # layers that are not quantised: their names, or the first or the last words of these, where
    # ``*`` stands for one word; or regular expressions
    ignored: tuple[str, ...] = ()
    # whether loaders compare whole names with these
    is_exact: bool = False
    # whether `whole` holds for layers without a target
    has_rest: bool = True
    # whether expressions are tried in their order, not sorted as in compressed-tensors
    in_order: bool = False
    # what other files say; they agree on the scheme
    others: tuple[Declared, ...] = ()

    def at(self, layer: str) -> tuple[Said, ...]:
        """Return what is said about a layer.

        That is one statement; or several, if the class of the layer decides between them, because
        a checkpoint does not say which class a layer has. Names take precedence over regular
        expressions, and these over classes.

        Fails if a target is not a regular expression, or one that takes long.
        """
        file = self.whole.file
        for each in (self, *self.others):
            by = _index(each.ignored, each.whole.file).find(layer, in_part=not each.is_exact)
            if by is not None:
                shown = "" if by[0] == layer else f", by {by[0]!r}"
                reason = f"{each.whole.file} ignores {layer}{shown}"
                return (Said(each.whole.file, None, reason=reason, is_ignored=True),)
        named = self._named(layer)
        if named is None and self.has_rest:
            named = self.whole
        if named is not None:
            return (named, *named.alike)
        classes = [said for targets, said in self.parts if any(map(_is_class, targets))]
        listed = ", ".join(target for targets, _ in self.parts for target in targets)
        reason = f"{file} declares {listed or 'no layers'}, none of which is {layer}"
        return tuple(classes) or (Said(file, None, reason=reason, is_unlisted=True),)

    def named(self, layer: str) -> Said | None:
        """Return what is said about a layer by its name; None if it is not named. Fails as `at`."""
        said = self.at(layer)[0]
        return None if said.is_ignored else self._named(layer)

    def _named(self, layer: str) -> Said | None:
        names = tuple(targets for targets, _ in self.parts)
        found = _index(names, self.whole.file, in_order=self.in_order).find(layer)
        return None if found is None else self.parts[found[1]][1]


class _Index(NamedTuple):
    """Targets of several parts, each with the number of its part."""

    names: Mapping[str, int]
    patterns: Sequence[tuple[str, int]]
    # the file, for messages
    file: str

    def find(self, layer: str, *, in_part: bool = False) -> tuple[str, int] | None:
        """Return the target that has a layer: its name, or the first expression that matches.

        The stack that an expert is in has a name too. With `in_part`, a name may be the first or
        the last words of the layer's (transformers 5.24, `should_convert_module`).
        """
        names = [layer, stacked_name(layer)]
        words = layer.split(".")
        if in_part:
            ends = [(words[:k], words[-k:]) for k in range(1, len(words) + 1)]
            names += [".".join(run) for both in ends for run in both]
        for name in names:
            if name in self.names:
                return name, self.names[name]
        for text in self.names if in_part else ():
            given = text.split(".")
            if "*" in given and any(
                len(given) == len(run)
                and all(a in ("*", b) for a, b in zip(given, run, strict=True))
                for run in (words[: len(given)], words[-len(given) :])
            ):
                return text, self.names[text]
        with about(self.file):
            return next((each for each in self.patterns if matches_pattern(each[0], layer)), None)


@lru_cache(maxsize=64)  # a model has thousands of layers
def _index(
    targets: tuple[str, ...] | tuple[tuple[str, ...], ...], file: str, *, in_order: bool = False
) -> _Index:
    """Return the targets of parts for `find`; the last one of equal targets counts."""
    parts = [(each,) if isinstance(each, str) else each for each in targets]
    found = {text: k for k, part in enumerate(parts) for text in part}
    texts = [text for text in found if text.startswith(_PATTERN)]
    patterns = [(text, found.pop(text)) for text in (texts if in_order else sorted(texts))]
    return _Index(found, patterns, file)


# the most steps that a name may take; expressions of real models need some thousands
_MAX_STEPS = 10**7


@lru_cache(maxsize=4096)
def _compiled(text: str) -> re.Pattern[str]:
    """Return a regular expression. Fails if it is none, or repeats a group."""
    try:
        found = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        msg = f"{short_repr(text)} is not a regular expression: {error}"
        raise MemdescError(msg) from None
    # comments, and spaces of (?x), may stand between a group and its repeat
    if re.search(r"\)[*+{]|\(\?[^:=!]", text):
        msg = f"{short_repr(text)} repeats a group, or has one with flags or a name; list names"
        raise MemdescError(msg)
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
        msg = (
            f"{short_repr(text)} could take 2**{steps.bit_length()} steps to compare with a name "
            f"of {len(name)} letters; write it with fewer repeats and alternatives"
        )
        raise MemdescError(msg)
    return found.match(name) is not None


def _is_class(target: str) -> bool:
    """Whether a target is the name of a class, which starts with a capital letter."""
    return target.isidentifier() and target[0].isupper()


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

    @cached_property
    def named_sections(self) -> list[tuple[str, dict[str, Any]]]:
        """The sections of all files, with the names of the files; those of old ones say a method.

        Fails if a file is not a JSON object.
        """
        found = [(CONFIG, section) for section in self.sections(CONFIG)]
        for file, method in OLD_CONFIGS.items():
            held = [_inside(method, each) for each in self.sections(file)]
            found += [(file, {"quant_method": method, **each}) for each in held]
        return found

    @cached_property
    def declared(self) -> Declared | None:
        """What the files declare; None if they declare nothing.

        Fails if a file is not a JSON object, has a value of the wrong type, or contradicts another.
        """
        files = (CONFIG, *OLD_CONFIGS)
        found = [_declared(file, each) for file in files for each in self.sections(file)]
        for other in found[1:]:
            said, told = found[0].whole, other.whole
            both = said.facts.keys() & told.facts.keys()
            is_same = said.name == told.name and all(said.facts[k] == told.facts[k] for k in both)
            if not is_same or _compared(found[0]) != _compared(other):
                msg = (
                    f"{said.file} in {str(self.folder)!r} declares {said}, and {told.file} {told}; "
                    "correct the one that is wrong"
                )
                raise MemdescError(msg)
        return found[0]._replace(others=tuple(found[1:])) if found else None

    def refuse_changed(self) -> None:
        """Refuse a model whose files say that the stored weights mean other numbers."""
        for file, section in self.named_sections:
            for key, (what, plain) in _CHANGES.items():
                value = section.get(key)
                if _is_set(value, plain):
                    msg = (
                        f"{file} says {key} {value!r}, which {what}; no conversion keeps that, so "
                        "the output would compute something else: convert it with the program that "
                        f"made it, or remove {key} if it is wrong"
                    )
                    raise MemdescError(msg)

    def refuse_unknown(self) -> None:
        """Refuse a model whose files declare quantised weights, but whose tensors show none."""
        for file, section in self.named_sections:
            if section:
                what = short_repr(section.get("quant_method", section))
                msg = (
                    f"{file} declares quantised weights, by {what}, but no tensors have the names "
                    "of a known format; convert the model with the program that made it, or "
                    f"correct {file} if its weights are plain floats"
                )
                raise MemdescError(msg)


def _compared(found: Declared) -> Any:
    """Return what a file says about groups of layers, in which another one must agree."""
    return [(targets, said.name, said.options) for targets, said in found.parts]


# keys that make the stored weights mean other numbers, unless their values are empty or as listed
_CHANGES: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "transform_config": ("rotates weights or activations", ()),
    "sparsity_config": ("stores sparse weights", ("dense",)),
    "adapter": ("adds a low-rank adapter to the weights", ()),
    "rotation": ("rotates weights or activations", ()),
    "pre_quant_scale": ("scales inputs before the weights", ()),
    "expert_dtype": ("stores experts in another type than other layers", ("fp8", "fp4")),
}


def _is_set(value: Any, plain: tuple[Any, ...]) -> bool:
    """Whether a value says something: not null, false, empty, or one that changes nothing."""
    if isinstance(value, dict):
        rest = {key: each for key, each in value.items() if _is_set(each, ())}
        return bool(rest) and rest.get("format") not in plain
    return bool(value) and value not in plain


def says_symmetric(section: Json) -> bool:
    """Whether a section of GPTQ or AWQ says that all zero points are the middle code.

    Both store them nevertheless. For AWQ, transformers 5 writes `sym` too, whatever the zero points
    are.
    """
    has_zeros = section.get("zero_point")
    return has_zeros is False or (has_zeros is None and section.get("sym") is True)


def holders(config: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a config that have a section: the whole, or one like text_config."""
    if isinstance(config, dict):
        if any(sections_of(config)):
            yield config
        for part in config.values():
            yield from holders(part)


def sections_of(config: Json) -> dict[str, Any]:
    """Return the sections of an object by key."""
    mlx = config.get(_MLX_KEY)
    is_mlx = isinstance(mlx, dict) and {*_MLX_OPTIONS} <= mlx.keys()
    found = {key: config.get(key) for key in (KEY, _OLD_KEY)} | {_MLX_KEY: mlx if is_mlx else None}
    return {key: section for key, section in found.items() if section is not None}


def method_in(section: Any) -> str | None:
    """Return the `quant_method` of a section in lower case; None if it names none."""
    found = section.get("quant_method") if isinstance(section, dict) else None
    return found.lower() if isinstance(found, str) else None


def _declared(file: str, section: dict[str, Any]) -> Declared:
    is_mlx = file == CONFIG and {*_MLX_OPTIONS} <= section.keys()
    name = method_in(section) or (_MLX if is_mlx else OLD_CONFIGS.get(file, ""))
    how, config = method_of(name), _checked(file, name, section)
    split = how.split(config) if _rows_of(name) else _split_none(config)
    parts = []
    for targets, own in split.parts:
        said = None if own is None else _said(file, name, own)
        if said is None:
            by = short_repr(f"-:{targets[0].removeprefix(_PATTERN)}")
            reason = f"{file} says in dynamic, by {by}, that it is not quantised"
            said = Said(file, None, reason=reason, is_ignored=True)
        parts.append((targets, said))
    if split.rest is not None:
        whole = _said(file, name, split.rest)
    else:
        whole = parts[0][1]
        if len({repr((said.name, sorted(said.options.items()))) for _, said in parts}) > 1:
            names = ", ".join(dict.fromkeys(said.name or said.reason for _, said in parts))
            reason = f"{file} declares different records for different layers: {names}"
            whole = Said(file, None, reason=reason)
    held = _inside(name, config)
    listed = [each for key in how.ignored for each in _names(held.get(key))]
    if how.inside:  # patterns of shells
        listed = [_by_expression(each) if "*" in each else each for each in listed]
    return Declared(
        whole,
        tuple(parts),
        (*split.ignored, *listed),
        is_exact=how.split in (_split_compressed, _split_mlx),
        has_rest=split.rest is not None,
        in_order=how.split is _split_dynamic,
    )


def _inside(method: str, section: Json) -> Json:
    """Return the object with the keys of a method: the section, or one in a file of its own."""
    found = section.get(method_of(method).inside)
    return found if isinstance(found, dict) else section


def _names(value: Any) -> tuple[str, ...]:
    """Return the strings of a list."""
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _by_expression(pattern: str) -> str:
    """Return a pattern of names, in which ``*`` stands for any letters, as an expression."""
    return f"{_PATTERN}{'.*'.join(map(re.escape, pattern.split('*')))}$"


# what messages call the types of JSON
_TYPES_OF_JSON = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    dict: "an object",
    list: "a list of strings",
}
# keys of any method that is read
_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("checkpoint_format", "version"), str),
    **dict.fromkeys(("bits", "group_size"), int),
    **dict.fromkeys(("desc_act",), bool),
    **dict.fromkeys(("dynamic", "config_groups", "quantized_layers"), dict),
}


def _checked(file: str, method: str, section: Json) -> dict[str, Any]:
    """Return a section in which no key has another name.

    Fails if two names of a key have different values, or a value has the wrong type.
    """
    how = method_of(method)
    config = {key: value for key, value in section.items() if key not in how.aliases}
    for other, key in how.aliases.items():
        held, value = config.get(key), section.get(other)
        if held is None:
            config[key] = value
        elif value is not None and str(held).lower() != str(value).lower():
            msg = (
                f"{file}: {key} is {short_repr(held)}, but {other} is {short_repr(value)}; correct "
                "the one that is wrong"
            )
            raise MemdescError(msg)
    held = {**config, **_inside(method, config)}
    types = {"quant_method": str, IGNORED: list, **(_TYPES if _rows_of(method) else {})}
    for key, kind in (types | dict.fromkeys(how.ignored, list)).items():
        found = held.get(key)
        is_right = found is None or type(found) is kind
        if not is_right or (kind is list and not all(isinstance(x, str) for x in found or ())):
            msg = f"{file}: {key} must be {_TYPES_OF_JSON[kind]}, not {short_repr(found)}"
            raise MemdescError(msg)
    return config


def _said(file: str, method: str, section: Json) -> Said:
    """Return what a section with one kind of layers declares: the first row that it matches."""
    section = _checked(file, method, section)
    # what the section has -> what rows want instead
    problems: dict[str, list[str]] = {}
    for row in _rows_of(method):
        options = dict(row.fixed)
        # older files do not have later keys
        is_whole = file not in OLD_CONFIGS
        problem = _read(dict(row.form), _inside(method, section), "", options, is_whole=is_whole)
        if problem:
            said, _, wanted = problem.partition(", not ")
            problems.setdefault(said, []).append(wanted)
            continue
        is_ordered = options.pop(_ACT_ORDER, section.get("desc_act"))
        found = Said(file, row.scheme, options, section.get(method_of(method).group), is_ordered)
        alike = [
            found._replace(name=name, options={k: options[k] for k in legal if k in options})
            for name in row.others
            for _, _, legal in [read_name(name)]
        ]
        return found._replace(alike=tuple(alike))
    why = "; ".join(
        ", not ".join((said, *filter(None, [" or ".join(dict.fromkeys(wanted))])))
        for said, wanted in problems.items()
    )
    reason = f"{file}: there is no record for quant_method {short_repr(method)}"
    return Said(file, None, reason=f"{reason}{why and f': {why}'}")


# --- writing ---


def with_plain(method: str, section: Json, plain: Sequence[str]) -> dict[str, Any]:
    """Return a section that lists more layers as not quantised."""
    how, found = method_of(method), dict(section)
    for key in [key for key in how.ignored if key in section] or [*how.ignored[:1]] or [""]:
        found |= how.listing(key, section, plain)
    return found


def section_of(row: Row, options: Json, kept: Json | None = None) -> dict[str, Any]:
    """Return the section that declares a scheme with such options, with the keys in `kept`."""
    how, options = method_of(row.method), {**row.usual, **options}
    known = {
        key: form
        for key, form in row.written.items()
        if not isinstance(form, _Option) or form.option in options
    }
    more, found = (_written(form, options) for form in (known, dict(row.form)))
    if how.group and "group" in options:
        found[how.group] = options["group"]
    named = {"quant_method": row.method} if len(how.keys) == 1 else {}
    both: dict[str, Any] = _joined(_joined(more, dict(kept or {})), found)
    return named | both


def kept_of(row: Row, before: Json, *, is_same: bool) -> dict[str, Any]:
    """Return what a section of the same method says about things other than weights.

    What its groups of layers say is kept for the same scheme, if all say the same.
    """
    how = method_of(row.method)
    found = {key: before[key] for key in how.kept if key in before}
    for key, form in row.form.items() if is_same else ():
        groups = before.get(key)
        if isinstance(form, _Each) and isinstance(groups, dict):
            each = [group for group in groups.values() if isinstance(group, dict)] or [{}]
            same = {name: [g.get(name) for g in each] for name in how.kept_of_each}
            kept = {name: all_[0] for name, all_ in same.items() if all_ == all_[:1] * len(all_)}
            found[key] = {form.key: kept}
    return found


def keys_with_values(section: Any) -> set[str]:
    """Return the keys that have a value in a section or in one of its groups of layers."""
    held = section if isinstance(section, dict) else {}
    groups = held.get("config_groups")
    each = [x for x in groups.values() if isinstance(x, dict)] if isinstance(groups, dict) else []
    return {key for part in (held, *each) for key, value in part.items() if value is not None}


def join_sections(found: Sequence[tuple[Row, Json, Sequence[str]]]) -> Json | None:
    """Return the section that declares several groups of layers, each with its row and section.

    None if their method cannot declare them.
    """
    join = method_of(found[0][0].method).join
    if join is None or len({row.method for row, _, _ in found}) > 1:
        return None
    return join([(names, held) for _, held, names in sorted(found, key=lambda x: -len(x[2]))])


def with_ends(method: str, section: Json, quantised: Collection[str]) -> dict[str, Any]:
    """Return a section whose lists of layers also say how their names end.

    Such an end is the fewest last words that no layer of another list ends with. In a program,
    layers may have other prefixes than their tensors have in files, and loaders may not translate
    the lists: transformers 5.24 does so for FP8 only.
    """
    how = method_of(method)
    form, key = how.by_end, next(iter(how.ignored), "")
    if form is None:
        return dict(section)

    def ended(listed: Sequence[str], names: Sequence[str], others: Collection[str]) -> list[str]:
        taken = {end for name in others for end in _ends_of(name)}
        ends = [next((end for end in _ends_of(name) if end not in taken), None) for name in names]
        return [*dict.fromkeys((*listed, *(form(end) for end in ends if end)))]

    plain, found = section.get(key) or [], dict(section)
    if plain:
        found[key] = ended(plain, plain, quantised)
    for name, group in (section.get("config_groups") or {}).items():
        targets = _names(group.get("targets")) if isinstance(group, dict) else ()
        if targets:  # the name of a preset has only a list
            named = [each for each in targets if each in quantised]
            ends = ended(targets, named, {*plain, *quantised} - {*named})
            groups = found["config_groups"] | {name: group | {"targets": ends}}
            found["config_groups"] = groups
    return found


def _ends_of(name: str) -> list[str]:
    """Return the ends of a name in whole words, the shortest first; none for an expression."""
    words = [] if name.startswith(_PATTERN) else name.split(".")
    return [".".join(words[-count:]) for count in range(1, len(words) + 1)]
