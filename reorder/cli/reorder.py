"""`memdesc reorder`: a tensor of a file or of raw bytes in another layout, image or type."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from memdesc import ImageDesc, MemdescError, MemoryDesc, memory_desc, parse_layout
from memdesc.layout import memory_order
from memdesc.tags import LETTERS
from reorder.api import reorder
from reorder.bench.cases import ATTRIBUTES
from reorder.checkpoints.formats.table import format_of, plan_file
from reorder.checkpoints.reorder_file import (
    FileReorder,
    GivenScales,
    check_reordered,
    given_scales,
    reorder_file,
)
from reorder.checkpoints.save import save, save_raw
from reorder.checkpoints.stored import stored_layout
from reorder.cli.command import Command, Facts, Options, buffer_of, layout_facts, lines, threads_of
from reorder.cli.progress import Progress, warn
from reorder.cli.tensors import (
    Reading,
    check_output,
    codes_note,
    load_file,
    locate,
    name_in,
    padding_facts,
    read_tensor,
    split_name,
)
from reorder.memory.memory import Memory
from reorder.quantized import Quantized
from reorder.values.attr import Attr

# tensors of up to this many bytes together are held in memory whole
_AT_ONCE = 1 << 28
# the widest codes of a packing of weights, in bits
_CODE_BITS = 8
# the options that are numbers or arrays, and the parameters of an `Attr` that they set
_PARAMETERS = {name: role for name, role in ATTRIBUTES.items() if role != "beta"}
_VALUES = "; a number, or FILE.npy:MASK, an array along the dims whose bits are set in MASK"


def _answer(options: Options) -> tuple[Facts, int]:
    check_output(options.dst, options.src, is_raw=options.raw)
    attr = _attr(options)
    how = Reading(
        options.from_,
        options.dims,
        options.dtype,
        offset=options.offset,
        row_pitch=options.row_pitch,
        may_be_longer=options.ignore_rest,
    )
    large = _large(options, how, attr)
    if large is not None:
        return _facts(_in_pieces(options, large), options, attr), 0
    with Progress(3) as progress:
        progress.step(f"reading {options.src}")
        x, only_caller_knows = read_tensor(options.src, how)
        padding = padding_facts(x, options.limit, "padding_zero") if only_caller_knows else {}
        target = _target(options, x.desc)
        stored = _stored(options, target)
        scales = _scales(options, attr, x.desc, buffer_of(target))
        if not options.raw:  # refuse what a file cannot hold, before the work
            plan_file(options.dst, [stored_layout(_name(options), stored)], {})
        progress.step("reordering", 1)
        old = _old(options, buffer_of(target), stored) if options.beta else None
        result = _reordered(options, x, buffer_of(target), attr, old)
        said = () if old is not None else check_reordered(x, result, attr, _name(options))
        progress.step(f"writing {options.dst}", 1)
        if options.raw:
            save_raw(options.dst, result)
        else:
            made = Memory(stored, result.data, zero_pad=False)
            has_names = format_of(options.dst).has_names
            value = made if scales is None else Quantized(made, *scales[1:], scales.axis)
            save(options.dst, {_name(options): value} if has_names else made)
    for each in said:
        warn(each)
    facts = _facts(target, options, attr) | padding
    packings = [name.text for name in x.desc.names() if name.vocabulary == "weights"]
    if only_caller_knows and packings and x.desc.dtype.bits <= _CODE_BITS:
        note = (
            f"{packings[0]} packs codes: scales and zero points turn them into numbers, and are "
            "not applied"
        )
        facts["note"] = "; ".join([note, *([facts["note"]] if "note" in facts else [])])
    return facts, 0 if facts.get("padding_zero", True) else 1


def _name(options: Options) -> str:
    """Return what the tensor is called: its name in SRC, or that of SRC if it has none there."""
    found = name_in(options.src) if options.offset is None else ""
    return found or Path(options.src).stem


def _scales(options: Options, attr: Attr, src: MemoryDesc, dst: MemoryDesc) -> GivenScales | None:
    """Return what is stored beside the result; None if nothing scales it, or DST has no place."""
    return given_scales(attr, src, dst) if _has_place(options) else None


def _has_place(options: Options) -> bool:
    """Whether DST can hold scales beside the tensor."""
    return not options.raw and format_of(options.dst).has_names


def _facts(target: MemoryDesc | ImageDesc, options: Options, attr: Attr) -> Facts:
    facts = {"wrote": options.dst, **layout_facts(target)}
    stored = _stored(options, target)
    if stored != buffer_of(target):
        facts["shape"] = stored.dims
    notes = [note] if (note := codes_note(options.src)) else []
    if not _has_place(options) and any(each.role.startswith("dst") for each in attr.parameters):
        notes.append("the scale is not stored: a .safetensors or a .npz has a place for it")
    return {**facts, **({"note": "; ".join(notes)} if notes else {})}


def _target(options: Options, src: MemoryDesc) -> MemoryDesc | ImageDesc:
    return parse_layout(options.to, src.dims, options.to_dtype, default=src.dtype)


def _stored(options: Options, target: MemoryDesc | ImageDesc) -> MemoryDesc:
    """Return the layout that the file gives for the bytes of the result.

    A .npy has no place for a descriptor. An image, or a permutation of the dims such as nhwc,
    becomes an array with its axes in memory order, as --from reads them; `save` refuses all other
    layouts.
    """
    desc = buffer_of(target)
    if options.raw or not options.dst.endswith(".npy") or desc.layout.xor:
        return desc
    if isinstance(target, ImageDesc):
        return memory_desc((target.height, target.width, target.channels), target.dtype)
    # dims of 1 may have any stride, so the order of the axes is compared too
    order = [block.axis for block in sorted(desc.blocks, key=memory_order)]
    if sorted(order) != [*range(desc.ndims)]:
        return desc
    is_permuted = desc == memory_desc(desc.dims, desc.dtype, "".join(LETTERS[k] for k in order))
    return memory_desc([desc.dims[k] for k in order], desc.dtype) if is_permuted else desc


def _large(options: Options, how: Reading, attr: Attr) -> FileReorder | None:
    """Return a reorder of a file in pieces, or None if it fits in memory or the input is bad."""
    most = options.max_bytes
    # --beta adds to all of the old content, and a device gets the whole tensor
    if options.beta or options.device is not None:
        return None
    found = locate(options.src, how)
    if found is None:
        return None
    src, entry = found
    target = _target(options, src)
    if isinstance(target, ImageDesc):
        return None
    stored = None if options.raw else _stored(options, target)
    scales = _scales(options, attr, src, target)
    given = FileReorder(entry, src, target, attr, stored, _name(options), scales)
    return given if given.nbytes > min(most, _AT_ONCE) else None


def _in_pieces(options: Options, given: FileReorder) -> MemoryDesc:
    with Progress(given.dst.nbytes) as progress:
        said = reorder_file(
            given,
            Path(os.path.realpath(options.dst)),  # a link stays, as `save` leaves it
            max_bytes=options.max_bytes,
            threads=threads_of(options.threads),
            step=lambda done: progress.move_to(done, "reordering"),
        )
    for each in said:
        warn(each)
    return given.dst


def _old(options: Options, dst: MemoryDesc, stored: MemoryDesc) -> Memory:
    """Return the old content of DST, in the layout in which it is written."""
    found, _ = read_tensor(options.dst, Reading())
    return Memory(dst, found.data, zero_pad=False) if found.desc == stored else found


def _reordered(
    options: Options, x: Memory, dst: MemoryDesc, attr: Attr, out: Memory | None
) -> Memory:
    """Reorder on the CPU or on the device."""
    if options.device is None:
        return reorder(x, dst, attr=attr, out=out, threads=options.threads)
    if options.threads is not None:
        raise MemdescError("--threads is for the CPU; leave out --threads or --device")
    import pyopencl as cl  # pyopencl is slow to load

    from reorder.opencl import find_device  # pyopencl is slow to load

    # not every runtime keeps the context of a queue alive
    context = cl.Context([find_device(options.device).device])
    queue = cl.CommandQueue(context)
    held = None if out is None else reorder(out, out.desc, queue=queue)
    return reorder(x, dst, attr=attr, out=held, queue=queue).get()


def _attr(options: Options) -> Attr:
    given: dict[str, Any] = {"beta": options.beta, "saturate": options.saturate}
    for name, role in _PARAMETERS.items():
        text = getattr(options, name.replace("-", "_"))
        if text is not None:
            given |= _values(role, f"--{name}", text)
            file, _ = split_name(text.rpartition(":")[0])
            if file and os.path.realpath(file) == os.path.realpath(options.dst):
                raise MemdescError(
                    f"{options.dst!r} cannot be written: it would replace {file!r}, which "
                    f"--{name} reads; name another file"
                )
    return Attr(**given)


def _values(role: str, name: str, text: str) -> dict[str, Any]:
    """Return the arguments of an Attr for a number, or for a file and a mask."""
    path, colon, mask = text.rpartition(":")
    try:
        if not colon:
            return {role: float(text) if role.endswith("scale") else int(text)}
        bits = int(mask)
    except ValueError:
        example = "such as scales.npy:2 for one along dim b"
        raise MemdescError(
            f"{name} {text!r} is neither a number nor FILE.npy:MASK, {example}"
        ) from None
    values = load_file(path)
    return {role: values.numpy() if isinstance(values, Memory) else values, f"{role}_mask": bits}


def _lay_out(facts: Facts) -> list[str]:
    """Return what was written, and what was found in the padding of the source."""
    kept = ("wrote", "layout", "bytes", "padding_elements", "padding_zero", "not_zero", "places")
    shown = {key: facts[key] for key in (*kept, "note") if key in facts}
    if "shape" in facts:
        shown["shape"] = f"{facts['shape']}, axes in memory order"
    return lines(shown)


COMMAND = Command(_answer, _lay_out)
