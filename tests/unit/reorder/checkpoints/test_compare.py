"""Where two checkpoints differ, and which causes explain every byte."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import memory_desc
from memdesc.record import record_desc
from memdesc.record.gguf import GGUF_TYPES
from reorder.checkpoints import Differing
from reorder.records import Record, repack
from tests.checkpoints import fp8_layer
from tests.records import plain_scales, random_record
from tests.unit.reorder.checkpoints.schemes import compressed, declared, write_model

_DIMS = (64, 128)
_TAG = "BA16a64b4a"
_X = np.random.default_rng(0).integers(-128, 128, _DIMS, np.int8)
_TRANSPOSED = "dims 0 and 1 are transposed"


def _differing(folder: Path, bad: Any, good: Any) -> Differing:
    """Save two tensors and return how the first differs from the second."""
    reorder.save(folder / "bad.npz", {"w": bad})
    reorder.save(folder / "good.npz", {"w": good})
    (found,) = reorder.checkpoints.differences(folder / "bad.npz", folder / "good.npz").values()
    return found


def test_a_record_that_is_only_in_one_checkpoint_is_listed_with_its_name_as_floats(
    tmp_path: Path,
) -> None:
    record, floats = tmp_path / "record.safetensors", tmp_path / "floats.safetensors"
    awq = Record(record_desc((128, 64), "awq"))
    reorder.save(record, {"layer": awq})
    reorder.save(floats, {"layer": reorder.dequantize(awq)})
    ours, theirs = "are not in the reference", "are in the reference only"
    for model, other, problem in ((record, floats, ours), (floats, record, theirs)):
        found = reorder.checkpoints.differences(model, other)
        assert found.keys() == {"layer", "layer.weight"}
        assert found["layer.weight"].problem == problem


def _damaged() -> dict[str, NDArray[Any]]:
    """Return the bytes of a packed tensor after each kind of damage, by its name."""
    packed = reorder.reorder(_X, _TAG).data

    def of(x: NDArray[Any]) -> NDArray[np.uint8]:
        return reorder.reorder(x, _TAG).data

    turned = memory_desc(_DIMS[::-1], "s8", _TAG)
    halves = _X.reshape(64, 16, 2, 4)[:, :, ::-1].reshape(_DIMS)
    return {
        "it is packed twice": of(packed.view(np.int8).reshape(_DIMS)),
        "it is not packed": _X,
        _TRANSPOSED: reorder.reorder(np.ascontiguousarray(_X.T), turned).data,
        "the halves of dim 0 are swapped": of(np.roll(_X, 32, 0)),
        "the halves of each 8 along dim 1 are swapped": of(np.ascontiguousarray(halves)),
        "the rows of the halves of dim 0 are interleaved": of(
            _X.reshape(2, 32, 128).swapaxes(0, 1).reshape(_DIMS)
        ),
        "the even and the odd rows of dim 0 are in halves": of(
            np.concatenate([_X[0::2], _X[1::2]])
        ),
        "the nibbles of each byte are reversed": (packed << 4) | (packed >> 4),
        "the bytes of each 8 are reversed": packed.reshape(-1, 8)[:, ::-1].copy(),
    }


def test_a_cause_that_predicts_every_byte_is_named(tmp_path: Path) -> None:
    good = reorder.reorder(_X, _TAG)
    for cause, damaged in _damaged().items():
        data = np.ascontiguousarray(damaged).view(np.uint8).reshape(-1).copy()
        bad = reorder.Memory(good.desc, data)
        for sound in (good, reorder.reorder(_X, "ab")):
            assert _differing(tmp_path, bad, sound).causes == (cause,)
        # one more byte that differs, and nothing is explained
        data[1000] ^= 1
        assert _differing(tmp_path, bad, good).causes == (), cause


@pytest.mark.parametrize(
    ("layout", "dtype", "dims", "causes"),
    [
        ("nvfp4_scales", "u8", (256, 32), ("the scales are plain instead of swizzled",)),
        ("ba", "u8", (16, 16), ("it is not packed", "it is packed twice", _TRANSPOSED)),
        # also bca, as dim b is 1: names that differ for other dims explain no transposition
        ("cab", "s8", (4, 1, 2), ("it is not packed", "dims 0 and 2 are transposed")),
        # codes of 4 bits and padding take as many bytes as codes in a byte each
        ("Ab8a", "u4", (4, 64), ("it is not packed",)),
        # also kHWC16, which pads other dims
        ("nhwc", "s8", (16, 16, 4, 4), ("dims 1 and 2 are transposed",)),
    ],
)
def test_all_causes_that_predict_the_bytes_are_named(
    tmp_path: Path, layout: str, dtype: str, dims: tuple[int, ...], causes: tuple[str, ...]
) -> None:
    x = np.random.default_rng(0).integers(1, 8, dims, np.uint8)
    good = reorder.reorder(reorder.reorder(x, dtype=dtype), layout)
    bad = reorder.Memory(good.desc)
    turned = layout == "nhwc"
    rows = reorder.reorder(*((x.swapaxes(1, 2), "nhwc") if turned else (x,)), dtype=dtype).data
    bad.data[: len(rows)] = rows
    assert _differing(tmp_path, bad, good).causes == causes
    if len(rows) < good.nbytes:  # and zeros after them
        bad.data[-1] = 1
        assert causes[0] not in _differing(tmp_path, bad, good).causes


@pytest.mark.parametrize(
    ("one", "other"), [("u8", "s8"), ("bf16", "f16"), ("f32", "s32"), ("f32", "f16"), ("s8", "s8")]
)
def test_equal_numbers_in_different_layouts_and_types_differ_nowhere(
    tmp_path: Path, one: str, other: str
) -> None:
    paths = [tmp_path / f"{name}.safetensors" for name in ("a", "b", "c")]
    x = (_X & 127).astype(np.float32)
    for path, dtype, layout, numbers in zip(
        paths, (one, other, other), ("AB8b8a", "ba", "ba"), (x, x, -x), strict=True
    ):
        reorder.save(path, {"w": reorder.reorder(numbers, layout, dtype=dtype)})
    a, b, negative = paths
    assert not reorder.checkpoints.differences(a, b)
    assert not reorder.checkpoints.differences(b, a)
    assert reorder.checkpoints.differences(a, negative)


def test_codes_that_make_no_record_are_explained_by_that_of_the_reference(tmp_path: Path) -> None:
    codes = np.random.default_rng(0).integers(0, 16, (16, 64), np.uint8)
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).view(np.int32)
    config = compressed("pack-quantized", type="int", num_bits=4, strategy="group", group_size=32)
    for name, words in (("good", packed), ("bad", codes.astype(np.int8) - 8)):
        tensors: dict[str, NDArray[Any]] = {
            "_packed": words,
            "_scale": np.ones((16, 2), np.float32),
            "_shape": np.array([16, 64]),
        }
        write_model(tmp_path / name, {"fc.weight": tensors}, config, {})
    found = reorder.checkpoints.differences(tmp_path / "bad", tmp_path / "good")
    assert {name: each.causes for name, each in found.items()} == {
        "fc.weight_packed": ("it is not packed",)
    }


def test_rows_of_blocks_that_were_swapped_and_nibbles_of_codes_are_named(tmp_path: Path) -> None:
    for name in GGUF_TYPES:
        good = random_record(record_desc((2, 256), name), np.random.default_rng(0))
        bad = Record(good.desc, np.roll(good.data.reshape(2, -1), 1, 0).reshape(-1))
        assert _differing(tmp_path, bad, good).causes == ("the halves of dim 0 are swapped",)
    good = random_record(record_desc((4, 256), "q4_0"), np.random.default_rng(0))
    bad = Record(good.desc, good.data.copy())
    codes = bad.data.reshape(-1, 18)[:, 2:]
    codes[:] = codes << 4 | codes >> 4
    assert _differing(tmp_path, bad, good).causes == ("the nibbles of each byte are reversed",)
    # in the format of the side that is wrong
    rng, desc = np.random.default_rng(0), record_desc((128, 64), "gptq", group=32, zeros="v2")
    good = plain_scales(random_record(desc, rng), rng)
    bad = repack(good, "awq")
    words = bad.tensors["qweight"]
    words[:] = words << 4 | words >> 4
    assert "the nibbles of each byte are reversed" in _differing(tmp_path, bad, good).causes


def test_padding_of_codes_is_not_a_value(tmp_path: Path) -> None:
    good = Record(record_desc((4, 36), "pack_quantized", group=36))
    good.tensors["weight_scale"].view(np.float16)[:] = 1
    bad = Record(good.desc, {name: data.copy() for name, data in good.tensors.items()})
    codes = bad.tensors["weight_packed"].reshape(4, 20)
    codes[:, 18:] = 0x88  # what compressed-tensors may write after 36 codes
    reorder.save(tmp_path / "same.npz", {"w": bad})
    codes[1, :3] = 1
    assert _differing(tmp_path, bad, good).problem == "differ in 3 of 144 elements"
    assert not reorder.checkpoints.differences(tmp_path / "same.npz", tmp_path / "good.npz")


def test_tensors_that_were_swapped_as_a_whole_are_told(tmp_path: Path) -> None:
    layers = [fp8_layer(seed) for seed in range(3)]
    models = []
    for names in (("gate", "up", "down"), ("up", "gate", "down")):
        tensors = {
            f"{name}.{role}": x
            for name, layer in zip(names, layers, strict=True)
            for role, x in layer.items()
        }
        for k, name in enumerate(names):
            tensors[f"norm.{k}"] = np.full(8, len(name), np.float32)
        folder = tmp_path / names[0]
        config = declared("fp8", weight_block_size=[128, 128])
        models.append(write_model(folder, {"": tensors}, config, {}))
    found = reorder.checkpoints.differences(models[1], models[0])
    assert {name: each.causes for name, each in found.items()} == {
        "gate.weight": ("it holds up.weight, up.weight_scale_inv of the reference",),
        "up.weight": ("it holds gate.weight, gate.weight_scale_inv of the reference",),
        "norm.0": ("it holds norm.1 of the reference",),
        "norm.1": ("it holds norm.0 of the reference (others with the same bytes: 1)",),
    }


def test_equal_bytes_whose_scales_are_of_another_dim_differ(tmp_path: Path) -> None:
    q = reorder.quantize(np.arange(64, dtype=np.float32).reshape(8, 8), "s8", axis=0)
    assert _differing(tmp_path, q._replace(axis=(1,)), q).problem.startswith("differ in ")
    reorder.save(tmp_path / "bad.npz", {"w": q})
    assert not reorder.checkpoints.differences(tmp_path / "bad.npz", tmp_path / "good.npz")
