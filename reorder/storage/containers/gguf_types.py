"""The types of GGUF: of its tensors and of the values of its metadata.

Source: `ggml_type` and `gguf_type` of llama.cpp, as in gguf 0.19 (`GGML_QUANT_SIZES`,
`GGUFValueType`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = [
    "ARRAY",
    "SCALARS",
    "STRING",
    "TYPES",
    "GgufType",
    "GgufValue",
    "type_name",
    "type_number",
]


class GgufType(NamedTuple):
    """A type of tensors: its name here, elements of a block, bytes of a block."""

    name: str
    block: int
    nbytes: int


class GgufValue(NamedTuple):
    """A value of metadata: the number of its type, and the bytes behind that."""

    kind: int
    raw: bytes


# Names are those of data types and records; types that are neither have the name of GGUF.
TYPES: dict[int, GgufType] = {
    number: GgufType(*row)
    for number, row in {
        0: ("f32", 1, 4),
        1: ("f16", 1, 2),
        2: ("q4_0", 32, 18),
        3: ("q4_1", 32, 20),
        6: ("q5_0", 32, 22),
        7: ("q5_1", 32, 24),
        8: ("q8_0", 32, 34),
        9: ("Q8_1", 32, 40),
        10: ("q2_k", 256, 84),
        11: ("q3_k", 256, 110),
        12: ("q4_k", 256, 144),
        13: ("q5_k", 256, 176),
        14: ("q6_k", 256, 210),
        15: ("Q8_K", 256, 292),
        16: ("IQ2_XXS", 256, 66),
        17: ("IQ2_XS", 256, 74),
        18: ("IQ3_XXS", 256, 98),
        19: ("IQ1_S", 256, 50),
        20: ("iq4_nl", 32, 18),
        21: ("IQ3_S", 256, 110),
        22: ("IQ2_S", 256, 82),
        23: ("iq4_xs", 256, 136),
        24: ("s8", 1, 1),
        25: ("s16", 1, 2),
        26: ("s32", 1, 4),
        27: ("s64", 1, 8),
        28: ("f64", 1, 8),
        29: ("IQ1_M", 256, 56),
        30: ("bf16", 1, 2),
        34: ("TQ1_0", 256, 54),
        35: ("tq2_0", 256, 66),
        39: ("gguf_mxfp4", 32, 17),
        40: ("gguf_nvfp4", 64, 36),
        41: ("Q1_0", 128, 18),
    }.items()
}
_BY_NAME = {row.name: number for number, row in TYPES.items()}
# of types that are not in the table, as of newer and other versions of ggml
_UNKNOWN = re.compile("ggml_type_([0-9]{1,10})")

# bytes of the values of metadata that have a fixed size
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


def type_name(number: int) -> str:
    """Return the name of a type of tensors; of one that is not in the table, its number."""
    return TYPES[number].name if number in TYPES else f"ggml_type_{number}"


def type_number(name: str) -> int | None:
    """Return the number of a type that `type_name` gave a name; None if it is another name."""
    unknown = _UNKNOWN.fullmatch(name)
    return int(unknown[1]) if unknown else _BY_NAME.get(name)
