"""Names of tensors that form one quantised weight: codes, and what turns them into numbers.

The table has the names that AutoGPTQ, AutoAWQ, GPTQModel, compressed-tensors, DeepSeek, ModelOpt,
MLX, bitsandbytes, gpt-oss, onnxruntime, quanto, HQQ, torchao, ExLlama, AQLM, QuIP#, QServe,
Nunchaku, ComfyUI, TensorRT-LLM, Mistral and Marlin store.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc import DATA_TYPES, MemoryDesc, RecordDesc, known_records, record_desc
from memdesc.record.names import read_name
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from reorder.storage.containers.entry import Entry

__all__ = [
    "ORDER",
    "Siblings",
    "find_siblings",
    "holds_codes",
    "optional_tensors",
    "shown_options",
    "siblings_of",
    "tensors_of",
]

# which group an input belongs to, of GPTQ
ORDER = "g_idx"
_DOT = "."
_CODE_BITS = 8
# words of packed codes; wider integers are indices
_WORD_BITS = 32
# elements of the scales of few codes, which kernels pad
_MIN_SCALES = 512


class Siblings(NamedTuple):
    """The tensors of a quantised weight by the ends of their names; the codes come first."""

    prefix: str
    entries: Mapping[str, Entry]

    @property
    def codes(self) -> Entry:
        """The tensor of the codes."""
        return next(iter(self.entries.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, that of the codes first."""
        return tuple(entry.name for entry in self.entries.values())


class _Row(NamedTuple):
    """How the name of a format's codes ends, and how those of the other tensors end."""

    codes: str
    others: tuple[str, ...]
    # whether names suffice, whatever the type: bitsandbytes keeps codes in words of bf16
    is_certain: bool = False


def _row(codes: str, others: str) -> _Row:
    """Return a row; ``!`` marks codes whose names suffice."""
    return _Row(codes.removesuffix("!"), tuple(others.split()), codes.endswith("!"))


_ROWS = (
    _row(
        ".qweight!",
        ".scales .qzeros .zeros .g_idx .scales_and_zeros .s1_scales .s2_scales .s2_zeros "
        ".s1_szeros .wscales .wzeros .wtscale .wcscales",
    ),
    _row(
        ".weight_packed!",
        ".weight_scale .weight_zero_point .weight_g_idx .weight_global_scale .weight_shape",
    ),
    _row(
        ".weight",
        ".scale .scales .biases .zero .zeros .zero_point .qzeros .g_idx .scale_inv .scale_weight "
        ".qscale_weight .dequant_scale .SCB .weight_format .per_channel_scale "
        ".weights_scaling_factor .weights_scaling_factor_2",
    ),
    _row(".B", ".s"),
    _row(".W_q!", ".scale .zero"),
    _row(".q_weight!", ".q_scale .q_scale_max .q_groups .q_group_map .q_perm .q_invperm"),
    _row(".trellis!", ".suh .svh .su .sv .mcg .mul1"),
    _row(".codes", ".codebooks .scales"),
    _row(".Qidxs!", ".SU .SV .codebook_id"),
    _row("._data", "._scale ._shift ._zeropoint"),
    _row("._data._data", "._scale ._shift ._zeropoint"),
    _row("_qdata", "_scale _zero_point _per_tensor_scale"),
    _row(":qdata", ":scale :zero_point :per_tensor_scale"),
    _row("_blocks", "_scales"),
    _row("_quantized", "_scale _zero_point"),
    _row("_Q4", "_scales _zero_points"),
    _row("_Q8", "_scales _zero_points"),
    # codes of any name
    _row(
        "",
        "_scale _scales _scale_2 _scale_inv _scale_inverse _global_scale _zero_point "
        "_zero_points _zeros _g_idx",
    ),
    _row(
        "!",
        ".absmax .quant_map .nested_absmax .nested_quant_map .quant_state.bitsandbytes__nf4 "
        ".quant_state.bitsandbytes__fp4",
    ),
)


_CERTAIN = tuple(row for row in _ROWS if row.is_certain)


def find_siblings(entries: Mapping[str, Entry]) -> list[Siblings]:
    """Return the quantised weights of a checkpoint, recognised by name, in its order."""
    return [siblings_of(entries, name) for name in entries if _others(entries, name)]


def siblings_of(entries: Mapping[str, Entry], name: str) -> Siblings:
    """Return a tensor with those that turn its codes into numbers; alone if it holds no codes."""
    dotted = f"{_DOT}{name}"
    stems = [dotted.removesuffix(row.codes) for row in _rows() if dotted.endswith(row.codes)]
    prefix = min(stems, key=len).removeprefix(_DOT)
    held = {name: entries[name], **_others(entries, name)}
    return Siblings(prefix, {_role(prefix, each): entry for each, entry in held.items()})


def _others(entries: Mapping[str, Entry], name: str) -> dict[str, Entry]:
    """Return what turns the codes of a tensor into numbers; nothing if it holds no codes."""
    dotted, codes = f"{_DOT}{name}", entries[name]
    found: dict[str, Entry] = {}
    for row in _rows() if holds_codes(codes) else _CERTAIN:
        if dotted.endswith(row.codes):
            may_fit = row.codes or row.is_certain
            start = dotted[1 : len(dotted) - len(row.codes)]
            # of tensors without a prefix, endings are whole names
            full = [start + ending if start else ending.removeprefix(_DOT) for ending in row.others]
            held = {each: entries[each] for each in full if each in entries}
            found |= {k: each for k, each in held.items() if may_fit or _may_scale(each, codes)}
    said = [each for each in codes.members if each in entries and each != name]
    return found | {each: entries[each] for each in said}


def _may_scale(other: Entry, codes: Entry) -> bool:
    """Whether a tensor has so few elements that each may belong to some codes, of a bit or more."""
    if codes.dtype not in DATA_TYPES:
        return True  # of a tensor in another file the size is not known
    return prod(other.shape) <= max(8 * codes.nbytes, _MIN_SCALES)


def _role(prefix: str, name: str) -> str:
    return name.removeprefix(prefix).lstrip("._:")


def holds_codes(entry: Entry) -> bool:
    """Whether a tensor may hold codes: words of integers, narrow floats, blocks, unknown types."""
    desc = entry.desc
    kind = desc.dtype.name if isinstance(desc, MemoryDesc) else entry.dtype
    if isinstance(desc, RecordDesc) or kind not in DATA_TYPES:
        return True
    bits = DATA_TYPES[kind].bits
    is_code = bits <= _WORD_BITS if kind in INTEGERS else bits <= _CODE_BITS
    return is_code and kind != "boolean"


@lru_cache(maxsize=1)
def _rows() -> tuple[_Row, ...]:
    """Return all rows; outputs have records of several tensors by their own names."""
    made = []
    for name in known_records():
        first, *others = (*tensors_of(name), *optional_tensors(name))
        if others:
            made.append(_row(f".{first}", " ".join(f".{each}" for each in others)))
    return tuple(dict.fromkeys((*_ROWS, *made)))


@lru_cache(maxsize=64)
def tensors_of(name: str) -> tuple[str, ...]:
    """Return the names of the tensors of a record."""
    return tuple(record_desc((4096, 4096), name).tensors)


@lru_cache(maxsize=64)
def optional_tensors(name: str) -> dict[str, str]:
    """Return the tensors that a record has only with an option that is not its default."""
    found: dict[str, str] = {}
    for option, default in read_name(name)[2].items():
        if default is False:
            made = record_desc((4096, 4096), name, **{option: True})
            found |= {each: option for each in made.tensors if each not in tensors_of(name)}
    return found


def shown_options(name: str, held: Container[str]) -> dict[str, bool]:
    """Return the options of a record that the names of its tensors show."""
    return {option: tensor in held for tensor, option in optional_tensors(name).items()}
