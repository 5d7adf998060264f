"""Targets of whole models: which record each quantised weight becomes, as rules.

A target, such as `awq`, has ways from records to the one that its loader reads, which holds their
numbers exactly; or it is a type of floats, to which all are decoded.

Sources: the loaders of transformers 5.24, vLLM 0.10, GPTQModel 2 (version 2 of `qzeros`),
AutoAWQ 0.2, and `fp8_cast_bf16.py` of DeepSeek-V3.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

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
from reorder.records.encode import is_integer_number, number_bits
from reorder.records.repacking import target_desc
from reorder.values.formats import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from memdesc.record import Number
    from reorder.checkpoints.formats.entry import Container, Entry


class Way(NamedTuple):
    """How records of some kinds become records of one kind."""

    # records whose numbers `record` can hold, as far as the formats show
    sources: tuple[str, ...]
    # what they become
    record: str
    # options of that record that the target's loader expects
    options: Mapping[str, Any] = {}
    # options that it keeps from the source
    kept: tuple[str, ...] = ()
    # True if it takes only symmetric sources: they have neither zero points nor offsets, or
    # config.json says that all zero points are the middle code; False for only others, None for any
    is_symmetric: bool | None = None
    # the types of codes that the loader reads; empty for all that the record has
    codes: tuple[str, ...] = ()
    # a warning about a loader that does not read the result
    warning: str = ""
    # the warning for experts, which some loaders merge; empty if it is the same
    of_experts: str = ""
    # the warning for matrices whose last blocks are partial; empty if it is the same
    of_partial: str = ""

    def warning_of(self, prefix: str, desc: RecordDesc) -> str:
        """Return the warning for a record; empty if there is none."""
        if block_of(prefix) and self.of_experts:
            return self.of_experts
        if self.of_partial:
            made = target_desc(desc, self.record, dict(self.made(desc).options))
            groups = made.scales.groups
            if any(size % group for size, group in zip(made.dims, groups, strict=True)):
                return self.of_partial
        return self.warning

    def takes(self, desc: RecordDesc, *, said_symmetric: bool) -> bool:
        """Whether it applies to a record; `said_symmetric` is what config.json says about it."""
        fits = self.is_symmetric in (None, desc.rule.is_symmetric or said_symmetric)
        fits &= not self.codes or _codes_of(desc) in self.codes
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
_ZERO_POINTS = (
    "transformers 5.24 with compressed-tensors 0.20 does not load zero points of pack-quantized, "
    "not even those that it wrote; vLLM does"
)
_RANDOM = (
    "transformers 5.24 gives experts in {} random weights, even those that GPTQModel has saved; "
    "GPTQModel itself loads them"
)
_IN_GPTQ = _RANDOM.format("GPTQ")
_ZEROS_2 = (
    "zero points are stored as in version 2 of GPTQ, which GPTQModel and newer versions of vLLM "
    "read; vLLM 0.10 takes them for version 1"
)
# what each version of GPTQ takes, and the warnings about its loaders
_VERSION_1: dict[str, Any] = {"is_symmetric": True, "of_experts": _IN_GPTQ}
_VERSION_2: dict[str, Any] = {"warning": _ZEROS_2, "of_experts": f"{_ZEROS_2}; {_IN_GPTQ}"}
# what transformers does when it merges experts (`integrations/compressed_tensors.py`)
_MERGED = (
    "transformers 5.24 merges the experts of a layer before it decodes them: it {} in "
    "compressed-tensors, which compressed-tensors itself decodes"
)
_WRONG = _MERGED.format("computes wrong numbers from experts of NVFP4")
_NOT_LOADED = _MERGED.format("does not load experts of {}")
# `Fp8Dequantize` divides the rows of a matrix by those of its scales
_PARTIAL = (
    "transformers 5.24 without a GPU expects that blocks divide a matrix evenly; "
    "otherwise it does not load the matrix, or decodes it to wrong numbers"
)
TARGETS = MappingProxyType(
    {
        "bf16": Target(dtype="bf16"),
        "f16": Target(dtype="f16"),
        "fp8-block": Target(
            (
                *(
                    Way(
                        (name,),
                        "fp8_block",
                        {"scale_inv": True},
                        kept,
                        codes=_E4M3,
                        of_partial=_PARTIAL,
                    )
                    for name, kept in (("fp8_block", ("block",)), ("fp8_tensor", ()))
                ),
            ),
            method="fp8",
            takes_joint=True,
            floats=FormatName("fp8_block", (("scale_inv", True),)),
        ),
        "gptq": Target(
            (
                # the loader of GPTQModel needs g_idx
                Way(("gptq",), "gptq", {"g_idx": True}, ("zeros",), of_experts=_IN_GPTQ),
                # version 1 stores zero points less 1, so it does not have 0
                *(
                    Way(sources, "gptq", options | {"zeros": zeros, "g_idx": True}, **more)
                    for sources, options in ((_INTEGERS, {}), (_BYTES, {"bits": 8}))
                    for zeros, more in (("v1", _VERSION_1), ("v2", _VERSION_2))
                ),
            ),
            producer="GPTQModel",
        ),
        "awq": Target(
            (Way(_INTEGERS, "awq", codes=("u4",), of_experts=_RANDOM.format("AWQ")),),
            producer="GPTQModel",
        ),
        "compressed-tensors": Target(
            (
                Way(
                    _BYTES, "int_quantized", {}, ("zeros",), of_experts=_NOT_LOADED.format("bytes")
                ),
                Way(_INTEGERS, "pack_quantized", {"zeros": False}, is_symmetric=True),
                Way(_INTEGERS, "pack_quantized", {"zeros": True}, warning=_ZERO_POINTS),
                Way(("modelopt_nvfp4", "compressed_nvfp4"), "compressed_nvfp4", of_experts=_WRONG),
                Way(("modelopt_mxfp4", "compressed_mxfp4", "mlx_mxfp4"), "compressed_mxfp4"),
                Way(("mxfp8", "mlx_mxfp8"), "mxfp8", of_experts=_NOT_LOADED.format("MXFP8")),
                *(
                    Way(
                        (name,),
                        name,
                        {"scale_inv": False},
                        kept,
                        codes=_E4M3,
                        of_experts=of_experts,
                    )
                    for name, kept, of_experts in (
                        ("fp8_tensor", (), ""),
                        ("fp8_channel", (), ""),
                        ("fp8_block", ("block",), _NOT_LOADED.format("FP8 in blocks")),
                    )
                ),
            ),
            method="compressed-tensors",
            producer="llm-compressor",
        ),
    }
)
_MLX = "mlx"
# the last parts of names of tensors that may be beside codes without changing what they mean
_BESIDE = ("bias", *LEFT_OUT)
# how many tensors a message names
_SHOWN = 3
# the container of llama.cpp
_GGUF = "gguf"
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

    # with the tensors that the output keeps: experts in tensors of their own, if the target does
    # not stack them, and no scales of activations or of the KV cache
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
    source, container = model.path, model.container
    if container.format == _GGUF:
        msg = (
            f"--to {name}: {short_repr(str(source))} is a GGUF, whose tensors have the names of "
            f"llama.cpp, which loaders of {name} do not know; --map '*: {target.dtype or 'bf16'}' "
            "decodes them"
        )
        raise MemdescError(msg)
    model = model.of(split_stacks(container.entries))
    container = model.container
    groups = model.weights
    _check_known(name, model)
    _check_axes_of_mlx(name, model)
    with about(f"--to {name}"):
        check_experts(container.entries)
    blocks = [e.desc.name for e in container.entries.values() if isinstance(e.desc, RecordDesc)]
    declared = model.configs.named_sections
    if not (groups or blocks):
        _refuse_unscaled(name, container)
        with about(f"--to {name}"):
            model.configs.refuse_unknown()
        if target.floats is not None:
            return _quantising_rules(name, target, model)
        if target.dtype is not None and not container.has_nodes:
            return _float_rules(name, target, target.dtype, model)
    sections = [section for _, section in declared] if groups else []
    moves, warnings = _moves(name, groups, sections)
    if not moves:
        _refuse_unmoved(name, source, groups, blocks)
    how = ", symmetric as config.json says" if any(map(says_symmetric, sections)) else ""
    rules = tuple(
        Rule(
            f"--to {name}: {src.name} -> {dst}{f', {dtype}' if dtype else how}",
            "*",
            src,
            dst,
            dtype,
            prefixes=frozenset(group.prefix for group in found),
        )
        for (src, dst, dtype), found in moves.items()
    )
    every = [group for found in moves.values() for group in found]
    left_out = [each for group in every for each in beside(group.prefix, container.entries)]
    left_out += [each for each in container.entries if each.rpartition(".")[2] in CACHE]
    left = container.entries.keys() - {*left_out}
    kept = {name: entry for name, entry in container.entries.items() if name in left}
    warnings += [*_rounding_warnings(target, every), *left_out_warnings(left_out)]
    return TargetRules(model.keeping(kept), target, rules, tuple(warnings))


class _Move(NamedTuple):
    """What weights of one kind become: a record, or a layout of floats of a type."""

    src: FormatName
    dst: FormatName
    dtype: str | None


def _moves(
    name: str, groups: Sequence[Weight], sections: Sequence[Mapping[str, Any]]
) -> tuple[dict[_Move, list[Weight]], list[str]]:
    """Return the weights that change, by what they become, and warnings.

    `sections` are what the files of the model say about quantisation.
    """
    target = TARGETS[name]
    # in lower case, as transformers expects it
    is_declared = target.method in (None, *(each.get("quant_method") for each in sections))
    said_symmetric = any(map(says_symmetric, sections))
    moves: dict[_Move, list[Weight]] = {}
    told: dict[str, None] = {}
    for group in groups:
        if group.desc is None:
            continue
        src = FormatName(group.desc.name, group.desc.options)
        dtype = target.dtype
        dst, warning = (
            (_decoded_layout(group.desc), "")
            if dtype
            else _target_record(name, group.prefix, group.desc, said_symmetric=said_symmetric)
        )
        if not (_is_same(src, dst) and is_declared):
            moves.setdefault(_Move(src, dst, dtype), []).append(group)
            told[warning] = None
    return moves, [*filter(None, told)]


def _refuse_unscaled(name: str, container: Container) -> None:
    """Refuse a model that has codes, but nothing that scales them."""
    entries = container.entries.values()
    bare = next((e for e in entries if holds_codes(e) and _is_weight(e)), None)
    if bare is not None:
        msg = (
            f"--to {name}: {bare.name} of {bare.dtype} holds codes, but nothing beside it scales "
            "them; get the checkpoint again, or let --map quantise the weights that its rules name"
        )
        raise MemdescError(msg)


def _refuse_unmoved(
    name: str, source: Path, groups: Sequence[Weight], blocks: Sequence[str]
) -> NoReturn:
    """Refuse a model that has no weights to convert; `blocks` are its single-tensor records."""
    target = TARGETS[name]
    why = (
        f"they are {name} already; copy it"
        if groups
        else f"they are blocks of {blocks[0]}; --map '*: {target.dtype or 'bf16'}' decodes them"
        if blocks
        else f"none is quantised; {target.producer} quantises floats"
        if target.producer
        else "none is quantised; --map 'PATTERN: TYPE' changes the type of floats"
    )
    msg = f"--to {name}: {short_repr(str(source))} has no weights to convert: {why}"
    raise MemdescError(msg)


# types of matrices that are no codes
_FLOATS = (*UNQUANTISED, "f64")


def _float_rules(name: str, target: Target, dtype: str, model: Model) -> TargetRules:
    """Return the rule that gives all floats of a model another type, as loaders do."""
    entries = model.container.entries.values()
    floats = [each for each in entries if each.dtype in UNQUANTISED]
    codes = [each for each in entries if len(each.shape) > 1 and each.dtype not in _FLOATS]
    if codes:
        msg = (
            f"--to {name}: {codes[0].name} of {codes[0].dtype} may hold codes, which some of the "
            f"floats may scale; if not, --map 'PATTERN: {dtype}' changes the floats that it names"
        )
        raise MemdescError(msg)
    kinds = dict.fromkeys(each.dtype for each in floats if each.dtype != dtype)
    if not kinds:
        why = f"all its floats are {dtype} already; copy it" if floats else "it has no floats"
        msg = f"--to {name}: there are no weights to convert: {why}"
        raise MemdescError(msg)
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


def _quantising_rules(name: str, target: Target, model: Model) -> TargetRules:
    """Return the rule that quantises the layers of a model of floats.

    As in transformers, matrices that whole blocks do not cover stay floats.

    Fails if there is nothing to quantise, if blocks do not cover an expert, since the loader
    expects all experts to be quantised, or if the loader does not expect a layer to be quantised.
    """
    dst, source, container = target.floats, model.path, model.container
    assert dst is not None  # noqa: S101 - the caller has looked
    block = SCHEMES[dst.name].defaults | dict(dst.options)
    rows, columns = block_sizes(dst.name, block["block"])
    what = f"blocks of {rows} x {columns} do not cover"
    layers = _layers_of_floats(name, container)
    left = [each for each in layers if each.shape[0] % rows or each.shape[1] % columns]
    expert = next((each for each in left if stacked_name(each.name) != each.name), None)
    if expert is not None:
        msg = (
            f"--to {name}: {what} {expert.name} of shape {expert.shape}, and transformers expects "
            "that all experts are quantised; --map quantises the weights that its rules name"
        )
        raise MemdescError(msg)
    names = frozenset(each.name for each in layers) - {each.name for each in left}
    if not names:
        msg = (
            f"--to {name}: {short_repr(str(source))} has no weights to convert: none is quantised, "
            f"and in its numbered blocks there is no matrix of floats, called NAME{WEIGHT}, that "
            f"blocks of {rows} x {columns} cover"
        )
        raise MemdescError(msg)
    kinds = dict.fromkeys(each.dtype for each in layers if each.name in names)
    floats = [each for each in container.entries.values() if each.dtype in UNQUANTISED]
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


def _layers_of_floats(name: str, container: Container) -> list[Entry]:
    """Return the weights that loaders expect to be quantised.

    Fails if there are layers that loaders expect to be floats.
    """
    layers = [entry for entry in container.entries.values() if _is_layer(entry)]
    for each in layers:
        bias = container.entries.get(f"{each.name.removesuffix(WEIGHT)}.bias")
        if bias is not None and bias.shape != each.shape[:1]:
            msg = (
                f"--to {name}: {each.name} of shape {each.shape} with a bias of shape {bias.shape} "
                "has its outputs last, as layers of class Conv1D in GPT-2, and transformers "
                "expects only those of class Linear to be quantised"
            )
            raise MemdescError(msg)
    return layers


def _is_weight(entry: Entry) -> bool:
    """Whether a tensor is called like a weight, or like all experts of a layer."""
    return entry.name.endswith(WEIGHT) or holds_experts(entry)


def _is_layer(entry: Entry) -> bool:
    """Whether a tensor is the weight of a linear layer within the repeated blocks of a model."""
    layer, _, last = entry.name.rpartition(".")
    is_matrix = entry.dtype in UNQUANTISED and len(entry.shape) == len("oi")
    is_inside = f".{last}" == WEIGHT and is_inner(layer)
    return is_matrix and is_inside and _KEPT.fullmatch(layer) is None


def _check_known(name: str, model: Model) -> None:
    """Refuse weights that are not known, and codes whose scales are missing."""
    container, groups = model.container, model.weights
    unknown = [group for group in groups if group.desc is None]
    if unknown:
        count = len(unknown) - 1
        others = "1 other is" if count == 1 else f"{count} others are"
        more = f"; {others} not known either" if count else ""
        msg = (
            f"--to {name}: {unknown[0].prefix} is not known: {unknown[0].reason}{more}; --map "
            "converts the weights that its rules name"
        )
        raise MemdescError(msg)
    known = {each for group in groups for each in group.names}
    prefixes = {group.prefix for group in groups if group.is_dotted}
    codes = {f".{next(iter(group.tensors))}" for group in groups}
    for each, entry in container.entries.items():
        is_plain = entry.dtype in UNQUANTISED and each not in known
        other = next(iter(beside_floats(container.entries, each) if is_plain else ()), None)
        if other is not None:
            msg = (
                f"--to {name}: {each} holds plain {entry.dtype}, but {other} is beside it, as "
                "beside codes, or as in models that are calibrated and not yet compressed; "
                f"compress the model with the program that made it, or remove {other} if it is "
                "left over"
            )
            raise MemdescError(msg)
    for each, weight in find_orphans(model).items():
        msg = (
            f"--to {name}: {each} scales a weight, as other tensors of that name do, but there is "
            f"no {weight}; get the checkpoint again"
        )
        raise MemdescError(msg)
    for each, entry in container.entries.items():
        prefix, _, role = each.rpartition(".")
        if prefix in prefixes and each not in known and role not in _BESIDE:
            msg = (
                f"--to {name}: {each} is beside the codes of {prefix}, and may change what "
                "they mean; --map converts the weights that its rules name"
            )
            raise MemdescError(msg)
        if each not in known and holds_codes(entry) and f".{each.rpartition('.')[2]}" in codes:
            msg = (
                f"--to {name}: {each} of {entry.dtype} holds codes, as other tensors of that name "
                "do, but nothing beside it scales them; get the checkpoint again"
            )
            raise MemdescError(msg)


def _check_axes_of_mlx(name: str, model: Model) -> None:
    """Refuse a model of MLX with tensors that MLX stores otherwise than transformers.

    These have three dims or more, such as weights of convolutions, heads or other experts; in such
    models mlx-lm also changes names, and values such as those of norms (0.32, `sanitize`).
    """
    is_mlx = any(
        each.desc is not None and each.desc.name.startswith(_MLX) for each in model.weights
    )
    for each in model.container.entries.values() if is_mlx else ():
        if len(each.shape) > len("oi"):
            msg = (
                f"--to {name}: {each.name} of shape {each.shape} has other axes in MLX than in "
                "transformers, and such models may have other names and values there too; --map "
                "converts the weights that its rules name, under the names that they have"
            )
            raise MemdescError(msg)


def _decoded_layout(desc: RecordDesc) -> FormatName:
    """Return the layout that models have for the floats of a record."""
    axes = model_axes(desc)
    return FormatName("plain", () if axes == desc.letters else (("axes", axes),))


def _target_record(
    name: str, prefix: str, desc: RecordDesc, *, said_symmetric: bool
) -> tuple[FormatName, str]:
    """Return what a record becomes in a target, and a warning, which may be empty."""
    target = TARGETS[name]
    decoded = " and ".join(f"--to {each}" for each, other in TARGETS.items() if other.dtype)
    for way in target.ways:
        if way.takes(desc, said_symmetric=said_symmetric):
            if len(desc.dims) > len("oi") and not target.takes_joint:
                msg = (
                    f"--to {name}: {prefix} is {desc.name} with all experts of a layer in one "
                    f"tensor, and loaders of {name} do not read that; {decoded} decode it"
                )
                raise MemdescError(msg)
            return way.made(desc), way.warning_of(prefix, desc)
    read = {kind: None for way in target.ways if desc.name in way.sources for kind in way.codes}
    if not read and any(desc.name == way.record for way in target.ways):
        return FormatName(desc.name, desc.options), ""
    taken = ", ".join(dict.fromkeys(each for way in target.ways for each in way.sources))
    taken += f" with codes of {', '.join(read)}, not {_codes_of(desc)}" if read else ""
    by = f"--to {name} then rounds them again" if target.floats else ""
    msg = (
        f"--to {name}: {prefix} is {desc.name}, and --to {name} takes only {taken}, because "
        f"{name} does not hold the numbers of all others; --map '{prefix}: {desc.name} -> RECORD' "
        f"tries any record and refuses what it does not hold; {decoded} decode any, and "
        f"{by or f'{target.producer} quantises floats'}"
    )
    raise MemdescError(msg)


def _codes_of(desc: RecordDesc) -> str:
    """Return the type of a record's codes; of the first plane if there are several."""
    return desc.codes.kind


def _is_same(src: FormatName, dst: FormatName) -> bool:
    """Whether a record stays what it is."""
    return src.name == dst.name and {*dst.options} <= {*src.options}


def _rounding_warnings(target: Target, groups: Sequence[Weight]) -> Iterator[str]:
    """Return a warning if numbers are rounded."""
    if target.dtype is None:
        return
    descs = dict.fromkeys(group.desc for group in groups if group.desc is not None)
    names = dict.fromkeys(desc.name for desc in descs if _may_round(desc, target.dtype))
    yield from _rounded([*names], target.dtype)


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
