"""Experts of a layer: MLX has the weights of all in one tensor, others in one tensor per expert.

A stacked tensor is the concatenation of its experts' tensors, so a stack is read as parts of a
file. Source: mlx-lm 0.32, `sanitize` of `models/qwen3_moe.py`, `mixtral.py` and others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from memdesc import MemdescError
from memdesc.errors import short_repr
from reorder.checkpoints.formats.entry import Entry, Tensor, describe

# the block, the expert's number, the layer and the rest; a stack of MLX has no number
_EXPERT = re.compile(r"(.*)\.experts\.([0-9]{1,9})\.(\w+)(\..*)?")
_STACK = re.compile(r"(.*)\.switch_mlp\.(\w+)(\..*)?")
# blocks of Mixtral, whose layers have other names
_MIXTRAL = ".block_sparse_moe"
_LAYERS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def stacked_name(name: str) -> str:
    """Return MLX's name for the stack that an expert's layer or tensor is in; else the name."""
    expert = _EXPERT.fullmatch(name)
    if expert is None:
        return name
    block, _, layer, rest = expert.groups("")
    return f"{block}.switch_mlp.{_LAYERS.get(layer, layer)}{rest}"


def block_of(name: str) -> str:
    """Return the name of the block that an expert's layer or tensor is in; empty for others."""
    expert = _EXPERT.fullmatch(name)
    return "" if expert is None else expert[1]


def holds_experts(tensor: Entry | Tensor) -> bool:
    """Whether a tensor has all experts of a layer, as transformers has them."""
    return tensor.name.rpartition(".")[0].endswith(".experts") and len(tensor.shape) == len("eoi")


def split_stacks(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return entries with the experts of each stack as tensors of their own, unless these exist."""
    names = {layer: name for name, layer in _LAYERS.items()}
    tensors: dict[str, Entry] = {}
    for name, entry in entries.items():
        stack = _STACK.fullmatch(name)
        if stack is None or entry.is_described or len(entry.shape) < len("eoi"):
            tensors[name] = entry
            continue
        block, layer, rest = stack.groups("")
        own = names.get(layer, layer) if block.endswith(_MIXTRAL) else layer
        count, *shape = entry.shape
        nbytes = entry.nbytes // max(count, 1)
        for k in range(count):
            expert = f"{block}.experts.{k}.{own}{rest}"
            if expert in entries or expert in tensors:
                raise MemdescError(
                    f"{short_repr(name)} holds {short_repr(expert)}, which is also a tensor of its "
                    "own; remove the one that is out of date"
                )
            at = entry.offset + k * nbytes
            held = replace(entry, name=expert, shape=(*shape,), offset=at, nbytes=nbytes)
            tensors[expert] = describe(held, None)
    return tensors
