"""Describe how tensors of neural networks are laid out in memory.

A descriptor is made from a name that oneDNN, OpenVINO, TensorRT or another system gives a layout,
from strides or from an array. It knows its padding, strides, blocks, bytes and offsets.

Examples assume ``import memdesc`` and ``import numpy as np``.
"""

from typing import TYPE_CHECKING

from memdesc.desc import MemoryDesc, array_desc, memory_desc
from memdesc.dtypes import DataType, data_type
from memdesc.errors import MemdescError, PaddingError, UnknownFormatError, UnsupportedFormatError
from memdesc.extra import Extra
from memdesc.image import ImageDesc, image_desc
from memdesc.int64 import RUNTIME
from memdesc.layout import Axis, Block, Layout
from memdesc.lazy import lazy, public
from memdesc.names import known_names

if TYPE_CHECKING:
    from memdesc import errors as errors
    from memdesc import exchange as exchange
    from memdesc import picture as picture
    from memdesc import record as record
    from memdesc import source as source
    from memdesc import tags as tags
    from memdesc import verbose as verbose
    from memdesc.exchange import parse_layout
    from memdesc.runtime_dims import RuntimeDesc, runtime_desc

__all__ = [
    "RUNTIME",
    "Axis",
    "Block",
    "DataType",
    "Extra",
    "ImageDesc",
    "Layout",
    "MemdescError",
    "MemoryDesc",
    "PaddingError",
    "RuntimeDesc",
    "UnknownFormatError",
    "UnsupportedFormatError",
    "array_desc",
    "data_type",
    "image_desc",
    "known_names",
    "memory_desc",
    "parse_layout",
    "runtime_desc",
]

__version__ = "0.1.0"

__dir__ = public(globals())

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "RuntimeDesc": "memdesc.runtime_dims",
            "parse_layout": "memdesc.exchange",
            "runtime_desc": "memdesc.runtime_dims",
        },
        {"exchange", "picture", "record", "source", "verbose"},
    )
