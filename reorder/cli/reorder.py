"""`memdesc reorder`: a tensor of a file or of raw bytes in another layout, image or type."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import ImageDesc, MemdescError, MemoryDesc, memory_desc, parse_layout
from memdesc.errors import about
from memdesc.layout import memory_order
from memdesc.tags import LETTERS
from memdesc.tuples import NamedTuple
from reorder.api import reorder
from reorder.bench.cases import ATTRIBUTES
from reorder.checkpoints.files import DEFAULT_NAME, quantized_parts
from reorder.checkpoints.formats.entry import Entry, PlannedFile, Tensor, stored_layout
from reorder.checkpoints.formats.table import format_of, plan_file
from reorder.checkpoints.moves.changes import ONLY, Reorder
from reorder.checkpoints.moves.losses import check_lost, lost_by, saturation_warnings
from reorder.checkpoints.writer import Writer
from reorder.cli.command import Command, Facts, Options, lines, threads_of
from reorder.cli.layouts import buffer_of, layout_facts
from reorder.cli.progress import Progress, warn
from reorder.cli.tensors import Operand, Reading, check_output, padding_facts
from reorder.disk import as_path, write_file
from reorder.memory.memory import Memory
from reorder.values.attr import Attr

if TYPE_CHECKING:
    from reorder.checkpoints.convert.conversion import ConvertOptions

# tensors of up to this many bytes together are held in memory whole
_AT_ONCE = 1 << 28


def given_scales(attr: Attr, src: MemoryDesc, dst: MemoryDesc) -> dict[str, Any] | None:
    """Return what `quantized_parts` stores beside a result; None if nothing scales it."""
    given = {one.role: one.values for one in attr.parameters if one.role.startswith("dst")}
    if not given:
        return None
    is_wide = max(src.dtype.bits, dst.dtype.bits) == np.dtype(np.float64).itemsize * 8
    dtype = np.float64 if is_wide else np.float32
    arrays = {
        "scales": np.array(given.get("dst_scale", 1), dtype).reshape(()),
        "zero_points": np.array(given.get("dst_zero_point", 0), np.int32).reshape(()),
    }
    return {"arrays": arrays, "axis": ()}


class Output(NamedTuple):
    """What is written: a layout or an image, and how DST stores it."""

    target: MemoryDesc | ImageDesc
    # the layout that DST gives for the bytes; None if these are all that is written
    stored: MemoryDesc | None = None
    name: str = DEFAULT_NAME
    # what is stored beside it; None if nothing scales it, or DST has no place for it
    scales: dict[str, Any] | None = None

    @property
    def desc(self) -> MemoryDesc:
        """The layout of the bytes."""
        return buffer_of(self.target)

    def planned(self, path: Path) -> PlannedFile:
        """Return the file of this name; fails if it cannot hold the tensor."""
        if self.stored is None:
            nbytes = self.desc.nbytes
            return PlannedFile(path.name, nbytes, (), {self.name: (0, nbytes)})
        parts = [(stored_layout(self.name, self.stored), np.empty(0, np.uint8))]
        if self.scales is not None:
            parts = quantized_parts(self.name, parts[0], **self.scales)
        file = plan_file(path, [tensor for tensor, _ in parts], {})
        return file.with_data({tensor.name: data.tobytes() for tensor, data in parts[1:]})


def _answer(options: Options) -> tuple[Facts, int]:
    how = Reading(
        options.from_,
        options.dims,
        options.dtype,
        offset=options.offset,
        row_pitch=options.row_pitch,
    )
    operand = Operand(options.src, how)
    check_output(options.dst, operand, is_raw=options.raw)
    attr = _attr(options)
    notes = [operand.codes_note("neither applied nor copied")]
    if not _has_place(options) and any(scale.role.startswith("dst") for scale in attr.parameters):
        notes.append("the scale is not stored: a .safetensors or a .npz has a place for it")
    padding: Facts = {}
    # a device gets the whole tensor
    located = None if options.device is not None else operand.locate()
    output = None if located is None else _output(options, operand, located[0], attr)
    # images are not reordered in pieces
    if (
        located
        and output
        and isinstance(output.target, MemoryDesc)
        and located[0].nbytes + output.desc.nbytes > min(options.max_bytes, _AT_ONCE)
    ):
        said = _in_pieces(options, *located, output, attr)
    else:
        with Progress(3) as progress:
            progress.step(f"reading {options.src}")
            x, only_caller_knows = operand.read()
            if only_caller_knows:
                padding = padding_facts(x, options.limit)
            output = _output(options, operand, x.desc, attr)
            said = _at_once(options, x, output, attr, progress)
    for warning in said:
        warn(warning)
    facts = {"wrote": options.dst, **layout_facts(output.target)}
    if output.stored is not None and output.stored != output.desc:
        facts["shape"] = output.stored.dims
    if any(notes):
        facts["note"] = "; ".join(filter(None, notes))
    return facts | padding, 0 if padding.get("padding_zero", True) else 1


def _output(options: Options, operand: Operand, src: MemoryDesc, attr: Attr) -> Output:
    target = parse_layout(options.to, src.dims, options.to_dtype, default=src.dtype)
    # its name in SRC, or the name of SRC if it has none there; names are UTF-8
    name = operand.tensor_name or Path(options.src).stem
    name = re.sub(r"[\ud800-\udfff]", "\ufffd", name)
    scales = given_scales(attr, src, buffer_of(target)) if _has_place(options) else None
    return Output(target, None if options.raw else _stored(options.dst, target), name, scales)


def _has_place(options: Options) -> bool:
    """Whether DST can hold scales beside the tensor."""
    return not options.raw and not format_of(options.dst).is_array


def _stored(dst: str, target: MemoryDesc | ImageDesc) -> MemoryDesc:
    """Return the layout that DST gives for the bytes of the result.

    A .npy has no place for a descriptor. An image, or a permutation of the dims such as nhwc,
    becomes an array with its axes in memory order, as --from reads them; a file of another layout
    cannot be planned.
    """
    desc = buffer_of(target)
    if not dst.endswith(".npy") or desc.layout.xor:
        return desc
    if isinstance(target, ImageDesc):
        return memory_desc((target.height, target.width, target.channels), target.dtype)
    # dims of 1 may have any stride, so the order of the axes is compared too
    order = [block.axis for block in sorted(desc.blocks, key=memory_order)]
    if sorted(order) != [*range(desc.ndims)]:
        return desc
    is_permuted = desc == memory_desc(desc.dims, desc.dtype, "".join(LETTERS[k] for k in order))
    return memory_desc([desc.dims[k] for k in order], desc.dtype) if is_permuted else desc


def _in_pieces(
    options: Options, src: MemoryDesc, entry: Entry, output: Output, attr: Attr
) -> tuple[str, ...]:
    from reorder.checkpoints.convert.conversion import ConvertOptions  # most tensors are small

    how = ConvertOptions(max_bytes=options.max_bytes, threads=threads_of(options.threads))
    change = Reorder(src, output.desc, attr)
    target = Path(os.path.realpath(options.dst))  # a link stays, as `write_file` leaves it
    with Progress(output.desc.nbytes) as progress:
        step = partial(progress.move_to, text="reordering")
        return reorder_file(entry, change, target, output.planned(target), how, step)


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
    from reorder.checkpoints.convert.plan import Step

    name, nbytes = next(iter(file.spans)), change.dst.nbytes
    tensor = Tensor(name, "u8", (nbytes,), nbytes)
    made = Step(name, {ONLY: entry}, {ONLY: tensor}, change).in_pieces(options)
    conversion = Conversion((made,), (), Writer(target, (file,), overwrite=True), options)
    return conversion.run(None if step is None else lambda now: step(now.done)).warnings


def _at_once(
    options: Options, x: Memory, output: Output, attr: Attr, progress: Progress
) -> tuple[str, ...]:
    file = output.planned(as_path(options.dst))  # before the work
    progress.step("reordering", 1)
    result = _reordered(options, x, output.desc, attr)
    with about(output.name):
        lost = lost_by(Reorder(x.desc, output.desc, attr), {ONLY: x.data}, {ONLY: result.data})
    losses = {} if lost is None else {output.name: lost}
    check_lost(losses, output.name)
    progress.step(f"writing {options.dst}", 1)
    write_file(as_path(options.dst), file.with_data({output.name: result.data.data}).write)
    return saturation_warnings(losses)


def _reordered(options: Options, x: Memory, dst: MemoryDesc, attr: Attr) -> Memory:
    if options.device is None:
        return reorder(x, dst, attr=attr, threads=options.threads)
    if options.threads is not None:
        raise MemdescError("--threads is for the CPU; leave out --threads or --device")
    import pyopencl as cl  # pyopencl is slow to load

    from reorder.opencl import find_device  # pyopencl is slow to load

    # not every runtime keeps the context of a queue alive
    context = cl.Context([find_device(options.device).device])
    queue = cl.CommandQueue(context)
    return reorder(x, dst, attr=attr, queue=queue).get()


def _attr(options: Options) -> Attr:
    flags = {name.replace("-", "_"): role for name, role in ATTRIBUTES.items()}
    given = {role: getattr(options, flag, None) for flag, role in flags.items()}
    # --beta is for `memdesc bench`
    parameters: dict[str, Any] = {role: x for role, x in given.items() if x is not None}
    return Attr(**parameters, saturate=options.saturate)


def _lay_out(facts: Facts) -> list[str]:
    """Return what was written, and what was found in the padding of the source."""
    kept = ("wrote", "layout", "bytes", "padding_elements", "padding_zero", "not_zero", "places")
    shown = {key: facts[key] for key in (*kept, "note") if key in facts}
    if "shape" in facts:
        shown["shape"] = f"{facts['shape']}, axes in memory order"
    return lines(shown)


COMMAND = Command(_answer, _lay_out)
