"""Decode, repack and check records and their bytes."""

from typing import TYPE_CHECKING

from memdesc.lazy import lazy, public
from reorder.forks import importing

if TYPE_CHECKING:
    from reorder.records.decode import dequantize_gguf
    from reorder.records.record import Record
    from reorder.records.repacking import repack

__all__ = [
    "Record",
    "dequantize_gguf",
    "repack",
]

__dir__ = public(globals())

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "Record": "reorder.records.record",
            "dequantize_gguf": "reorder.records.decode",
            "repack": "reorder.records.repacking",
        },
        importing=importing,
    )
