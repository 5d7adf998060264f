"""The processor that kernels are compiled for: its registers and instructions.

Only this module asks which instructions it has; schedules get them as a value. LLVM knows the
processor. It is asked once for each processor that a folder of kernels meets, because loading LLVM
takes longer than everything else that a first reorder does.
"""

import os
import platform
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder

from memdesc.errors import MemdescError
from memdesc.tuples import NamedTuple
from reorder.assumed import PROCESSORS, VARIABLE, assumed_machine
from reorder.cpu import kernel_files
from reorder.cpu.machine import LINE_BITS, Instructions
from reorder.forks import importing
from reorder.stack import uninterrupted
from reorder.system import is_arm, is_x86, read_text


@cache
def register_bits() -> int:
    """Return the width of the vector registers."""
    if has_feature("avx512bw") and has_feature("avx512vl"):
        return 512
    return 256 if has_feature("avx2") else 128


@cache
def instructions() -> Instructions:
    """Return which of the instructions that schedules ask for kernels may use."""
    masks = register_bits() == LINE_BITS
    has_fma = is_arm() or has_feature("fma")
    return Instructions(masks, masks and has_feature("avx512vbmi"), has_fma)


def has_masks() -> bool:
    """Whether masked loads and stores of elements of any width exist: AVX-512BW."""
    return instructions().masks


class Processor(NamedTuple):
    """A processor as LLVM describes it."""

    name: str
    # instruction sets that it has and lacks, such as "+avx2,-avx512f"
    features: str


@cache
def processor() -> Processor:
    """Return the processor that kernels are compiled for: this one, unless the user names one."""
    assumed = assumed_machine().cpu
    return _host() if assumed is None else _assumed(assumed)


def _assumed(name: str) -> Processor:
    """Return a processor that has no more instructions than this one, or kernels would crash.

    LLVM derives from the name what the features leave open; the key of code on disk has both.
    """
    host = {feature[1:] for feature in _host().features.split(",") if feature.startswith("+")}
    runs = [cpu for cpu in PROCESSORS if is_x86() and host.issuperset(PROCESSORS[cpu])]
    if name not in runs:
        lacking = [feature for feature in PROCESSORS[name] if feature not in host]
        what = f"has no {', '.join(lacking)}" if is_x86() else f"is {platform.machine()}"
        way_out = f"choose one of {', '.join(runs)}" if runs else "leave cpu= out"
        raise MemdescError(
            f"{VARIABLE} assumes cpu={name}, but the processor here {what}; {way_out}"
        )
    return Processor(name, ",".join(f"+{feature}" for feature in PROCESSORS[name]))


def _host() -> Processor:
    """Return what LLVM says about this machine, or said about one with the same description."""
    described = _described()
    key = f"{described}\n{platform.machine()}\n{version_of('llvmlite')}"
    kept = kernel_files.read(_PROCESSOR, key) if described else None
    if kept is not None:
        return Processor(*kept.decode().split("\n"))
    with importing():
        host = uninterrupted(_ask_llvm)
    if described:
        kernel_files.write(_PROCESSOR, key, "\n".join(host).encode())
    return host


def _described() -> str:
    """Return Linux's lines about the model and the instructions of a processor; empty elsewhere."""
    with suppress(OSError), open(_PROCESSORS, "rb", buffering=0) as file:
        first, _, _ = file.read(_MOST).decode(errors="replace").partition("\n\n")
        lines = [line for line in first.splitlines() if line.startswith(_LASTING)]
        if any(line.startswith(_INSTRUCTIONS) for line in lines):
            return "\n".join(lines)
    return ""


def _ask_llvm() -> Processor:
    from llvmlite import binding

    # LLVM knows the name of a processor, but for some no list of features
    features = ""
    with suppress(RuntimeError):
        features = binding.get_host_cpu_features().flatten()
    return Processor(binding.get_host_cpu_name(), features)


# Where Linux describes each processor; how many bytes are read, which covers the first one; and how
# the lines begin that say what it is, on x86 and on ARM.
_PROCESSORS = "/proc/cpuinfo"
_MOST = 1 << 13
_INSTRUCTIONS = ("flags", "Features")
_LASTING = (*_INSTRUCTIONS, "vendor_id", "cpu family", "model", "stepping", "microcode", "CPU ")
# The file that keeps the processor; its content depends on nothing in this package.
_PROCESSOR = "processor"


@cache
def version_of(package: str) -> str:
    """Return the version of a package with a file for it, such as llvmlite's, without importing."""
    spec = PathFinder.find_spec(package)
    with suppress(OSError):
        if spec is not None and spec.origin is not None:
            return read_text(f"{os.path.dirname(spec.origin)}/_version.py")
    from importlib.metadata import version  # slow to load

    return version(package)


# what cannot be assumed is refused before anything is prepared
if assumed_machine().cpu is not None:
    processor()


@cache
def has_feature(name: str) -> bool:
    """Whether kernels may use an instruction set, by LLVM's name."""
    return f"+{name}" in processor().features.split(",")


def has_half() -> bool:
    """Whether instructions convert f32 to f16 and back."""
    return is_arm() or has_feature("f16c")


def has_bfloat() -> bool:
    """Whether the processor has an instruction that rounds f32 to bf16, denormals to zero."""
    return has_feature("avx512bf16") and has_feature("avx512dq")
