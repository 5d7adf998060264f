"""Models of MLX: read as config.json and the tensors say, decoded, moved and written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import DATA_TYPES, MemdescError, record_desc
from tests.checkpoints import write_safetensors
from tests.unit.reorder.storage.convert.results import SMALL, converted, refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_DIMS = (24, 256)
_BITS = (1, 2, 3, 4, 5, 6, 8)
_TYPES = ("f32", "bf16", "f16")


def _words(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint32]:
    """Return rows of codes, one behind the other from the lowest bit on."""
    each = codes[..., None] >> np.arange(bits, dtype=np.uint8) & 1
    rows = each.reshape(len(codes), -1).astype(np.uint8)
    return np.packbits(rows, axis=1, bitorder="little").view(np.uint32)


def _layer(
    bits: int = 4, group: int = 64, kind: str = "bf16", seed: int = 0
) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Return the tensors of a layer, and its numbers: each operation in the type of the scales."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 1 << bits, _DIMS, np.uint8)
    sizes, dtype = (_DIMS[0], _DIMS[1] // group), DATA_TYPES[kind].numpy
    scales, biases = (rng.standard_normal(sizes).astype(dtype) for _ in range(2))
    product = (scales.repeat(group, 1).astype(np.float32) * codes).astype(dtype)
    numbers = (product.astype(np.float32) + biases.repeat(group, 1)).astype(dtype)
    return {"weight": _words(codes, bits), "scales": scales, "biases": biases}, numbers


def _folder(path: Path, layers: dict[str, dict[str, NDArray[Any]]], **config: Any) -> Path:
    path.mkdir(exist_ok=True)
    tensors = {
        f"{name}.{each}": array for name, layer in layers.items() for each, array in layer.items()
    }
    tensors["norm.weight"] = np.ones(8, ml_dtypes.bfloat16)
    reorder.save(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps(config))
    return path


def _said(folder: Path, *name: str, **options: Any) -> str:
    with reorder.open_checkpoint(folder) as checkpoint, pytest.raises(MemdescError) as caught:
        checkpoint.record("fc", *name, **options)
    return str(caught.value)


def _section(bits: Any = 4, group: int = 64, **more: Any) -> dict[str, Any]:
    return {"group_size": group, "bits": bits, **more}


@pytest.mark.parametrize("kind", _TYPES)
@pytest.mark.parametrize("bits", _BITS)
def test_codes_of_any_width_are_decoded_in_the_type_of_the_scales(bits: int, kind: str) -> None:
    tensors, wanted = _layer(bits, 32, kind)
    record = reorder.Record(record_desc(_DIMS, "mlx", bits=bits, group=32, scales=kind), tensors)
    for found in (reorder.dequantize(record), reorder.dequantize(record, desc="ba")):
        assert np.array_equal(found.numpy(), wanted.astype(np.float32))
    made = reorder.dequantize(record, dtype=kind).numpy()
    assert made.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    "keys", [("quantization",), ("quantization_config",), ("quantization", "quantization_config")]
)
@pytest.mark.parametrize(("bits", "group"), [(3, 64), (4, 64), (8, 32), (6, 128)])
def test_what_mlx_declares_is_read_and_decoded(
    tmp_path: Path, bits: int, group: int, keys: tuple[str, ...]
) -> None:
    tensors, wanted = _layer(bits, group)
    folder = _folder(tmp_path / "in", {"fc": tensors}, **dict.fromkeys(keys, _section(bits, group)))
    with reorder.open_checkpoint(folder) as checkpoint:
        record = checkpoint.record("fc")
    assert record.desc == record_desc(_DIMS, "mlx", bits=bits, group=group)
    found = converted(folder, tmp_path / "out", f"*: mlx(bits={bits}) -> plain, bf16")
    assert found["fc.weight"].tobytes() == wanted.tobytes()
    assert json.loads((tmp_path / "out/config.json").read_text()) == {}


def test_layers_have_options_of_their_own_or_stay_floats(tmp_path: Path) -> None:
    layers = {"embed": _layer(4)[0], "a.b": _layer(3, 32)[0], "fc": _layer(8, 128)[0]}
    layers["head"] = {"weight": np.ones((4, 8), ml_dtypes.bfloat16)}
    section = _section(4, 64, **{"a.b": _section(3, 32), "fc": _section(8, 128), "head": False})
    folder = _folder(tmp_path / "in", layers, quantization=section, quantization_config=section)
    wanted = {"embed": (4, 64), "a.b": (3, 32), "fc": (8, 128)}
    with reorder.open_checkpoint(folder) as checkpoint:
        for name, (bits, group) in wanted.items():
            desc = checkpoint.record(name).desc
            assert desc == record_desc(_DIMS, "mlx", bits=bits, group=group)
    found = converted(
        folder,
        tmp_path / "out",
        "*: mlx -> plain, bf16",
        "a.b: mlx(bits=3) -> plain, bf16",
        "fc: mlx(bits=8) -> plain, bf16",
    )
    assert found["a.b.weight"].tobytes() == _layer(3, 32)[1].tobytes()
    assert found["fc.weight"].tobytes() == _layer(8, 128)[1].tobytes()


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
def test_modes_of_floats_are_read_and_written_as_words_and_bytes(tmp_path: Path, mode: str) -> None:
    rng = np.random.default_rng(0)
    desc = record_desc(_DIMS, f"mlx_{mode}")
    tensors: dict[str, NDArray[Any]] = {
        "weight": rng.integers(0, 2**31, (24, desc.tensors["weight"] // 96)).astype(np.uint32),
        "scales": rng.integers(100, 120, (24, desc.tensors["scales"] // 24), np.uint8),
    }
    tensors["weight"] &= 0x77777777  # no NaN
    bits, group = (8 if mode == "mxfp8" else 4), (16 if mode == "nvfp4" else 32)
    section = _section(bits, group, mode=mode)
    folder = _folder(tmp_path / "in", {"fc": tensors}, quantization=section)
    with reorder.open_checkpoint(folder) as checkpoint:
        record = checkpoint.record("fc")
    assert record.desc == desc
    reorder.save(tmp_path / "again.safetensors", {"fc": record})
    with reorder.open_checkpoint(tmp_path / "again.safetensors") as checkpoint:
        assert checkpoint.record("fc").desc == desc
    found = converted(folder, tmp_path / "out", f"*: mlx_{mode} -> mlx_{mode}")
    for name, array in tensors.items():
        assert found[f"fc.{name}"].dtype == array.dtype
        assert np.array_equal(found[f"fc.{name}"], array)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"quantization": _section(3)}, "of 1024 bits, which 3 do not divide"),
        ({"quantization": _section(5)}, "of 1024 bits, which 5 do not divide"),
        ({"quantization": _section(7)}, "of 1024 bits, which 7 do not divide"),
        ({"quantization": _section(4, 32)}, "'fc.scales' of bf16 has the shape (24, 4)"),
        ({"quantization": _section(4, 48)}, "a group of 48 does not divide"),
        ({"quantization": _section(8)}, "'fc.scales' of bf16 has the shape (24, 4)"),
        ({"quantization": _section("4")}, "bits must be an integer, not '4'"),
        ({"quantization": _section(0)}, "bits is 0, not a positive integer"),
        ({"quantization": _section(mode="q4")}, "mode is 'q4', not affine or null"),
        ({"quantization": _section(mode="mxfp4")}, "group_size is 64, not 32 or null"),
        (
            {"quantization": _section(4, 32, mode="mxfp4")},
            "'fc.scales' of bf16 has the shape (24, 4)",
        ),
        ({"quantization": _section(fc=False)}, "config.json ignores fc, but its tensors"),
        ({"quantization": _section(fc={"bits": 8, "mode": 3})}, "mode is 3, not affine or null"),
        (
            {"quantization": _section(), "quantization_config": _section(8)},
            "declares mlx(bits=8, group=64), and config.json mlx(bits=4, group=64)",
        ),
        (
            {"quantization": _section(), "quantization_config": _section(fc=_section(8))},
            "correct the one that is wrong",
        ),
        (
            {"quantization": _section(), "quantization_config": {"quant_method": "awq"}},
            "declares awq, and config.json mlx(bits=4, group=64)",
        ),
        ({"quantization": {"quant_algo": None}}, "its tensors fit mlx: give the name"),
    ],
)
def test_what_files_and_tensors_contradict_is_refused(
    tmp_path: Path, config: dict[str, Any], problem: str
) -> None:
    folder = _folder(tmp_path / "in", {"fc": _layer()[0]}, **config)
    said = _said(folder)
    assert problem in said
    if "give the name" not in said:
        refused(folder, tmp_path / "out", "*: mlx -> plain, bf16")


@pytest.mark.parametrize(("bits", "group"), [(3, 64), (4, 32), (8, 128)])
def test_experts_of_a_layer_share_a_tensor(tmp_path: Path, bits: int, group: int) -> None:
    each = [_layer(bits, group, seed=seed) for seed in range(3)]
    layer = {name: np.stack([tensors[name] for tensors, _ in each]) for name in each[0][0]}
    folder = _folder(tmp_path / "in", {"fc": layer}, quantization=_section(bits, group))
    with reorder.open_checkpoint(folder) as checkpoint:
        record = checkpoint.record("fc")
    assert record.desc == record_desc((3, *_DIMS), "mlx", bits=bits, group=group)
    assert record.desc.letters == "eoi"
    found = converted(folder, tmp_path / "out", f"*: mlx(bits={bits}) -> plain, bf16")
    assert found["fc.weight"].tobytes() == b"".join(numbers.tobytes() for _, numbers in each)
    wide = converted(folder, tmp_path / "wide", f"*: mlx(bits={bits}) -> mlx(bits=8, group=32)")
    assert wide["fc.weight"].shape == (3, 24, 64)
    assert wide["fc.scales"].shape == (3, 24, 8)


def test_bits_that_a_rule_leaves_out_are_told(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "in", {"fc": _layer(8)[0]}, quantization=_section(8))
    said = refused(folder, tmp_path / "out", "*: mlx -> plain, bf16")
    assert "config.json declares bits=8, and mlx has bits=4; say mlx(bits=8)" in said


@pytest.mark.parametrize("missing", ["scales", "biases"])
def test_a_part_that_is_missing_is_told(tmp_path: Path, missing: str) -> None:
    layer = _layer()[0]
    del layer[missing]
    layers = {"b": _layer()[0], "fc": layer}
    folder = _folder(tmp_path / "in", layers, quantization=_section())
    said = refused(folder, tmp_path / "out", "*: mlx -> plain, bf16")
    assert f"fc has weight, but no {missing}: a record of mlx has weight, scales, biases" in said


def test_a_scale_of_all_experts_is_refused(tmp_path: Path) -> None:
    layer = {name: array for name, array in _layer()[0].items() if name != "biases"}
    layer["scales"] = np.full((24, 16), 56, np.uint8)
    layer["global_scale"] = np.ones(1, np.float32)
    section = _section(4, 16, mode="nvfp4")
    folder = _folder(tmp_path / "in", {"fc": layer}, quantization=section)
    assert "fc.global_scale belong to fc.weight, and record_desc" in _said(folder)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_groups_are_read_or_refused(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits, group = int(rng.choice(_BITS)), int(rng.choice((32, 64, 128)))
    layer, section = _layer(bits, group)[0], _section(bits, group)
    name = str(rng.choice([*layer]))
    match int(rng.integers(6)):
        case 0:
            layer[name] = layer[name][:-1]
        case 1:
            layer[name] = layer[name][:, :-1].copy()
        case 2:
            layer[name] = layer[name].view(np.uint8)
        case 3:
            del layer[name]
        case 4:
            section["bits"] = int(rng.integers(-1, 10))
        case 5:
            section["group_size"] = int(rng.choice((0, 16, 32, 64, 128, 256)))
    folder = _folder(tmp_path / "in", {"fc": layer}, quantization=section)
    with reorder.open_checkpoint(folder) as checkpoint:
        try:
            record = checkpoint.record("fc")
        except MemdescError:
            return
    # what is read has all bytes of all tensors
    assert record.desc.tensors == {each: array.nbytes for each, array in layer.items()}
    assert dict(record.desc.options)["bits"] == section["bits"]


@pytest.mark.parametrize(("bits", "wide"), [(1, 2), (3, 4), (3, 5), (5, 6), (4, 8), (6, 8)])
def test_wider_codes_hold_the_same_numbers(tmp_path: Path, bits: int, wide: int) -> None:
    tensors, wanted = _layer(bits)
    folder = _folder(tmp_path / "in", {"fc": tensors}, quantization=_section(bits))
    rule = f"fc: mlx(bits={bits}) -> mlx(bits={wide}, group=32)"
    converted(folder, tmp_path / "out", rule, settings=SMALL._replace(max_bytes=1 << 14))
    config = json.loads((tmp_path / "out/config.json").read_text())
    section = {"bits": wide, "group_size": 32, "mode": "affine"}
    assert config == {"quantization": section, "quantization_config": section}
    with reorder.open_checkpoint(tmp_path / "out") as checkpoint:
        found = reorder.dequantize(checkpoint.record("fc"), dtype="bf16").numpy()
    assert found.tobytes() == wanted.tobytes()


def test_symmetric_codes_become_offsets_only_where_nothing_is_rounded() -> None:
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (8, 4, 18), np.uint8)
    blocks[:, :, :2] = rng.standard_normal((8, 4, 1)).astype(np.float16).view(np.uint8)
    source = reorder.Record(record_desc((8, 128), "q4_0"), blocks)
    wide = reorder.repack(source, "mlx", scales="f32")
    assert np.array_equal(reorder.dequantize(wide).numpy(), reorder.dequantize(source).numpy())
    with pytest.raises(MemdescError, match="rounding differs between their formulas"):
        reorder.repack(wide, "mlx", scales="f16")
    with pytest.raises(MemdescError, match="rounding differs between their formulas"):
        reorder.repack(source, "mlx")


def test_tensors_of_a_file_that_the_package_wrote_are_read(tmp_path: Path) -> None:
    tensors = {f"fc.{name}": array for name, array in _layer(kind="f16")[0].items()}
    tensors["fc.weight"] = tensors["fc.weight"].view(np.int32)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text(json.dumps({"quantization": _section()}))
    with reorder.open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.record("fc").desc == record_desc(_DIMS, "mlx", scales="f16")
