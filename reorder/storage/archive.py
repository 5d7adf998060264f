"""Several tensors in one file: a .npz with a descriptor beside each array.

`numpy.load` reads the arrays of such a file; the member `NAME.npy.json` says how
the bytes of `NAME.npy` lie in memory.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, from_json, memory_desc, to_json
from memdesc.disk import as_path, write_files
from memdesc.errors import short_repr
from memdesc.tags import LETTERS
from reorder.api import reorder
from reorder.memory.memory import Memory
from reorder.storage.files import array_of, attach, form_of

if TYPE_CHECKING:
    import os
    from typing import BinaryIO

    from numpy.typing import NDArray

__all__ = ["load_archive", "save_archive"]

# the same members give the same bytes
_EPOCH = (1980, 1, 1, 0, 0, 0)
# what .zip holds of a member's name, less the endings
_MAX_NAME = 2**16 - 1 - len(".npy.json")


def save_archive(
    path: str | os.PathLike[str], tensors: Mapping[str, Memory | NDArray[Any]]
) -> None:
    """Write tensors and their descriptors into one .npz; nothing is left half written.

    Parameters
    ----------
    path : path
        The file, named as it is: no ending is added.
    tensors : mapping of str to Memory or ndarray
        An array is written as a row-major tensor of its data type.

    Raises
    ------
    MemdescError
        If a name or a value is none, or the file cannot be written.

    Examples
    --------
    >>> import os, tempfile, ml_dtypes, numpy as np, reorder
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> w = reorder.reorder(np.ones((16, 3, 3, 3), ml_dtypes.bfloat16), "OIhw16o4i")
    >>> reorder.save_archive(path, {"conv1.weight": w, "conv1.bias": np.zeros(16, np.float32)})
    >>> {name: str(m.desc.dtype) for name, m in reorder.load_archive(path).items()}
    {'conv1.weight': 'bf16', 'conv1.bias': 'f32'}
    """
    if not isinstance(tensors, Mapping):
        msg = (  # type: ignore[unreachable] # callers without types
            "tensors must be a mapping of names to tensors, such as a dict, not "
            f"{type(tensors).__name__}"
        )
        raise MemdescError(msg)
    memories = {}
    for name, tensor in tensors.items():
        if not _is_name(name):
            msg = (
                f"a tensor's name must be a text of 1 to {_MAX_NAME} bytes without an ending "
                f".json, not {short_repr(name)}"
            )
            raise MemdescError(msg)
        if not isinstance(tensor, Memory | np.ndarray):
            msg = (  # type: ignore[unreachable] # callers without types
                f"{short_repr(name)} must be a Memory or an ndarray, not {type(tensor).__name__}"
            )
            raise MemdescError(msg)
        memories[name] = (
            tensor if isinstance(tensor, Memory) else reorder(tensor, LETTERS[: tensor.ndim])
        )
    write_files({as_path(path): lambda file: _write(file, memories)})


def load_archive(path: str | os.PathLike[str]) -> dict[str, Memory]:
    """Read all tensors of a .npz; an array without a descriptor is a row-major tensor.

    *Law*: `load_archive` gives back what `save_archive` was given, bit for bit.

    Raises
    ------
    MemdescError
        If the file is missing or damaged, or a descriptor does not fit its array.
    """
    tensors = {}
    given = as_path(path)
    try:
        with zipfile.ZipFile(given) as archive:
            members = archive.namelist()
            for member in members:
                if not member.endswith(".npy"):
                    continue
                with archive.open(member) as file:
                    array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
                name = member.removesuffix(".npy")
                if f"{member}.json" in members:
                    desc = from_json(archive.read(f"{member}.json").decode())
                    tensors[name] = attach(
                        array, desc, form_of(desc), (repr(name), "its descriptor")
                    )
                else:
                    tensors[name] = Memory(
                        memory_desc(array.shape, array.dtype), np.ascontiguousarray(array)
                    )
    except OSError as error:
        msg = f"{str(given)!r} cannot be read: {error.strerror}"
        raise MemdescError(msg) from None
    except MemdescError as error:
        msg = f"{str(given)!r}: {error}"
        raise MemdescError(msg) from None
    except (
        zipfile.BadZipFile,
        zlib.error,
        ValueError,
        EOFError,
        TokenError,
        RuntimeError,
        NotImplementedError,
    ) as error:
        msg = f"{str(given)!r} is no .npz file, or a damaged one: {error}"
        raise MemdescError(msg) from None
    return tensors


def _is_name(name: object) -> bool:
    if not isinstance(name, str) or "\0" in name or name.endswith(".json"):
        return False
    try:
        return 1 <= len(name.encode()) <= _MAX_NAME
    except UnicodeEncodeError:  # half of a character
        return False


def _write(file: BinaryIO, memories: Mapping[str, Memory]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, memory in memories.items():
            with archive.open(
                zipfile.ZipInfo(f"{name}.npy", _EPOCH), "w", force_zip64=True
            ) as member:
                np.lib.format.write_array(member, array_of(memory))
            archive.writestr(
                zipfile.ZipInfo(f"{name}.npy.json", _EPOCH), f"{to_json(memory.desc)}\n"
            )
