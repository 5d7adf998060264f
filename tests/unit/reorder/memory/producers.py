"""Tensors of other libraries, as DLPack sees them: right ones, wrong ones, and ones that raise."""

import ctypes
from typing import Any

import numpy as np

from reorder.memory.dlpack import TensorView, _tensor_in


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
