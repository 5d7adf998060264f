"""How fast `memdesc convert` is compared with `cp` and with other converters, and its memory.

`python -m tests.benchmarks.checkpoint_speed FOLDER --gigabytes 8` writes a model of that size for
each kind of source, and runs all programs in turn; each run ends when the bytes are on disk.
Kernels are compiled before. `--only gptq` runs the cases that make this. `--peers PYTHON` names an
interpreter that has torch, safetensors, transformers, compressed-tensors, mlx and mlx-lm; without
it, `cp` is the only comparison.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import DATA_TYPES
from tests.checkpoints import write_safetensors

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHAPE, _GROUP, _BLOCK = (4096, 8192), 128, 128
_MAX_BYTES = 200 << 20
# bytes of a shard, as models have them
_SHARD = 2 << 30

# DeepSeek-V3, inference/fp8_cast_bf16.py, with torch's own operators for the kernel of a GPU
_DEEPSEEK = """
import glob, os, sys, torch
from safetensors.torch import load_file, save_file
source, target = sys.argv[1:]
os.mkdir(target)
for path in sorted(glob.glob(f"{source}/*.safetensors")):
    state = load_file(path)
    made = {}
    for name, weight in state.items():
        if name.endswith("_scale_inv"):
            continue
        scale = state.get(f"{name}_scale_inv")
        if scale is not None:
            each = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
            weight = (weight.float() * each).bfloat16()
        made[name] = weight
    save_file(made, f"{target}/{os.path.basename(path)}", {"format": "pt"})
"""
_CONVERTERS = """
import sys
from compressed_tensors.entrypoints import convert as c
source, target, kind = sys.argv[1:]
made = c.AutoAWQConverter() if kind == "awq" else c.FP8BlockDequantizer(targets=["re:.*"])
c.convert_checkpoint(source, target, made, "auto", "cpu")
"""


class Case(NamedTuple):
    """A conversion: its source, options, and other programs (name, text, arguments) that do it."""

    kind: str
    options: tuple[str, str]
    peers: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    @property
    def name(self) -> str:
        """What is made."""
        return self.options[1].rpartition(" ")[2]


_CASES = (
    Case("f16", ("--map", "*: AB16a8b")),
    Case("f16", ("--map", "*: OI16i64o")),
    Case("f16", ("--map", "*: ba")),
    Case("awq", ("--map", "*: awq -> gptq")),
    Case("awq", ("--map", "*: awq -> marlin")),
    Case("awq", ("--to", "gptq")),
    Case("awq", ("--to", "compressed-tensors"), (("compressed-tensors", _CONVERTERS, ("awq",)),)),
    Case("awq", ("--to", "mlx")),
    Case("awq", ("--to", "f16")),
    Case(
        "fp8",
        ("--to", "bf16"),
        (("DeepSeek's script", _DEEPSEEK, ()), ("compressed-tensors", _CONVERTERS, ("fp8",))),
    ),
    Case("fp8", ("--to", "compressed-tensors")),
)
_SECTIONS: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [_BLOCK, _BLOCK]},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": _GROUP, "version": "gemm"},
}


def _layer(kind: str) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    rows, columns = _SHAPE
    if kind == "f16":
        return {"weight": rng.integers(0, 1 << 16, _SHAPE, np.uint16).view(np.float16)}
    if kind == "fp8":
        codes = rng.integers(0, 0x7F, _SHAPE, np.uint8).view(DATA_TYPES["f8_e4m3"].numpy)
        scales = rng.random((rows // _BLOCK, columns // _BLOCK)).astype(np.float32)
        return {"weight": codes, "weight_scale_inv": scales}
    zeros = np.full((rows // _GROUP, columns // 8), 0x88888888, np.uint32)
    return {
        "qweight": rng.integers(0, 1 << 32, (rows, columns // 8), np.uint32).view(np.int32),
        "qzeros": zeros.view(np.int32),
        "scales": rng.random((rows // _GROUP, columns)).astype(np.float16),
    }


def write_model(folder: Path, kind: str, nbytes: int) -> None:
    """Write a model of about this many bytes in shards, with an index; layers share memory."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    layer = _layer(kind)
    shards = max(-(-nbytes // _SHARD), 1)
    layers = max(round(nbytes / shards / sum(array.nbytes for array in layer.values())), 1)
    weight_map: dict[str, str] = {}
    for k in range(shards):
        tensors = {
            f"model.layers.{n}.mlp.down_proj.{name}": array
            for n in range(k * layers, (k + 1) * layers)
            for name, array in layer.items()
        }
        name = f"model-{k + 1:05}-of-{shards:05}.safetensors"
        write_safetensors(folder / name, tensors, {"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config: dict[str, Any] = {"torch_dtype": "bfloat16", "model_type": "llama"}
    if kind in _SECTIONS:
        config["quantization_config"] = _SECTIONS[kind]
    (folder / "config.json").write_text(json.dumps(config))


class Run(NamedTuple):
    """Seconds until the output is on disk, seconds of all cores, and bytes of memory at most."""

    seconds: float
    user: float
    system: float
    peak: int


def _touch(nbytes: int) -> None:
    """Write to free memory: a virtual machine may have given it back, and waits when it is used."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemFree"))
    with mmap.mmap(-1, min(nbytes, free * 3 // 4)) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1


def timed(command: list[str], target: Path, nbytes: int) -> Run:
    """Run a command that writes a folder of about this many bytes, until these are on disk."""
    shutil.rmtree(target, ignore_errors=True)
    # in another process: the peak of this one would count as that of the command
    child = get_context("fork").Process(target=_touch, args=(nbytes,))
    child.start()
    child.join()
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    for path in target.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    seconds = time.monotonic() - start
    return Run(seconds, usage.ru_utime, usage.ru_stime, usage.ru_maxrss << 10)


def commands(case: Case, source: Path, target: Path, peers: str | None) -> dict[str, list[str]]:
    """Return what is timed, by name."""
    ours = [*(sys.executable, "-m", "memdesc", "convert", str(source), str(target))]
    found = {
        "cp": ["cp", "-r", str(source), str(target)],
        "memdesc": [*ours, *case.options, "--max-bytes", str(_MAX_BYTES)],
    }
    for name, program, words in case.peers if peers else ():
        found[name] = [str(peers), "-c", program, str(source), str(target), *words]
    return found


def line(name: str, runs: list[Run], copied: float, nbytes: int) -> str:
    """Return what rounds say: the fastest, and the largest peak."""
    best = min(runs)
    peak = max(run.peak for run in runs)
    return (
        f"  {name:20} {best.seconds:7.2f} s  {nbytes / 1e9 / best.seconds:5.2f} GB/s of input  "
        f"{copied / best.seconds:5.2f} of cp  on all cores {best.user:.1f} + {best.system:.1f} s  "
        f"peak {peak / 1e6:.0f} MB"
    )


def main() -> None:
    """Print a line for each conversion and each program."""
    parser = argparse.ArgumentParser(description="times of memdesc convert compared with cp")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peers", help="an interpreter that has the other packages")
    parser.add_argument("--only", choices=sorted({case.name for case in _CASES}))
    options = parser.parse_args()
    small, source, target = (options.folder / name for name in ("small", "source", "target"))
    held = ""
    for case in _CASES:
        if options.only not in {None, case.name}:
            continue
        write_model(small, case.kind, 1)
        timed(commands(case, small, target, None)["memdesc"], target, 1)
        if case.kind != held:
            write_model(source, case.kind, int(options.gigabytes * 1e9))
            held = case.kind
        nbytes = sum(path.stat().st_size for path in source.iterdir())
        runs: dict[str, list[Run]] = {}
        for _ in range(options.rounds):
            for name, command in commands(case, source, target, options.peers).items():
                runs.setdefault(name, []).append(timed(command, target, nbytes))
        sys.stdout.write(f"{case.kind} {' '.join(case.options)}, {nbytes / 1e9:.1f} GB\n")
        copied = min(runs["cp"]).seconds
        for name, each in runs.items():
            sys.stdout.write(f"{line(name, each, copied, nbytes)}\n")
        sys.stdout.flush()
    for folder in (small, source, target):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
