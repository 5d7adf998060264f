"""Targets of whole models: what each quantised weight becomes, decided once, as rules.

A target, such as `awq`, has ways from records to the one that its loader reads, which holds their
numbers exactly; or it is a type of floats, to which all are decoded.

Sources: the loaders of transformers 5.24, vLLM 0.10, GPTQModel 2 (version 2 of `qzeros`),
AutoAWQ 0.2, and `fp8_cast_bf16.py` of DeepSeek-V3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError
from memdesc.dtypes import ALIASES
from memdesc.errors import about, first_of, short_repr
from memdesc.record import RecordDesc
from memdesc.record.rows import SCHEMES
from memdesc.record.scheme import block_sizes
from reorder.checkpoints.config import is_inner, says_symmetric
from reorder.checkpoints.convert.beside import CACHE, LEFT_OUT, beside, left_out_warnings
from reorder.checkpoints.convert.rules import FormatName, Rule
from reorder.checkpoints.experts import (
    block_of,
    check_experts,
    holds_experts,
    split_stacks,
    stacked_name,
)
from reorder.checkpoints.stored import UNQUANTISED, WEIGHT, model_axes
from reorder.checkpoints.weights import Model, Weight, beside_floats, find_orphans, holds_codes
from reorder.records.numbers import is_integer_number, number_bits
from reorder.records.repacking import target_desc
from reorder.values.formats import FLOATS

if TYPE_CHECKING:
    from memdesc.record import Number
    from reorder.checkpoints.formats.entry import Entry

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Way(NamedTuple):
    """How records of some kinds become records of one kind."""

    # records whose numbers `record` can hold, as far as the formats show
    sources: tuple[str, ...]
    # what they become
    record: str
    # options of that record that the target's loader expects
    options: Mapping[str, Any] = _NOTHING
    # options that it keeps from the source
    kept: tuple[str, ...] = ()
    # whether it takes only symmetric sources: they have neither zero points nor offsets, or
    # config.json says that all zero points are the middle code
    is_symmetric: bool = False
    # the types of codes that the loader reads; empty for all that the record has
    codes: tuple[str, ...] = ()

    def takes(self, desc: RecordDesc, *, said_symmetric: bool) -> bool:
        """Whether it applies to a record; `said_symmetric` is what config.json says about it."""
        fits = not self.is_symmetric or desc.rule.is_symmetric or said_symmetric
        fits &= not self.codes or desc.codes.kind in self.codes
        return desc.name in self.sources and fits

    def made(self, desc: RecordDesc) -> FormatName:
        """Return what a record becomes."""
        options = {**self.options, **{key: dict(desc.options)[key] for key in self.kept}}
        return FormatName(self.record, (*options.items(),))


class Target(NamedTuple):
    """What the weights of a model become."""

    # what each record becomes: the first way that takes it applies
    ways: tuple[Way, ...] = ()
    # the type of floats that all records are decoded to instead
    dtype: str | None = None
    # the `quant_method` that config.json declares; None if the record decides it
    method: str | None = None
    # whether its loader reads records of experts in one tensor, as transformers has them
    takes_joint: bool = False
    # the program that chooses codes and scales for floats, if that is not done here
    producer: str = ""
    # the record that the layers of a model of floats become, with scales chosen from the data
    floats: FormatName | None = None


# integers with a scale for each group of inputs
_INTEGERS = ("gptq", "awq", "pack_quantized")
_BYTES = ("int_quantized",)
_E4M3 = ("f8_e4m3",)
TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "bf16": Target(dtype="bf16"),
        "f16": Target(dtype="f16"),
        "fp8-block": Target(
            (
                Way(("fp8_block",), "fp8_block", {"scale_inv": True}, ("block",), codes=_E4M3),
                Way(("fp8_tensor",), "fp8_block", {"scale_inv": True}, codes=_E4M3),
            ),
            method="fp8",
            takes_joint=True,
            floats=FormatName("fp8_block", (("scale_inv", True),)),
        ),
        "gptq": Target(
            (
                # the loader of GPTQModel needs g_idx
                Way(("gptq",), "gptq", {"g_idx": True}, ("zeros",)),
                # version 1 stores zero points less 1, so it does not have 0
                *(
                    Way(
                        sources,
                        "gptq",
                        options | {"zeros": zeros, "g_idx": True},
                        is_symmetric=zeros == "v1",
                    )
                    for sources, options in ((_INTEGERS, {}), (_BYTES, {"bits": 8}))
                    for zeros in ("v1", "v2")
                ),
            ),
            producer="GPTQModel",
        ),
        "awq": Target((Way(_INTEGERS, "awq", codes=("u4",)),), producer="GPTQModel"),
        "compressed-tensors": Target(
            (
                Way(_BYTES, "int_quantized", kept=("zeros",)),
                Way(_INTEGERS, "pack_quantized", {"zeros": False}, is_symmetric=True),
                Way(_INTEGERS, "pack_quantized", {"zeros": True}),
                Way(("modelopt_nvfp4", "compressed_nvfp4"), "compressed_nvfp4"),
                Way(("modelopt_mxfp4", "compressed_mxfp4", "mlx_mxfp4"), "compressed_mxfp4"),
                Way(("mxfp8", "mlx_mxfp8"), "mxfp8"),
                *(
                    Way((name,), name, {"scale_inv": False}, kept, codes=_E4M3)
                    for name, kept in (
                        ("fp8_tensor", ()),
                        ("fp8_channel", ()),
                        ("fp8_block", ("block",)),
                    )
                ),
            ),
            method="compressed-tensors",
            producer="llm-compressor",
        ),
    }
)
# what transformers does with experts in GPTQ and AWQ, and in compressed-tensors
# (`integrations/compressed_tensors.py`)
_RANDOM = (
    "transformers 5.24 gives experts in {} random weights, even those that GPTQModel has saved; "
    "GPTQModel itself loads them"
)
_MERGED = (
    "transformers 5.24 merges the experts of a layer before it decodes them: it {} in "
    "compressed-tensors, which compressed-tensors itself decodes"
)
_LOST = _MERGED.format("does not load experts of {}")
# Records that loaders misread: a record with some options; whether all of them, those of experts,
# or those whose last blocks are partial; and the warning.
_MISREAD: tuple[tuple[str, Mapping[str, Any], str, str], ...] = (
    (
        "gptq",
        {"zeros": "v2"},
        "all",
        (
            "zero points are stored as in version 2 of GPTQ, which GPTQModel and newer versions of "
            "vLLM read; vLLM 0.10 takes them for version 1"
        ),
    ),
    ("gptq", {}, "experts", _RANDOM.format("GPTQ")),
    ("awq", {}, "experts", _RANDOM.format("AWQ")),
    (
        "pack_quantized",
        {"zeros": True},
        "all",
        (
            "transformers 5.24 with compressed-tensors 0.20 does not load zero points of "
            "pack-quantized, not even those that it wrote; vLLM does"
        ),
    ),
    ("int_quantized", {}, "experts", _LOST.format("bytes")),
    ("mxfp8", {}, "experts", _LOST.format("MXFP8")),
    ("fp8_block", {"scale_inv": False}, "experts", _LOST.format("FP8 in blocks")),
    (
        "compressed_nvfp4",
        {},
        "experts",
        _MERGED.format("computes wrong numbers from experts of NVFP4"),
    ),
    # `Fp8Dequantize` divides the rows of a matrix by those of its scales
    (
        "fp8_block",
        {"scale_inv": True},
        "partial",
        (
            "transformers 5.24 without a GPU expects that blocks divide a matrix evenly; otherwise "
            "it does not load the matrix, or decodes it to wrong numbers"
        ),
    ),
)
_MLX = "mlx"
# the last parts of names of tensors that may be beside codes without changing what they mean
_BESIDE = ("bias", *LEFT_OUT)
# how many tensors a message names
_SHOWN = 3
# the container of llama.cpp
_GGUF = "gguf"
# types of matrices that are no codes
_FLOATS = (*UNQUANTISED, "f64")
# Matrices that loaders of FP8 do not expect to be quantised, by parts of their names: routers of
# experts, embeddings, outputs, adapters; what DeepSeek keeps of layers that predict more tokens and
# of its indexer; and layers that transformers keeps in f32 or multiplies by itself. Sources: vLLM
# 0.10 (`deepseek_mtp.py`), transformers 5.24 (`_keep_in_fp32_modules`, Mamba, Jamba).
_KEPT = re.compile(
    r"(.*\.)?(gate|[^.]*(router|embed)[^.]*|lm_heads?|lora_[^.]*|eh_proj|shared_head|weights_proj"
    r"|qformer|DenseReluDense\.wo|dt_proj)(\..*)?"
)


class TargetRules(NamedTuple):
    """How a checkpoint becomes a target."""

    # with the tensors that the output keeps: experts in tensors of their own, and no scales of
    # activations or of the KV cache
    model: Model
    # what config.json declares
    target: Target = Target()
    # one for each kind of record that changes
    rules: tuple[Rule, ...] = ()
    # what is rounded, and what is left out
    warnings: tuple[str, ...] = ()


def checked_target(name: object) -> str:
    """Return the name of a target.

    Fails if there is no such target; the message has the one that may be meant.
    """
    if name == _MLX:
        msg = (
            "mlx-lm may change names, shapes and values of a model, so --to mlx is left to it: "
            "--to bf16 decodes any model, and mlx_lm.convert quantises that"
        )
        raise MemdescError(msg)
    if not isinstance(name, str) or name not in TARGETS:
        meant = ALIASES.get(str(name).removeprefix("torch."))
        hint = f"; did you mean {meant}" if meant in TARGETS else ""
        msg = f"there is no target {short_repr(name)}; the targets are {', '.join(TARGETS)}{hint}"
        raise MemdescError(msg)
    return name


def target_rules(name: str, model: Model) -> TargetRules:
    """Return the rules that turn the quantised weights of a model into a target.

    Everything else, such as norms and embeddings, has no rule, so it is copied.

    Fails if there is no such target, a weight is not known, or the target cannot hold its numbers;
    the message has the weight and the way out.
    """
    target = TARGETS[checked_target(name)]
    with about(f"--to {name}"):
        if model.container.format == _GGUF:
            msg = (
                f"{short_repr(str(model.path))} is a GGUF, whose tensors have the names of "
                f"llama.cpp, which loaders of {name} do not know; --map '*: "
                f"{target.dtype or 'bf16'}' decodes them"
            )
            raise MemdescError(msg)
        model = model.keeping(split_stacks(model.entries))
        _check_known(model)
        _check_axes_of_mlx(model)
        check_experts(model.entries)
        if model.weights or any(isinstance(e.desc, RecordDesc) for e in model.entries.values()):
            return _rules_of_weights(name, target, model)
        bare = next((e for e in model.entries.values() if holds_codes(e) and _is_weight(e)), None)
        if bare is not None:
            msg = (
                f"{bare.name} of {bare.dtype} holds codes, but nothing beside it scales them; get "
                "the checkpoint again, or let --map quantise the weights that its rules name"
            )
            raise MemdescError(msg)
        model.configs.refuse_unknown()
        if target.floats is not None:
            return _quantising_rules(name, target, target.floats, model)
        if target.dtype is not None and not model.container.has_nodes:
            return _float_rules(name, target, target.dtype, model)
        way = f"{target.producer} quantises floats"
        if not target.producer:
            way = "--map 'PATTERN: TYPE' changes the type of floats"
        raise _nothing(model, f"none is quantised; {way}")


def _nothing(model: Model, why: str) -> MemdescError:
    return MemdescError(f"{short_repr(str(model.path))} has no weights to convert: {why}")


def _rules_of_weights(name: str, target: Target, model: Model) -> TargetRules:
    """Return the rules for the quantised weights of a model."""
    sections = [section for _, section in model.configs.sections] if model.weights else []
    # in lower case, as transformers expects it
    is_declared = target.method in (None, *(each.get("quant_method") for each in sections))
    said_symmetric = any(map(says_symmetric, sections))
    moves: dict[tuple[FormatName, FormatName], list[Weight]] = {}
    told: dict[str, None] = {}
    for weight in model.weights:
        desc = weight.desc
        if desc is None:
            continue
        src = FormatName(desc.name, desc.options)
        if target.dtype is not None:
            axes = model_axes(desc)
            dst = FormatName("plain", () if axes == desc.letters else (("axes", axes),))
        else:
            dst = _target_record(name, weight.prefix, desc, said_symmetric=said_symmetric)
        is_same = src.name == dst.name and {*dst.options} <= {*src.options}
        if not (is_same and is_declared):
            moves.setdefault((src, dst), []).append(weight)
            told |= dict.fromkeys(_misread(weight.prefix, desc, dst))
    if not moves:
        blocks = [e.desc.name for e in model.entries.values() if isinstance(e.desc, RecordDesc)]
        way = f"--map '*: {target.dtype or 'bf16'}' decodes them"
        already = f"they are {name} already; copy it"
        raise _nothing(
            model, already if model.weights else f"they are blocks of {blocks[0]}; {way}"
        )
    how = f", {target.dtype}" if target.dtype else ""
    how = how or (", symmetric as config.json says" if said_symmetric else "")
    rules = tuple(
        Rule(
            f"--to {name}: {src.name} -> {dst}{how}",
            "*",
            src,
            dst,
            target.dtype,
            prefixes=frozenset(weight.prefix for weight in found),
        )
        for (src, dst), found in moves.items()
    )
    moved = [weight for found in moves.values() for weight in found]
    left_out = [each for weight in moved for each in beside(weight.prefix, model.entries)]
    left_out += [each for each in model.entries if each.rpartition(".")[2] in CACHE]
    left = model.entries.keys() - {*left_out}
    kept = {name: entry for name, entry in model.entries.items() if name in left}
    descs = dict.fromkeys(weight.desc for weight in moved if weight.desc is not None)
    dtype = target.dtype
    rounded = dict.fromkeys(each.name for each in descs if dtype and _may_round(each, dtype))
    warnings = (*told, *_rounded([*rounded], dtype or ""), *left_out_warnings(left_out))
    return TargetRules(model.keeping(kept), target, rules, warnings)


def _target_record(name: str, prefix: str, desc: RecordDesc, *, said_symmetric: bool) -> FormatName:
    """Return what a record becomes in a target. Fails if the target does not hold its numbers."""
    target = TARGETS[name]
    decoded = " and ".join(f"--to {each}" for each, other in TARGETS.items() if other.dtype)
    way = next((w for w in target.ways if w.takes(desc, said_symmetric=said_symmetric)), None)
    if way is not None:
        if len(desc.dims) > len("oi") and not target.takes_joint:
            msg = (
                f"{prefix} is {desc.name} with all experts of a layer in one tensor, and loaders "
                f"of {name} do not read that; {decoded} decode it"
            )
            raise MemdescError(msg)
        return way.made(desc)
    read = {kind: None for way in target.ways if desc.name in way.sources for kind in way.codes}
    if not read and any(desc.name == way.record for way in target.ways):
        return FormatName(desc.name, desc.options)
    taken = ", ".join(dict.fromkeys(each for way in target.ways for each in way.sources))
    taken += f" with codes of {', '.join(read)}, not {desc.codes.kind}" if read else ""
    by = f"--to {name} then rounds them again" if target.floats else ""
    msg = (
        f"{prefix} is {desc.name}, and --to {name} takes only {taken}, because {name} does not "
        f"hold the numbers of all others; --map '{prefix}: {desc.name} -> RECORD' tries any record "
        f"and refuses what it does not hold; {decoded} decode any, and "
        f"{by or f'{target.producer} quantises floats'}"
    )
    raise MemdescError(msg)


def _misread(prefix: str, src: RecordDesc, dst: FormatName) -> Iterator[str]:
    """Return warnings about loaders that do not read what a record becomes."""
    for name, options, which, warning in _MISREAD:
        if name != dst.name or not options.items() <= dict(dst.options).items():
            continue
        if which == "partial":
            made = target_desc(src, dst.name, dict(dst.options))
            sizes = zip(made.dims, made.scales.groups, strict=True)
            is_such = any(size % group for size, group in sizes)
        else:
            is_such = which == "all" or bool(block_of(prefix))
        if is_such:
            yield warning


def _float_rules(name: str, target: Target, dtype: str, model: Model) -> TargetRules:
    """Return the rule that gives all floats of a model another type, as loaders do."""
    entries = model.entries.values()
    floats = [each for each in entries if each.dtype in UNQUANTISED]
    codes = [each for each in entries if len(each.shape) > 1 and each.dtype not in _FLOATS]
    if codes:
        msg = (
            f"{codes[0].name} of {codes[0].dtype} may hold codes, which some of the floats may "
            f"scale; if not, --map 'PATTERN: {dtype}' changes the floats that it names"
        )
        raise MemdescError(msg)
    kinds = dict.fromkeys(each.dtype for each in floats if each.dtype != dtype)
    if not kinds:
        why = f"all its floats are {dtype} already; copy it" if floats else "it has no floats"
        raise _nothing(model, why)
    rounded = [kind for kind in kinds if not FLOATS[dtype].holds(FLOATS[kind])]
    names = frozenset(each.name for each in floats if each.dtype != dtype)
    rule = Rule(f"--to {name}: floats -> {dtype}", "*", dtype=dtype, prefixes=names)
    return TargetRules(model, target, (rule,), tuple(_rounded(rounded, dtype)))


def _rounded(kinds: Sequence[str], dtype: str) -> Iterator[str]:
    """Return a warning if a type of floats does not hold the numbers of others."""
    if kinds:
        yield (
            f"weights of {', '.join(kinds)} are rounded to {dtype}, which does not hold all their "
            "numbers"
        )


def _quantising_rules(name: str, target: Target, dst: FormatName, model: Model) -> TargetRules:
    """Return the rule that quantises the layers of a model of floats.

    As in transformers, matrices that whole blocks do not cover stay floats.

    Fails if there is nothing to quantise, if blocks do not cover an expert, since the loader
    expects all experts to be quantised, or if the loader does not expect a layer to be quantised.
    """
    block = SCHEMES[dst.name].defaults | dict(dst.options)
    rows, columns = block_sizes(dst.name, block["block"])
    what = f"blocks of {rows} x {columns} do not cover"
    layers = [entry for entry in model.entries.values() if _is_layer(entry)]
    for each in layers:
        bias = model.entries.get(f"{each.name.removesuffix(WEIGHT)}.bias")
        if bias is not None and bias.shape != each.shape[:1]:
            msg = (
                f"{each.name} of shape {each.shape} with a bias of shape {bias.shape} has its "
                "outputs last, as layers of class Conv1D in GPT-2, and transformers expects only "
                "those of class Linear to be quantised"
            )
            raise MemdescError(msg)
    left = [each for each in layers if each.shape[0] % rows or each.shape[1] % columns]
    expert = next((each for each in left if stacked_name(each.name) != each.name), None)
    if expert is not None:
        msg = (
            f"{what} {expert.name} of shape {expert.shape}, and transformers expects that all "
            "experts are quantised; --map quantises the weights that its rules name"
        )
        raise MemdescError(msg)
    names = frozenset(each.name for each in layers) - {each.name for each in left}
    if not names:
        raise _nothing(
            model,
            "none is quantised, and in its numbered blocks there is no matrix of floats, called "
            f"NAME{WEIGHT}, that blocks of {rows} x {columns} cover",
        )
    kinds = dict.fromkeys(each.dtype for each in layers if each.name in names)
    floats = [each for each in model.entries.values() if each.dtype in UNQUANTISED]
    stacks = [each for each in floats if holds_experts(each)]
    kept = ((left, f"{what} them"), (stacks, "each has all experts of a layer"))
    warnings = [
        f"{first_of((each.name for each in found), _SHOWN)} stay floats: {why}"
        for found, why in kept
        if found
    ]
    rounded = (
        f"weights of {', '.join(kinds)} are rounded to {dst.name}, {len(names)} in all, with a "
        f"scale for each block of {rows} x {columns}"
    )
    rule = Rule(f"--to {name}: floats -> {dst}", "*", dst=dst, prefixes=names)
    return TargetRules(model, target, (rule,), (rounded, *warnings))


def _is_weight(entry: Entry) -> bool:
    """Whether a tensor is called like a weight, or like all experts of a layer."""
    return entry.name.endswith(WEIGHT) or holds_experts(entry)


def _is_layer(entry: Entry) -> bool:
    """Whether a tensor is the weight of a linear layer within the repeated blocks of a model."""
    layer, _, last = entry.name.rpartition(".")
    is_matrix = entry.dtype in UNQUANTISED and len(entry.shape) == len("oi")
    is_inside = f".{last}" == WEIGHT and is_inner(layer)
    return is_matrix and is_inside and _KEPT.fullmatch(layer) is None


def _check_known(model: Model) -> None:
    """Refuse weights that are not known, and codes whose scales are missing."""
    unknown = [weight for weight in model.weights if weight.desc is None]
    if unknown:
        count = len(unknown) - 1
        others = "1 other is" if count == 1 else f"{count} others are"
        more = f"; {others} not known either" if count else ""
        msg = (
            f"{unknown[0].prefix} is not known: {unknown[0].reason}{more}; --map converts the "
            "weights that its rules name"
        )
        raise MemdescError(msg)
    for name, weight in find_orphans(model).items():
        msg = (
            f"{name} scales a weight, as other tensors of that name do, but there is no {weight}; "
            "get the checkpoint again"
        )
        raise MemdescError(msg)
    known = {each for weight in model.weights for each in weight.names}
    prefixes = {weight.prefix for weight in model.weights if weight.is_dotted}
    codes = {next(iter(weight.tensors)) for weight in model.weights}
    for name, entry in model.entries.items():
        if name in known:
            continue
        prefix, _, role = name.rpartition(".")
        beside_it = beside_floats(model.entries, name) if entry.dtype in UNQUANTISED else []
        problem = ""
        if beside_it:
            problem = (
                f"holds plain {entry.dtype}, but {beside_it[0]} is beside it, as beside codes, or "
                "as in models that are calibrated and not yet compressed; compress the model with "
                f"the program that made it, or remove {beside_it[0]} if it is left over"
            )
        elif prefix in prefixes and role not in _BESIDE:
            problem = (
                f"is beside the codes of {prefix}, and may change what they mean; --map converts "
                "the weights that its rules name"
            )
        elif holds_codes(entry) and role in codes:
            problem = (
                f"of {entry.dtype} holds codes, as other tensors of that name do, but nothing "
                "beside it scales them; get the checkpoint again"
            )
        if problem:
            msg = f"{name} {problem}"
            raise MemdescError(msg)


def _check_axes_of_mlx(model: Model) -> None:
    """Refuse a model of MLX with tensors that MLX stores otherwise than transformers.

    These have three dims or more, such as weights of convolutions, heads or other experts; in such
    models mlx-lm also changes names, and values such as those of norms (0.32, `sanitize`).
    """
    is_mlx = any(each.desc and each.desc.name.startswith(_MLX) for each in model.weights)
    for each in model.entries.values() if is_mlx else ():
        if len(each.shape) > len("oi"):
            msg = (
                f"{each.name} of shape {each.shape} has other axes in MLX than in transformers, "
                "and such models may have other names and values there too; --map converts the "
                "weights that its rules name, under the names that they have"
            )
            raise MemdescError(msg)


def _may_round(desc: RecordDesc, dtype: str) -> bool:
    """Whether a type of floats may be unable to hold all numbers of a record, given the formats.

    A product has as many significant bits as its factors together. The exponents of bf16 are those
    of f32, in which the numbers are computed; other types may not have them.
    """
    if desc.rule.kind != "f32":  # each operation is rounded to that type already
        return dtype not in (desc.rule.kind, "f32")
    numbers = (desc.rule.code, *desc.rule.scale)
    bits = sum(_significant(desc, number) for number in numbers)
    has_range = FLOATS[dtype].exponent == FLOATS["f32"].exponent
    return not has_range or bool(desc.rule.offset) or bits > FLOATS[dtype].mantissa + 1


def _significant(desc: RecordDesc, number: Number) -> int:
    """Return the most significant bits that a number can have."""
    kind = desc.field_of(number).kind
    if is_integer_number(desc, number):
        return number_bits(desc, number)
    if number.table or kind not in FLOATS:
        return 1 if kind == "e8m0" and not number.table else FLOATS["f32"].mantissa + 1
    return FLOATS[kind].mantissa + 1
