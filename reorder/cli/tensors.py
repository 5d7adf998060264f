"""Files that commands read and write: what kind each one is, and the tensors and bytes in it."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from memdesc import (
    ImageDesc,
    MemdescError,
    MemoryDesc,
    UnknownFormatError,
    UnsupportedFormatError,
    data_type,
    memory_desc,
    parse_layout,
)
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import about, counted
from memdesc.exchange import SYSTEMS
from memdesc.layout_names import dense_tag, is_laid_out_by
from memdesc.names import is_image
from reorder.checkpoints.formats.table import (
    FORMATS,
    Foreign,
    Format,
    kind_of,
    read_container,
    refusal,
)
from reorder.checkpoints.save import (
    desc_of_entry,
    memory_of,
    name_of_only,
    other_type,
    read_model,
    saving_format,
)
from reorder.checkpoints.weights import note_of, weight_of
from reorder.cli.command import Facts, buffer_of
from reorder.disk import as_path, open_file
from reorder.memory.inputs import as_memory, from_pixels
from reorder.memory.memory import Memory
from reorder.memory.padding import find_nonzero

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from memdesc import DataType
    from memdesc.tags import FormatTag
    from reorder.checkpoints.formats.entry import Entry

_ENDINGS = tuple(row.ending for row in FORMATS.values())
# A word that contains no sizes is read for dims of this size, since a notation needs some. The size
# is not 1, because a dim of 1 may lie anywhere, and blocks divide it.
_SIZELESS = re.compile(r"[A-Za-z][\w.\[\]]*")
_ANY_SIZE = 64
_NAMED = re.compile(
    f"(.*?(?:{'|'.join(re.escape(r.ending) for r in FORMATS.values() if r.has_names)})):(.*)",
    re.DOTALL,
)
# the most names of tensors in one message
_SHOWN = 8


class Reading(NamedTuple):
    """What options say about a file: its layout, which type it holds, and where its bytes are.

    `flag` is the option that gives the layout. If `may_be_longer`, bytes may follow the tensor. If
    `is_for_raw`, the type is that of another file, which is raw: an array that states its own keeps
    that.
    """

    layout: str | None = None
    dims: tuple[int, ...] | None = None
    dtype: str | None = None
    flag: str = "--from"
    offset: int | None = None
    row_pitch: int | None = None
    may_be_longer: bool = False
    is_for_raw: bool = False


def read_tensor(path: str, how: Reading) -> tuple[Memory, bool]:
    """Read a tensor; also returns whether only the caller knows what its bytes mean.

    Raw bytes need a layout, unless the name of the file has one. For an array, a layout with sizes
    describes its bytes, and one without sizes the order of its axes. A descriptor in the file must
    agree with the options.
    """
    if how.offset is not None or is_raw(path):
        return _read_raw(path, how), True
    if how.row_pitch is not None:
        raise MemdescError(f"--row-pitch is for raw pixels; {path!r} gives the shape of its rows")
    if how.may_be_longer:
        raise MemdescError(
            f"--ignore-rest is for raw bytes; {path!r} gives the size of its tensors"
        )
    entry = _entry(path)
    if how.is_for_raw and how.layout is None and entry.dtype in DATA_TYPES:
        how = how._replace(dtype=None)
    if how.layout is None or entry.is_described:
        memory = _memory(path, entry, how.dtype)
        _check_described(path, memory.desc, how)
        return memory, False
    try:
        stored = entry.dtype if entry.dtype in DATA_TYPES else None
        layout = _parse(how, how.dims, default=stored)
    except UnknownFormatError as error:
        if how.dims is not None or is_image(how.layout):
            raise
        # in a file, only the layout says which axis is which: numpy saves a transposed array in
        # Fortran order
        array = np.ascontiguousarray(_memory(path, entry, how.dtype).numpy())
        try:
            return as_memory(array, how.layout), False
        except UnknownFormatError as unknown:
            if (tag := _axes_tag(how.layout, array)) is not None:
                return as_memory(array, tag), False
            raise (unknown if how.layout.isidentifier() else error) from None
    return _described_array(path, layout), True


def _axes_tag(layout: str, array: NDArray[Any]) -> FormatTag | None:
    """Return the tag of a notation without sizes, such as channels_last, for axes in this order."""
    for count in range(array.ndim, 0, -1) if _SIZELESS.fullmatch(layout) else ():
        with suppress(MemdescError):
            dims = (_ANY_SIZE,) * count
            found = buffer_of(parse_layout(layout, dims, array.dtype)).layout
            tag = dense_tag(found)
            if len(tag.digits) == array.ndim and is_laid_out_by(found, tag):
                return tag
    return None


def _check_described(path: str, desc: MemoryDesc, how: Reading) -> None:
    """Refuse options that contradict what a file says."""
    if how.layout is not None:
        said = _parse(how, how.dims or desc.dims, default=desc.dtype)
        if buffer_of(said) != desc:
            raise MemdescError(
                f"the descriptor of {path!r} says {desc!r}, not {how.layout!r}; leave {how.flag} "
                "out"
            )
    elif how.dims is not None and how.dims != desc.dims:
        raise MemdescError(f"{path!r} has dims {desc.dims}, not {how.dims}; leave --dims out")


def _described_array(path: str, layout: MemoryDesc | ImageDesc) -> Memory:
    """Return the bytes of an array, or its pixels, as the memory of a layout."""
    desc = buffer_of(layout)
    found = read_words(path, desc.dtype)
    if isinstance(layout, ImageDesc) and isinstance(found, np.ndarray) and found.ndim > 1:
        memory = from_pixels(found, layout, repr(path))
        others = found[layout.height :], found[: layout.height, layout.width :]
        if any(np.ascontiguousarray(part).view(np.uint8).any() for part in others):
            raise MemdescError(
                f"{path!r} has {found.shape[0]} rows of {found.shape[1]} pixels, and {layout!r} "
                f"{layout.height} of {layout.width}; the other pixels are not zero: they belong to "
                "an image of other dims, or must be cut off"
            )
        return memory
    if isinstance(found, Memory):
        data = found.data
    else:
        data = np.ascontiguousarray(found).reshape(-1).view(np.uint8)
    if len(data) != desc.nbytes:
        raise MemdescError(f"{path!r} has {len(data)} bytes, but {layout!r} takes {desc.nbytes}")
    return Memory(desc, data, zero_pad=False)


def _read_raw(path: str, how: Reading) -> Memory:
    """Read raw bytes as the layout that is given, or that the name of the file has."""
    with open_raw(path, how.offset) as (file, found):
        layout = _raw_layout(path, how)
        desc = buffer_of(layout)
        row = pitch = rows = 0
        if how.row_pitch is not None and not isinstance(layout, ImageDesc):
            raise MemdescError(
                f"--row-pitch is for the pixels of an image type, not for {layout!r}"
            )
        if isinstance(layout, ImageDesc) and layout.nbytes:
            rows = layout.height
            row = layout.nbytes // rows
            pitch = row if how.row_pitch is None else how.row_pitch
        if pitch < row:
            raise MemdescError(
                f"--row-pitch {pitch} is less than a row of {layout!r}, which has {row} bytes"
            )
        # the last row may end with its pixels, or with the gap after them
        needed = pitch * (rows - 1) + row if rows else desc.nbytes
        if found < needed or (found > max(needed, pitch * rows) and not how.may_be_longer):
            rest = (
                "it is truncated, or has another type, other dims or another layout"
                if found < needed
                else _too_long(found, needed)
            )
            apart = f": {rows} rows of {row} bytes, {pitch} bytes apart" if pitch > row else ""
            raise MemdescError(
                f"{path!r} has {found} bytes from byte {how.offset or 0} on, but {layout!r} takes "
                f"{needed}{apart}; {rest}"
            )
        data = np.fromfile(file, np.uint8, needed)
    if len(data) != needed:
        raise MemdescError(f"{path!r} became shorter while it was being read")
    if pitch > row:
        padded = np.append(data, np.zeros(pitch - row, np.uint8)).reshape(rows, pitch)
        data = np.ascontiguousarray(padded[:, :row]).reshape(-1)
    return Memory(desc, data, zero_pad=False)


def _raw_layout(path: str, how: Reading) -> MemoryDesc | ImageDesc:
    """Return the layout of raw bytes: the one that is given, or that the name of the file has."""
    name = Path(path).name
    named: MemoryDesc | None = None
    reason = ", or a name like those of OpenVINO's dumps, such as conv1__f16__1_17_5_4__bfyx.bin"
    try:
        named = buffer_of(parse_layout(f"openvino:{name}"))
    except UnsupportedFormatError:
        if how.layout is None:
            raise
    except MemdescError as error:
        if re.fullmatch(SYSTEMS["openvino"].spelling or "", name, re.DOTALL):
            reason = f": {error}"
    if how.layout is not None:
        given = _parse(how, how.dims, default=None)
        # whoever says where the bytes begin knows what they are
        if named is not None and how.offset is None and buffer_of(given) != named:
            raise _misnamed(path, named, f"{how.flag}, which says {given!r}")
        return given
    if named is None:
        raise MemdescError(
            f"{path!r} holds raw bytes, and its name does not say which; give {how.flag} with a "
            f"layout, --dims and --dtype{reason}"
        )
    if how.dims is not None and how.dims != named.dims:
        raise _misnamed(path, named, f"--dims {'x'.join(map(str, how.dims))}")
    if how.dtype is not None and data_type(how.dtype) != named.dtype:
        raise _misnamed(path, named, f"--dtype {how.dtype}")
    return named


def _misnamed(path: str, named: MemoryDesc, given: str) -> MemdescError:
    """Return the error for options that contradict the name of a dump."""
    return MemdescError(
        f"the name of {path!r} says {named!r}, which contradicts {given}; leave that out, or "
        "rename the file if its name is wrong"
    )


def _too_long(found: int, needed: int) -> str:
    """Return what may be wrong with raw bytes that are more than a layout takes."""
    rest = found - needed
    header = (
        f"pass --offset {rest} if a header of {counted(rest, 'byte')} comes first, or "
        "--ignore-rest if something follows the tensor"
    )
    if not needed or found % needed:
        return header
    times = found // needed
    size = {2: "twice"}.get(times, f"{times} times")
    return f"it is {size} that: perhaps another type, other dims or another layout; or {header}"


def _parse(how: Reading, dims: tuple[int, ...] | None, **default: Any) -> MemoryDesc | ImageDesc:
    """Return the layout that an option gives; a message names the options that it lacks."""
    try:
        return parse_layout(how.layout or "", dims, how.dtype, **default)
    except UnknownFormatError as error:
        reason, give, lacking = str(error).rpartition("; give ")
        named = re.sub("dims|dtype", r"--\g<0>", lacking) if give else lacking
        raise UnknownFormatError(reason + give + named) from None


def load_file(path: str, dtype: str | None = None) -> Memory | NDArray[Any]:
    """Read a tensor as a descriptor in the file says, or an array where it has none."""
    entry = _entry(path)
    memory = _memory(path, entry, dtype)
    return memory if entry.is_described else memory.numpy()


def _entry(path: str) -> Entry:
    """Return the only tensor of a file, or the one that is named."""
    stored = _stored(path)
    file, name = split_name(path)
    return stored[_only(file, stored) if name is None else name]


def _only(file: str, stored: Mapping[str, Entry]) -> str:
    """Return the name of the only tensor of a file, or of the codes of its only weight."""
    codes = [each for each in stored.values() if "quantized" in (each.note or {})]
    beside = {name for each in codes for name in [*note_of(stored, each).tensors.values()][1:]}
    return name_of_only(as_path(file), {name: None for name in stored if name not in beside})


def _memory(path: str, entry: Entry, dtype: str | None) -> Memory:
    with about(repr(split_name(path)[0])):
        return memory_of(entry, dtype)


def tensors_in(path: str) -> dict[str, Memory]:
    """Return the tensors of a file, or the one that FILE:NAME selects.

    Fails if there is no such tensor, or the file is of another kind.
    """
    stored = _stored(path)
    _, name = split_name(path)
    return {each: memory_of(entry) for each, entry in stored.items() if name in {None, each}}


def _stored(path: str) -> Mapping[str, Entry]:
    """Return the tensors of a file that commands read; one that is named is among them."""
    file, name = split_name(path)
    given, kind = as_path(file), kind_if_known(file)
    if isinstance(kind, Foreign):
        raise refusal(given, kind)
    if kind is None and is_raw(file) and given.is_file():
        raise MemdescError(
            f"{file!r} is not a file of tensors, such as a .npy; "
            "`memdesc reorder` makes one of raw bytes, and checks their padding"
        )
    stored = read_model(given, name=name).entries
    check_named(path, stored)
    return stored


def check_named(path: str, tensors: Collection[str]) -> None:
    """Refuse ``FILE:NAME`` unless the file has a tensor of that name."""
    file, name = split_name(path)
    if name is not None and name not in tensors:
        shown = ", ".join([*tensors][:_SHOWN])
        raise MemdescError(f"{file!r} has no tensor {name!r}; it has {len(tensors)}: {shown}")


def split_name(path: str) -> tuple[str, str | None]:
    """Return the file or folder of ``FILE.npz:NAME``, and the name; None for a file alone."""
    found = _NAMED.fullmatch(path)
    if os.path.exists(path):  # noqa: PTH110 - of any length
        return path, None
    if found is not None:
        return found[1], found[2]
    folder, colon, name = path.rpartition(":")
    return (folder, name) if colon and os.path.isdir(folder) else (path, None)  # noqa: PTH112 - of any length


def name_in(path: str) -> str:
    """Return the name of the tensor that a path selects; empty for raw bytes and a .npy."""
    file, name = split_name(path)
    if name is not None or is_raw(path) or kind_if_known(file) is FORMATS["npy"]:
        return name or ""
    return _entry(path).name


def is_raw(path: str) -> bool:
    """Whether a file has neither the ending nor the start of one that commands read as tensors."""
    file, name = split_name(path)
    is_folder = name is not None and os.path.isdir(file)  # noqa: PTH112 - of any length
    is_tensors = is_folder or Path(file).suffix in _ENDINGS
    return not is_tensors and not isinstance(kind_if_known(file), Format)


def check_output(target: str, source: str, *, is_raw: bool) -> None:
    """Refuse an output whose ending names no format, or that would replace the input.

    A .npy may be replaced: it holds nothing but the tensor that was read.
    """
    if not is_raw:
        saving_format(as_path(target))
    file, _ = split_name(source)
    is_same = os.path.realpath(as_path(target)) == os.path.realpath(as_path(file))
    if is_same and kind_if_known(file) is not FORMATS["npy"]:
        raise MemdescError(
            f"{target!r} cannot be written: it would replace {file!r}; name another file"
        )


@contextmanager
def open_raw(path: str, offset: int | None = None) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file of raw bytes at an offset, and return how many bytes follow.

    A file of another kind is refused unless an offset says where in it the bytes are.
    """
    kind = kind_of(as_path(path)) if offset is None else None
    if kind is not None:
        raise MemdescError(
            f"{refusal(as_path(path), kind)}; if it does hold raw bytes, `memdesc reorder` reads "
            "them with --offset 0, or with the number of bytes that precede them"
        )
    start = offset or 0
    with open_file(as_path(path)) as file:
        nbytes = file.seek(0, os.SEEK_END)
        if not 0 <= start <= nbytes:
            raise MemdescError(
                f"--offset {offset}: {path!r} has {nbytes} bytes, so no tensor can start there"
            )
        file.seek(start)
        yield file, nbytes - start


def read_bytes(path: str, offset: int | None = None) -> NDArray[np.uint8]:
    """Read the bytes of a raw file from an offset to its end."""
    with open_raw(path, offset) as (file, nbytes):
        return np.fromfile(file, np.uint8, nbytes)


def read_words(path: str, dtype: DataType | None) -> Memory | NDArray[Any] | None:
    """Read an array for its bytes, as elements of a type; None for files of raw bytes.

    Bytes and elements without a type may be of any type, and integers may be words of 4-bit types;
    an array of another type is refused.
    """
    if is_raw(path):
        return None
    try:
        found = load_file(path)
    except MemdescError:
        if dtype is None:
            raise
        return load_file(path, dtype.name)  # elements without a type
    held = np.dtype(found.dtype.numpy if isinstance(found, Memory) else found.dtype)
    is_words = held == np.uint8 or (dtype is not None and dtype.is_packed and held.kind in "iu")
    if dtype is not None and held != dtype.numpy and not is_words:
        said = f"{path!r} holds {held}"
        raise other_type(said, dtype, "name that one")
    return found


def codes_note(path: str) -> str:
    """Return the tensors that turn the codes of a .npz tensor into numbers; empty for others."""
    file, name = split_name(path)
    if is_raw(path):
        return ""
    try:
        entries = read_container(file).entries
        name = _only(file, entries) if name is None else name
        found = weight_of(entries, name)
    except (MemdescError, KeyError):  # reading it will report the error
        return ""
    others = ", ".join(each for each in found.names if each != name)
    return (
        f"{name} holds codes: {others} turn them into numbers, and are not applied"
        if others
        else ""
    )


def kind_if_known(path: str) -> Format | Foreign | None:
    """Return the kind of a file; None if it is unknown or cannot be read: reading it says why."""
    try:
        return kind_of(as_path(path))
    except MemdescError:
        return None


def locate(path: str, how: Reading) -> tuple[MemoryDesc, Entry] | None:
    """Return what `read_tensor` would read, and where it is; None if it must be read whole.

    Refusals are left to `read_tensor`.
    """
    file, name = split_name(path)
    is_for_raw = how.offset is not None or how.row_pitch is not None or how.may_be_longer
    if is_for_raw or how.dims is not None or is_raw(path):
        return None
    try:
        entries = read_container(file).entries
        entry = entries[_only(file, entries) if name is None else name]
        desc = _located(entry, how)
    except (MemdescError, KeyError):
        return None
    is_whole = desc is not None and desc.min_nbytes <= entry.nbytes
    return (desc, entry) if desc is not None and is_whole else None


def _located(entry: Entry, how: Reading) -> MemoryDesc | None:
    desc = desc_of_entry(entry, how.dtype)
    if how.layout is None:
        return desc
    if entry.is_described:
        _check_described(entry.name, desc, how)
        return desc
    # a broadcast element has the dims without taking their memory
    one = np.broadcast_to(np.zeros((), desc.dtype.numpy), desc.dims)
    dims = as_memory(one, how.layout).desc.dims
    is_row_major = desc == memory_desc(desc.dims, desc.dtype)
    return memory_desc(dims, desc.dtype, how.layout) if is_row_major else None


def padding_facts(memory: Memory, limit: int, key: str) -> Facts:
    """Return how much padding there is, whether it is zero (as `key`), and where it is not."""
    desc = memory.desc
    count, places = find_nonzero(memory.data, desc, limit)
    facts: Facts = {"padding_elements": desc.padded_nelems - desc.nelems, key: not count}
    if count:
        facts |= {
            "not_zero": count,
            "places": [
                {"index": place.at, "byte": place.byte, "bits": f"{place.bits:#x}"}
                for place in places
            ],
        }
    return facts
