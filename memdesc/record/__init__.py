"""Records: tensors stored as several fields, with the rule that joins the fields."""

from memdesc.record.desc import (
    BIT_PLANES,
    Codebook,
    Constant,
    Digits,
    Field,
    Number,
    RecordDesc,
    Rule,
)
from memdesc.record.names import known_records, record_desc

__all__ = [
    "BIT_PLANES",
    "Codebook",
    "Constant",
    "Digits",
    "Field",
    "Number",
    "RecordDesc",
    "Rule",
    "known_records",
    "record_desc",
]
