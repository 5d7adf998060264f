"""The machine that `MEMDESC_MACHINE` describes: kernels are scheduled and compiled for it.

Without the variable, that is the machine that runs the process; it also supplies whatever the
variable leaves out:

    MEMDESC_MACHINE="cores=16 l1=48K l2=2M l3=300M cpu=haswell"

It decides which kernels run, but not their results. With it, tests try the choices of other
machines, and a container that runs on several kinds of machines gets kernels for the oldest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from memdesc.errors import MemdescError
from memdesc.tuples import NamedTuple

VARIABLE = "MEMDESC_MACHINE"
# the processor that runs the process, with all that it has
HOST = "host"

_AVX2 = ("ssse3", "avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
# x86-64 processors by LLVM's names, each with the features that kernels ask for, oldest first.
PROCESSORS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "x86-64": (),
        "nehalem": ("ssse3",),
        "haswell": _AVX2,
        "skylake-avx512": _AVX512,
        "icelake-server": (*_AVX512, "avx512vbmi"),
    }
)

# the bits of a factor, by the letter behind a size
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}
_CACHES = ("l1", "l2", "l3")


class AssumedMachine(NamedTuple):
    """What the variable says about a machine; None for what it does not say."""

    cores: int | None = None
    # bytes of the caches of a core, then of the one that all cores share; 0: there is none
    caches: tuple[int, int, int] | None = None
    cpu: str | None = None


def assumed_machine() -> AssumedMachine:
    """Return the machine that the variable describes now.

    Raises
    ------
    MemdescError
        If it cannot be read.
    """
    return read_machine(os.environ.get(VARIABLE, ""))


@lru_cache(maxsize=16)
def read_machine(text: str) -> AssumedMachine:
    """Return the machine that a text describes, in the form of the variable.

    >>> read_machine("cores=2 l2=1M l3=32M cpu=haswell")
    AssumedMachine(cores=2, caches=(0, 1048576, 33554432), cpu='haswell')
    """
    given: dict[str, str] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        is_size = name in _CACHES and re.fullmatch(r"[1-9]\d{0,8}[KMG]?", value)
        is_count = name == "cores" and re.fullmatch(r"[1-9]\d{0,3}", value)
        is_name = name == "cpu" and value in {*PROCESSORS, HOST}
        if name in given or not (is_size or is_count or is_name):
            raise MemdescError(
                f"{word!r} in {VARIABLE}={text!r} is not understood: it takes, each at most once, "
                "cores=NUMBER, the sizes of caches l1=, l2= and l3=, such as l2=512K or l3=32M, "
                f"and cpu= with one of {', '.join((*PROCESSORS, HOST))}"
            )
        given[name] = value
    l1, l2, l3 = (_nbytes(given.get(name, "0")) for name in _CACHES)
    return AssumedMachine(
        int(given["cores"]) if "cores" in given else None,
        (l1, l2, l3) if l1 or l2 or l3 else None,
        None if given.get("cpu") == HOST else given.get("cpu"),
    )


def _nbytes(size: str) -> int:
    number = size.rstrip("KMG")
    return int(number) << _UNITS[size[len(number) :]]
