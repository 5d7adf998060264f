"""Kernels are compiled once, kept as object files, and loaded without numba."""

import ctypes
import logging
import os
import re
import struct
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from llvmlite import ir
from numba.core.registry import cpu_target

import reorder
from memdesc import MemdescError
from memdesc.record import record_desc
from reorder.cpu import kernel_files, target
from reorder.cpu.decoding.jobs import decoder_at
from reorder.cpu.decoding.pattern import DecodeKernel, place_pattern
from reorder.cpu.llvm.emit import I64
from reorder.cpu.runtime import jit, machine_code
from reorder.cpu.runtime.compiler import compile_text
from reorder.cpu.runtime.fast_call import fast_call
from reorder.cpu.runtime.intrinsics import load_int
from reorder.cpu.runtime.jit import Kernel, compiled_at
from reorder.cpu.runtime.machine_code import linked, load
from reorder.cpu.runtime.pool import compile_pool
from reorder.cpu.runtime.stages import stage_at
from reorder.cpu.schedule.tile_program import Operation, StageTypes
from reorder.forks import importing_own
from tests.machine import assuming
from tests.programs import run_python

_ROOT = Path(reorder.__file__).parents[1]
# What code may ask the system for: LLVM turns some loops and large constants into these.
_OF_THE_SYSTEM = {"memset", "memcpy"}


def _undefined(compiled: bytes) -> set[str]:
    """Return the names that an object file (64-bit ELF) uses and does not define."""
    assert compiled.startswith(b"\x7fELF\x02\x01")
    (headers_at,) = struct.unpack_from("<Q", compiled, 0x28)
    (count,) = struct.unpack_from("<H", compiled, 0x3C)
    header = struct.Struct("<IIQQQQIIQQ")
    headers = [header.unpack_from(compiled, headers_at + header.size * k) for k in range(count)]
    found = set()
    for _, kind, _, _, offset, nbytes, link, *_ in headers:
        if kind == 2:  # the table of symbols
            names_at = headers[link][4]
            for at in range(offset + 24, offset + nbytes, 24):
                name, _, _, section = struct.unpack_from("<IBBH", compiled, at)
                if section == 0:
                    start = names_at + name
                    found.add(compiled[start : compiled.index(b"\0", start)].decode())
    return found


def _some_kernels() -> None:
    """Prepare what has each kind of kernel."""
    compile_pool()
    fast_call()
    x = np.zeros((9, 17, 5, 3), np.float32)
    for dtype in ("u1", "f2", "f4", "f8"):
        reorder.reorder(x.astype(dtype), "nChw16c")
    reorder.reorder(x, dtype="s4", attr=reorder.Attr(dst_scale=0.5))
    for dtype in ("f16", "bf16", "f8_e4m3", "s8"):
        stage_at(StageTypes("f32", dtype, "f32", Operation.CONVERT, streams=False))
        stage_at(StageTypes(dtype, "f32", "f32", Operation.CONVERT, streams=True))
        stage_at(StageTypes("f32", dtype, "f32", Operation.NARROW_QUOTIENT, streams=True))
    for name in ("q4_k", "iq3_s"):
        placed = place_pattern(record_desc((256, 4096), name))
        assert placed is not None
        decoder_at(DecodeKernel(placed.pattern, "bf16"))


@pytest.mark.slow
def test_no_object_uses_what_it_does_not_define() -> None:
    """Python and numba would not be found by name in a later process, or would be others."""
    _some_kernels()
    names = [kernel["kernel"] for kernel in jit.compiled_kernels()]
    assert len(names) > 20
    folder = kernel_files.writable_folder()
    assert folder is not None
    for name in names:
        content = (folder / kernel_files._file_name(name)).read_bytes()  # noqa: SLF001 - where it is
        assert _undefined(content[content.index(b"\x7fELF") :]) <= _OF_THE_SYSTEM, name


def test_what_an_object_lacks_is_found() -> None:
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64]), "kernel")
    other = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "other")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.call(other, [])
    builder.ret_void()
    assert _undefined(compile_text(str(module), "kernel", moves=True)) == {"other"}


_CONSTANTS = """
@table = private constant [4 x i64] [i64 3, i64 5, i64 7, i64 11]
define i64 @other(i64 %k) noinline {
  %at = getelementptr [4 x i64], [4 x i64]* @table, i64 0, i64 %k
  %x = load i64, i64* %at
  ret i64 %x
}
define i64 @kernel(i64 %k) {
  %next = add i64 %k, 1
  %x = call i64 @other(i64 %k)
  %y = call i64 @other(i64 %next)
  %z = mul i64 %x, %y
  ret i64 %z
}
"""
# what the system knows, and what has a variable
_OF_LLVM = {
    """
declare i32 @getpid()
define i64 @kernel() {
  %x = call i32 @getpid()
  %y = sext i32 %x to i64
  ret i64 %y
}
""": [os.getpid()] * 2,
    """
@count = internal global i64 7
define i64 @kernel() {
  %x = load i64, i64* @count
  %y = add i64 %x, 3
  store i64 %y, i64* @count
  ret i64 %y
}
""": [10, 13],
}
_OF_LLVM |= {text.replace("i64 7", "i64 0"): [3, 6] for text in [*_OF_LLVM][1:]}


@pytest.mark.parametrize("moves", [True, False])
def test_code_with_constants_runs_at_any_address(moves: bool) -> None:
    content = linked(compile_text(_CONSTANTS, "kernel", moves=moves), "kernel")
    loaded = [load(content) for _ in range(2)]
    assert len({*loaded}) == 2
    for address in loaded:
        call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
        assert [call(k) for k in range(3)] == [15, 35, 77]
    is_image = content.partition(b"\0")[0].isdigit()
    assert is_image == machine_code.RUNS_IMAGES


@pytest.mark.parametrize("text", _OF_LLVM)
def test_code_with_variables_or_calls_of_the_system_is_loaded_by_llvm(text: str) -> None:
    content = linked(compile_text(text, "kernel", moves=True), "kernel")
    assert content.startswith(b"kernel\0")
    call = ctypes.CFUNCTYPE(ctypes.c_int64)(load(content))
    assert [call(), call()] == _OF_LLVM[text]


class _Listener(logging.Handler):
    """Notes on which thread it is called, and whether others can take the lock of imports."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[threading.Thread, bool]] = []

    def emit(self, record: logging.LogRecord) -> None:
        def look() -> None:
            found.append(importing_own.acquire(blocking=False))
            if found[0]:
                importing_own.release()

        assert record.getMessage().startswith("compiled the kernel 'heard of'")
        found: list[bool] = []
        other = threading.Thread(target=look)
        other.start()
        other.join()
        self.heard.append((threading.current_thread(), found[0]))


def test_the_caller_logs_what_was_compiled_and_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that its caller has locked, one that forks and one that compiles would hang."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    caplog.set_level(logging.INFO, "reorder")
    listener = _Listener()
    logging.getLogger("reorder").addHandler(listener)
    try:
        jit.kernel_at(Kernel("heard of", lambda: (_CONSTANTS, "kernel")))
    finally:
        logging.getLogger("reorder").removeHandler(listener)
    assert listener.heard == [(threading.current_thread(), True)]


@pytest.mark.parametrize("is_inside", [False, True])
def test_kernels_are_compiled_on_another_thread_except_inside_an_import(
    is_inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler of a signal may reorder while a module is imported: a thread would wait for it."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    threads = []

    def text() -> tuple[str, str]:
        threads.append(threading.current_thread())
        return _CONSTANTS, "kernel"

    with importing_own if is_inside else nullcontext():
        jit.kernel_at(Kernel(f"inside an import: {is_inside}", text))
    assert [thread is threading.current_thread() for thread in threads] == [is_inside]


def test_a_system_that_runs_no_new_code_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "system_function", lambda *_: lambda *_: -1)
    with pytest.raises(MemdescError, match="forbids running code that a process compiled"):
        load(b"0\0code")


def _first_of(words: int) -> int:
    for k in range(3):
        if load_int(words, k) and load_int(words, k) > 0:
            return load_int(words, k) // 2 - k % 2
    return -1


def test_functions_of_python_are_compiled_by_what_their_annotations_say() -> None:
    address = compiled_at(_first_of, "the first positive number")
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
    for words in ([7, 1, 1], [0, 9, 0], [-5, -7, 3], [0, 0, 0]):
        positive = [(k, word) for k, word in enumerate(words) if word > 0]
        wanted = positive[0][1] // 2 - positive[0][0] % 2 if positive else -1
        assert call(np.array(words, np.int64).ctypes.data) == wanted
    # with a name it is compiled once
    assert compiled_at(_first_of, "the first positive number") == address


def test_functions_of_others_are_compiled_as_numba_does() -> None:
    before = type(cpu_target.target_context.codegen())
    compiled_at(_first_of, "the first positive number, again")
    assert type(cpu_target.target_context.codegen()) is before


def test_the_key_of_a_kernel_names_all_that_its_code_depends_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [jit._key("name"), jit._key("other")]  # noqa: SLF001 - what files carry
    for name, value in (
        ("processor", lambda: target.Processor("haswell", "+avx2")),
        ("processor", lambda: target.Processor("haswell", "")),
        ("processor", lambda: target.Processor("other", "+avx2")),
        ("version_of", lambda package: "0.1" if package == "numba" else ""),
        ("version_of", lambda package: "0.1" if package == "llvmlite" else ""),
        ("digest", lambda: "other"),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(jit, name, value)
            keys.append(jit._key("name"))  # noqa: SLF001 - likewise
    assert len({*keys}) == len(keys)


_WARM = """
import logging, sys
logging.basicConfig(level="INFO", format="%(name)s: %(message)s")
import numpy as np, reorder
from memdesc import Extra, memory_desc
x = np.random.default_rng(0).standard_normal((300, 500), np.float32)
for _ in range(12):
    assert (reorder.reorder(x, "ba").numpy() == x).all()
reorder.quantize(x, "s8", axis=0)
fast = memory_desc(x.shape, "f32", "ab")
reorder.prepare(reorder.plan_reorder(fast, fast))
desc = memory_desc(x.shape, "s8", "AB16b16a4b").with_extra(Extra(s8s8_mask=1))
reorder.reorder(x, desc)
print(*(name for name in ("llvmlite", "numba", "reorder.cpu.kernels") if name in sys.modules))
"""


@pytest.mark.slow
def test_a_later_process_compiles_nothing_and_the_log_says_what_is_compiled(tmp_path: Path) -> None:
    runs = [
        run_python("-c", _WARM, NUMBA_CACHE_DIR=str(tmp_path), **assuming(cores="2"))
        for _ in range(2)
    ]
    cold, warm = runs
    assert (
        "reorder: compiled the kernel 'interpreter of 32-bit elements, transposed' in"
        in cold.stderr
    )
    assert f"s: {tmp_path} had no code for it" in cold.stderr
    assert cold.stdout == "llvmlite numba reorder.cpu.kernels\n"
    assert warm.stderr == ""
    assert warm.stdout == "\n"


@pytest.mark.slow
def test_where_nothing_can_be_kept_kernels_are_compiled_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = run_python("-c", _WARM, NUMBA_CACHE_DIR=str(tmp_path / "file"), NUMBA_NUM_THREADS="1")
    assert "no folder for it is writable" in ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="the system has no terminals")
def test_a_terminal_is_told_once_what_takes_so_long(tmp_path: Path) -> None:
    said = []
    for _ in range(2):
        master, slave = os.openpty()
        program = _KERNELS_OF_TWO_WIDTHS
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", program]
        subprocess.run(command, env=environment, stderr=slave, check=True, cwd=_ROOT)
        os.set_blocking(master, False)
        try:
            said.append(os.read(master, 1000).decode())
        except BlockingIOError:
            said.append("")
        os.close(slave)
        os.close(master)
    cold, warm = said
    assert re.fullmatch(r"memdesc: compiling kernels once: \d+\.\d s for the first\s+", cold)
    assert warm == ""


_CLEARED = """
import gc
from reorder.cpu.runtime import machine_code

address = machine_code.load(b"0\\0" + b"\\xc3" * 4096)
vars(machine_code).clear()  # as Python does when it ends, while threads sleep in such code
gc.collect()
with open("/proc/self/maps") as maps:
    print(any(line.startswith(f"{address:x}-") for line in maps))
"""


@pytest.mark.skipif(not machine_code.RUNS_IMAGES, reason="LLVM places code here")
def test_code_stays_in_memory_until_the_process_ends() -> None:
    assert run_python("-c", _CLEARED).stdout == "True\n"


_KERNELS_OF_TWO_WIDTHS = """
import numpy as np, reorder
for kind in (np.uint8, np.uint16):
    reorder.reorder(np.zeros((3, 5), kind), "ba")
"""
_FIRST = """
x = np.random.default_rng(0).standard_normal((400, 500), np.float32)
for _ in range(9):
    x = x[1:]
    assert (reorder.reorder(x, "ba").numpy() == x).all()
    print(len(compiled_kernels()) > 1, "numba" in sys.modules)
"""
_PARALLEL = """
x = np.random.default_rng(0).standard_normal((4000, 1500), np.float32)
out = reorder.reorder(x, "ba", threads=2)
print("thread pool: job" in [kernel["kernel"] for kernel in compiled_kernels()])
seconds = time.perf_counter() + 60
while len(compiled_kernels()) == 1 and time.perf_counter() < seconds:
    reorder.reorder(x, "ba", out=out, threads=2)
assert (out.numpy() == x).all()
print("thread pool: job" in [kernel["kernel"] for kernel in compiled_kernels()])
"""
_REPEATED = """
x = np.arange(12, dtype=np.float32).reshape(3, 4)
for calls in (2, 500, 1000):
    for _ in range(calls):
        assert (reorder.reorder(x, "ba", threads=1).numpy() == x).all()
    names = [kernel["kernel"] for kernel in compiled_kernels()]
    print("fast call" in names, "numba" in sys.modules)
"""
_PREPARED = """
src, dst = (memdesc.memory_desc((3, 4), "f32", tag) for tag in ("ab", "ba"))
reorder.prepare(reorder.plan_reorder(src, dst), threads=1)
print("fast call" in [kernel["kernel"] for kernel in compiled_kernels()], "numba" in sys.modules)
"""
_CONVERTED = """
reorder.reorder(np.ones((4, 20), np.float32), "ba", dtype="s8", threads=1)
names = [kernel["kernel"] for kernel in compiled_kernels()]
print("interpreter of tiles" in names, "numba" in sys.modules)
"""
_IMPORTS = """
import sys, time
import numpy as np, memdesc, reorder
from reorder.cpu import compiled_kernels
"""


# whether a kernel is compiled besides the first one, or the one that a program asks for, and
# whether numba is loaded: in a process without kernels in a cache, and in the next one
@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "cold", "warm"),
    [
        (_FIRST, ["False False"] * 9, ["False False"] * 9),
        (_PARALLEL, ["False", "True"], ["True", "True"]),
        (_REPEATED, ["False False", "False False", "True True"], ["True False"] * 3),
        (_PREPARED, ["True True"], ["True False"]),
        (_CONVERTED, ["True False"], ["True False"]),
    ],
    ids=[
        "first small reorders",
        "parallel reorders",
        "many repeated calls",
        "a prepared plan",
        "a conversion",
    ],
)
def test_code_is_compiled_when_it_is_worth_it_and_then_loaded(
    program: str, cold: list[str], warm: list[str], tmp_path: Path
) -> None:
    for wanted in (cold, warm):
        given = {"NUMBA_CACHE_DIR": str(tmp_path), **assuming(cores="2")}
        assert run_python("-c", _IMPORTS + program, **given).stdout.splitlines() == wanted
