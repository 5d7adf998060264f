"""Hints about files work: a call that is refused, what is said of it, and calls that follow."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from reorder.checkpoints import Checkpoint
from reorder.checkpoints.moves.changes import Reorder
from reorder.checkpoints.moves.pieces import cut
from tests import hints
from tests.checkpoints import gptq_layer
from tests.hints import ROOT
from tests.unit.reorder.checkpoints.schemes import declared, fp8, recorded, write_model

_TENSORS: dict[str, Any] = {
    "w": np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64),
    "flat": np.arange(24, dtype=np.float32),
    "tiny": np.full(4, 1e-20, np.float32),
    "huge": np.full(4, 1e30, np.float32),
}
_FOLDER = ROOT / "reorder" / "checkpoints"
_MODULES = [
    str(path.relative_to(ROOT)) for path in sorted(_FOLDER.rglob("*.py")) if path.stem != "experts"
]
# warnings, and what the tests of outputs, of the command, of devices and of Dask follow
_OTHERS = (
    "does not see {} as it is here",
    "gives it random weights instead",
    "is on a device; copy it with .get()",
    "move away the weights that are wrong",
    "see the physical arrays",
    "so the model gets initial values instead",
    "the scales are plain instead of swizzled",
    "; did you mean {}",
    "what was written differs from the definition",
)


def test_hints_are_given_and_work(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **_TENSORS)
    reorder.save(tmp_path / "blocked.npz", {"w": reorder.reorder(_TENSORS["w"], "AB8a8b")})
    packed, _ = gptq_layer(group=32)
    packed["qzeros"][:] = 0x77777777
    order = np.arange(128, dtype=np.int32) // 32
    gptq = {f".{name}": x for name, x in packed.items()}
    square = {".data": np.ones((128, 64), np.uint8), ".scales": np.full((128, 4), 127, np.uint8)}
    square[".scales"] = square[".scales"].view(ml_dtypes.float8_e8m0fnu)
    floats = {".weight": np.ones((128, 128), ml_dtypes.bfloat16)}
    blocks = fp8("weight_scale_inv", (3, 2))[0]
    said = declared("fp8", weight_block_size=[128, 128])["quantization_config"]
    models: dict[str, tuple[dict[str, Any], Any]] = {
        "gptq": ({"fc": gptq}, declared("gptq", bits=4, group_size=32)),
        "v1": ({"fc": gptq | {".g_idx": order}}, declared("gptq", bits=4, group_size=32)),
        "plain": ({"model.0.up": floats, "model.embed_tokens": floats}, {}),
        "odd": ({"fc": {".weight": blocks[".weight"]}}, {"quantization_config": said}),
        "mystery": ({"fc": {".weight": blocks[".weight"], ".SCB": np.ones(300)}}, {}),
        "floats": ({}, {}),
        "ignored": (
            {"fc": blocks},
            {"quantization_config": said | {"modules_to_not_convert": ["fc"]}},
        ),
        "unnamed": ({"fc": gptq}, {}),
        "zeros": ({"fc": recorded("pack_quantized", (64, 64), group=32, zeros=True)[0]}, {}),
        "square": ({"fc": square}, {}),
    }
    for name, (layers, config) in models.items():
        write_model(tmp_path / name, layers, config)
    # what can be refused is planned, but for numbers that are found to be lost
    planned = reorder.checkpoints.ConvertOptions(dry_run=True)

    def rule(line: str, source: str = "in", options: Any = planned) -> None:
        target = tmp_path / "out.safetensors"
        reorder.convert(tmp_path / f"{source}.npz", target, map=[line], options=options)

    def made(line: str) -> None:
        rule(line, options=reorder.checkpoints.ConvertOptions())

    def to(model: str, target: str | None, *lines: str, out: str = "out") -> None:
        reorder.convert(tmp_path / model, tmp_path / out, target, map=lines, options=planned)

    def record(model: str, name: str, **given: Any) -> None:
        with reorder.open_checkpoint(tmp_path / model) as checkpoint:
            checkpoint.record("fc", name, **given)

    def pieces(most: int, dims: tuple[int, ...] = (64, 256), tag: str = "AB64a256b") -> object:
        return cut(Reorder(memory_desc(dims, "f32"), memory_desc(dims, "f32", tag)), most)

    endings = {"new": ".safetensors", "raw": ".bin", "npy": ".npy", "npz": ".npz"}
    names: dict[str, Any] = {name: tmp_path / f"{name}{end}" for name, end in endings.items()}
    names |= {
        each: tmp_path / f"{each}.npz" for each in ("compressed", "quantized", "several", "fc")
    }
    x = np.linspace(-1, 1, 64 * 256, dtype=np.float32).reshape(64, 256)
    np.savez_compressed(names["compressed"], x=np.zeros(1000))
    reorder.save(names["quantized"], reorder.quantize(x, "s8"))
    reorder.save(names["fc"], Checkpoint(tmp_path / "v1").record("fc"))
    np.savez(names["several"], w=x, v=x)
    names |= {
        "x": x,
        "pieces": pieces,
        "rule": rule,
        "made": made,
        "to": to,
        "record": record,
        "blocked": "blocked",
    }
    hints.check(Path(__file__).with_name("hints.txt"), names, _MODULES, _OTHERS)
    found = Checkpoint(tmp_path / "in.npz")
    assert found["flat"].shape == (24,)
    with pytest.raises(KeyError, match="did you mean 'flat'"):
        found["flta"]
