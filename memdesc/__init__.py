"""How tensors of neural networks lie in memory.

Descriptors from oneDNN tags, clDNN / OpenVINO names, MACE image types or plain
strides, and answers about them: padding, strides, blocks, bytes, offsets.
"""

from typing import TYPE_CHECKING

from memdesc.create import array_desc, memory_desc
from memdesc.desc import MemoryDesc
from memdesc.dtypes import DATA_TYPES, DataType, data_type
from memdesc.errors import (
    MemdescError,
    NotBlockedError,
    OutOfMemoryError,
    OutOfRangeError,
    OverlapError,
    PaddingError,
    UnknownFormatError,
    UnsupportedFormatError,
)
from memdesc.explore import explore
from memdesc.extra import Extra
from memdesc.image import ImageDesc, image_desc
from memdesc.index import Index
from memdesc.layout import Axis, Block, Layout
from memdesc.lazy import lazy_attributes
from memdesc.names import Name, known_names, suggest
from memdesc.notation import parse_tag
from memdesc.runtime_dims import RUNTIME, RuntimeDesc, runtime_desc
from memdesc.tags import Digit, FormatTag
from memdesc.text import from_json, to_json

if TYPE_CHECKING:
    from memdesc.exchange import from_notation, to_notation
    from memdesc.record import Field, Number, RecordDesc, Rule, known_records, record_desc
    from memdesc.verbose import from_verbose, read_verbose, to_verbose
else:
    # names that most programs do not use: their packages are loaded at the first use
    __getattr__ = lazy_attributes(
        globals(),
        {
            "Field": "memdesc.record",
            "Number": "memdesc.record",
            "RecordDesc": "memdesc.record",
            "Rule": "memdesc.record",
            "from_notation": "memdesc.exchange",
            "from_verbose": "memdesc.verbose",
            "known_records": "memdesc.record",
            "read_verbose": "memdesc.verbose",
            "record_desc": "memdesc.record",
            "to_notation": "memdesc.exchange",
            "to_verbose": "memdesc.verbose",
        },
    )

__all__ = [
    "DATA_TYPES",
    "RUNTIME",
    "Axis",
    "Block",
    "DataType",
    "Digit",
    "Extra",
    "Field",
    "FormatTag",
    "ImageDesc",
    "Index",
    "Layout",
    "MemdescError",
    "MemoryDesc",
    "Name",
    "NotBlockedError",
    "Number",
    "OutOfMemoryError",
    "OutOfRangeError",
    "OverlapError",
    "PaddingError",
    "RecordDesc",
    "Rule",
    "RuntimeDesc",
    "UnknownFormatError",
    "UnsupportedFormatError",
    "array_desc",
    "data_type",
    "explore",
    "from_json",
    "from_notation",
    "from_verbose",
    "image_desc",
    "known_names",
    "known_records",
    "memory_desc",
    "parse_tag",
    "read_verbose",
    "record_desc",
    "runtime_desc",
    "suggest",
    "to_json",
    "to_notation",
    "to_verbose",
]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    """Return the public names, and the names in double underscores, without submodules."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
