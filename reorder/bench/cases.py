"""Cases in the notation of oneDNN's benchdnn: options that hold until changed, then dims."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from memdesc import ImageDesc, MemdescError, MemoryDesc, parse_layout
from memdesc.disk import as_path, open_file
from memdesc.errors import about
from reorder.values.attr import Attr

# Options, and the parameters of an `Attr` that they set.
ATTRIBUTES = {
    "scale": "dst_scale",
    "zero-point": "dst_zero_point",
    "src-scale": "src_scale",
    "src-zero-point": "src_zero_point",
    "beta": "beta",
}
# the largest file of cases, in bytes; real ones have a few thousand
_MAX_NBYTES = 1 << 24
_OPTIONS = ("stag", "dtag", "sdt", "ddt", "strides", *ATTRIBUTES)
_PROBLEM = re.compile(r"(?P<dims>[0-9]{1,19}(x[0-9]{1,19})*)(_?n\"(?P<name>[^\"]*)\")?")
_MASK = re.compile(r"mask:(?P<mask>[0-9]{1,4})(:(?P<groups>[0-9]{1,19}(x[0-9]{1,19})*))?")
# quoted names may hold blanks
_WORD = re.compile(r"""(?:[^\s"]|"[^"]*")+""")


class Case(NamedTuple):
    """One reorder: its name, and the two layouts.

    The source may have strides larger than its tag asks for: a view of a larger tensor.
    """

    name: str
    src: MemoryDesc
    dst: MemoryDesc
    attr: Attr | None = None

    @property
    def nbytes(self) -> int:
        """Bytes read plus bytes written, including padding."""
        return self.src.dtype.nbytes(self.src.nelems) + self.dst.dtype.nbytes(
            self.dst.padded_nelems
        )


def read_cases(path: str) -> Iterator[Case]:
    """Read a file of cases: lines of benchdnn, ``#`` for comments; options hold for later lines.

    Fails if the file cannot be read, or a line is wrong; the message has its number.
    """
    try:
        with open_file(as_path(path)) as file:
            data = file.read(_MAX_NBYTES + 1)
        text = data.decode()
    except ValueError as error:  # of the path, or of the encoding
        msg = f"cannot read cases from {path!r}: {error}"
        raise MemdescError(msg) from None
    if len(data) > _MAX_NBYTES:
        msg = f"{path!r} has more than {_MAX_NBYTES} bytes; give a file of cases"
        raise MemdescError(msg)
    state: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        with about(f"{path!r}, line {number}"):
            yield from parse_cases(_words(line), state)


def parse_cases(words: Iterable[str], state: dict[str, list[str]] | None = None) -> Iterator[Case]:
    """Read options and dims.

    Each tuple of dims makes a case for every combination of the lists in the options before it.
    Words are ``--stag=abcd,acdb``, ``--dtag=aBcd16b``, ``--sdt=f32``, ``--ddt=f32``,
    ``--strides=SRC:DST``, ``--reset``, ``--batch=FILE``, and dims such as ``8x256x56x56`` or
    ``8x3x224x224n"input"``. A layout is what `memdesc.parse_layout` reads; a type is by default the
    one in the layout, or f32. `state` has the options in force, changed as the words say.

    Fails if an option is unknown or has no value, or a layout does not fit.
    """
    state = {} if state is None else state
    todo = iter(words)
    for word in todo:
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            if name == "reset":
                state.clear()
                continue
            value = value if sign else next(todo, "")
            if not value:
                msg = f"--{name} has no value"
                raise MemdescError(msg)
            if name == "batch":
                yield from read_cases(value)
            elif name in _OPTIONS:
                state[name] = [value] if name in ATTRIBUTES else _items(value)
            else:
                known = ", ".join(f"--{option}" for option in _OPTIONS)
                msg = f"no option --{name}; there are {known}, --batch and --reset"
                raise MemdescError(msg)
        else:
            yield from _cases(word, state)


def _items(text: str) -> list[str]:
    """Split a list at its commas; those in brackets belong to a layout, such as (8,4):(4,1)."""
    items, depth = [""], 0
    for previous, char in pairwise(f" {text}"):
        depth += (char in "([{<") - (char in ")]}>" and previous != "-")  # -> is an arrow
        if char == "," and not depth:
            items.append("")
        else:
            items[-1] += char
    return items


def _words(line: str) -> list[str]:
    """Split a line at blanks outside of quotes, up to a comment."""
    words = _WORD.findall(line)
    return words[: next((k for k, word in enumerate(words) if word.startswith("#")), None)]


def _cases(word: str, state: dict[str, list[str]]) -> Iterator[Case]:
    match = _PROBLEM.fullmatch(word)
    if match is None:
        msg = f"{word!r} is neither an option nor dims such as 8x256x56x56"
        raise MemdescError(msg)
    dims = tuple(map(int, match["dims"].split("x")))
    words = {option: state[option][0] for option in ATTRIBUTES if option in state}
    attr = attr_of(dims, words)
    suffix = "".join(f" {option} {text}" for option, text in words.items())
    plain: list[str | None] = [None]
    for stag, dtag, strides, sdt, ddt in product(
        state.get("stag", ["abx"]),
        state.get("dtag", ["abx"]),
        state.get("strides", [""]),
        state.get("sdt", plain),
        state.get("ddt", plain),
    ):
        src_strides, _, dst_strides = strides.partition(":")
        src = _desc(dims, sdt, f"strides:{src_strides}" if src_strides else stag, "f32")
        dst = _desc(dims, ddt, f"strides:{dst_strides}" if dst_strides else dtag, src.dtype)
        types = f"{src.dtype}" if src.dtype == dst.dtype else f"{src.dtype}->{dst.dtype}"
        layouts = f"{stag}{_view(src_strides)} -> {dtag}{_view(dst_strides)}"
        name = match["name"] or f"{types} {match['dims']} {layouts}{suffix}"
        yield Case(name, src, dst, attr)


def attr_of(dims: tuple[int, ...], options: dict[str, str]) -> Attr | None:
    """Return the attributes that options ask for.

    A value is a number, or (except for beta) ``mask:M`` for generated values along the dims of the
    mask, ``mask:M:GxH`` for one value for each G x H elements of the last two dims. Fails if a
    value is neither.
    """
    given: dict[str, Any] = {}
    for option, text in options.items():
        role = ATTRIBUTES[option]
        if (match := _MASK.fullmatch(text)) and role != "beta":
            given |= _generated(dims, role, int(match["mask"]), match["groups"])
            continue
        try:
            given[role] = int(text) if "zero" in role else float(text)
        except ValueError:
            what = (
                "not a number"
                if role == "beta"
                else "neither a number nor mask:M, such as mask:2 for one value per index of dim "
                "b, nor mask:M:GxH, such as mask:3:1x32"
            )
            msg = f"--{option} {text!r} is {what}"
            raise MemdescError(msg) from None
    return Attr(**given) if given else None


def _generated(dims: tuple[int, ...], role: str, mask: int, groups: str | None) -> dict[str, Any]:
    """Return the arguments of an `Attr` for a parameter with generated values."""
    widths = tuple(map(int, groups.split("x"))) if groups else ()
    if len(widths) > len(dims) or 0 in widths:
        msg = f"groups {groups} do not fit dims {dims}: give at most {len(dims)} sizes above 0"
        raise MemdescError(msg)
    widths_of_all = (*(1,) * (len(dims) - len(widths)), *widths)
    counts = [-(-dim // width) for dim, width in zip(dims, widths_of_all, strict=True)]
    count = prod(n for dim, n in enumerate(counts) if mask >> dim & 1)
    spread = np.arange(7, dtype=np.int32)
    period = spread if "zero" in role else (0.5 + spread / 8).astype(np.float32)
    values = np.tile(period, -(-count // period.size))[:count]
    given: dict[str, Any] = {role: values, f"{role}_mask": mask}
    return given | ({f"{role}_groups": widths} if widths else {})


def _view(strides: str) -> str:
    return f"[{strides}]" if strides else ""


def _desc(dims: tuple[int, ...], dtype: str | None, layout: str, default: object) -> MemoryDesc:
    desc = parse_layout(layout, dims, dtype, default=default)
    if isinstance(desc, ImageDesc):
        msg = (
            f"{layout!r} is an image type, not a linear buffer; `memdesc reorder IN.npy "
            f"OUT.safetensors --to {layout}` makes its pixels"
        )
        raise MemdescError(msg)
    return desc
