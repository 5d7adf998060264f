"""How the config files of models declare quantised weights that have their scales beside them.

A section that declares several groups of layers is first split into one for each group.

Each row of `DECLARATIONS` serves for reading and writing: a section of JSON that matches it
declares its record, and a converted record is declared by the first row that has it. A record
without rows is declared by its name.

Sources: AutoAWQ 0.2, AutoGPTQ 0.7 and GPTQModel 2 (`checkpoint_format`), vLLM 0.10
(`gptq_marlin.py`), transformers 5.24 (`FineGrainedFP8Config`,
`FbgemmFp8Config`, `Mxfp4Config`), compressed-tensors 0.20 (`QuantizationConfig`,
`QuantizationArgs`), ModelOpt 0.47 (`hf_quant_config.json`), vLLM 0.10 (`fp8.py`: without
`weight_block_size`, a scale is for a whole tensor), and mlx-lm 0.32 (`utils.py`, `load_model`,
`quantize_model`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError
from memdesc.errors import short_repr
from memdesc.record import known_records
from memdesc.record.names import read_name
from memdesc.record.scheme import block_sizes
from reorder.checkpoints.experts import block_of, stacked_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    # a key, the section so far, the layers that are not quantised -> the keys that list these
    Listing = Callable[[str, Mapping[str, Any], Sequence[str]], Mapping[str, Any]]

# the usual key of the layers that are not quantised
IGNORED = "modules_to_not_convert"
_IGNORED = (IGNORED,)
# a target of compressed-tensors: the experts of all layers
_EXPERTS = r"re:.*\.experts\.[0-9]+\..*"
# what models call their output layer
OUTPUT = "lm_head"
# whether inputs belong to groups in an arbitrary order; not an option of a record
ACT_ORDER = "act_order"
# whether all stored zero points are the middle code; not an option either
IS_SYMMETRIC = "is_symmetric"


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


def _list_all(key: str, held: Mapping[str, Any], plain: Sequence[str]) -> Mapping[str, Any]:
    return {key: [*dict.fromkeys([*(held.get(key) or []), *plain])]}


def _list_none(*_: object) -> Mapping[str, Any]:
    return {}


def _list_inner(key: str, held: Mapping[str, Any], plain: Sequence[str]) -> Mapping[str, Any]:
    """List layers for the loader of AWQ, which replaces all layers except the last one."""
    listed = _list_all(key, held, plain)
    return {**(listed if any(map(is_inner, listed[key])) else {}), **_output(held, plain)}


def _output(held: Mapping[str, Any], plain: Sequence[str]) -> Mapping[str, Any]:
    """Say whether the output layer is quantised; loaders of AWQ and GPTQ assume not."""
    is_plain = OUTPUT in plain
    return {} if is_plain and not held.get(OUTPUT) else {OUTPUT: not is_plain}


def _exclude_inner(_: str, held: Mapping[str, Any], plain: Sequence[str]) -> Mapping[str, Any]:
    """Exclude layers for the loader of GPTQ, which replaces all layers in the repeated blocks."""
    rules: dict[str, Any] = {f"-:^{re.escape(name)}$": {} for name in plain if is_inner(name)}
    dynamic = {"dynamic": rules | (held.get("dynamic") or {})} if rules else {}
    return {**dynamic, **_output(held, plain)}


def _exclude_named(_: str, held: Mapping[str, Any], plain: Sequence[str]) -> Mapping[str, Any]:
    """Exclude layers for the loader of MLX, which looks up names first, and then tensors."""
    return {name: False for name in plain if name in held}


def _list_unnamed(key: str, held: Mapping[str, Any], plain: Sequence[str]) -> Mapping[str, Any]:
    """List layers for the loaders of ModelOpt, and remove them from `quantized_layers`."""
    named = held.get("quantized_layers")
    rest = {name: own for name, own in (named or {}).items() if name not in plain}
    return {**_list_all(key, held, plain), **({"quantized_layers": rest} if named else {})}


def is_inner(name: str) -> bool:
    """Whether a layer is within the repeated blocks of a model, as their number in it shows."""
    return any(word.isdecimal() for word in name.split("."))


class Declaration(NamedTuple):
    """How a `quantization_config` declares a record."""

    # the record, and the `quant_method` that declares it
    record: str
    method: str
    # what the section must say: values, tuples of values that mean the same, places of options, or
    # objects of them
    form: Mapping[str, Any] = {}
    # options that the method implies
    fixed: Mapping[str, Any] = {}
    # what readers need besides `form`, in the same form
    written: Mapping[str, Any] = {}
    # The keys that may list the layers that are not quantised. Those that a section has are
    # written, or else the first one.
    ignored: tuple[str, ...] = _IGNORED
    # keys that say nothing about weights, which stay in a section of the same method
    kept: tuple[str, ...] = ()
    # keys of each group of layers that stay if the record stays the same
    kept_of_each: tuple[str, ...] = ()
    # the keys of config.json that have the section; several only if it does not name the method
    keys: tuple[str, ...] = ("quantization_config",)
    # keys that stay in a new section, whatever the method of the old one was
    carried: tuple[str, ...] = ()
    # The key of how many inputs share a scale, if that is not an option: the number may exceed the
    # inputs of a layer. Empty if there is none.
    group: str = ""
    # returns the keys of a section that list the layers that are not quantised
    listing: Listing = _list_all
    # whether sections are written in this form; otherwise they are only read
    is_written: bool = True
    # other records that it declares, with the options that they share; the names of their tensors
    # tell them apart
    others: tuple[str, ...] = ()
    # what it says of options that those do not have
    usual: Mapping[str, Any] = {}
    # why no known program loads such a checkpoint, empty if there is no reason to give; None if one
    # does
    unloaded: str | None = None


class Layers(NamedTuple):
    """A group of layers that a section declares, and the section as if it had no others."""

    # names of layers, regular expressions after ``re:``, or classes
    targets: tuple[str, ...]
    # the section of these layers
    section: Mapping[str, Any]


_BLOCK = _Block("block")
_FMT = {"fmt": _Option("codes", (("e4m3", "f8_e4m3"), ("e5m2", "f8_e5m2")))}
_FORMATS = (("ue8m0", "e8m0"), *(("float", kind) for kind in ("f32", "bf16", "f16")))
# `scale_fmt` is not read: DeepSeek-V3.1 stores f32 and says ue8m0, as its scales are powers of two
_DYNAMIC = {"activation_scheme": "dynamic", "scale_fmt": _Option("scales", _FORMATS)}
_PLAIN = {"codes": "f8_e4m3", "scale_inv": False}
# vLLM reads the second one first
_FP8_PLAIN = (*_IGNORED, "ignored_layers")


def _compressed(
    record: str, forms: tuple[str, ...], fixed: Mapping[str, Any], **weights: Any
) -> Declaration:
    """Return how compressed-tensors declares weights; each group may have a format of its own."""
    group = {"targets": ["Linear"], "input_activations": None, "output_activations": None}
    weights = {"dynamic": (False, None), **weights}
    own = {"format": forms[0]}
    return Declaration(
        record,
        "compressed-tensors",
        {"format": forms, "config_groups": _Each("group_0", {"weights": weights})},
        fixed,
        {"quantization_status": "compressed", "config_groups": {"group_0": group | own}},
        ("ignore",),
        ("kv_cache_scheme",),
        ("input_activations", "output_activations"),
    )


# the strategies of integers: forms of the weights, and what they imply
_STRATEGIES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"strategy": "channel"}, {"rows": 1, "group": -1}),
    ({"strategy": "tensor"}, {"rows": -1, "group": -1}),
    ({"strategy": "group", "group_size": _Option("group")}, {"rows": 1}),
    ({"strategy": "block", "block_structure": [_Option("rows"), _Option("group")]}, {}),
)
_SYMMETRIC = _Option("zeros", ((True, False), (False, True)), usual=True)
_ORDERINGS = _Option(
    ACT_ORDER,
    ((None, False), ("weight", False), ("static", False), ("group", True), ("dynamic", True)),
)
_FLOATS = {"type": "float", "symmetric": (True, None)}
_INTEGERS = {"type": "int", "symmetric": _SYMMETRIC, "actorder": _ORDERINGS}
_IN_16 = {
    "strategy": "tensor_group",
    "group_size": 16,
    "scale_dtype": ("torch.float8_e4m3fn", None),
}
_IN_32 = {"strategy": "group", "group_size": 32, "scale_dtype": ("torch.uint8", None)}
# of ModelOpt; what is quantised besides the weights is not read
_NVFP4 = ("NVFP4", "W4A16_NVFP4", "W4A8_NVFP4_FP8")
_MXFP4 = ("W4A8_MXFP4_FP8", "mxfp4")


def _mlx(mode: str, bits: Any, group: Any) -> dict[str, Any]:
    """Return the keys of MLX, all of which may be left out; then the mode is affine."""
    each = [part if isinstance(part, _Option) else (part, None) for part in (bits, group)]
    kind = (mode, None) if mode == "affine" else mode
    return {"mode": kind, "bits": each[0], "group_size": each[1]}


# MLX names no method, finds quantised layers by their tensors, and reads the first key
_MLX: dict[str, Any] = {
    "keys": ("quantization", "quantization_config"),
    "ignored": (),
    "listing": _exclude_named,
}

# AWQ, GPTQ, and records that no other program declares
_PACKED: dict[str, Any] = {"group": "group_size", "carried": (*_IGNORED, OUTPUT, "dynamic")}
_BITS = {"bits": _Option("bits")}
_SYM = {"desc_act": False, "sym": _Option(IS_SYMMETRIC)}
_ZEROS = _Option("zeros", (("gptq", "v1"), ("gptq_v2", "v2")), usual="gptq")

_BNB_PLAIN = ("llm_int8_skip_modules",)

DECLARATIONS = (
    Declaration(
        "awq",
        "awq",
        {"version": ("gemm", None), "bits": (4, None)},
        written={"zero_point": True},
        listing=_list_inner,
        **_PACKED,
    ),
    Declaration(
        "gptq",
        "gptq",
        {"checkpoint_format": _ZEROS, **_BITS},
        written=_SYM,
        listing=_exclude_inner,
        **_PACKED,
    ),
    Declaration(
        "fp8_block",
        "fp8",
        {"weight_block_size": _BLOCK, **_FMT},
        {"scale_inv": True},
        _DYNAMIC,
        _FP8_PLAIN,
        others=("deepseek_fp8", "deepseek_fp4"),
        usual={"codes": "f8_e4m3", "block": 128},
    ),
    Declaration("fp8_tensor", "fp8", {"weight_block_size": None, **_FMT}, {}, _DYNAMIC, _FP8_PLAIN),
    Declaration("fp8_channel", "fbgemm_fp8", fixed=_PLAIN),
    *(
        _compressed(
            record, ("float-quantized", "naive-quantized"), _PLAIN, num_bits=8, **_FLOATS, **more
        )
        for record, more in (
            ("fp8_tensor", {"strategy": "tensor"}),
            ("fp8_channel", {"strategy": "channel"}),
            ("fp8_block", {"strategy": "block", "block_structure": _BLOCK}),
        )
    ),
    *(
        _compressed(record, (form,), {}, num_bits=bits, **_FLOATS, **more)
        for record, form, bits, more in (
            ("compressed_nvfp4", "nvfp4-pack-quantized", 4, _IN_16),
            ("compressed_mxfp4", "mxfp4-pack-quantized", 4, _IN_32),
            ("mxfp8", "mxfp8-quantized", 8, _IN_32),
        )
    ),
    *(
        _compressed(record, forms, fixed, num_bits=bits, **_INTEGERS, **more)
        for record, forms, bits in (
            ("pack_quantized", ("pack-quantized",), _Option("bits", usual=8)),
            # codes of fewer bits are stored in bytes too
            ("int_quantized", ("int-quantized", "naive-quantized"), (8, 7, 6, 5, 4, 3, 2)),
        )
        for more, fixed in _STRATEGIES
    ),
    Declaration("gpt_oss_mxfp4", "mxfp4"),
    *(
        Declaration(
            record,
            "modelopt",
            form,
            fixed,
            {},
            ("ignore", "exclude_modules"),
            listing=_list_unnamed,
        )
        for record, fixed, form in (
            ("fp8_tensor", _PLAIN, {"quant_algo": "FP8"}),
            ("fp8_channel", _PLAIN, {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}),
            # in blocks of 128 x 128 (`quantization/config.py`, `FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG`)
            ("fp8_block", {**_PLAIN, "block": 128}, {"quant_algo": "FP8_PB_WO"}),
            ("modelopt_nvfp4", {}, {"quant_algo": _NVFP4, "group_size": (16, None)}),
            ("modelopt_mxfp4", {}, {"quant_algo": _MXFP4, "group_size": (32, None)}),
            ("mxfp8", {}, {"quant_algo": "MXFP8", "group_size": (32, None)}),
        )
    ),
    *(
        Declaration(
            record,
            "bitsandbytes",
            {"load_in_4bit": True, "bnb_4bit_use_double_quant": is_nested, **form},
            ignored=_BNB_PLAIN,
        )
        for record, is_nested, form in (
            ("bnb_nf4", (False, None), {"bnb_4bit_quant_type": "nf4"}),
            ("bnb_fp4", (False, None), {"bnb_4bit_quant_type": "fp4"}),
            ("bnb_nested", True, {}),
        )
    ),
    Declaration("bnb_int8", "bitsandbytes", {"load_in_8bit": True}, ignored=_BNB_PLAIN),
    Declaration("hqq", "hqq", ignored=("skip_modules",)),
    Declaration("mlx", "mlx", _mlx("affine", _Option("bits"), _Option("group")), **_MLX),
    Declaration("mlx_mxfp4", "mlx", _mlx("mxfp4", 4, 32), **_MLX),
    Declaration("mlx_mxfp8", "mlx", _mlx("mxfp8", 8, 32), **_MLX),
    Declaration("mlx_nvfp4", "mlx", _mlx("nvfp4", 4, 16), **_MLX),
)


def own_declaration(record: str) -> Declaration:
    """Return how a record without rows is declared: by its name."""
    form = _BITS if "bits" in read_name(record)[2] else {}
    return Declaration(
        record, record, form, written=_BITS, listing=_list_none, unloaded="", **_PACKED
    )


def split_section(method: str, section: Mapping[str, Any]) -> tuple[list[Layers], tuple[str, ...]]:
    """Return the groups of layers that a section declares, and the layers that it ignores.

    A section that declares the same for all layers has no groups. Groups without weights are left
    out.
    """
    split = _SPLITS.get(method)
    return ([], ()) if split is None else split(section)


def is_known_method(method: str) -> bool:
    """Whether a method declares a record."""
    return any(row.method == method for row in DECLARATIONS) or method in known_records()


def known_keys(method: str) -> set[str]:
    """Return the keys that the rows of a method read, write or keep in a section."""
    rows = [row for row in DECLARATIONS if row.method == method]
    keys = ((*row.form, *row.written, *row.ignored, *row.kept, *row.carried) for row in rows)
    return {key for each in keys for key in each}


def listing_keys(method: str) -> tuple[str, ...]:
    """Return the keys of a section that may list the layers that are not quantised."""
    rows = [row.ignored for row in DECLARATIONS if row.method == method] or [_IGNORED]
    return tuple(dict.fromkeys(key for row in rows for key in row))


def plain_layers(method: str, section: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the layers that are not quantised according to a section without groups.

    Patterns of ModelOpt, which are those of shells, are returned as regular expressions.
    """
    held = inside(method, section)
    found = [name for key in listing_keys(method) for name in _names(held.get(key))]
    is_shell = method in _INSIDE
    return tuple(_by_expression(name) if is_shell and "*" in name else name for name in found)


def _by_expression(pattern: str) -> str:
    """Return a pattern of names, in which ``*`` stands for any letters, as an expression."""
    return f"re:{'.*'.join(map(re.escape, pattern.split('*')))}$"


def _split_compressed(section: Mapping[str, Any]) -> tuple[list[Layers], tuple[str, ...]]:
    """Split the `config_groups` of compressed-tensors."""
    groups, ignored = section.get("config_groups"), section.get("ignore")
    found = []
    for name, group in groups.items() if isinstance(groups, dict) else ():
        own = group if isinstance(group, dict) else {}
        if own.get("weights", own) is None:
            continue
        form = {"format": own["format"]} if own.get("format") is not None else {}
        # the name of a preset has only the targets, and `read_section` says that it is not read
        targets = _names(own.get("targets") if own else group)
        found.append(Layers(targets, {**section, **form, "config_groups": {name: group}}))
    return found, _names(ignored)


def _split_mlx(section: Mapping[str, Any]) -> tuple[list[Layers], tuple[str, ...]]:
    """Split the layers that MLX declares by name, with their own options or as not quantised."""
    own = {name: value for name, value in section.items() if isinstance(value, dict)}
    ignored = tuple(name for name, value in section.items() if value is False)
    rest = {key: section[key] for key in section.keys() - own.keys() - {*ignored}}
    named = [Layers((name,), value) for name, value in own.items()]
    return ([*named, Layers(("re:",), rest)], ignored) if own or ignored else ([], ())


def _names(value: Any) -> tuple[str, ...]:
    """Return the strings of a list."""
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _split_modelopt(section: Mapping[str, Any]) -> tuple[list[Layers], tuple[str, ...]]:
    """Split the layers of ModelOpt that have different algorithms."""
    layers = inside("modelopt", section).get("quantized_layers")
    found: dict[str, tuple[list[str], Any]] = {}
    for name, own in layers.items() if isinstance(layers, dict) else ():
        found.setdefault(repr(own), ([], own))[0].append(name)
    return [Layers(tuple(names), own) for names, own in found.values() if isinstance(own, dict)], ()


# the object of hf_quant_config.json that has what config.json has at its top
_INSIDE = {"modelopt": "quantization"}


def inside(method: str, section: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object with the keys of a method: the section, or one in hf_quant_config.json."""
    found = section.get(_INSIDE.get(method, ""))
    return found if isinstance(found, dict) else section


_SPLITS: Mapping[str, Callable[[Mapping[str, Any]], tuple[list[Layers], tuple[str, ...]]]] = {
    "compressed-tensors": _split_compressed,
    "mlx": _split_mlx,
    "modelopt": _split_modelopt,
}


def read_section(
    method: str, section: Mapping[str, Any], *, is_whole: bool = True
) -> tuple[Declaration, dict[str, Any]] | str:
    """Return the row that a section matches and its options, or why it matches none.

    Without `is_whole`, a key that the section leaves out has no value, not its usual one.
    """
    rows = [row for row in DECLARATIONS if row.method == method]
    if not rows and method in known_records():
        rows = [own_declaration(method)]
    # what the section has -> what rows want instead
    problems: dict[str, list[str]] = {}
    for row in rows:
        options = dict(row.fixed)
        problem = _read(row.form, inside(method, section), "", options, is_whole=is_whole)
        if not problem:
            return row, options
        if row.is_written:
            said, _, wanted = problem.partition(", not ")
            problems.setdefault(said, []).append(wanted)
    return "; ".join(
        ", not ".join((said, *filter(None, [" or ".join(dict.fromkeys(wanted))])))
        for said, wanted in problems.items()
    )


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


def with_plain(
    row: Declaration, section: Mapping[str, Any], plain: Sequence[str]
) -> dict[str, Any]:
    """Return a section that lists more layers as not quantised."""
    found = dict(section)
    for key in [key for key in row.ignored if key in section] or [*row.ignored[:1]] or [""]:
        found |= row.listing(key, section, plain)
    return found


def declaration_of(
    record: str, options: Mapping[str, Any], method: str | None = None
) -> Declaration | None:
    """Return the first row that declares a record with such options; None if none does.

    Rows of a method go first.
    """
    rows = [row for row in DECLARATIONS if row.record == record and row.is_written]
    rows.sort(key=lambda row: row.method != method)
    fits = [row for row in rows if row.fixed.items() <= options.items()]
    return next(iter([*fits, *(row for row in DECLARATIONS if record in row.others)]), None)


def section_of(
    row: Declaration, options: Mapping[str, Any], kept: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the section that declares a record with such options, with the keys in `kept`."""
    options = {**row.usual, **options}
    known = {
        key: form
        for key, form in row.written.items()
        if not isinstance(form, _Option) or form.option in options
    }
    more, found = (_written(form, options) for form in (known, row.form))
    if row.group and "group" in options:
        found[row.group] = options["group"]
    named = {"quant_method": row.method} if len(row.keys) == 1 else {}
    both: dict[str, Any] = _joined(_joined(more, dict(kept or {})), found)
    return named | both


def kept_of(row: Declaration, before: Mapping[str, Any], *, is_same: bool) -> dict[str, Any]:
    """Return what a section of the same method says about things other than weights.

    What its groups of layers say is kept for the same record, if all say the same.
    """
    found = {key: before[key] for key in row.kept if key in before}
    for key, form in row.form.items() if is_same else ():
        groups = before.get(key)
        if isinstance(form, _Each) and isinstance(groups, dict):
            each = [group for group in groups.values() if isinstance(group, dict)] or [{}]
            same = {name: [g.get(name) for g in each] for name in row.kept_of_each}
            kept = {name: all_[0] for name, all_ in same.items() if all_ == all_[:1] * len(all_)}
            found[key] = {form.key: kept}
    return found


def keys_with_values(section: Any) -> set[str]:
    """Return the keys that have a value in a section or in one of its groups of layers."""
    held = section if isinstance(section, dict) else {}
    forms = {key for row in DECLARATIONS for key, form in row.form.items() if type(form) is _Each}
    parts = [held[key] for key in forms if isinstance(held.get(key), dict)]
    groups = [group for part in parts for group in part.values() if isinstance(group, dict)]
    return {key for each in (held, *groups) for key, value in each.items() if value is not None}


def join_sections(
    found: Sequence[tuple[Mapping[str, Any], Sequence[str]]],
) -> dict[str, dict[str, Any]]:
    """Return the sections that declare several groups of layers, by their keys.

    `found` has the section and the names of each group. There are no sections if their method
    cannot declare groups of layers.
    """
    ordered = sorted(found, key=lambda each: -len(each[1]))
    keys = [*ordered[0][0]]
    parts = [Layers((*names,), each[keys[0]]) for each, names in ordered if [*each] == keys]
    methods = {part.section.get("quant_method", "mlx") for part in parts}
    join = _JOINS.get(methods.pop()) if len(methods) == 1 and len(parts) == len(found) else None
    joined = None if join is None else join(parts)
    return {} if joined is None else dict.fromkeys(keys, joined)


def _join_groups(parts: Sequence[Layers]) -> dict[str, Any]:
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
        targets = [*others, _EXPERTS] if expert else others
        groups[f"group_{k}"] = {**group, "targets": targets}
    forms = {part.section["format"] for part in parts}
    form = forms.pop() if len(forms) == 1 else "mixed-precision"
    return {**parts[0].section, "format": form, "config_groups": groups}


def _join_named(parts: Sequence[Layers]) -> dict[str, Any]:
    """Join sections of MLX: a layer with options of its own has them under its name."""
    (_, usual), *others = parts
    own = {stacked_name(layer): section for layers, section in others for layer in layers}
    return {**usual, **own}


def _join_dynamic(parts: Sequence[Layers]) -> dict[str, Any] | None:
    """Join sections of GPTQ: a layer with other bits or groups is an expression in `dynamic`."""
    (_, usual), *others = parts
    rules = dict(usual.get("dynamic") or {})
    for layers, section in others:
        own = {key: value for key, value in section.items() if value != usual.get(key)}
        if not own.keys() <= {"bits", "group_size", "sym"}:
            return None
        rules |= {f"+:^{re.escape(layer)}$": own for layer in layers}
    return {**usual, "dynamic": rules}


_JOINS: Mapping[str, Callable[[Sequence[Layers]], dict[str, Any] | None]] = {
    "compressed-tensors": _join_groups,
    "gptq": _join_dynamic,
    "mlx": _join_named,
}


# The key that lists the layers that are not quantised, and how lists name all layers whose names
# end in some words. transformers looks for a name of AWQ's list at the end of a layer's, even
# within a word, so the dot before the words belongs to it.
_ENDS: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "compressed-tensors": ("ignore", lambda end: rf"re:(.*\.)?{re.escape(end)}$"),
    "awq": (IGNORED, lambda end: f".{end}"),
}


def with_ends(section: Mapping[str, Any], quantised: Collection[str]) -> dict[str, Any]:
    """Return a section whose lists of layers also say how their names end.

    Such an end is the fewest last words that no layer of another list ends with. In a program,
    layers may have other prefixes than their tensors have in files, and loaders may not translate
    the lists: transformers 5.24 does so for FP8 only.
    """
    if (how := _ENDS.get(section.get("quant_method", ""))) is None:
        return dict(section)
    key, form = how
    plain, groups = section.get(key) or [], section.get("config_groups") or {}
    found = dict(section) | ({key: _ended(form, plain, plain, quantised)} if plain else {})
    made: dict[str, Any] = {}
    for name, group in groups.items():
        targets = _names(group.get("targets")) if isinstance(group, dict) else ()
        if not targets:  # the name of a preset has only a list
            made[name] = group
            continue
        named = [each for each in targets if each in quantised]
        others = {*plain, *quantised} - {*named}
        made[name] = group | {"targets": _ended(form, targets, named, others)}
    return found | ({"config_groups": made} if groups else {})


def _ended(
    form: Callable[[str], str],
    listed: Sequence[str],
    names: Sequence[str],
    others: Collection[str],
) -> list[str]:
    """Return a list that also has the end of each name, if no other name has that end."""
    taken = {end for name in others for end in _ends_of(name)}
    ends = [next((end for end in _ends_of(name) if end not in taken), None) for name in names]
    return [*dict.fromkeys((*listed, *(form(end) for end in ends if end)))]


def _ends_of(name: str) -> list[str]:
    """Return the ends of a name in whole words, the shortest first; none for an expression."""
    words = [] if name.startswith("re:") else name.split(".")
    return [".".join(words[-count:]) for count in range(1, len(words) + 1)]


def _written(form: Any, options: Mapping[str, Any]) -> Any:
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
