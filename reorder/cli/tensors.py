"""Files that commands read and write: the format of each, and the tensors and bytes in it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memdesc import (
    DataType,
    ImageDesc,
    MemdescError,
    MemoryDesc,
    UnknownFormatError,
    memory_desc,
    parse_layout,
)
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import about, counted
from memdesc.exchange import SYSTEMS
from memdesc.layout_names import dense_tag, is_laid_out_by
from memdesc.lazy import cached_property
from memdesc.names.images import is_image
from memdesc.tuples import NamedTuple
from reorder.api import reorder
from reorder.checkpoints.files import (
    check_raw_name,
    desc_of_entry,
    memory_of,
    name_of_only,
    other_type,
    read_model,
    saving_format,
)
from reorder.checkpoints.formats.entry import NOT_BYTES, Container, Entry
from reorder.checkpoints.formats.table import (
    FORMATS,
    Foreign,
    Format,
    read_container,
    refusal,
    sniff,
)
from reorder.checkpoints.weights import weight_of
from reorder.cli.command import Facts, Said
from reorder.cli.layouts import buffer_of
from reorder.disk import as_path, open_file
from reorder.memory.inputs import as_memory, from_pixels
from reorder.memory.memory import Memory
from reorder.memory.padding import find_nonzero

_ENDINGS = tuple(row.ending for row in FORMATS.values())
# A word that contains no sizes is read for dims of this size, since a notation needs some. The size
# is not 1, because a dim of 1 may lie anywhere, and blocks divide it.
_SIZELESS = re.compile(r"[A-Za-z][\w.\[\]]*")
_ANY_SIZE = 64
_NAMED = re.compile(
    f"(.*?(?:{'|'.join(re.escape(r.ending) for r in FORMATS.values() if not r.is_array)})):(.*)",
    re.DOTALL,
)
# how OpenVINO names its dumps: with their layout
_DUMP = re.compile(SYSTEMS["openvino"].spelling or "", re.DOTALL)
# the most names of tensors in one message
_SHOWN = 8


class Reading(NamedTuple):
    """What options say about a tensor to read: the layout, which `flag` gives, sizes and type.

    If there is an `offset`, the file holds raw bytes from there on, whatever its name and its start
    say; `row_pitch` is that of raw pixels.
    """

    layout: str | None = None
    dims: tuple[int, ...] | None = None
    dtype: str | None = None
    flag: str = "--from"
    offset: int | None = None
    row_pitch: int | None = None


_NOTHING = Reading()


class Operand:
    """What a command reads: ``FILE`` or ``FILE:NAME``, and what options say about the tensor."""

    def __init__(self, text: str, how: Reading = _NOTHING) -> None:
        self.text, self.how = text, how
        self.file, self.name = _split(text) if how.offset is None else (text, None)
        self.path = as_path(self.file)

    @cached_property
    def format(self) -> Format | Foreign | None:
        """The format of the file; None if unknown, or if it cannot be read: reading it says why."""
        try:
            return sniff(self.path)
        except MemdescError:
            return None

    @property
    def is_npy(self) -> bool:
        """Whether it is a .npy, which holds one tensor without a name."""
        return self.format is FORMATS["npy"]

    @cached_property
    def is_raw(self) -> bool:
        """Whether it has neither the ending nor the start of a file that is read as tensors."""
        if self.how.offset is not None:
            return True
        is_folder = self.name is not None and os.path.isdir(self.file)  # noqa: PTH112 - of any length
        is_tensors = is_folder or self.path.suffix in _ENDINGS
        return not is_tensors and not isinstance(self.format, Format)

    @cached_property
    def headers(self) -> Mapping[str, Entry]:
        """The tensors, of which nothing is unpacked."""
        return read_container(self.file).entries

    @cached_property
    def stored(self) -> Mapping[str, Entry]:
        """The tensors; one that is named is among them."""
        if isinstance(self.format, Foreign):
            raise refusal(self.path, self.format)
        if self.format is None and self.is_raw and self.path.is_file():
            raise MemdescError(
                f"{self.file!r} is not a file of tensors, such as a .npy; `memdesc reorder` makes "
                "one of raw bytes, and checks their padding"
            )
        container = read_model(self.path, name=self.name).container
        self.check_named(container)
        return container.entries

    def check_named(self, container: Container) -> None:
        """Refuse ``FILE:NAME`` unless the file has a tensor of that name, which can be read."""
        tensors = container.entries
        if self.name in container.left_out:
            raise MemdescError(
                f"{self.text!r} is one of the tensors that are not read: {NOT_BYTES}"
            )
        if self.name is not None and self.name not in tensors:
            shown = ", ".join([*tensors][:_SHOWN])
            raise MemdescError(
                f"{self.file!r} has no tensor {self.name!r}; it has {len(tensors)}: {shown}"
            )

    def name_in(self, entries: Mapping[str, Entry]) -> str:
        """Return the name that is given, or of the only tensor, or of the codes of its weight."""
        if self.name is not None:
            return self.name
        codes = [entry.name for entry in entries.values() if "quantized" in (entry.note or {})]
        beside = {name for tensor in codes for name in weight_of(entries, tensor).names[1:]}
        return name_of_only(self.path, {name: None for name in entries if name not in beside})

    @property
    def entry(self) -> Entry:
        """The only tensor, or the one that is named."""
        return self.stored[self.name_in(self.stored)]

    @property
    def tensor_name(self) -> str:
        """The name of the tensor; empty for raw bytes and a .npy."""
        is_nameless = self.name is None and (self.is_raw or self.is_npy)
        return "" if is_nameless else self.name or self.entry.name

    def tensors(self) -> dict[str, Memory]:
        """Return the tensors, or the one that is named."""
        stored = self.stored.items()
        return {name: memory_of(entry) for name, entry in stored if self.name in {None, name}}

    def memory(self, dtype: str | None = None) -> Memory:
        """Return the only tensor, or the one that is named."""
        entry = self.entry
        with about(repr(self.file)):
            return memory_of(entry, dtype)

    def loaded(self) -> dict[str, Memory | NDArray[Any]]:
        """Return the tensors, or the one that is named, each as `load` does."""
        stored = self.stored
        return {
            name: memory if stored[name].is_described else memory.numpy()
            for name, memory in self.tensors().items()
        }

    def load(self) -> Memory | NDArray[Any]:
        """Return the tensor as a descriptor in the file says, or an array where it has none."""
        memory = self.memory()
        return memory if self.entry.is_described else memory.numpy()

    def words(self, dtype: DataType | None) -> Memory | NDArray[Any]:
        """Return the tensor for its bytes, as elements of a type.

        Bytes and elements without a type may be of any type, and integers may be words of 4-bit
        types; an array of another type is refused.
        """
        entry = self.entry
        is_void = dtype is not None and entry.dtype not in DATA_TYPES
        memory = self.memory(dtype.name if dtype is not None and is_void else None)
        held = memory.desc.dtype.numpy
        is_words = held == np.uint8 or (dtype is not None and dtype.is_packed and held.kind in "iu")
        if dtype is not None and held != dtype.numpy and not is_words:
            raise other_type(f"{self.text!r} holds {entry.element}", dtype, "name that one")
        return memory if entry.is_described else memory.numpy()

    def read(self) -> tuple[Memory, bool]:
        """Read a tensor; also returns whether only the caller knows what its bytes mean.

        Raw bytes need a layout, unless the name of a dump has one. For an array, a layout with
        sizes describes its bytes, and one without sizes the order of its axes. A descriptor in the
        file must agree with the options.
        """
        if self.is_raw:
            return self._read_raw(), True
        if self.how.row_pitch is not None:
            raise MemdescError(f"--row-pitch is for raw pixels; {self.text!r} gives its shape")
        entry = self.entry
        if self.how.layout is None or entry.is_described:
            memory = self.memory(self.how.dtype)
            self._check_described(memory.desc)
            return memory, False
        try:
            stored = entry.dtype if entry.dtype in DATA_TYPES else None
            layout = self._parse(self.how.dims, default=stored)
        except UnknownFormatError as error:
            if self.how.dims is not None or is_image(self.how.layout):
                raise
            memory = self.memory(self.how.dtype)
            # in a file, only the layout says which axis is which: numpy saves a transposed array in
            # Fortran order
            plain = memory_desc(memory.desc.dims, memory.desc.dtype)
            try:
                desc = _of_axes(self.how.layout, plain)
                held = memory if memory.desc == plain else reorder(memory, plain)
                return Memory(desc, held.data, zero_pad=False), False
            except UnknownFormatError as unknown:
                raise (unknown if self.how.layout.isidentifier() else error) from None
            except MemdescError as wrong:
                src, _, reason = str(wrong).partition("; ")[0].partition(" ")
                if src != "src":
                    raise
                reason = re.sub("(?<= )x(?= )", "it", reason)
                raise MemdescError(
                    f"{self.text!r}: {self.how.flag} {reason}; if its bytes are in this layout, "
                    "give --dims"
                ) from None
        return self._described_array(layout), True

    def locate(self) -> tuple[MemoryDesc, Entry] | None:
        """Return what `read` would read, and where it is; None if it must be read whole.

        Refusals are left to `read`.
        """
        if self.is_raw or self.how.row_pitch is not None or self.how.dims is not None:
            return None
        try:
            entry = self.headers[self.name_in(self.headers)]
            desc = desc_of_entry(entry, self.how.dtype)
            if entry.is_described:
                self._check_described(desc)
            elif self.how.layout is not None:
                if desc != memory_desc(desc.dims, desc.dtype):  # not row-major
                    return None
                desc = _of_axes(self.how.layout, desc)
        except (MemdescError, KeyError):
            return None
        return (desc, entry) if desc.min_nbytes <= entry.nbytes else None

    def _parse(self, dims: tuple[int, ...] | None, **default: Any) -> MemoryDesc | ImageDesc:
        """Return the layout that an option gives; a message names the options that it lacks."""
        try:
            return parse_layout(self.how.layout or self._dump, dims, self.how.dtype, **default)
        except UnknownFormatError as error:
            reason, give, lacking = str(error).rpartition("; give ")
            named = re.sub("dims|dtype", r"--\g<0>", lacking) if give else lacking
            raise UnknownFormatError(reason + give + named) from None

    def _check_described(self, desc: MemoryDesc) -> None:
        if self.how.layout is not None:
            said = self._parse(self.how.dims or desc.dims, default=desc.dtype)
            if buffer_of(said) != desc:
                raise MemdescError(
                    f"the descriptor of {self.text!r} says {desc!r}, not {self.how.layout!r}; "
                    f"leave {self.how.flag} out"
                )
        elif self.how.dims is not None and self.how.dims != desc.dims:
            raise MemdescError(
                f"{self.text!r} has dims {desc.dims}, not {self.how.dims}; leave --dims out"
            )

    def _described_array(self, layout: MemoryDesc | ImageDesc) -> Memory:
        desc, path = buffer_of(layout), self.text
        words = self.words(desc.dtype)
        if isinstance(layout, ImageDesc) and isinstance(words, np.ndarray) and words.ndim > 1:
            memory = from_pixels(words, layout, repr(path))
            outside = words[layout.height :], words[: layout.height, layout.width :]
            if any(np.ascontiguousarray(pixels).view(np.uint8).any() for pixels in outside):
                raise MemdescError(
                    f"{path!r} has {words.shape[0]} rows of {words.shape[1]} pixels, and "
                    f"{layout!r} {layout.height} of {layout.width}; the other pixels are not zero: "
                    "they belong to an image of other dims, or must be cut off"
                )
            return memory
        if isinstance(words, Memory):
            data = words.data
        else:
            data = np.ascontiguousarray(words).reshape(-1).view(np.uint8)
        if len(data) != desc.nbytes:
            raise MemdescError(
                f"{path!r} has {len(data)} bytes, but {layout!r} takes {desc.nbytes}"
            )
        return Memory(desc, data, zero_pad=False)

    def raw_size(self) -> int:
        """Return how many raw bytes follow the offset.

        A file of a known format is refused unless an offset says where in it the bytes are.
        """
        start = self.how.offset or 0
        if self.how.offset is None and (row := sniff(self.path)) is not None:
            raise MemdescError(
                f"{refusal(self.path, row)}; if it does hold raw bytes, `memdesc reorder` reads "
                "them with --offset 0, or with the number of bytes that precede them"
            )
        with open_file(self.path) as file:
            nbytes = file.seek(0, os.SEEK_END)
        if not 0 <= start <= nbytes:
            raise MemdescError(
                f"--offset {start}: {self.text!r} has {nbytes} bytes, so no tensor can start there"
            )
        return nbytes - start

    def raw_bytes(self) -> NDArray[np.uint8]:
        """Return the raw bytes from the offset on."""
        size = self.raw_size()
        with open_file(self.path) as file:
            file.seek(self.how.offset or 0)
            data = np.fromfile(file, np.uint8, size)
        if len(data) != size:
            raise MemdescError(f"{self.text!r} became shorter while it was being read")
        return data

    @cached_property
    def _dump(self) -> str:
        """The layout in the name of a dump; empty for other names, and after an offset."""
        name = Path(self.file).name
        is_dump = self.how.offset is None and _DUMP.fullmatch(name)
        return f"openvino:{name}" if is_dump else ""

    def _raw_layout(self) -> MemoryDesc | ImageDesc:
        """Return the layout that an option gives, or the name of a dump; they must agree."""
        named, reason = None, ""
        try:
            named = buffer_of(parse_layout(self._dump)) if self._dump else None
        except MemdescError as error:
            reason = f": {error}"
        if self.how.layout is None and named is None:
            raise MemdescError(
                f"{self.text!r} holds raw bytes, and its name does not say what they are; give "
                f"{self.how.flag} with a layout, --dims and --dtype{reason}"
            )
        layout = self._parse(self.how.dims, default=None)
        if named is not None and buffer_of(layout) != named:
            raise MemdescError(
                f"the name of {self.text!r} says {named!r}, which contradicts {self.how.flag}, "
                f"which says {layout!r}; leave that out, or rename the file if its name is wrong"
            )
        return layout

    def _read_raw(self) -> Memory:
        path, how, size = self.text, self.how, self.raw_size()
        layout = self._raw_layout()
        # a buffer is one row
        rows = layout.height if isinstance(layout, ImageDesc) and layout.nbytes else 1
        row = layout.nbytes // rows
        pitch = row if how.row_pitch is None else how.row_pitch
        if how.row_pitch is not None and not isinstance(layout, ImageDesc):
            raise MemdescError(
                f"--row-pitch is for the pixels of an image type, not for {layout!r}"
            )
        if pitch < row:
            raise MemdescError(
                f"--row-pitch {pitch} is less than a row of {layout!r}, which has {row} bytes"
            )
        # the last row may end with its pixels, or with the gap after them
        needed = pitch * (rows - 1) + row
        if size not in {needed, pitch * rows}:
            rest = f"it is {'truncated' if size < needed else 'longer'}, or has "
            rest += "another type, other dims or another layout"
            if size > needed:
                header = counted(size - needed, "byte")
                rest += f"; pass --offset {size - needed} if a header of {header} comes first, or "
                rest += "cut off what follows the tensor"
            apart = f": {rows} rows of {row} bytes, {pitch} bytes apart" if pitch > row else ""
            raise MemdescError(
                f"{path!r} has {size} bytes from byte {how.offset or 0} on, but {layout!r} takes "
                f"{needed}{apart}; {rest}"
            )
        data = self.raw_bytes()
        if pitch > row:
            padded = np.append(data[:needed], np.zeros(pitch - row, np.uint8))
            data = np.ascontiguousarray(padded.reshape(rows, pitch)[:, :row]).reshape(-1)
        return Memory(buffer_of(layout), data, zero_pad=False)

    def codes_note(self, fate: str = "not applied") -> str:
        """Return which tensors turn codes into numbers, if these are codes; otherwise empty."""
        if self.is_raw:
            return ""
        try:
            name = self.name_in(self.headers)
            weight = weight_of(self.headers, name)
        except (MemdescError, KeyError):  # reading it will report the error
            return ""
        others = ", ".join(tensor for tensor in weight.names if tensor != name)
        applied = f"{name} holds codes: {others} turn them into numbers, and are {fate}"
        return applied if others else ""


def _split(text: str) -> tuple[str, str | None]:
    """Return the file or folder of ``FILE.npz:NAME``, and the name; None for a file alone."""
    if os.path.exists(text):  # noqa: PTH110 - of any length
        return text, None
    if match := _NAMED.fullmatch(text):
        return match[1], match[2]
    folder, colon, name = text.rpartition(":")
    return (folder, name) if colon and os.path.isdir(folder) else (text, None)  # noqa: PTH112 - of any length


def _of_axes(layout: str, plain: MemoryDesc) -> MemoryDesc:
    """Return the layout of a row-major array if a notation without sizes says what its axes are."""
    # a broadcast element has the dims without taking their memory
    array = np.broadcast_to(np.zeros((), plain.dtype.numpy), plain.dims)
    try:
        return memory_desc(as_memory(array, layout).desc.dims, plain.dtype, layout)
    except UnknownFormatError:
        # notations such as channels_last need sizes to be read
        for count in range(plain.ndims, 0, -1) if _SIZELESS.fullmatch(layout) else ():
            with suppress(MemdescError):
                parsed = buffer_of(parse_layout(layout, (_ANY_SIZE,) * count, plain.dtype)).layout
                tag = dense_tag(parsed)
                if len(tag.digits) == plain.ndims and is_laid_out_by(parsed, tag):
                    return memory_desc(as_memory(array, tag).desc.dims, plain.dtype, tag)
        raise


def check_output(target: str, source: Operand, *, is_raw: bool) -> None:
    """Refuse an output whose ending names no format, or that would replace the input.

    A .npy may be replaced: it holds nothing but the tensor that was read.
    """
    (check_raw_name if is_raw else saving_format)(as_path(target))
    is_same = os.path.realpath(as_path(target)) == os.path.realpath(source.path)
    if is_same and not source.is_npy:
        raise MemdescError(
            f"{target!r} cannot be written: it would replace {source.file!r}; name another file"
        )


def padding_facts(memory: Memory, limit: int) -> Facts:
    """Return how much padding there is, whether it is zero, and where it is not."""
    desc = memory.desc
    count, places = find_nonzero(memory.data, desc, limit)
    padding = desc.padded_nelems - desc.nelems
    facts: Facts = {"padding_elements": padding, "padding_zero": not count}
    if count:
        rows = [
            {"index": place.at, "byte": place.byte, "bits": f"{place.bits:#x}"} for place in places
        ]
        facts |= {"not_zero": count, "places": Said(rows, rows or None)}
    return facts
