"""oneDNN's verbose mode: strings that describe memory, and logs."""

from memdesc.verbose.descriptor import from_verbose, to_verbose
from memdesc.verbose.log import PassedOver, UnreadLine, VerboseEntry, VerboseLog, read_verbose
from memdesc.verbose.primitive import (
    PostOp,
    Problem,
    QuantizationParameter,
    VerboseAttributes,
    VerbosePrimitive,
    VerboseTensor,
)

__all__ = [
    "PassedOver",
    "PostOp",
    "Problem",
    "QuantizationParameter",
    "UnreadLine",
    "VerboseAttributes",
    "VerboseEntry",
    "VerboseLog",
    "VerbosePrimitive",
    "VerboseTensor",
    "from_verbose",
    "read_verbose",
    "to_verbose",
]
