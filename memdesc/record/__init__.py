"""Records: tensors stored as several fields, with the rule that joins the fields."""

from memdesc.record.desc import RecordDesc
from memdesc.record.field import BIT_PLANES, Field
from memdesc.record.rows import known_records, record_desc
from memdesc.record.rule import Codebook, Constant, Number, Rule

__all__ = [
    "BIT_PLANES",
    "Codebook",
    "Constant",
    "Field",
    "Number",
    "RecordDesc",
    "Rule",
    "known_records",
    "record_desc",
]
