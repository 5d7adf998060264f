"""The tensors of a checkpoint and the weights that they form, for `check` and `compare`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from memdesc.disk import as_path
from memdesc.record import RecordDesc
from reorder.checkpoints.checkpoint import Checkpoint, container_of
from reorder.checkpoints.files import memory_of, value_of
from reorder.checkpoints.groups import Group
from reorder.checkpoints.groups import Model as Weights
from reorder.checkpoints.siblings import Siblings
from reorder.checkpoints.stored import ONE
from reorder.quantize import dequantize

if TYPE_CHECKING:
    import os

    import numpy as np
    from numpy.typing import NDArray

    from memdesc import MemoryDesc
    from reorder.checkpoints.formats.entry import Entry
    from reorder.memory.memory import Memory

    Held = MemoryDesc | RecordDesc | None


class Item(NamedTuple):
    """A tensor or a quantised weight of a checkpoint, and what it holds if that is known.

    The group of a single tensor has just this tensor.
    """

    name: str
    model: Model
    group: Group
    desc: Held

    @property
    def tensors(self) -> dict[str, Entry]:
        """The tensors by role; those of an unknown weight by the ends of their names."""
        return self.group.tensors or dict(self.group.found.entries)

    @property
    def data(self) -> dict[str, NDArray[np.uint8]]:
        """Their bytes."""
        return {role: self.model.map(entry) for role, entry in self.tensors.items()}

    @property
    def entry(self) -> Entry | None:
        """The entry, if this is a single tensor of numbers rather than a record."""
        return None if isinstance(self.desc, RecordDesc) else self.tensors.get(ONE)

    @property
    def weight(self) -> Group | None:
        """The quantised weight that this is, or that this single tensor is a part of, if any."""
        return self.model.weights.get(next(iter(self.tensors.values())).name)

    @property
    def missing(self) -> tuple[str, ...]:
        """The other tensors of the weight, without which the codes of this one are not numbers."""
        own = {*self.group.found.names}
        names = self.weight.found.names if self.weight else ()
        return tuple(name for name in names if name not in own)

    def memory(self) -> Memory:
        """Return the single tensor of numbers as memory of `desc`."""
        entry = self.tensors[ONE]
        return memory_of(replace(entry, desc=self.desc or entry.known_desc), self.model.map(entry))

    def numbers(self) -> Memory:
        """Return the numbers that it stands for; those of a record are decoded."""
        return self.memory() if self.entry else dequantize(value_of(self.group, self.model.map))


class Model:
    """A checkpoint: its tensors, and the quantised weights that they form."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = as_path(path)
        checkpoint = Checkpoint(self.path)
        self.container = container_of(checkpoint)
        self.entries = self.container.entries
        self.map = checkpoint.map
        found = Weights(self.path, self.container).groups
        # the weight that each tensor belongs to, if any
        self.weights = {name: group for group in found for name in group.found.names}
        self.groups = {
            group.prefix: group
            for group in found
            # codes without an ending have the name of their record
            if group.prefix not in self.entries or group.desc is not None
        }

    def name_of(self, group: Group) -> str:
        """Return the name that the numbers of a group have beside the tensors outside it.

        It is that of the tensor that it decodes to; with a zero byte, which no tensor's name has,
        if another tensor has it.
        """
        is_quantized = group.quantized is not None
        name = group.prefix if is_quantized else group.decoded_name(group.prefix)
        return name if name not in self.entries.keys() - {*group.found.names} else f"{name}\0"

    def tensor(self, name: str, desc: Held = None) -> Item:
        """Return a tensor, read as `desc`, or as its file describes it if there is none."""
        entry = self.entries[name]
        held = desc or entry.desc
        group = Group(Siblings(name, {ONE: entry}), held if isinstance(held, RecordDesc) else None)
        return Item(name, self, group, held)

    def record(self, prefix: str) -> Item:
        """Return the quantised weight with a prefix."""
        group = self.groups[prefix]
        return Item(prefix, self, group, group.desc)
