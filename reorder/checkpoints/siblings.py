"""Find the tensors that form one quantised weight: codes, and those that turn them into numbers.

The first tensor of a saved Quantized or Record has a note that lists them. Others are recognised by
name, as AutoGPTQ, AutoAWQ, GPTQModel, compressed-tensors, DeepSeek, ModelOpt,
MLX, bitsandbytes, gpt-oss, onnxruntime, quanto, HQQ, torchao, ExLlama, AQLM, QuIP#, QServe,
Nunchaku, ComfyUI, TensorRT-LLM, Mistral and Marlin name them.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError, MemoryDesc
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import short_repr
from memdesc.record import RecordDesc
from memdesc.record.names import scheme_of
from memdesc.record.rows import SCHEMES
from reorder.checkpoints.stored import BARE_ROLES, ONE, WEIGHT, stem_of
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reorder.checkpoints.formats.entry import Entry

# names of the tensor that has each input's group, in GPTQ and in compressed-tensors before 0.20
ORDERS = ("g_idx", "weight_g_idx")
_DOT = "."
_CODE_BITS = 8
# words of packed codes; wider integers are indices
_WORD_BITS = 32
# names of tensors of codes that other tensors have too
_USUAL = ("weight", "data", "blocks")
# the ends of names of scales beside codes that are called `weight` elsewhere
_BARE_SCALES = ("scale_inv", "weight_scale")
# scales of few codes may have this many elements: kernels pad them
_MIN_SCALES = 512


class Note(NamedTuple):
    """What `save` stores with the first tensor of a Quantized or a Record.

    `tensors` maps roles to names, the first one first; `facts` say what they are together.
    """

    name: str
    tensors: Mapping[str, str]
    facts: Mapping[str, Any]

    @property
    def stem(self) -> str:
        """What precedes the role in the names of its tensors."""
        role, first = next(iter(self.tensors.items()))
        return stem_of(first, role, str(self.facts.get("record")))

    def name_at(self, stem: str) -> str:
        """Return the name of the whole if its tensors had another stem."""
        is_below = self.name.startswith(self.stem)
        return stem + self.name.removeprefix(self.stem) if is_below else self.name


class Siblings(NamedTuple):
    """The tensors of a quantised weight, codes first, by the ends of their names.

    With a `note`, they are the tensors that it lists, by role.
    """

    prefix: str
    entries: Mapping[str, Entry]
    note: Note | None = None

    @property
    def codes(self) -> Entry:
        """The tensor of the codes."""
        return next(iter(self.entries.values()))

    @property
    def is_dotted(self) -> bool:
        """Whether a dot precedes the role of the codes; otherwise the weight has a name itself.

        Experts of a layer in one tensor have such names.
        """
        return self.codes.name.startswith(f"{self.prefix}{_DOT}") or not self.prefix

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, codes first."""
        return tuple(entry.name for entry in self.entries.values())


class _Endings(NamedTuple):
    """Endings of names in one format: of the codes, and of the other tensors."""

    codes: str
    others: tuple[str, ...]
    # whether the names suffice whatever the type: bitsandbytes keeps codes in words of bf16
    is_certain: bool = False


def _endings(codes: str, others: str) -> _Endings:
    """Return a row; ``!`` marks codes recognised by name alone."""
    return _Endings(codes.removesuffix("!"), tuple(others.split()), codes.endswith("!"))


# ends of names of tensors that change the layer around its weight, or what its codes mean, as the
# order of scales and the rotation that ComfyUI notes; they belong to the codes
_CHANGING = ".pre_quant_scale .svdquant_lora_a .svdquant_lora_b .comfy_quant"
# ends of names of tensors that scale codes, whatever those are called
_SCALING = (
    "_scale _scales _scale_2 _scale_inv _scale_inverse _global_scale _zero_point _zero_points "
    "_zeros _g_idx _weight_scale _weight_scale_2"
)
# Rows besides those of the schemes, mostly of formats that are not decoded. A name may match
# several: its longest ending gives the prefix, and each row adds tensors.
_ROWS = (
    _endings(
        ".qweight!",
        ".zeros .scales_and_zeros .s1_scales .s2_scales .s2_zeros .s1_szeros .wscales .wzeros "
        ".wtscale .wcscales",
    ),
    _endings(".weight_packed!", ".weight_g_idx"),
    _endings(
        ".weight",
        ".zero .zeros .zero_point .qzeros .g_idx .scale_inv .scale_weight "
        ".qscale_weight .global_scale .dequant_scale .SCB .weight_format .per_channel_scale "
        f".weights_scaling_factor .weights_scaling_factor_2 {_CHANGING}",
    ),
    _endings(".B", ".s"),
    _endings(".q_weight!", ".q_scale .q_scale_max .q_groups .q_group_map .q_perm .q_invperm"),
    _endings(".trellis!", ".suh .svh .su .sv .mcg .mul1"),
    _endings(".codes", ".codebooks .scales"),
    _endings(".Qidxs!", ".SU .SV .codebook_id"),
    _endings("._data", "._scale ._shift ._zeropoint"),
    _endings("._data._data", "._scale ._shift ._zeropoint"),
    _endings("_qdata!", "_scale _zero_point _per_tensor_scale _scale_and_zero _act_pre_scale"),
    _endings(":qdata!", ":scale :zero_point :per_tensor_scale :scale_and_zero :act_pre_scale"),
    _endings("_quantized", "_scale _zero_point"),
    _endings("_Q4", "_scales _zero_points"),
    _endings("_Q8", "_scales _zero_points"),
    _endings("", _SCALING),
    _endings(
        "!",
        ".absmax .quant_map .nested_absmax .nested_quant_map .quant_state.bitsandbytes__nf4 "
        ".quant_state.bitsandbytes__fp4",
    ),
)


def find_siblings(entries: Mapping[str, Entry]) -> list[Siblings]:
    """Return the quantised weights of a checkpoint, in its order."""
    found = {
        name: siblings_of(entries, name)
        for name, entry in entries.items()
        if entry.note is not None or _others(entries, name)
    }
    noted = {each for weight in found.values() if weight.note for each in weight.names[1:]}
    return [weight for name, weight in found.items() if name not in noted]


def note_of(entries: Mapping[str, Entry], first: str) -> Note:
    """Return the note that is stored with the first tensor of several.

    Fails if there is no note, or it lists tensors that do not exist.
    """
    value = entries[first].note or {}
    name, tensors = value.get("name"), value.get("tensors")
    listed = [*tensors.values()] if isinstance(tensors, dict) else []
    is_joined = listed[:1] == [first] and len({*map(repr, listed)}) == len(listed)
    if not isinstance(name, str) or not isinstance(tensors, dict) or not is_joined:
        msg = f"the descriptor of {short_repr(first)} does not say which tensors belong to it"
        raise MemdescError(msg)
    for each in tensors.values():
        if not isinstance(each, str) or each not in entries:
            msg = (
                f"{short_repr(name)} is stored as {', '.join(map(short_repr, tensors.values()))}, "
                f"but there is no {short_repr(each)}; reorder.open_checkpoint reads the others"
            )
            raise MemdescError(msg)
    facts = {key: each for key, each in value.items() if key not in {"name", "tensors"}}
    return Note(name, tensors, facts)


def siblings_of(entries: Mapping[str, Entry], name: str) -> Siblings:
    """Return a tensor with those that turn its codes into numbers; just itself if it has none."""
    if entries[name].note is not None:
        with suppress(MemdescError):  # `read_group` says that a note is damaged
            note = note_of(entries, name)
            held = {role: entries[each] for role, each in note.tensors.items()}
            return Siblings(note.stem, held, note)
    dotted = f"{_DOT}{name}"
    stems = [dotted.removesuffix(row.codes) for row in _rows() if dotted.endswith(row.codes)]
    prefix = min(stems, key=len).removeprefix(_DOT)
    held = {name: entries[name], **_others(entries, name)}
    return Siblings(prefix, _roles(prefix, held))


def _others(entries: Mapping[str, Entry], name: str) -> dict[str, Entry]:
    """Return the tensors that turn the codes of a tensor into numbers; none if it has no codes."""
    dotted, codes = f"{_DOT}{name}", entries[name]
    found: dict[str, Entry] = {}
    for row in _rows() if holds_codes(codes) else _certain_rows():
        if dotted.endswith(row.codes):
            may_fit = row.codes or row.is_certain
            start = dotted[1 : len(dotted) - len(row.codes)]
            # without a prefix, endings are whole names
            full = [start + ending if start else ending.removeprefix(_DOT) for ending in row.others]
            held = {each: entries[each] for each in full if each in entries}
            found |= {k: each for k, each in held.items() if may_fit or _may_scale(each, codes)}
    return found


def beside_floats(entries: Mapping[str, Entry], name: str) -> list[str]:
    """Return the tensors beside a weight of floats that only codes should have."""
    if not name.endswith(WEIGHT):
        return []
    layer = name.removesuffix(WEIGHT)
    found = [*(f"{name}{end}" for end in _SCALING.split())]
    found += [f"{layer}{end}" for end in _CHANGING.split()]
    return [each for each in found if each in entries]


def _may_scale(other: Entry, codes: Entry) -> bool:
    """Whether a tensor has few enough elements to scale these codes, of a bit or more each."""
    if codes.dtype not in DATA_TYPES:
        return True  # the size of a tensor in an unread file is not known
    return prod(other.shape) <= max(8 * codes.nbytes, _MIN_SCALES)


def order_of(found: Siblings) -> Entry | None:
    """Return the tensor that has each input's group, if there is one."""
    return next((found.entries[name] for name in ORDERS if name in found.entries), None)


def _roles(prefix: str, held: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return tensors by the ends of their names; codes without one are called `weight`."""
    found = {name.removeprefix(prefix).lstrip("._:"): entry for name, entry in held.items()}
    if "" not in found or found.keys().isdisjoint(_BARE_SCALES):
        return found
    return {BARE_ROLES.get(role, role): entry for role, entry in found.items()}


def holds_codes(entry: Entry) -> bool:
    """Whether a tensor may hold codes: integers, narrow floats, blocks, or an unknown type."""
    desc = entry.desc
    kind = desc.dtype.name if isinstance(desc, MemoryDesc) else entry.dtype
    if isinstance(desc, RecordDesc) or kind not in DATA_TYPES:
        return True
    bits = DATA_TYPES[kind].bits
    is_code = bits <= _WORD_BITS if kind in INTEGERS else bits <= _CODE_BITS
    return is_code and kind != "boolean"


@lru_cache(maxsize=1)
def _certain_rows() -> tuple[_Endings, ...]:
    return tuple(row for row in _rows() if row.is_certain)


@lru_cache(maxsize=1)
def _rows() -> tuple[_Endings, ...]:
    """Return all rows: the table, and the records of several tensors by their own names."""
    made = []
    for scheme in SCHEMES.values():
        first, *others = (*scheme.tensors(), *scheme.optional)
        ends = " ".join(f"{scheme.joint}{each}" for each in others)
        mark = "" if first in _USUAL else "!"
        made.append(_endings(f"{scheme.joint}{first}{mark}", ends))
    return tuple(dict.fromkeys((*_ROWS, *made)))


def tensors_of(name: str) -> tuple[str, ...]:
    """Return the names of the tensors of a record."""
    scheme = scheme_of(name)
    return (ONE,) if scheme is None else scheme.tensors()
