"""Checkpoints of compressed-tensors and gguf, damaged in each way that is explained.

The damage is done here in numpy or by the library itself, never by the code that explains it.
`pytest -m judges -s tests/differential/test_differences.py` prints how much of it is found.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from tests.gguf_files import gguf_file

Tensors = dict[str, NDArray[Any]]
Damage = Callable[[NDArray[Any]], NDArray[Any]]


pytestmark = [pytest.mark.judges, pytest.mark.filterwarnings("ignore")]

_TIMES = 20
_OUT, _IN = 128, 256


def _halves(x: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([x[len(x) // 2 :], x[: len(x) // 2]])


def _interleave(x: NDArray[Any]) -> NDArray[Any]:
    out = np.empty_like(x)
    out[0::2], out[1::2] = x[: len(x) // 2], x[len(x) // 2 :]
    return out


def _nibbles(x: NDArray[Any]) -> NDArray[Any]:
    flat = np.ascontiguousarray(x).view(np.uint8)
    return (((flat & 15) << 4) | (flat >> 4)).astype(np.uint8).view(x.dtype)


def _bytes(x: NDArray[Any]) -> NDArray[Any]:
    if x.itemsize > 1:
        return x.byteswap()
    return np.ascontiguousarray(x).view("<u4").byteswap().view(x.dtype)


def _transposed(x: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(x.T)


_SWAPPED = "the halves of dim 0 are swapped"
_INTERLEAVED = "the rows of the halves of dim 0 are interleaved"
_REVERSED = "the nibbles of each byte are reversed"
_TURNED = "dims 0 and 1 are transposed"
_UNPACKED = "it is not packed"
_DAMAGES: list[tuple[str, str, Damage]] = [
    ("halves swapped", _SWAPPED, _halves),
    ("rows interleaved", _INTERLEAVED, _interleave),
    ("nibbles reversed", _REVERSED, _nibbles),
    ("bytes reversed", "the bytes of each", _bytes),
    ("transposed", _TURNED, _transposed),
]


class _Case(NamedTuple):
    """A way to damage tensors: its name, the cause that must be found, and the damaged tensors."""

    damage: str
    cause: str
    tensors: Tensors


def _tally(
    folder: Path,
    library: str,
    produce: Callable[[int], tuple[Tensors, list[_Case]]],
    write: Callable[[Path, Tensors], Path],
) -> None:
    """Damage 20 models of a library in each way; print and check how many causes are found."""
    found: dict[str, list[bool]] = {}
    accused = guessed = others = 0
    rng = np.random.default_rng(0)
    for seed in range(_TIMES):
        sound, cases = produce(seed)
        good = write(folder / f"good{seed}", sound)
        again = write(folder / f"again{seed}", sound)
        accused += bool(reorder.checkpoints.differences(again, good))
        for k, case in enumerate(cases):
            bad = write(folder / f"bad{seed}_{k}", {**sound, **case.tensors})
            differing = reorder.checkpoints.differences(bad, good).values()
            causes = [cause for each in differing for cause in each.causes]
            hit = any(cause.startswith(case.cause) for cause in causes)
            found.setdefault(case.damage, []).append(hit)
            others += hit and len(causes) > 1
            # one more byte is wrong, so nothing explains all of them
            name = next(iter(case.tensors))
            worse = np.ascontiguousarray(case.tensors[name]).copy()
            flat = worse.reshape(-1).view(np.uint8)
            flat[rng.integers(len(flat))] ^= 1 << rng.integers(8)
            file = write(folder / f"worse{seed}_{k}", {**sound, **case.tensors, name: worse})
            differing = reorder.checkpoints.differences(file, good).values()
            assert differing
            guessed += any(each.causes for each in differing)
    for damage, hits in found.items():
        print(f"{library:20} {damage:40} {sum(hits)} of {len(hits)}")
    total = sum(map(len, found.values()))
    print(f"{library:20} {'named beside other causes':40} {others} of {total}")
    print(f"{library:20} {'named with a byte unexplained':40} {guessed} of {total}")
    print(f"{library:20} {'sound models accused':40} {accused} of {_TIMES}")
    assert accused == guessed == 0
    assert {damage: all(hits) for damage, hits in found.items()} == dict.fromkeys(found, True)


def _each(name: str, x: NDArray[Any]) -> list[_Case]:
    return [_Case(damage, cause, {name: change(x)}) for damage, cause, change in _DAMAGES]


def _safetensors(path: Path, tensors: Tensors) -> Path:
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    target = path.with_suffix(".safetensors")
    safetensors.save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, target)
    return target


def test_damaged_weights_of_compressed_tensors_are_explained(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    compressors = pytest.importorskip(
        "compressed_tensors.compressors", reason="compressed-tensors is not installed"
    )
    quantization = pytest.importorskip("compressed_tensors.quantization")
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group"}
    args = quantization.QuantizationArgs(**weights, group_size=32)
    scheme = quantization.QuantizationScheme(
        targets=["Linear"], weights=args, format="pack-quantized"
    )
    compressor = compressors.BaseCompressor.get_value_from_registry("pack-quantized")
    group = {"targets": ["Linear"], "weights": {**weights, "group_size": 32}}
    config = {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {"g": {**group, "format": "pack-quantized"}},
        }
    }

    def write(path: Path, tensors: Tensors) -> Path:
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
        _safetensors(path / "model", tensors)
        return path

    def produce(seed: int) -> tuple[Tensors, list[_Case]]:
        torch.manual_seed(seed)
        state = {
            "weight": torch.randn(_OUT, _IN),
            "weight_scale": torch.rand(_OUT, _IN // 32) / 4 + 0.125,
        }
        made = compressor.compress(state, scheme)
        sound = {f"fc.{name}": x.numpy() for name, x in made.items()}
        words = sound["fc.weight_packed"]
        flat = np.ascontiguousarray(words).view(np.uint8)
        codes = np.stack([flat & 15, flat >> 4], -1).reshape(_OUT, _IN).astype(np.int8) - 8
        scales = sound["fc.weight_scale"]
        cases = [
            *_each("fc.weight_packed", words)[:4],
            *_each("fc.weight_scale", scales),
            _Case("not packed, a byte each", _UNPACKED, {"fc.weight_packed": codes}),
        ]
        for damage, cause, change in _DAMAGES[:2]:
            both = {name: change(sound[name]) for name in ("fc.weight_packed", "fc.weight_scale")}
            cases.append(_Case(f"{damage}, codes and scales", cause, both))
        turned = (codes.T + 8).astype(np.uint8).reshape(_OUT, _IN)
        packed = (turned[:, 0::2] | turned[:, 1::2] << 4).view(np.int32)
        cases.append(_Case("transposed, then packed", _TURNED, {"fc.weight_packed": packed}))
        return sound, cases

    _tally(tmp_path, "compressed-tensors", produce, write)


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K", "F16"])
def test_damaged_weights_of_gguf_are_explained(tmp_path: Path, kind: str) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    form = gguf.GGMLQuantizationType[kind]

    def write(path: Path, tensors: Tensors) -> Path:
        target = path.with_suffix(".gguf")
        with gguf_file(target) as writer:
            for name, x in tensors.items():
                writer.add_tensor(name, x, raw_dtype=form)
        return target

    def produce(seed: int) -> tuple[Tensors, list[_Case]]:
        rng = np.random.default_rng(seed)
        block, nbytes = gguf.GGML_QUANT_SIZES[form]
        x = rng.standard_normal((_OUT, 4 * _IN)).astype(np.float32)
        if kind == "Q4_K":  # the package decodes it only
            data = rng.integers(0, 256, (_OUT, 4 * _IN // block * nbytes), np.uint8)
        else:
            data = gguf.quants.quantize(x, form)
        name = "blk.0.attn_q.weight"
        heads = data.reshape(4, 2, _OUT // 8, -1).swapaxes(1, 2).reshape(data.shape)
        blocks = data.view(np.uint8).reshape(_OUT, -1, nbytes).swapaxes(0, 1).reshape(-1)
        changed = [
            ("rows of each head interleaved", "the rows of the halves of each 32", heads),
            ("blocks transposed", _TURNED, blocks.view(data.dtype).reshape(data.shape)),
        ]
        if kind == "Q4_0":
            codes = data.reshape(-1, nbytes).copy()
            codes[:, 2:] = _nibbles(codes[:, 2:])
            changed.append(("nibbles of codes reversed", _REVERSED, codes.reshape(data.shape)))
        cases = [_Case(damage, cause, {name: x}) for damage, cause, x in changed]
        cases += _each(name, data)[:4]
        return {name: data}, cases

    _tally(tmp_path, f"gguf {kind}", produce, write)
