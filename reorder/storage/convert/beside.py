"""Tensors beside the codes of a weight that mean nothing once the weight is stored otherwise."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from memdesc.errors import first_of

_IN_ADVANCE = "which the config.json of the output does not quantise in advance"
_ACTIVATIONS = (
    *("input_scale", "input_scale_ub", "input_global_scale", "input_zero_point"),
    *("activation_scale", "output_scale"),
)
# of compressed-tensors, vLLM and ModelOpt, for the whole of an attention layer
CACHE = ("k_scale", "v_scale", "q_scale", "kv_scale", "k_zero_point", "v_zero_point")
# why each is left out
LEFT_OUT = {
    **dict.fromkeys(_ACTIVATIONS, f"they scale activations, {_IN_ADVANCE}"),
    **dict.fromkeys(CACHE, f"they scale the KV cache, {_IN_ADVANCE}"),
    "workspace": "they are memory for the kernels of Marlin",
}
# how many tensors a warning names
_SHOWN = 3


def beside(prefix: str, names: Container[str]) -> list[str]:
    """Return the names of those that a weight has."""
    roles = (role for role in LEFT_OUT if role not in CACHE)
    return [name for role in roles if (name := f"{prefix}.{role}") in names]


def left_out_warnings(names: Iterable[str]) -> Iterator[str]:
    """Return a warning about those that the output does not have, for each reason."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(LEFT_OUT[name.rpartition(".")[2]], []).append(name)
    for reason, each in found.items():
        yield f"{first_of(each, _SHOWN)} are left out: {reason}"
