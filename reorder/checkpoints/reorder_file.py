"""Reorder from one file into another in pieces, with bounded memory for tensors of any size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memdesc import MemoryDesc
from memdesc.errors import about
from memdesc.tuples import NamedTuple
from reorder.checkpoints.files import DEFAULT_NAME, quantized_parts
from reorder.checkpoints.formats.entry import Entry, PlannedFile, Tensor, stored_layout
from reorder.checkpoints.formats.table import plan_file
from reorder.checkpoints.moves.changes import ONLY, Reorder
from reorder.checkpoints.moves.losses import check_lost, lost_by, saturation_warnings
from reorder.checkpoints.writer import Writer
from reorder.memory.memory import Memory
from reorder.values.attr import Attr
from reorder.values.binding import bind

if TYPE_CHECKING:
    from reorder.checkpoints.convert.conversion import ConvertOptions


class GivenScales(NamedTuple):
    """The scales and zero points by which a reorder makes codes, over the dims of `axis`."""

    axis: tuple[int, ...]
    scales: NDArray[Any]
    zero_points: NDArray[np.int32]


def given_scales(attr: Attr | None, src: MemoryDesc, dst: MemoryDesc) -> GivenScales | None:
    """Return what a `Quantized` of the result has, or None if nothing scales dst."""
    sizes = {each.role: each.sizes for each in bind(attr, src, dst).operands}
    parameters = () if attr is None else attr.parameters
    given = {each.role: each for each in parameters if each.role.startswith("dst")}
    if not given:
        return None
    axis = tuple(dim for dim in range(dst.ndims) if any(x.mask >> dim & 1 for x in given.values()))
    counts = tuple(max(sizes[role][dim] for role in given) for dim in axis)
    is_wide = max(src.dtype.bits, dst.dtype.bits) == np.dtype(np.float64).itemsize * 8
    made = {"dst_scale": np.ones(counts), "dst_zero_point": np.zeros(counts)}
    for role, each in given.items():
        values = each.values.reshape([sizes[role][dim] for dim in axis])
        made[role] = np.broadcast_to(values, counts)
    scales = np.array(made["dst_scale"], np.float64 if is_wide else np.float32)
    return GivenScales(axis, scales, np.array(made["dst_zero_point"], np.int32))


def plan_output(
    target: Path,
    dst: MemoryDesc,
    stored: MemoryDesc | None = None,
    name: str = DEFAULT_NAME,
    scales: GivenScales | None = None,
) -> PlannedFile:
    """Plan the file of a reordered tensor, with the scales that are stored beside it.

    `stored` is the layout that the file gives for the bytes of `dst`; without it they are written
    without a header, as `save_raw` does.
    """
    if stored is None:
        return PlannedFile(target.name, dst.nbytes, (), {name: (0, dst.nbytes)})
    parts = [(stored_layout(name, stored), np.empty(0, np.uint8))]
    if scales is not None:
        arrays = {"scales": scales.scales, "zero_points": scales.zero_points}
        parts = quantized_parts(name, parts[0], arrays, axis=scales.axis)
    file = plan_file(target, [tensor for tensor, _ in parts], {})
    return file.with_data({tensor.name: data.tobytes() for tensor, data in parts[1:]})


def reorder_file(
    entry: Entry,
    change: Reorder,
    target: Path,
    file: PlannedFile,
    options: ConvertOptions,
    step: Callable[[int], None] | None = None,
) -> tuple[str, ...]:
    """Reorder a tensor of a file into a planned one, which gets its name when it is complete.

    *Law*: the file is the one that `save` or `save_raw` writes for the reordered tensor.

    An existing target is replaced, even if it is the source. `step` is called with how many bytes
    are written. Returns warnings about numbers that saturated. Raises if all saturate, if the
    reorder is impossible, if no piece fits, or if a file cannot be read or written; then no file is
    left behind.
    """
    from reorder.checkpoints.convert.conversion import Conversion  # most tensors are small
    from reorder.checkpoints.convert.steps import Step

    name, nbytes = next(iter(file.spans)), change.dst.nbytes
    tensor = Tensor(name, "u8", (nbytes,), nbytes)
    made = Step(name, {ONLY: entry}, {ONLY: tensor}, change).in_pieces(options)
    conversion = Conversion((made,), (), Writer(target, (file,), overwrite=True), options)
    return conversion.run(None if step is None else lambda now: step(now.done)).warnings


def check_reordered(src: Memory, dst: Memory, attr: Attr | None, name: str) -> tuple[str, ...]:
    """Refuse what `reorder_file` refuses, after a reorder in memory; return the same warnings."""
    with about(name):
        lost = lost_by(Reorder(src.desc, dst.desc, attr), {ONLY: src.data}, {ONLY: dst.data})
    losses = {} if lost is None else {name: lost}
    check_lost(losses, name)
    return saturation_warnings(losses)
