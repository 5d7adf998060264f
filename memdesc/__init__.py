"""Describe how tensors of neural networks are laid out in memory.

A descriptor is made from a name that oneDNN, OpenVINO, TensorRT or another system gives a layout,
from strides or from an array. It knows its padding, strides, blocks, bytes and offsets.
"""

import os
import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from memdesc.arrays import array_desc
from memdesc.desc import MemoryDesc, memory_desc
from memdesc.descriptor_json import from_json, to_json
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
from memdesc.extra import Extra
from memdesc.image import ImageDesc, image_desc
from memdesc.index import Index
from memdesc.int64 import RUNTIME
from memdesc.layout import Axis, Block, Layout
from memdesc.names import Name, known_names, suggest
from memdesc.notation import parse_tag
from memdesc.runtime_dims import RuntimeDesc, runtime_desc
from memdesc.tags import Digit, FormatTag

if TYPE_CHECKING:
    from memdesc import exchange as exchange
    from memdesc import picture as picture
    from memdesc import record as record
    from memdesc import source as source
    from memdesc import verbose as verbose
    from memdesc.exchange import from_notation, parse_layout, to_notation
    from memdesc.record import (
        Codebook,
        Constant,
        Digits,
        Field,
        Number,
        RecordDesc,
        Rule,
        known_records,
        record_desc,
    )
    from memdesc.verbose import from_verbose, to_verbose

__all__ = [
    "DATA_TYPES",
    "RUNTIME",
    "Axis",
    "Block",
    "Codebook",
    "Constant",
    "DataType",
    "Digit",
    "Digits",
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
    "from_json",
    "from_notation",
    "from_verbose",
    "image_desc",
    "known_names",
    "known_records",
    "memory_desc",
    "parse_layout",
    "parse_tag",
    "record_desc",
    "runtime_desc",
    "suggest",
    "to_json",
    "to_notation",
    "to_verbose",
]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    """List the public names and the dunder names, without submodules."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


# Packages that most programs do not need, with their public names; loaded on first use.
_LAZY = {
    "memdesc.exchange": ("from_notation", "parse_layout", "to_notation"),
    "memdesc.record": (
        *("Codebook", "Constant", "Digits", "Field", "Number", "RecordDesc", "Rule"),
        *("known_records", "record_desc"),
    ),
    "memdesc.verbose": ("from_verbose", "to_verbose"),
}
_SUBMODULES = {"exchange", "picture", "record", "source", "verbose"}
# Held during an import: a child forked meanwhile by another thread could not finish that import.
_importing = threading.RLock()
with suppress(AttributeError):  # Windows does not fork
    os.register_at_fork(
        before=_importing.acquire,
        after_in_parent=_importing.release,
        after_in_child=_importing.release,
    )

if not TYPE_CHECKING:

    def __getattr__(name):  # noqa: ANN001, ANN202 - of a module; type checkers read the imports above
        if name in _SUBMODULES:
            with _importing:
                return import_module(f"memdesc.{name}")
        for package, names in _LAZY.items():
            if name in names:
                with _importing:
                    globals()[name] = value = getattr(import_module(package), name)
                return value
        msg = f"module 'memdesc' has no attribute {name!r}"
        raise AttributeError(msg)
