"""How fast `memdesc convert` is compared with `cp` and with other converters, and its memory.

`python -m tests.benchmarks.checkpoint_speed FOLDER --gigabytes 8` writes a model of that size for
each kind of source, and runs all programs in turn; each run ends when the bytes are on disk.
Kernels are compiled before. `--only gptq` runs the cases that make this, and `--source gptq` those
that read it. `--peers PYTHON` names an interpreter that has torch, safetensors, transformers,
compressed-tensors, GPTQModel and mlx; without it, `cp` is the only comparison.
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

from memdesc.dtypes import DATA_TYPES
from memdesc.record import record_desc
from reorder.checkpoints.stored import written_tensors
from tests.checkpoints import write_safetensors
from tests.records import plain_scales, random_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

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
# compressed-tensors, the converter for a kind of source
_CONVERTERS = """
import sys
from compressed_tensors.entrypoints import convert as c
source, target, kind = sys.argv[1:]
made = {
    "awq": lambda: c.AutoAWQConverter(),
    "fp8": lambda: c.FP8BlockDequantizer(targets=["re:.*"]),
    "modelopt": lambda: c.ModelOptNvfp4Converter(targets=["re:.*"]),
    "own": lambda: c.CompressedTensorsDequantizer(source),
}
c.convert_checkpoint(source, target, made[kind](), "auto", "cpu")
"""
# GPTQModel, to a type of floats
_GPTQMODEL = """
import sys, torch
from gptqmodel.utils.model_dequant import dequantize_model
source, target, kind = sys.argv[1:]
dequantize_model(source, target, target_dtype=getattr(torch, kind))
"""
# transformers, its decoder of gpt-oss
_TRANSFORMERS = """
import glob, os, sys
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
source, target = sys.argv[1:]
os.mkdir(target)
for path in sorted(glob.glob(f"{source}/*.safetensors")):
    state = load_file(path)
    made = {
        name.removesuffix("_blocks"): convert_moe_packed_tensors(
            blocks, state[name.removesuffix("_blocks") + "_scales"]
        ).contiguous()
        for name, blocks in state.items()
        if name.endswith("_blocks")
    }
    save_file(made, f"{target}/{os.path.basename(path)}", {"format": "pt"})
"""
# MLX, its decoder and its reader and writer of files
_MLX = """
import glob, os, sys
import mlx.core as mx
source, target = sys.argv[1:]
os.mkdir(target)
for path in sorted(glob.glob(f"{source}/*.safetensors")):
    state = mx.load(path)
    made = {}
    for name, words in state.items():
        if name.endswith(".weight"):
            layer = name.removesuffix(".weight")
            parts = state[f"{layer}.scales"], state[f"{layer}.biases"]
            made[name] = mx.dequantize(words, *parts, group_size=64, bits=4)
    mx.save_safetensors(f"{target}/{os.path.basename(path)}", made, {"format": "mlx"})
"""


class Source(NamedTuple):
    """A kind of model: its layers are records, or floats of a type."""

    record: str
    options: Mapping[str, Any] = {}
    section: Mapping[str, Any] = {}
    # what precedes the names of the tensors of a layer
    layer: str = "mlp.down_proj"
    shape: tuple[int, ...] = (4096, 8192)
    # the key of the section in config.json
    key: str = "quantization_config"
    # the end of the name of a scalar that other programs expect
    beside: str = ""


def _compressed(form: str, **weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


_BITS = {"bits": 4, "group_size": 128}
_MXFP4 = _compressed(
    "mxfp4-pack-quantized", type="float", num_bits=4, strategy="group", group_size=32
)
_BLOCKS = {"type": "float", "num_bits": 8, "strategy": "block", "block_structure": [128, 128]}
_SOURCES = {
    "f16": Source("f16"),
    "bf16": Source("bf16"),
    "awq": Source("awq", {}, {"quant_method": "awq", "version": "gemm", **_BITS}),
    "gptq": Source(
        "gptq", {"g_idx": True}, {"quant_method": "gptq", "desc_act": False, "sym": True, **_BITS}
    ),
    "fp8": Source(
        "fp8_block",
        {"scale_inv": True},
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    ),
    "fp8-compressed": Source("fp8_block", {}, _compressed("float-quantized", **_BLOCKS)),
    "pack-quantized": Source(
        "pack_quantized",
        {},
        _compressed(
            "pack-quantized",
            type="int",
            num_bits=4,
            strategy="group",
            group_size=128,
        ),
    ),
    "nvfp4": Source(
        "modelopt_nvfp4",
        {},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
        beside=".input_scale",
    ),
    "mxfp4": Source("compressed_mxfp4", {}, _MXFP4),
    "gpt-oss": Source(
        "gpt_oss_mxfp4", {}, {"quant_method": "mxfp4"}, "mlp.experts.down_proj", (8, 2048, 2048)
    ),
    "mlx": Source("mlx", {}, {"group_size": 64, "bits": 4}, key="quantization"),
    "mlx-mxfp4": Source(
        "mlx_mxfp4", {}, {"group_size": 32, "bits": 4, "mode": "mxfp4"}, key="quantization"
    ),
}


class Case(NamedTuple):
    """A conversion: its source, options, and other programs (name, text, arguments) that do it."""

    kind: str
    options: tuple[str, str]
    peers: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    @property
    def name(self) -> str:
        """What is made."""
        return self.options[1].rpartition(" ")[2]


def _to_floats(kind: str) -> tuple[str, str, tuple[str, ...]]:
    return "GPTQModel", _GPTQMODEL, (kind,)


def _by_compressed(kind: str) -> tuple[str, str, tuple[str, ...]]:
    return "compressed-tensors", _CONVERTERS, (kind,)


_CASES = (
    Case("f16", ("--map", "*: AB16a8b")),
    Case("f16", ("--map", "*: OI16i64o")),
    Case("f16", ("--map", "*: ba")),
    Case("bf16", ("--to", "fp8-block")),
    Case("awq", ("--map", "*: awq -> gptq")),
    Case("awq", ("--map", "*: awq -> gptq")),
    Case("awq", ("--to", "gptq")),
    Case("awq", ("--to", "compressed-tensors"), (_by_compressed("awq"),)),
    Case("awq", ("--to", "mlx")),
    Case("awq", ("--to", "f16"), (_to_floats("float16"),)),
    Case("gptq", ("--to", "awq")),
    Case("gptq", ("--to", "compressed-tensors")),
    Case("gptq", ("--to", "mlx")),
    Case("gptq", ("--to", "f16"), (_to_floats("float16"),)),
    Case("pack-quantized", ("--to", "gptq")),
    Case("pack-quantized", ("--to", "bf16"), (_by_compressed("own"), _to_floats("bfloat16"))),
    Case(
        "fp8",
        ("--to", "bf16"),
        (
            ("DeepSeek's script", _DEEPSEEK, ()),
            _by_compressed("fp8"),
            _to_floats("bfloat16"),
        ),
    ),
    Case("fp8", ("--to", "compressed-tensors")),
    Case("fp8-compressed", ("--to", "fp8-block")),
    Case("nvfp4", ("--to", "compressed-tensors"), (_by_compressed("modelopt"),)),
    Case("nvfp4", ("--to", "bf16"), (_to_floats("bfloat16"),)),
    Case("mxfp4", ("--to", "mlx")),
    Case("mxfp4", ("--to", "bf16"), (_by_compressed("own"), _to_floats("bfloat16"))),
    Case("gpt-oss", ("--to", "bf16"), (("transformers", _TRANSFORMERS, ()),)),
    Case("mlx", ("--to", "bf16"), (("MLX", _MLX, ()),)),
    Case("mlx-mxfp4", ("--to", "compressed-tensors")),
)


def _layer(source: Source) -> dict[str, NDArray[Any]]:
    """Return the tensors of a layer, with the ends of their names."""
    rng = np.random.default_rng(0)
    if source.record in DATA_TYPES:
        # without infinities and NaN, which are not quantised
        codes = rng.integers(0, 0x7000, source.shape, np.uint16)
        return {".weight": codes.view(DATA_TYPES[source.record].numpy)}
    desc = record_desc(source.shape, source.record, **source.options)
    record = plain_scales(random_record(desc, rng), rng)
    zero = desc.rule.zero
    if zero is not None:
        # the middle, which all formats hold
        name = zero.parts[0][0]
        points = np.full(desc.field(name).layout.dims, 8 + zero.minus, np.uint8)
        record.set_field(name, points)
    code = desc.field(desc.rule.code.parts[0][0])
    if code.kind == "f8_e4m3":
        record.tensors[code.tensor][:] &= 0x77  # no NaN
    tensors = written_tensors("x", desc, "safetensors")
    beside = {source.beside: np.ones(1, np.float32)} if source.beside else {}
    return beside | {
        each.name.removeprefix("x"): record.tensors[role][: each.nbytes]
        .view(DATA_TYPES[each.dtype].numpy)
        .reshape(each.shape)
        for role, each in tensors.items()
    }


def write_model(folder: Path, kind: str, nbytes: int) -> None:
    """Write a model of about this many bytes in shards, with an index; layers share memory."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    held = _SOURCES[kind]
    layer = _layer(held)
    shards = max(-(-nbytes // _SHARD), 1)
    layers = max(round(nbytes / shards / sum(array.nbytes for array in layer.values())), 1)
    weight_map: dict[str, str] = {}
    for k in range(shards):
        tensors = {
            f"model.layers.{n}.{held.layer}{name}": array
            for n in range(k * layers, (k + 1) * layers)
            for name, array in layer.items()
        }
        name = f"model-{k + 1:05}-of-{shards:05}.safetensors"
        write_safetensors(folder / name, tensors, {"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config: dict[str, Any] = {"torch_dtype": "bfloat16", "model_type": "llama"}
    if held.section:
        config[held.key] = held.section
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
    parser.add_argument("--source", choices=_SOURCES)
    options = parser.parse_args()
    small, source, target = (options.folder / name for name in ("small", "source", "target"))
    held = ""
    for case in _CASES:
        if options.only not in {None, case.name} or options.source not in {None, case.kind}:
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
