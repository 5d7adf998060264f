"""Checkpoints of compressed-tensors and gguf, damaged in each way that is explained.

The damage is done here in numpy or by the library itself, never by the code that explains it.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from tests.headers import gguf_file

Tensors = dict[str, NDArray[Any]]
# a cause that must be found, and the tensors that are damaged
Case = tuple[str, Tensors]

pytestmark = [pytest.mark.judges, pytest.mark.filterwarnings("ignore")]

_OUT, _IN = 128, 256


def _interleave(x: NDArray[Any]) -> NDArray[Any]:
    return np.stack([x[: len(x) // 2], x[len(x) // 2 :]], 1).reshape(x.shape)


def _nibbles(x: NDArray[Any]) -> NDArray[Any]:
    flat = np.ascontiguousarray(x).view(np.uint8)
    return ((flat << 4) | (flat >> 4)).view(x.dtype)


def _bytes(x: NDArray[Any]) -> NDArray[Any]:
    words = x if x.itemsize > 1 else np.ascontiguousarray(x).view("<u4")
    return words.byteswap().view(x.dtype)


_REVERSED, _TURNED = "the nibbles of each byte are reversed", "dims 0 and 1 are transposed"
_DAMAGES: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "the halves of dim 0 are swapped": lambda x: np.roll(x, len(x) // 2, 0),
    "the rows of the halves of dim 0 are interleaved": _interleave,
    _REVERSED: _nibbles,
    "the bytes of each": _bytes,
    _TURNED: lambda x: np.ascontiguousarray(x.T),
}


def _each(name: str, x: NDArray[Any], count: int = 5) -> list[Case]:
    return [(cause, {name: change(x)}) for cause, change in [*_DAMAGES.items()][:count]]


def _of_compressed_tensors(rng: np.random.Generator) -> tuple[Tensors, list[Case]]:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    name = "compressed_tensors.compressors"
    compressors = pytest.importorskip(name, reason="compressed-tensors is not installed")
    quantization = pytest.importorskip("compressed_tensors.quantization")
    args = quantization.QuantizationArgs(**_WEIGHTS)
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=args, format=_FORM)
    compressor = compressors.BaseCompressor.get_value_from_registry(_FORM)
    scales = rng.random((_OUT, _IN // 32)) / 4 + 0.125
    state = {"weight": rng.standard_normal((_OUT, _IN)), "weight_scale": scales}
    made = compressor.compress({n: torch.tensor(x).float() for n, x in state.items()}, scheme)
    sound: Tensors = {f"fc.{name}": x.numpy() for name, x in made.items()}
    words = sound["fc.weight_packed"]
    flat = np.ascontiguousarray(words).view(np.uint8)
    codes = np.stack([flat & 15, flat >> 4], -1).reshape(_OUT, _IN).astype(np.int8) - 8
    turned = (codes.T + 8).astype(np.uint8).reshape(_OUT, _IN)
    packed = (turned[:, 0::2] | turned[:, 1::2] << 4).view(np.int32)
    both = "fc.weight_packed", "fc.weight_scale"
    return sound, [
        *_each("fc.weight_packed", words, 4),
        *_each("fc.weight_scale", sound["fc.weight_scale"]),
        ("it is not packed", {"fc.weight_packed": codes}),
        (_TURNED, {"fc.weight_packed": packed}),
        *((cause, {n: x(sound[n]) for n in both}) for cause, x in [*_DAMAGES.items()][:2]),
    ]


_FORM = "pack-quantized"
_WEIGHTS = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
_GROUP = {"targets": ["Linear"], "weights": _WEIGHTS, "format": _FORM}
_CONFIG = {"quant_method": "compressed-tensors", "format": _FORM, "config_groups": {"g": _GROUP}}


def _write_folder(path: Path, tensors: Tensors) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"quantization_config": _CONFIG}))
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    whole = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
    safetensors.save_file(whole, path / "model.safetensors")
    return path


def _of_gguf(kind: str, rng: np.random.Generator) -> tuple[Tensors, list[Case]]:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    form = gguf.GGMLQuantizationType[kind]
    block, nbytes = gguf.GGML_QUANT_SIZES[form]
    if kind == "Q4_K":  # the package decodes it only
        data = rng.integers(0, 256, (_OUT, 4 * _IN // block * nbytes), np.uint8)
    else:
        data = gguf.quants.quantize(rng.standard_normal((_OUT, 4 * _IN), np.float32), form)
    name = "blk.0.attn_q.weight"
    heads = data.reshape(4, 2, _OUT // 8, -1).swapaxes(1, 2).reshape(data.shape)
    blocks = data.view(np.uint8).reshape(_OUT, -1, nbytes).swapaxes(0, 1).reshape(-1)
    cases = [
        ("the rows of the halves of each 32", {name: heads}),
        (_TURNED, {name: blocks.view(data.dtype).reshape(data.shape)}),
    ]
    if kind == "Q4_0":
        codes = data.reshape(-1, nbytes).copy()
        codes[:, 2:] = _nibbles(codes[:, 2:])
        cases.append((_REVERSED, {name: codes.reshape(data.shape)}))
    return {name: data}, cases + _each(name, data, 4)


def _write_gguf(path: Path, tensors: Tensors, kind: str) -> Path:
    import gguf  # not installed everywhere

    with gguf_file(path.with_suffix(".gguf")) as writer:
        for name, x in tensors.items():
            writer.add_tensor(name, x, raw_dtype=gguf.GGMLQuantizationType[kind])
    return path.with_suffix(".gguf")


def _causes(file: Path, good: Path) -> Iterator[str]:
    for each in reorder.checkpoints.differences(file, good).values():
        yield from each.causes


@pytest.mark.parametrize("kind", ["", "Q4_0", "Q8_0", "Q4_K", "F16"])
def test_every_damage_is_explained_and_nothing_else(tmp_path: Path, kind: str) -> None:
    """Law: the cause is named; no sound model, nor one with a byte more wrong, has any."""

    def write(name: str, tensors: Tensors) -> Path:
        path = tmp_path / name
        return _write_gguf(path, tensors, kind) if kind else _write_folder(path, tensors)

    for seed in range(20):
        rng = np.random.default_rng(seed)
        sound, cases = _of_gguf(kind, rng) if kind else _of_compressed_tensors(rng)
        good, again = write(f"good{seed}", sound), write(f"again{seed}", sound)
        assert not reorder.checkpoints.differences(again, good)
        for k, (cause, damaged) in enumerate(cases):
            causes = _causes(write(f"bad{seed}_{k}", {**sound, **damaged}), good)
            assert any(each.startswith(cause) for each in causes), (seed, cause)
            name = next(iter(damaged))
            worse = np.ascontiguousarray(damaged[name]).copy()
            flat = worse.reshape(-1).view(np.uint8)
            flat[rng.integers(len(flat))] ^= 1 << rng.integers(8)
            file = write(f"worse{seed}_{k}", {**sound, **damaged, name: worse})
            assert reorder.checkpoints.differences(file, good)
            assert not [*_causes(file, good)], (seed, cause)
