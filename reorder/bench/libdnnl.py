"""The real oneDNN, by ctypes: where its libraries are, and its reorders on the CPU."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FOLDER_VARIABLE", "DnnlError", "Engine", "ExecArg", "Status", "find_libraries"]

FOLDER_VARIABLE: Final = "MEMDESC_LIBDNNL_DIR"
"""Environment variable naming a folder to search, at any depth, before the environment."""

_DISTRIBUTIONS: Final = ("onednn-cpu-gomp", "onednn")
_FILE_NAME: Final = re.compile(r"libdnnl\.so\.(\d+\.\d+)(?:\.\d+)?")
# What 3.13 needs, dependencies first. Its wheel sets no run path, so the dynamic loader
# finds these only when they are already in the process.
_COMPANIONS: Final = ("libintlc.so.5", "libimf.so", "libsvml.so", "libtbb.so.12", "libsycl.so.9")
# Never RTLD_GLOBAL: Intel's libimf would replace libm for every module imported later, and
# the two builds of oneDNN export the same names.
_MODE: Final = getattr(os, "RTLD_NOW", 0) | getattr(os, "RTLD_LOCAL", 0)  # Windows has neither
_CPU: Final = 1
_IN_ORDER: Final = 1
_IMPL_INFO: Final = 8
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "engine_create": (c_void_p, c_int, c_size_t),
    "stream_create": (c_void_p, c_void_p, c_uint),
    "stream_wait": (c_void_p,),
    "reorder_primitive_desc_create": (c_void_p, *(c_void_p,) * 5),
    "primitive_desc_query": (c_void_p, c_int, c_int, c_void_p),
    "primitive_desc_destroy": (c_void_p,),
    "primitive_create": (c_void_p, c_void_p),
    "primitive_execute": (c_void_p, c_void_p, c_int, c_void_p),
    "primitive_destroy": (c_void_p,),
    "memory_create": (c_void_p, c_void_p, c_void_p, c_void_p),
    "memory_destroy": (c_void_p,),
    "memory_desc_create_with_tag": (c_void_p, c_int, c_void_p, c_int, c_int),
    "memory_desc_create_with_strides": (c_void_p, c_int, c_void_p, c_int, c_void_p),
    "memory_desc_destroy": (c_void_p,),
}


class Status(IntEnum):
    """What a C call returned."""

    SUCCESS = 0
    OUT_OF_MEMORY = 1
    INVALID_ARGUMENTS = 2
    UNIMPLEMENTED = 3
    LAST_IMPL_REACHED = 4
    RUNTIME_ERROR = 5
    NOT_REQUIRED = 6


class DnnlError(RuntimeError):
    """A call refused by oneDNN."""

    def __init__(self, name: str, status: Status) -> None:
        super().__init__(f"dnnl_{name}: {status.name}")
        self.status = status


class ExecArg(ctypes.Structure):
    """An argument of a primitive: what it is, and a memory."""

    _fields_ = (("arg", c_int), ("memory", c_void_p))


class Engine:
    """One loaded oneDNN with a CPU engine and a stream.

    Neither is destroyed: ending thread pools while the interpreter exits is a risk without
    a gain.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.c = _load(path)
        for name, argtypes in _SIGNATURES.items():
            getattr(self.c, f"dnnl_{name}").argtypes = argtypes
        self.c.dnnl_version.restype = POINTER(c_int)
        # 3.13 prints a line for every refusal
        self.c.dnnl_set_verbose(0)

    @cached_property
    def version(self) -> tuple[int, int, int]:
        """Major, minor, patch."""
        major, minor, patch = self.c.dnnl_version()[:3]
        return major, minor, patch

    @cached_property
    def engine(self) -> int:
        """The handle of CPU engine 0."""
        # 3.13 reaches the CPU through OpenCL, and the wheel's ICD file points nowhere. The
        # OpenCL loader looks once, so the variables need not stay.
        variables = {
            "OCL_ICD_VENDORS": "/nowhere",
            "OCL_ICD_FILENAMES": str(self.path.parent / "libintelocl.so"),
        }
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            return self.new("engine_create", _CPU, 0)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    @cached_property
    def stream(self) -> int:
        """The handle of a stream on the engine."""
        return self.new("stream_create", self.engine, _IN_ORDER)

    def implementation(self, primitive_desc: int) -> str:
        """Return oneDNN's name of the implementation that it chose."""
        text = c_char_p()
        self.call("primitive_desc_query", primitive_desc, _IMPL_INFO, 0, byref(text))
        return (text.value or b"").decode()

    def new(self, name: str, *arguments: object) -> int:
        """Call a C function whose first argument receives a handle."""
        handle = c_void_p()
        self.call(name, byref(handle), *arguments)
        if handle.value is None:
            raise DnnlError(name, Status.RUNTIME_ERROR)
        return handle.value

    def call(self, name: str, *arguments: object) -> None:
        """Call a C function that returns a status."""
        if status := getattr(self.c, f"dnnl_{name}")(*arguments):
            raise DnnlError(name, Status(status))


def find_libraries() -> dict[str, Path]:
    """Find libraries: a version ("3.2", "3.13") and its file."""
    found: dict[str, Path] = {}
    for path in _candidates():
        # A shorter name (libdnnl.so.3) belongs to whichever wheel was installed last.
        if match := _FILE_NAME.fullmatch(path.name):
            found.setdefault(match[1], path)
    return found


def _candidates() -> Iterator[Path]:
    if folder := os.environ.get(FOLDER_VARIABLE):
        yield from sorted(Path(folder).rglob("libdnnl.so.*"))
    for name in _DISTRIBUTIONS:
        try:
            files = importlib.metadata.files(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        paths = (Path(str(file.locate())).resolve() for file in files)
        yield from (path for path in paths if path.is_file())


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), mode=_MODE)
    except OSError:
        for companion in filter(None, (_find_companion(path, name) for name in _COMPANIONS)):
            ctypes.CDLL(str(companion), mode=_MODE)
    return ctypes.CDLL(str(path), mode=_MODE)


def _find_companion(path: Path, name: str) -> Path | None:
    candidates = [path.parent / name, Path(sys.prefix, "lib", name)]
    if folder := os.environ.get(FOLDER_VARIABLE):
        candidates += Path(folder).rglob(name)
    return next(filter(Path.is_file, candidates), None)
