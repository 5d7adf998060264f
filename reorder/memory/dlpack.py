"""DLPack in both directions, including types that numpy does not exchange: bf16, f8, e8m0.

numpy passes their bits as unsigned integers. The type in a capsule is rewritten before a consumer
sees it, or after its producer has handed it over. Source: DLPack 1.1, `dlpack.h`.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np

from memdesc import DataType, MemdescError, data_type
from memdesc.errors import short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


CPU_DEVICE = (1, 0)  # kDLCPU

# Device types whose memory the CPU can read: kDLCPU, kDLCUDAHost, kDLROCMHost, kDLCUDAManaged.
_READABLE = (1, 3, 11, 13)
_INT, _UINT, _FLOAT, _BOOL = 0, 1, 2, 6
# The types that numpy does not export, with their DLDataTypeCode. f4_e2m1 is not one of them,
# because readers of DLPack disagree on which half of a byte comes first.
_CODES = {"bf16": 4, "f8_e4m3": 10, "f8_e4m3fnuz": 11, "f8_e5m2": 12, "f8_e5m2fnuz": 13, "e8m0": 14}
_TYPES = {code: data_type(name) for name, code in _CODES.items()}
_NUMPY_CODES = {"i": _INT, "u": _UINT, "f": _FLOAT, "b": _BOOL}
# The place in DLPackExchangeAPI of the function that exports an object as a _Versioned.
_EXPORT_AT = 24
# The attribute with that table, and the methods by which a subclass may export something else.
_EXCHANGE = "__dlpack_c_exchange_api__"
_METHODS = frozenset({"__dlpack__", "__dlpack_device__"})
_TORCH_FUNCTION = "__torch_function__"
_VERSION = (1, 0)
# DLPACK_FLAG_BITMASK_READ_ONLY and DLPACK_FLAG_BITMASK_IS_COPIED
READ_ONLY, IS_COPIED = 1, 2
# Classes whose facts are cached, at most: the cache keeps them alive.
MAX_CLASSES = 256
_MAX_NDIM = 64
# In characters: errors of torch contain a stack trace.
_MAX_REASON = 400
# User programs have addresses in the lower half of the address space.
_MAX_ADDRESS = 2**63


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned; the older DLManagedTensor starts with the tensor."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _versioned_in(capsule: Any) -> _Versioned | None:
    """Return what a capsule with a version holds, if it is not consumed yet."""
    name = b"dltensor_versioned"
    return _Versioned.from_address(_pointer(capsule, name)) if _is_valid(capsule, name) else None


def _tensor_in(capsule: Any) -> _DLTensor | None:
    """Return the tensor in a capsule that is not consumed yet; None for an unknown version."""
    if _is_valid(capsule, b"dltensor"):
        return _DLTensor.from_address(_pointer(capsule, b"dltensor"))
    versioned = _versioned_in(capsule)
    if versioned is None or versioned.major != _VERSION[0]:
        return None
    tensor: _DLTensor = versioned.tensor
    return tensor


@lru_cache(MAX_CLASSES)
def exporter_at(kind: type) -> int:
    """Return the address of the C function by which a class exports its tensors; 0 without one.

    A subclass that exports them in its own way, by methods, does not have that of its base class.
    """
    table = None
    for own in map(vars, kind.__mro__):
        if _EXCHANGE in own or _overrides_export(own):
            table = own.get(_EXCHANGE)
            break
    if not _is_valid(table, b"dlpack_exchange_api"):
        return 0
    address = _pointer(table, b"dlpack_exchange_api")
    is_known = ctypes.c_uint32.from_address(address).value == _VERSION[0]
    return (is_known and ctypes.c_void_p.from_address(address + _EXPORT_AT).value) or 0


def _overrides_export(own: Mapping[str, Any]) -> bool:
    """Whether one of a class's own attributes changes what its tensors export."""
    # parameters of torch have a function that changes nothing
    function = own.get(_TORCH_FUNCTION)
    is_changed = getattr(function, "__name__", None) != "_disabled_torch_function_impl"
    return (function is not None and is_changed) or not _METHODS.isdisjoint(own)


def dlpack_dtype(dtype: np.dtype[Any]) -> int:
    """Return a type as the DLDataType of one lane: code, bits and lanes, the lowest first."""
    known = data_type(dtype)
    code = _CODES[known.name] if known.name in _CODES else _NUMPY_CODES[dtype.kind]
    return code | 8 * dtype.itemsize << 8 | 1 << 16


class TensorView:
    """An array that can be exported by DLPack; `Memory.block_tensor` returns one.

    Parameters
    ----------
    array : ndarray
        With any data type of memdesc.

    Examples
    --------
    >>> m = reorder.reorder(np.ones((1, 3, 2, 2), np.float32), "nChw4c")
    >>> np.from_dlpack(m.block_tensor()).shape
    (1, 1, 2, 2, 4)
    """

    __slots__ = ("array",)

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DEVICE

    def __dlpack__(self, **options: Any) -> Any:
        dtype = data_type(self.array.dtype)
        given = {key: value for key, value in options.items() if value is not None}
        if dtype.name not in _CODES:
            return self.array.__dlpack__(**given)
        capsule = self.array.view(dtype.bits_dtype).__dlpack__(**given)
        tensor = _tensor_in(capsule)
        if tensor is None:
            raise BufferError(
                f"numpy made a capsule of a version that cannot be relabelled as {dtype}"
            )
        tensor.code = _CODES[dtype.name]
        return capsule

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 - numpy's protocol
        return np.array(self.array, dtype, copy=copy)


class _Taken:
    """A capsule taken from its producer, for numpy to read."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DEVICE

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule


class Exporter(Protocol):
    """An object that exports itself by DLPack: a tensor of torch, JAX, TVM, ..."""

    def __dlpack_device__(self) -> tuple[Any, Any]: ...

    def __dlpack__(self, **options: Any) -> Any: ...


def is_exporter(x: object) -> TypeGuard[Exporter]:
    """Whether an object exports itself by DLPack."""
    return hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")


def from_dlpack(x: Exporter, side: str, *, write: bool = False) -> NDArray[Any]:
    """Return what an object exports, as an array on the same memory; `side` names it in messages.

    With `write`, a tensor is refused that requires a gradient, as torch refuses in-place changes,
    or that exports a copy; without, its array is read-only.
    """
    name = type(x).__name__
    if write:
        refuse_gradient(x, side)
    detached = _detached(x)
    x = x if detached is None else detached
    kind = _device_of(x, f"{side}: the {name}")
    if kind not in _READABLE:
        raise MemdescError(
            f"{side}: the {name} is on DLPack device type {kind}, not in CPU memory; move it "
            "there first, for example with .cpu()"
        )
    if not write:
        # JAX's arrays are read this way in a fourth of the time
        with suppress(TypeError, ValueError, BufferError):
            return np.asarray(memoryview(x))  # type: ignore[arg-type] # not all are buffers
    way_out = negated_way_out = "pass a dense tensor on the CPU instead, and copy it into this one"
    if not write:
        negated_way_out = f"pass {side}.resolve_neg()"
        way_out = (
            "pass a dense copy on the CPU, for example from numpy.asarray() or torch's to_dense()"
        )
    try:
        if getattr(x, "is_neg", bool)():  # tensors of torch have this
            raise MemdescError(  # noqa: TRY301 - raised again below
                f"{side}: the {name} is a view that negates its memory, which DLPack cannot "
                f"express; {negated_way_out}"
            )
        capsule, dtype = _take(x)
        versioned = _versioned_in(capsule)
        is_copy = versioned is not None and bool(versioned.flags & IS_COPIED)
        array: NDArray[Any] = np.from_dlpack(_Taken(capsule))
    except (MemdescError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - a producer may raise anything
        raise MemdescError(
            f"{side}: the {name} exports no array by DLPack: {_reason(error)}; {way_out}"
        ) from None
    array = array if dtype is None else array.view(dtype.numpy)
    if write and is_copy:
        raise MemdescError(
            f"{side}: the {name} exports a copy of its memory, so what is written would be lost; "
            "pass a writable array"
        )
    if is_copy or detached is not None:
        array.flags.writeable = False
    return array


def refuse_gradient(x: object, side: str) -> None:
    """Refuse to write into a tensor that requires a gradient, as torch does."""
    if _detached(x) is not None:
        raise MemdescError(
            f"{side}: the {type(x).__name__} requires a gradient, which would miss an in-place "
            f"change; pass {side}.detach()"
        )


def _detached(x: Any) -> Exporter | None:
    """Return a detached tensor, or None if it does not require a gradient."""
    requires_gradient = getattr(x, "requires_grad", False) is True and hasattr(x, "detach")
    return x.detach() if requires_gradient else None


def _device_of(x: Exporter, what: str) -> int:
    try:
        device = x.__dlpack_device__()
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a producer may raise anything
        raise MemdescError(
            f"{what} does not report its device ({_reason(error)}); pass a dense tensor on the CPU"
        ) from None
    try:
        kind, _ = device
        return int(kind)
    except (TypeError, ValueError):
        raise MemdescError(
            f"{what} gives its device as {short_repr(device)}, not as DLPack's device type and "
            "number; pass a tensor"
        ) from None


def _reason(error: Exception) -> str:
    """Return the message of a producer's error as one short line."""
    return " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__


def _check(tensor: _DLTensor) -> None:
    """Refuse addresses that numpy would read unchecked; it checks everything else itself."""
    if not 0 <= tensor.ndim <= _MAX_NDIM:
        raise BufferError(f"it has {tensor.ndim} dims")
    if tensor.ndim and not tensor.shape:
        raise BufferError(f"its {tensor.ndim} dims have no sizes")
    sizes = (ctypes.c_int64 * tensor.ndim).from_address(tensor.shape) if tensor.ndim else ()
    address = (tensor.data or 0) + tensor.byte_offset
    if 0 not in sizes and not (tensor.data and address < _MAX_ADDRESS):
        raise BufferError(f"its elements are at {address:#x}, which is not a valid address")


def _take(x: Exporter) -> tuple[Any, DataType | None]:
    """Take a capsule; if numpy does not know its type, relabel it as bits and return the type."""
    try:
        capsule = x.__dlpack__(max_version=_VERSION)
    except TypeError:  # a producer that predates versions
        capsule = x.__dlpack__()
    tensor = _tensor_in(capsule)
    if tensor is not None:
        _check(tensor)
    dtype = None if tensor is None else _TYPES.get(tensor.code)
    if tensor is None or dtype is None or (tensor.bits, tensor.lanes) != (dtype.bits, 1):
        return capsule, None
    tensor.code = _UINT
    return capsule, dtype
