"""Tensors that are left out of an output, since they only serve the old format of a weight."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from types import MappingProxyType

from reorder.messages import first_of

_IN_ADVANCE = "which the config.json of the output does not quantise in advance"
_ACTIVATIONS = (
    *("input_scale", "input_scale_ub", "input_global_scale", "input_zero_point"),
    *("activation_scale", "output_scale"),
)
# scales of the KV cache in compressed-tensors, vLLM and ModelOpt: beside an attention layer
CACHE = ("k_scale", "v_scale", "q_scale", "kv_scale", "k_zero_point", "v_zero_point")
# the last part of the name of each, and why it is left out, as a message says it
LEFT_OUT = MappingProxyType(
    {
        **dict.fromkeys(_ACTIVATIONS, f"they scale activations, {_IN_ADVANCE}"),
        **dict.fromkeys(CACHE, f"they scale the KV cache, {_IN_ADVANCE}"),
        "workspace": "they are memory for the kernels of Marlin",
    }
)
# how many tensors a warning names
_SHOWN = 3


def beside(prefix: str, names: Container[str]) -> list[str]:
    """Return the names of the tensors to leave out that share the prefix of a weight."""
    roles = (role for role in LEFT_OUT if role not in CACHE)
    return [name for role in roles if (name := f"{prefix}.{role}") in names]


def left_out_warnings(names: Iterable[str]) -> Iterator[str]:
    """Return a warning for each reason why tensors are left out, with their names."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(LEFT_OUT[name.rpartition(".")[2]], []).append(name)
    for reason, each in found.items():
        yield f"{first_of(each, _SHOWN)} are left out: {reason}"
