"""How fast `memdesc convert --to` is compared with `cp` and with other converters.

`python -m tests.benchmarks.target_speed FOLDER --gigabytes 4` writes a model of that size for each
kind of source, and runs all in turn; each run ends when the bytes are on disk. Kernels are
compiled before. `--peers PYTHON` names an interpreter that has torch, safetensors, transformers,
compressed-tensors, mlx and mlx-lm; without it, `cp` is the only comparison.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memdesc import DATA_TYPES
from tests.benchmarks.checkpoint_speed import Run, run_to_disk, tensors_of
from tests.checkpoints import write_safetensors

_MAX_BYTES = 200 << 20
_SHAPE, _BLOCK = (4096, 8192), 128
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
    """A conversion, and the program that also does it: its name, its text and an argument."""

    kind: str
    to: str
    peers: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


_CASES = (
    Case(
        "fp8",
        "bf16",
        (
            ("DeepSeek's script", _DEEPSEEK, ()),
            ("compressed-tensors", _CONVERTERS, ("fp8",)),
        ),
    ),
    Case("fp8", "compressed-tensors"),
    Case("awq", "gptq"),
    Case("awq", "compressed-tensors", (("compressed-tensors", _CONVERTERS, ("awq",)),)),
    Case("awq", "mlx"),
    Case("awq", "f16"),
)
_SECTIONS: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [_BLOCK, _BLOCK]},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"},
}


def model_tensors(kind: str, nbytes: int, first: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return tensors of about this many bytes by the names of a model; roles share their memory."""
    if kind == "fp8":
        rng = np.random.default_rng(0)
        codes = rng.integers(0, 0x7F, _SHAPE, np.uint8).view(DATA_TYPES["f8_e4m3"].numpy)
        scales = rng.random(tuple(size // _BLOCK for size in _SHAPE)).astype(np.float32)
        layer: dict[str, Any] = {"weight": codes, "weight_scale_inv": scales}
    else:
        found = tensors_of(kind, 1)
        layer = {name.rpartition(".")[2]: array for name, array in found.items()}
    count = max(round(nbytes / sum(array.nbytes for array in layer.values())), 1)
    return {
        f"model.layers.{first + k}.mlp.down_proj.{name}": array
        for k in range(count)
        for name, array in layer.items()
    }


def write_model(folder: Path, kind: str, nbytes: int) -> None:
    """Write a model in shards, with an index."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    count = max(-(-nbytes // _SHARD), 1)
    weight_map: dict[str, str] = {}
    for k in range(count):
        tensors = model_tensors(kind, nbytes // count, len(weight_map))
        name = f"model-{k + 1:05}-of-{count:05}.safetensors"
        write_safetensors(folder / name, tensors, {"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {"torch_dtype": "bfloat16", "model_type": "llama"}
    config["quantization_config"] = _SECTIONS[kind]  # type: ignore[assignment]
    (folder / "config.json").write_text(json.dumps(config))


def timed(command: list[str], target: Path) -> Run:
    """Run a command that writes a folder."""
    shutil.rmtree(target, ignore_errors=True)
    return run_to_disk(command, target)


def commands(case: Case, source: Path, target: Path, peers: str | None) -> dict[str, list[str]]:
    """Return what is timed, by name."""
    ours = [*(sys.executable, "-m", "memdesc", "convert", str(source), str(target))]
    found = {
        "cp": ["cp", "-r", str(source), str(target)],
        "memdesc": [*ours, "--to", case.to, "--max-bytes", str(_MAX_BYTES)],
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
    parser = argparse.ArgumentParser(description="times of memdesc convert --to")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peers", help="an interpreter that has the other packages")
    parser.add_argument("--only", help="a target")
    options = parser.parse_args()
    small, source, target = (options.folder / name for name in ("small", "source", "target"))
    held = ""
    for case in _CASES:
        if options.only not in {None, case.to}:
            continue
        write_model(small, case.kind, 1)
        timed(commands(case, small, target, None)["memdesc"], target)
        if case.kind != held:
            write_model(source, case.kind, int(options.gigabytes * 1e9))
            held = case.kind
        nbytes = sum(path.stat().st_size for path in source.iterdir())
        runs: dict[str, list[Run]] = {}
        for _ in range(options.rounds):
            for name, command in commands(case, source, target, options.peers).items():
                runs.setdefault(name, []).append(timed(command, target))
        sys.stdout.write(f"{case.kind} --to {case.to}, {nbytes / 1e9:.1f} GB\n")
        copied = min(runs["cp"]).seconds
        for name, each in runs.items():
            sys.stdout.write(f"{line(name, each, copied, nbytes)}\n")
        sys.stdout.flush()
    for folder in (small, source, target):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
