"""Damaged files: each is read correctly or refused."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import reorder
from memdesc import MemdescError

_MAX_MESSAGE = 1000
# what is put into bytes, or into the place of a value in JSON
_DIGITS = [b"9", b"-1", b"0", b"1e9", b"9" * 30, b"null"]
_SIGNS = [b"[", b"{", b"}", b'"', b"(", b"'", b",", b"\xff"]
_VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**20, 1.5),
    *("", "f32", "x" * 100, [], [0], [[]], {}),
]


@st.composite
def mutations(draw: st.DrawFn, whole: bytes) -> bytes:
    """Draw bytes that differ from complete ones by a few changes."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        end = min(at + draw(st.sampled_from([1, 1, 2, 4, 8, 64])), len(data))
        match draw(st.sampled_from(["flip", "digits", "insert", "cut", "end", "repeat", "other"])):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "digits":
                data[at:end] = draw(st.sampled_from(_DIGITS))
            case "insert":
                data[at:at] = draw(st.binary(max_size=8))
            case "cut":
                del data[at:end]
            case "end":
                del data[at:]
            case "repeat":
                data[at:at] = data[at:end]
            case _:
                data[at:end] = draw(st.sampled_from(_SIGNS))
    return bytes(data)


@st.composite
def json_mutations(draw: st.DrawFn, fields: dict[str, Any]) -> bytes:
    """Draw JSON in which some values are others."""
    changed = json.loads(json.dumps(fields))
    for _ in range(draw(st.integers(1, 3))):
        at = changed
        while True:
            keys: list[Any] = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(at[key], dict | list) and at[key] and draw(st.booleans()):
                at = at[key]
                continue
            if draw(st.integers(0, 4)):
                at[key] = copy.deepcopy(draw(st.sampled_from(_VALUES)))
            else:
                del at[key]
            break
    return json.dumps(changed).encode()


def must_read_or_refuse(read: Callable[[], Any]) -> bool:
    """Call a function that reads files; it may raise MemdescError and nothing else."""
    refused = ""
    found = None
    try:
        found = read()
    except MemdescError as error:
        refused = str(error)
    assert len(refused) < _MAX_MESSAGE
    if found is None:
        return False
    values = found.values() if isinstance(found, dict) else [found]
    assert all(
        isinstance(value, reorder.Memory | reorder.Quantized | reorder.records.Record)
        for value in values
    )
    return True


def temporaries(folder: Path) -> list[Path]:
    """Return the files of a folder that were never given the names they were written for."""
    return sorted(folder.glob(".memdesc.*"))


def read_metadata(path: Path) -> dict[str, str]:
    """Read the metadata of a .safetensors, with descriptors."""
    whole = path.read_bytes()
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    found: dict[str, str] = header["__metadata__"]
    return found


def write_metadata(path: Path, metadata: dict[str, str]) -> None:
    """Replace the metadata of a .safetensors."""
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length]) | {"__metadata__": metadata}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
