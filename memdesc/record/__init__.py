"""Records: tensors that are stored as several fields, with the rule that joins them."""

from memdesc.record.desc import RecordDesc
from memdesc.record.field import BIT_PLANES, Field
from memdesc.record.names import known_records, record_desc
from memdesc.record.rule import Number, Rule

__all__ = ["BIT_PLANES", "Field", "Number", "RecordDesc", "Rule", "known_records", "record_desc"]
