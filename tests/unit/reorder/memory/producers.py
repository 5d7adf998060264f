"""Tensors of other libraries, as DLPack sees them: right ones, wrong ones, and ones that raise."""

import ctypes
from typing import Any

import numpy as np

from reorder.memory.dlpack import TensorView, _pointer, _tensor_in, _Versioned


class Exported:
    """An array that only exports itself; with `old` without versions of capsules."""

    def __init__(
        self, array: np.ndarray[Any, Any], device: Any = (1, 0), *, old: bool = False
    ) -> None:
        self.view, self.device, self.old = TensorView(array), device, old

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            msg = "unexpected keyword"
            raise TypeError(msg)
        return self.view.__dlpack__(**options)


class Copying(Exported):
    """A tensor that exports a copy, and says so."""

    def __dlpack__(self, **options: Any) -> Any:
        capsule = TensorView(self.view.array.copy()).__dlpack__(**options)
        at = _pointer(capsule, b"dltensor_versioned")
        _Versioned.from_address(at).flags |= 2
        return capsule


class Raising:
    """A tensor whose parts of the protocol raise from a stage on."""

    def __init__(self, error: Exception, stage: str = "capsule") -> None:
        self.error, self.stage = error, stage

    def _reach(self, stage: str) -> None:
        if self.stage == stage:
            raise self.error

    def __dlpack_device__(self) -> tuple[int, int]:
        self._reach("device")
        return 1, 0

    def is_neg(self) -> bool:
        self._reach("negation")
        return False

    def __dlpack__(self, **_: Any) -> Any:
        self._reach("capsule")


class WrongCapsule(Exported):
    """Exports a capsule with wrong fields, and keeps what they point to; or no capsule."""

    def __init__(self, array: np.ndarray[Any, Any], fields: dict[str, Any], *, old: bool) -> None:
        super().__init__(array, old=old)
        self.fields = fields

    def __dlpack__(self, **options: Any) -> Any:
        capsule = super().__dlpack__(**options)
        tensor = _tensor_in(capsule)
        assert tensor is not None
        self.kept = {
            name: (ctypes.c_int64 * 2)(*value) if isinstance(value, tuple) else value
            for name, value in self.fields.items()
        }
        for name, value in self.kept.items():
            is_array = isinstance(value, ctypes.Array)
            setattr(tensor, name, ctypes.addressof(value) if is_array else value)
        return self.fields.get("capsule", capsule)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def exchange_table(export: Any, version: int = 1) -> Any:
    """Return a DLPackExchangeAPI with a function that exports tensors, in its capsule."""
    address = ctypes.cast(export, ctypes.c_void_p).value or 0
    table = (ctypes.c_int64 * 7)(version, 0, 0, address)
    _kept.append(table)
    return _new_capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)


_kept: list[Any] = []


# the memory of exports that are copies
_copies: dict[int, np.ndarray[Any, Any]] = {}


def _free(tensor: int) -> None:
    Exchanged.held -= 1
    # whoever reads the memory of a copy now gets something else
    _copies.pop(tensor, np.empty(0)).fill(77)


_FREE = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_free)


def _export(tensor: Any, place: Any) -> int:
    capsule = tensor.view.__dlpack__(max_version=(1, 0))
    made = _Versioned.from_buffer_copy(
        _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
    )
    array = tensor.view.array
    # DLPack 1.2 and later have them always; older versions of numpy leave those of row-major out
    strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
    made.tensor.strides = ctypes.addressof(strides)
    for name, value in tensor.fields.items():
        setattr(made.tensor if hasattr(made.tensor, name) else made, name, value)
    if "copies" in tensor.fields:
        copy = _copies[ctypes.addressof(made)] = array.copy()
        made.tensor.data, made.flags = copy.ctypes.data, made.flags | 2
    made.deleter = ctypes.cast(_FREE, ctypes.c_void_p)
    tensor.kept = capsule, made, strides
    place[0] = ctypes.addressof(made)
    Exchanged.held += 1
    return 0


_EXPORTS = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
_EXPORT = _EXPORTS(_export)


class Exchanged(Exported):
    """A tensor whose class has a C function that exports it, with some fields changed."""

    __dlpack_c_exchange_api__ = exchange_table(_EXPORT)
    # how many exports are not freed, and how many were asked for by Python
    held = asked = 0
    requires_grad = False

    def __init__(self, array: np.ndarray[Any, Any], **fields: int) -> None:
        super().__init__(array)
        self.shape, self.dtype, self.fields = array.shape, array.dtype, fields

    def __dlpack__(self, **options: Any) -> Any:
        Exchanged.asked += 1
        return super().__dlpack__(**options)

    def is_neg(self) -> bool:
        return bool(self.fields.get("is_neg"))


class Failing(Exchanged):
    """A tensor whose C function always sets an error, as one of Python does for most objects."""

    __dlpack_c_exchange_api__ = exchange_table(ctypes.pythonapi.PyObject_AsFileDescriptor)


class Later(Exchanged):
    """A tensor whose class has a table of another version."""

    __dlpack_c_exchange_api__ = exchange_table(_EXPORT, 2)


class Negating(Exchanged):
    """A tensor of a subclass that exports other elements than the C function of its base class."""

    def __dlpack__(self, **options: Any) -> Any:
        return TensorView(-self.view.array).__dlpack__(**options)


class NegatingMore(Negating):
    """A subclass of one that does."""


class Intercepting(Exchanged):
    """A tensor of a subclass whose `__torch_function__` may run in place of methods."""

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        raise AssertionError


class Plain(Exchanged):
    """A tensor of a subclass that changes nothing, such as a parameter of torch."""

    def _disabled_torch_function_impl(self) -> None:
        raise AssertionError

    __torch_function__ = _disabled_torch_function_impl
