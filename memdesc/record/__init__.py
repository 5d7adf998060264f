"""Records: tensors that are stored as several fields, with the rule that joins them."""

from memdesc.record.desc import BIT_PLANES, Field, Number, RecordDesc, Rule
from memdesc.record.names import known_records, record_desc

__all__ = ["BIT_PLANES", "Field", "Number", "RecordDesc", "Rule", "known_records", "record_desc"]
