"""Checkpoints: save, load, convert and compare tensors in files.

* `formats`: a module for each format, and `entry`: tensors at rest, and what says what they hold
* `files`: `save`, `load` and `open_checkpoint`; `writer`: an output that is whole or not there
* `config`: what config.json says about the layers of a model, by one table for reading and writing
* `weights`: which tensors belong together, and what they are, once all sources agree; `Model`
* `experts`: one tensor for the experts of a layer, or a tensor for each
* `moves`: a change of one tensor or record, cut into pieces, and the tasks that run them
* `convert`: a whole checkpoint, by rules, in bounded memory
* `compare`: which values differ from those of another checkpoint, and what explains the bytes
"""

from typing import TYPE_CHECKING

from memdesc.lazy import lazy, public
from reorder.forks import importing

if TYPE_CHECKING:
    from reorder.checkpoints.compare import Differing, differences
    from reorder.checkpoints.convert.conversion import (
        ConvertOptions,
        ConvertProgress,
        ConvertReport,
    )
    from reorder.checkpoints.files import Checkpoint, StoredTensor, save_raw

__all__ = [
    "Checkpoint",
    "ConvertOptions",
    "ConvertProgress",
    "ConvertReport",
    "Differing",
    "StoredTensor",
    "differences",
    "save_raw",
]

__dir__ = public(globals())

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "Checkpoint": "reorder.checkpoints.files",
            "ConvertOptions": "reorder.checkpoints.convert.conversion",
            "ConvertProgress": "reorder.checkpoints.convert.conversion",
            "ConvertReport": "reorder.checkpoints.convert.conversion",
            "Differing": "reorder.checkpoints.compare",
            "StoredTensor": "reorder.checkpoints.files",
            "differences": "reorder.checkpoints.compare",
            "save_raw": "reorder.checkpoints.files",
        },
        importing=importing,
    )
