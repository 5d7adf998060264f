"""Targets of whole models: what each quantised weight becomes, decided once.

A target, such as `awq`, has ways from records to the one that its loader reads, which holds their
numbers exactly; or it is a type of floats, to which all are decoded.

Sources: the loaders of transformers 5.24, vLLM 0.10, GPTQModel 2 (version 2 of `qzeros`),
AutoAWQ 0.2, and `fp8_cast_bf16.py` of DeepSeek-V3.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from memdesc import MemdescError
from memdesc.dtypes import ALIASES
from memdesc.errors import about, short_repr
from memdesc.record import RecordDesc
from memdesc.record.rows import SCHEMES
from memdesc.record.scheme import block_sizes
from memdesc.tuples import NamedTuple
from reorder.checkpoints.config import OUTPUT, is_inner, says_symmetric
from reorder.checkpoints.convert.rules import FormatName, Rule, read_format
from reorder.checkpoints.experts import block_of, holds_experts, split_stacks
from reorder.checkpoints.formats.entry import UNQUANTISED, WEIGHT, model_axes
from reorder.checkpoints.weights import CACHE, Model, Weight, find_misfits, holds_codes
from reorder.messages import first_of
from reorder.records.numbers import is_integer_number, number_bits
from reorder.records.repacking import target_desc
from reorder.values.formats import FLOATS

# the rule of a tensor, and the weight that it moves as a whole, if it does
Chosen = tuple[Rule, Weight | None]


class Way(NamedTuple):
    """How records of some formats become records of one format."""

    # records whose numbers the new one can hold, as far as the formats show
    sources: tuple[str, ...]
    # what they become, with the options that loaders of the target expect; ``*`` stands for the
    # value that the source has
    dst: FormatName
    # the type of codes that these loaders read; empty for all types that the record has
    codes: str
    # whether it takes only symmetric sources: they have neither zero points nor offsets, or
    # config.json says that all zero points are the middle code
    is_symmetric: bool


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


# A line names a target, with values of its fields. Those after it have its ways, each as
# SRC|SRC [CODES] [symmetric] -> DST. The loader of GPTQModel needs g_idx. Version 1 stores zero
# points less 1, so not 0.
_TABLE = """
bf16 dtype=bf16
f16 dtype=f16
fp8-block method=fp8 takes_joint floats=fp8_block(scale_inv=true)
    fp8_block f8_e4m3 -> fp8_block(scale_inv=true,block=*)
    fp8_tensor f8_e4m3 -> fp8_block(scale_inv=true)
gptq producer=GPTQModel
    gptq -> gptq(g_idx=true,zeros=*)
    awq|pack_quantized symmetric -> gptq(zeros=v1,g_idx=true)
    awq|pack_quantized -> gptq(zeros=v2,g_idx=true)
    int_quantized symmetric -> gptq(bits=8,zeros=v1,g_idx=true)
    int_quantized -> gptq(bits=8,zeros=v2,g_idx=true)
awq producer=GPTQModel
    gptq|awq|pack_quantized u4 -> awq
compressed-tensors method=compressed-tensors producer=llm-compressor
    int_quantized -> int_quantized(zeros=*)
    gptq|awq|pack_quantized symmetric -> pack_quantized(zeros=false)
    gptq|awq|pack_quantized -> pack_quantized(zeros=true)
    modelopt_nvfp4|compressed_nvfp4 -> compressed_nvfp4
    modelopt_mxfp4|compressed_mxfp4|mlx_mxfp4 -> compressed_mxfp4
    mxfp8|mlx_mxfp8 -> mxfp8
    fp8_tensor f8_e4m3 -> fp8_tensor(scale_inv=false)
    fp8_channel f8_e4m3 -> fp8_channel(scale_inv=false)
    fp8_block f8_e4m3 -> fp8_block(scale_inv=false,block=*)
"""


def _target(text: str) -> tuple[str, Target]:
    (name, *given), *lines = map(str.split, text.splitlines())
    fields: dict[str, Any] = dict(word.split("=", 1) for word in given if "=" in word)
    if "floats" in fields:
        fields["floats"] = read_format(fields["floats"])
    ways = []
    for sources, *marks, _, dst in lines:
        codes = "".join(mark for mark in marks if mark != "symmetric")
        ways.append(Way((*sources.split("|"),), read_format(dst), codes, "symmetric" in marks))
    return name, Target((*ways,), takes_joint="takes_joint" in given, **fields)


TARGETS: Mapping[str, Target] = MappingProxyType(
    dict(map(_target, re.split(r"\n(?! )", _TABLE.strip())))
)
# the records whose experts transformers does not load -> what loads them
_EXPERT_LOADERS = dict.fromkeys(("gptq", "awq"), "GPTQModel") | dict.fromkeys(
    ("int_quantized", "mxfp8", "compressed_nvfp4", "fp8_block"), "compressed-tensors"
)
_MLX, _GGUF = "mlx", "gguf"
# Matrices that loaders of FP8 do not expect to be quantised, by parts of their names: routers of
# experts, embeddings, outputs, adapters; what DeepSeek keeps of layers that predict more tokens and
# of its indexer and compressor; and layers that transformers keeps in f32 or multiplies by itself.
# Sources: vLLM 0.10 (`deepseek_mtp.py`), transformers 5.24 (`_keep_in_fp32_modules`, Mamba, Jamba).
_KEPT = re.compile(
    r"(.*\.)?(gate|[^.]*(router|embed)[^.]*|lm_heads?|lora_[^.]*|eh_proj|shared_head|weights_proj"
    r"|qformer|DenseReluDense\.wo|dt_proj|compressor)(\..*)?"
)
_PROJECTION, _SCALE = "out_proj", ".scale"
_BY_RULE = "--map converts only the weights that its rules name"


def decoded_format(desc: RecordDesc) -> FormatName:
    """Return what a record is decoded to: numbers in the order in which models have them."""
    axes = model_axes(desc)
    return FormatName("plain", () if axes == desc.letters else (("axes", axes),))


def left_out_warnings(names: Collection[str]) -> Iterator[str]:
    """Return a warning if tensors are left out."""
    if names:
        yield (
            "left out, because the config.json of the output says nothing about activations, "
            f"kernels and the KV cache: {first_of(names)}"
        )


class Decided(NamedTuple):
    """What a target makes of a checkpoint."""

    # with the tensors that the output keeps: experts in tensors of their own, and no scales of
    # the KV cache
    model: Model
    # what config.json declares
    target: Target = Target()
    # the rules of what changes, by the names of tensors
    chosen: Mapping[str, Chosen] = MappingProxyType({})
    # what is rounded, and what is left out
    warnings: tuple[str, ...] = ()


def checked_target(name: object) -> str:
    """Return the name of a target. Fails if there is none; the message suggests the one meant."""
    if name == _MLX:
        raise MemdescError(
            "mlx-lm may change names, shapes and values of a model, so --to mlx is left to it: "
            "--to bf16 decodes any model, and mlx_lm.convert quantises that"
        )
    if not isinstance(name, str) or name not in TARGETS:
        meant = ALIASES.get(str(name).removeprefix("torch."))
        hint = f"; did you mean {meant}" if meant in TARGETS else ""
        raise MemdescError(
            f"there is no target {short_repr(name)}; the targets are {', '.join(TARGETS)}{hint}"
        )
    return name


def decide_target(name: str, model: Model) -> Decided:
    """Return what a target makes of the quantised weights of a model, or else of its floats."""
    target = TARGETS[checked_target(name)]
    with about(f"--to {name}"):
        if model.container.format == _GGUF:
            raise MemdescError(
                f"{short_repr(str(model.path))} is a GGUF, whose tensors have the names of "
                f"llama.cpp, which loaders of {name} do not know; --map '*: "
                f"{target.dtype or 'bf16'}' decodes them"
            )
        model = model.keeping(split_stacks(model.entries))
        _check_known(model)
        if model.weights or any(isinstance(e.desc, RecordDesc) for e in model.entries.values()):
            return _decide_weights(name, target, model)
        model.configs.refuse_unknown()
        if target.floats is not None:
            return _quantise_floats(name, target, target.floats, model)
        if target.dtype is not None and not model.container.has_nodes:
            return _retype_floats(name, target, target.dtype, model)
        by = target.producer and f"{target.producer} quantises floats"
        way = by or "--map 'PATTERN: TYPE' changes the type of floats"
        raise _nothing(model, f"none is quantised; {way}")


def _nothing(model: Model, why: str) -> MemdescError:
    return MemdescError(f"{short_repr(str(model.path))} has no weights to convert: {why}")


def _check_known(model: Model) -> None:
    """Refuse weights that are not known, and tensors that may change what known ones mean."""
    if unknown := [weight for weight in model.weights if weight.desc is None]:
        first, *others = unknown
        more = f"; {len(others)} more like it" if others else ""
        raise MemdescError(f"{first.prefix} is not known: {first.reason}{more}; {_BY_RULE}")
    is_mlx = any(weight.desc and weight.desc.name.startswith(_MLX) for weight in model.weights)
    for name, entry in model.entries.items():
        if is_mlx and len(entry.shape) > len("oi"):
            # mlx-lm also changes names, and values such as those of norms (0.32, `sanitize`)
            raise MemdescError(
                f"{name} of shape {entry.shape} has other axes in MLX than in transformers, and "
                f"such models may have other names and values there too; {_BY_RULE}"
            )
    for name, why in find_misfits(model):
        raise MemdescError(f"{name} {why}; if that is damage, get the checkpoint again; {_BY_RULE}")


def _decide_weights(name: str, target: Target, model: Model) -> Decided:
    sections = model.configs.sections[1] if model.weights else []
    # in lower case, as transformers expects it
    is_declared = target.method in (None, *(section.get("quant_method") for section in sections))
    said_symmetric, dtype = any(map(says_symmetric, sections)), target.dtype
    how = f", {dtype}" if dtype else ", symmetric as config.json says" if said_symmetric else ""
    chosen: dict[str, Chosen] = {}
    rounded, misread = list[str](), dict[str, None]()
    for weight, desc in ((x, x.desc) for x in model.weights if x.desc is not None):
        if dtype is not None:
            dst = decoded_format(desc)
            rounded += [desc.name] if _may_round(desc, dtype) else []
        else:
            dst = _target_record(name, weight.prefix, desc, said_symmetric=said_symmetric)
        if not (is_declared and desc.name == dst.name and {*dst.options} <= {*desc.options}):
            text = f"--to {name}: {desc.name} -> {dst}{how}"
            rule = Rule(text, "*", dst=dst, dtype=dtype)
            chosen |= dict.fromkeys(weight.names, (rule, weight))
            misread |= dict.fromkeys(_misread(weight.prefix, desc, dst))
    if not chosen:
        blocks = [e.desc.name for e in model.entries.values() if isinstance(e.desc, RecordDesc)]
        why = f"they are {name} already; copy it"
        way = f"--map '*: {dtype or 'bf16'}' decodes them"
        raise _nothing(model, why if model.weights else f"they are blocks of {blocks[0]}; {way}")
    lost = [tensor for tensor in model.entries if f".{tensor}".endswith(CACHE)]
    kept = {tensor: entry for tensor, entry in model.entries.items() if tensor not in {*lost}}
    warnings = (*misread, *_rounded(rounded, dtype or ""), *left_out_warnings(lost))
    return Decided(model.keeping(kept), target, chosen, warnings)


def _target_record(name: str, prefix: str, desc: RecordDesc, *, said_symmetric: bool) -> FormatName:
    """Return what a record becomes in a target. Fails if the target does not hold its numbers."""
    target, held = TARGETS[name], dict(desc.options)
    decoded = " and ".join(f"--to {key}" for key, other in TARGETS.items() if other.dtype)
    ways = [way for way in target.ways if desc.name in way.sources]
    for way in ways:
        fits = not way.is_symmetric or desc.rule.is_symmetric or said_symmetric
        if not fits or way.codes not in ("", desc.codes.kind):
            continue
        if len(desc.dims) > len("oi") and not target.takes_joint:
            raise MemdescError(
                f"{prefix} is {desc.name} with all experts of a layer in one tensor, and loaders "
                f"of {name} do not read that; {decoded} decode it"
            )
        options = ((key, held[key] if value == "*" else value) for key, value in way.dst.options)
        return FormatName(way.dst.name, (*options,))
    taken = ", ".join(dict.fromkeys(source for way in target.ways for source in way.sources))
    codes = ", ".join({way.codes for way in ways})
    taken += f" with codes of {codes}, not {desc.codes.kind}" if ways else ""
    raise MemdescError(
        f"{prefix} is {desc.name}, and --to {name} takes only {taken}; {decoded} decode any, and "
        f"--map '{prefix}: {desc.name} -> RECORD' tries any record"
    )


def _misread(prefix: str, src: RecordDesc, dst: FormatName) -> Iterator[str]:
    """Yield warnings about loaders that cannot read what a record becomes."""
    name, held, lost = dst.name, dict(dst.options), list[tuple[str, str, str]]()
    if name == "gptq" and held.get("zeros") == "v2":
        yield (
            "vLLM 0.10 takes zero points of version 2 of GPTQ for version 1; GPTQModel and newer "
            "versions of vLLM read them"
        )
    if name == "pack_quantized" and held.get("zeros"):
        lost.append(("zero points", "pack-quantized", "vLLM"))
    if held.get("scale_inv"):
        made = target_desc(src, name, held)
        if any(size % group for size, group in zip(made.dims, made.scales.groups, strict=True)):
            lost.append(("parts of blocks", "FP8 without a GPU", "vLLM"))
    elif block_of(prefix) and name in _EXPERT_LOADERS:
        lost.append(("experts", name, _EXPERT_LOADERS[name]))
    if name in ("gptq", "awq") and OUTPUT in prefix.split("."):
        lost.append((f"the {OUTPUT}", name, "GPTQModel"))
    for what, of, by in lost:
        yield (
            f"transformers 5.24 does not load {what} of {of}, or computes wrong numbers from them; "
            f"{by} reads them"
        )


def _retype_floats(name: str, target: Target, dtype: str, model: Model) -> Decided:
    """Return how all floats of a model get another type, as loaders do."""
    entries = model.entries.values()
    codes = [entry for entry in entries if len(entry.shape) > 1 and holds_codes(entry)]
    if codes:
        raise MemdescError(
            f"{codes[0].name} of {codes[0].dtype} may hold codes, which some of the floats may "
            f"scale; if not, --map 'PATTERN: {dtype}' changes the floats that it names"
        )
    floats = [entry for entry in entries if entry.dtype in UNQUANTISED]
    moved = {entry.name: entry.dtype for entry in floats if entry.dtype != dtype}
    if not moved:
        why = f"all its floats are {dtype} already; copy it" if floats else "it has no floats"
        raise _nothing(model, why)
    rounded = [source for source in moved.values() if not FLOATS[dtype].holds(FLOATS[source])]
    rule = Rule(f"--to {name}: floats -> {dtype}", "*", dtype=dtype)
    warnings = tuple(_rounded(rounded, dtype))
    return Decided(model, target, dict.fromkeys(moved, (rule, None)), warnings)


def _rounded(sources: Iterable[str], dtype: str) -> Iterator[str]:
    """Yield a warning if a type of floats does not hold the numbers of others."""
    if shown := ", ".join(dict.fromkeys(sources)):
        yield f"weights of {shown} are rounded to {dtype}, which does not hold all their numbers"


def _quantise_floats(name: str, target: Target, dst: FormatName, model: Model) -> Decided:
    """Return how those linear layers of a model of floats that whole blocks cover are quantised."""
    rows, columns = block_sizes(dst.name, (SCHEMES[dst.name].defaults | dict(dst.options))["block"])
    what = f"blocks of {rows} x {columns} do not cover"
    moved, left, stacks = dict[str, str](), list[str](), list[str]()
    for full, entry in model.entries.items():
        layer = full.removesuffix(WEIGHT)
        if full[1:].endswith(_SCALE):
            # transformers 5.24, `update_weight_conversions` of `quantizer_finegrained_fp8.py`
            raise MemdescError(
                f"{full} is called like scales of codes, and transformers would take it for that"
            )
        if entry.dtype not in UNQUANTISED:
            continue
        stacks += [full] if holds_experts(entry) else []
        is_linear = layer != full and len(entry.shape) == len("oi") and is_inner(layer)
        # PyTorch's MultiheadAttention and I-BERT multiply by their weights themselves
        beside = (f"{layer.removesuffix(_PROJECTION)}in_proj_weight", f"{full}_integer")
        is_kept = _KEPT.fullmatch(layer) or not model.entries.keys().isdisjoint(beside)
        if not is_linear or is_kept:
            continue
        bias = model.entries.get(f"{layer}.bias")
        if bias is not None and bias.shape != entry.shape[:1]:
            raise MemdescError(
                f"{full} of shape {entry.shape} with a bias of shape {bias.shape} has its outputs "
                "last, as layers of class Conv1D in GPT-2, and transformers expects only those of "
                "class Linear to be quantised"
            )
        if not (entry.shape[0] % rows or entry.shape[1] % columns):
            moved[full] = entry.dtype
        elif block_of(full):
            raise MemdescError(
                f"{what} {full} of shape {entry.shape}, and transformers expects that all experts "
                "are quantised; --map quantises the weights that its rules name"
            )
        else:
            left.append(full)
    if not moved:
        raise _nothing(
            model,
            "none is quantised, and in its numbered blocks there is no matrix of floats, called "
            f"NAME{WEIGHT}, that blocks of {rows} x {columns} cover",
        )
    sources = ", ".join(dict.fromkeys(moved.values()))
    how = f"{len(moved)} in all, with a scale for each block of {rows} x {columns}"
    warnings = [f"weights of {sources} are rounded to {dst.name}, {how}"]
    for names, why in ((left, f"{what} them"), (stacks, "each has all experts of a layer")):
        if names:
            warnings.append(f"{first_of(names)} stay floats: {why}")
    rule = Rule(f"--to {name}: floats -> {dst}", "*", dst=dst)
    return Decided(model, target, dict.fromkeys(moved, (rule, None)), (*warnings,))


def _may_round(desc: RecordDesc, dtype: str) -> bool:
    """Whether a type of floats may be unable to hold all numbers of a record, given the formats.

    A product has as many significant bits as its factors together. The exponents of bf16 are those
    of f32, in which the numbers are computed; other types may not have them.
    """
    if desc.rule.kind != "f32":  # each operation is rounded to that type already
        return dtype not in (desc.rule.kind, "f32")
    form, bits = FLOATS[dtype], 0
    for number in (desc.rule.code, *desc.rule.scale):
        element = desc.field_of(number).kind
        if is_integer_number(desc, number):
            bits += number_bits(desc, number)
        elif element == "e8m0" and not number.table:
            bits += 1
        else:
            bits += FLOATS["f32" if number.table or element not in FLOATS else element].mantissa + 1
    has_range = form.exponent == FLOATS["f32"].exponent
    return not has_range or bool(desc.rule.offset) or bits > form.mantissa + 1
