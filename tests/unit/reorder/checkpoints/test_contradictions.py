"""What config.json and the tensors of a weight contradict is refused, and only ever copied."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import reorder
from tests.unit.reorder.checkpoints.convert.results import refused
from tests.unit.reorder.checkpoints.schemes import (
    bitsandbytes,
    compressed,
    declared,
    fp8,
    hqq,
    mlx,
    modelopt,
    nvfp4,
    recorded,
    refusal,
    write_model,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class _Base(NamedTuple):
    """A weight, its record, and what config.json says of it."""

    make: Callable[[], Any]
    record: str
    config: dict[str, Any]


_BLOCK = {"type": "float", "num_bits": 8, "strategy": "block", "block_structure": [128, 128]}
_GROUP = {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 16}
_PAIRS = {"type": "float", "num_bits": 4, "strategy": "tensor_group", "group_size": 16}
_ROWS = {"type": "float", "num_bits": 8, "strategy": "channel"}
_NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": False}
_BASES = {
    "fp8": _Base(
        partial(fp8, "weight_scale_inv", (3, 2)),
        "fp8_block",
        declared("fp8", fmt="e4m3", weight_block_size=[128, 128]),
    ),
    "inv": _Base(
        partial(fp8, "weight_scale_inv", (3, 2)),
        "fp8_block",
        compressed("float-quantized", **_BLOCK),
    ),
    "rows": _Base(
        partial(fp8, "weight_scale", (300, 1), block=(1, 130)),
        "fp8_channel",
        compressed("float-quantized", **_ROWS),
    ),
    "nvfp4": _Base(
        partial(nvfp4, divides=True),
        "compressed_nvfp4",
        compressed("nvfp4-pack-quantized", **_PAIRS),
    ),
    "pack": _Base(
        partial(recorded, "pack_quantized", group=16),
        "pack_quantized",
        compressed("pack-quantized", **_GROUP),
    ),
    "bnb": _Base(bitsandbytes, "bnb_nf4", declared("bitsandbytes", **_NF4)),
    "mlx": _Base(mlx, "mlx", {"quantization": {"group_size": 64, "bits": 4}}),
    "hqq": _Base(hqq, "hqq", declared("hqq")),
    "gptq": _Base(
        partial(recorded, "gptq", (128, 64), group=64),
        "gptq",
        declared("gptq", bits=4, group_size=64),
    ),
    "awq": _Base(partial(recorded, "awq", (128, 64), group=64), "awq", declared("awq", bits=4)),
}
_GONE: Any = object()


def _ones(*shape: int, kind: type = np.float32) -> Any:
    return np.ones(shape, kind)


def _text(text: bytes) -> Any:
    return np.frombuffer(text, np.uint8)


_ONE, _ZERO = np.array(1, np.uint8), np.array(0, np.int32)
_EIGHT = {"group_size": 64, "bits": 8}
_NOWHERE = {"quantization_config": {"quant_method": "awq"}}
_REVERSED = np.arange(48, dtype=np.int32)[::-1].copy() // 16
_NESTED = {".weight.nested_absmax": _ones(1)}
_ZEROS = {".weight_zero_point": np.zeros((4, 3), np.int32)}
_STRATEGIES = "strategy is 'tensor_group', not channel or tensor or group or block; "
# a base; tensors that it has instead; keys of its section that have other values, where `weights.`
# and `group.` are those of a group and `/` begins those of config.json; the problem
_TABLE: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (
        "fp8",
        {".weight_scale_inv": _ones(2, 2)},
        {},
        "declares fp8_block: 'fc.weight_scale_inv' of ",
    ),
    ("fp8", {".weight_scale_inv": _ones(2, 3)}, {}, "(2, 3) and 24 bytes, not (3, 2) of f32"),
    ("fp8", {".weight_scale_inv": _ones(1, 3, 1, 2)}, {}, "(1, 3, 1, 2) does not have the dims"),
    ("fp8", {".weight_scale_inv": _ones(300, 1)}, {}, "has the shape (300, 1)"),
    ("fp8", {".weight_scale_inv": _ones()}, {}, "has the shape ()"),
    ("fp8", {".weight_scale": _ones(3, 2)}, {}, "belong to fc.weight"),
    ("fp8", {}, {"weight_block_size": [64, 64]}, "not (5, 3) of f32"),
    ("fp8", {}, {"weight_block_size": [64, 128]}, "and 24 bytes, not (5, 2) of f32"),
    ("fp8", {}, {"weight_block_size": [128]}, "is [128], not two positive integers"),
    ("fp8", {}, {"weight_block_size": [0, 0]}, "is [0, 0], not two positive"),
    ("fp8", {}, {"weight_block_size": [True, True]}, "is [True, True], not two positive"),
    ("fp8", {}, {"fmt": "e5m2"}, "'fc.weight' of f8_e4m3 has the shape"),
    ("fp8", {}, {"fmt": "e3m4"}, "fmt is 'e3m4', not e4m3 or e5m2"),
    ("inv", {}, {}, "no tensor 'weight_scale'"),
    ("inv", {}, {"weights.strategy": "group"}, "strategy is 'group', not tensor"),
    ("inv", {}, {"format": "pack-quantized"}, "format is 'pack-quantized', not float"),
    ("inv", {}, {"format": _GONE}, "format is missing, not float-quantized"),
    ("inv", {}, {"config_groups": {}}, "num_bits is missing, not 8"),
    ("inv", {}, {"config_groups": {"FP8": ["Linear"]}}, "num_bits is missing, not 8"),
    ("rows", {".weight_scale": _ones(1, 300)}, {}, "(1, 300) and 1200 bytes, not (300, 1)"),
    ("rows", {}, {"weights.dynamic": True}, "dynamic is True, not False or null"),
    ("rows", {}, {"weights.symmetric": False}, "symmetric is False, not True or null"),
    ("nvfp4", {}, {"weights.group_size": 32}, "group_size is 32, not 16"),
    ("nvfp4", {}, {"weights.num_bits": 8}, "num_bits is 8, not 4"),
    (
        "nvfp4",
        {},
        {"weights.scale_dtype": "torch.bfloat16"},
        "16', not torch.float8_e4m3fn or null",
    ),
    ("nvfp4", {}, {"format": "mxfp6-pack-quantized"}, "'mxfp6-pack-quantized', not "),
    (
        "nvfp4",
        {},
        {"format": "mxfp4-pack-quantized", "weights.strategy": "group", "weights.group_size": 32},
        "declares compressed_mxfp4: 'fc.weight_sca",
    ),
    ("nvfp4", {}, modelopt("NVFP4"), "'fc' is not modelopt_nvfp4: no tensor 'weight'"),
    ("nvfp4", {}, modelopt("NVFP4", group_size=32), "group_size is 32, not 16 or null"),
    ("nvfp4", {}, modelopt("NVFP4_AWQ"), "quant_algo is 'NVFP4_AWQ', not FP8"),
    ("nvfp4", {}, declared("mxfp4"), "'fc' is not gpt_oss_mxfp4: no tensor 'blocks'"),
    ("pack", {}, {"weights.num_bits": 8}, "(30, 6) and 720 bytes, not (30, 12)"),
    ("pack", {}, {"weights.num_bits": 3}, "bits must be 4 or 8, not 3"),
    ("pack", {}, {"weights.group_size": 24}, "the shape (30, 3) and 180 bytes, not (30, 2) of f16"),
    ("pack", {}, {"weights.strategy": "channel"}, "and 180 bytes, not (30, 1) of f16"),
    ("pack", {}, {"weights.strategy": "tensor"}, "and 180 bytes, not (1,) of f16"),
    ("pack", {}, {"weights.strategy": "tensor_group"}, _STRATEGIES),
    ("pack", {}, {"weights.symmetric": False}, "no tensor 'weight_zero_point'"),
    ("pack", {}, {"weights.symmetric": 1}, "symmetric is 1, not True"),
    ("pack", {}, {"weights.actorder": "group"}, "declares act-order, which assigns inputs to gro"),
    ("pack", {}, {"format": "int-quantized", "weights.num_bits": 8}, "no tensor 'weight'; int_"),
    ("pack", {}, {"format": "marlin-24"}, "format is 'marlin-24', not float-quantized or naive"),
    ("pack", {}, {"ignore": "lm_head"}, "ignore must be a list of strings, not 'lm_head'"),
    ("pack", {}, {"ignore": ["re:fc"]}, "config.json ignores fc, by 're:fc'"),
    ("pack", {}, {"config_groups": [_GROUP]}, "config_groups must be an object, not [{"),
    ("pack", {}, {"group.targets": ["re:.*proj"]}, "none of which is fc"),
    ("pack", {}, {"group.targets": ["re:("]}, "config.json: '(' is not a regular"),
    ("pack", {}, {"group.targets": None}, "declares no layers"),
    (
        "pack",
        {".weight_g_idx": _REVERSED},
        {},
        "fc.weight_g_idx assigns inputs to groups in an arb",
    ),
    ("pack", _ZEROS, {}, "would be different; correct config.json if there are zeros"),
    (
        "pack",
        {".weight_zero_point": np.zeros((30, 3), np.int32)},
        {"weights.symmetric": False},
        "'fc.weight_zero_point' of s32 has the shape (30, 3) and 360 bytes, not (4, 3)",
    ),
    ("pack", {".weight_shape": np.array([30, 40])}, {}, "a group of 16 does not divide b (dim 1)"),
    ("pack", {".weight_shape": np.array([30, 96])}, {}, "(30, 6) and 720 bytes, not (30, 12)"),
    ("pack", {".weight_shape": np.array([30, -48])}, {}, "-48"),
    ("pack", {".weight_shape": np.array([2**62, 2**62])}, {}, "4611686018"),
    ("pack", {".weight_shape": np.array([30, 48, 1])}, {}, "does not hold 2 integers"),
    ("pack", {".weight_shape": np.array([30, 48], np.int16)}, {}, "must be s64 or s32, not 's16'"),
    (
        "pack",
        {".weight_scale": _ones(30, 3, kind=np.int32)},
        {},
        "scales are f16, bf16, f32, not s3",
    ),
    ("bnb", {}, {"bnb_4bit_quant_type": "fp4"}, "'fc' is not bnb_fp4: no tensor"),
    ("bnb", {}, {"bnb_4bit_quant_type": "int4"}, "bnb_4bit_quant_type is 'int4', not nf4"),
    ("bnb", {".weight.absmax": _ones(95)}, {}, "has the shape (95,)"),
    ("bnb", {".weight.quant_map": _ones(16)}, {}, "does not hold what"),
    ("bnb", _NESTED, {"bnb_4bit_use_double_quant": True}, "'bnb_nested' cannot be described as a"),
    (
        "bnb",
        _NESTED,
        {},
        "declares bnb_nf4: 'bnb_nested' cannot be described as a record: with dou",
    ),
    ("bnb", {}, {"load_in_4bit": False, "load_in_8bit": True}, "LLM.int8 multiplies codes by"),
    ("bnb", {}, {"load_in_4bit": False}, "load_in_4bit is False, not True"),
    *(
        ("bnb", {".weight.quant_state.bitsandbytes__nf4": _text(text)}, {}, "declares bnb_nf4: ")
        for text in (
            b"",
            b"{",
            b"[]",
            b'{"shape": [24, 256]}',
            b'{"blocksize": 64, "dtype": "bfloat16", "shape": 24}',
            b'{"blocksize": 64, "dtype": "bfloat16", "shape": [24, "a"]}',
            b'{"blocksize": "64", "dtype": "bfloat16", "shape": [24, 256]}',
            b'{"blocksize": 0, "dtype": "bfloat16", "shape": [24, 256]}',
            b'{"blocksize": 48, "dtype": "bfloat16", "shape": [24, 256]}',
            b'{"blocksize": 64, "dtype": "int8", "shape": [24, 256]}',
            b'{"blocksize": 64, "dtype": ["a"], "shape": [24, 256]}',
            b'{"blocksize": 64, "dtype": "bfloat16", "shape": [24, 9223372036854775807]}',
            b'{"blocksize": 64, "dtype": "bfloat16", "shape": [256, 24]}',
            b'{"blocksize": 64, "dtype": "bfloat16", "shape": [24, 256]}',
            b"\xff" * 79,
        )
    ),
    ("mlx", {}, {"bits": 3}, "not have i*bits/32 with bits=3"),
    ("mlx", {}, {"bits": 5}, "not have i*bits/32 with bits=5"),
    ("mlx", {}, {"bits": 7}, "bits must be 1, 2, 3, 4, 5, 6 or 8, not 7"),
    ("mlx", {}, {"bits": 8}, "'fc.scales' of bf16 has the shape (24, 4)"),
    ("mlx", {}, {"bits": "4"}, "bits is '4', not a positive integer"),
    ("mlx", {}, {"bits": 0}, "bits is 0, not a positive integer"),
    ("mlx", {}, {"group_size": 32}, "'fc.scales' of bf16 has the shape (24, 4)"),
    ("mlx", {}, {"group_size": 48}, "group must be 32, 64 or 128, not 48"),
    ("mlx", {}, {"mode": "q4"}, "mode is 'q4', not affine or null"),
    ("mlx", {}, {"mode": "mxfp4"}, "group_size is 64, not 32 or null"),
    ("mlx", {}, {"mode": "mxfp4", "group_size": 32}, "'fc.scales' of bf16 has the shape (24, 4)"),
    ("mlx", {}, {"fc": False}, "config.json ignores fc, but its tensors"),
    ("mlx", {}, {"fc": {"bits": 8, "mode": 3}}, "mode is 3, not affine or null"),
    (
        "mlx",
        {},
        {"/quantization_config": _EIGHT},
        "mlx(bits=8, group=64), and config.json declares mlx(bits=4",
    ),
    (
        "mlx",
        {},
        {"/quantization_config": {"group_size": 64, "bits": 4, "fc": _EIGHT}},
        "correct the one that is wrong",
    ),
    (
        "mlx",
        {},
        {"/" + key: x for key, x in _NOWHERE.items()},
        "declares awq, and config.json declares mlx(",
    ),
    ("mlx", {}, {"/quantization": {"quant_algo": None}}, "its tensors fit mlx: give the name"),
    ("hqq", {".axis": _ZERO}, {}, "'fc.axis' does not hold what"),
    ("hqq", {".nbits": _ZERO + 3}, {}, "bits must be 1, 2, 4 or 8, not 3"),
    ("hqq", {".nbits": _ZERO + 8}, {}, "'fc.W_q' of u8 has the shape (48, 64)"),
    ("hqq", {".nbits": _ones(2, kind=np.int32)}, {}, "s32 and shape (2,) does not hold an integer"),
    ("hqq", {".nbits": np.array(4.0, np.float32)}, {}, "does not hold an integer"),
    ("hqq", {".group_size": _ZERO + 96}, {}, "a group of 96 does not divide"),
    ("hqq", {".group_size": _ZERO + 32}, {}, "has the shape"),
    ("hqq", {".shape": np.array((24, 128))}, {}, "has the shape"),
    ("hqq", {".shape": np.array((25, 256))}, {}, "needs a multiple of 2 along a"),
    ("hqq", {".shape": np.array(24)}, {}, "does not hold 2 integers"),
    ("hqq", {".quant_zero": _ONE}, {}, "'fc.quant_zero' does not hold what"),
    ("hqq", {".compute_dtype": _text(b"torch.bfloat32")}, {}, "does not hold what"),
    ("hqq", {".zero": _ones(96, 1, kind=np.float16)}, {}, "'fc.zero' of f16 has the shape"),
    (
        "gptq",
        {},
        {"checkpoint_format": ["gptq"]},
        "is ['gptq'], not gptq or gptq_v2",
    ),
    ("gptq", {}, {"checkpoint_format": "bitblas"}, "is 'bitblas', not gptq or gptq_v2"),
    ("gptq", {}, {"quant_method": {}}, "quant_method must be a string, not {}"),
    ("gptq", {}, {"bits": "4"}, "bits is '4', not a positive integer"),
    ("gptq", {}, {"bits": True}, "bits is True, not a positive integer"),
    ("gptq", {}, {"bits": 4.0}, "bits is 4.0, not a positive integer"),
    ("gptq", {}, {"bits": 3}, "gptq: bits must be 4 or 8, not 3"),
    ("gptq", {}, {"bits": 0}, "bits is 0, not a positive integer"),
    ("gptq", {}, {"group_size": [64]}, "group_size is [64], not a positive integer"),
    (
        "gptq",
        {},
        {"group_size": 32},
        "declares group_size 32, but the shapes of the tensors say grou",
    ),
    ("gptq", {}, {"desc_act": "no"}, "desc_act is 'no', not False or True"),
    ("gptq", {}, {"desc_act": True}, "declares act-order, which assigns inputs to groups by data"),
    ("gptq", {}, {"dynamic": 1}, "dynamic must be an object"),
    ("gptq", {}, {"modules_to_not_convert": "fc"}, "convert must be a list of strings, not 'fc"),
    ("gptq", {}, {"quant_method": "awq"}, "has the shape"),
    # the keys of others may hold anything
    ("gptq", {}, declared("exl2", bits=4.0), "no record for quant_method 'exl2'"),
    ("gptq", {}, declared("some", dynamic=1), "no record for quant_method 'some'"),
    ("gptq", {}, {"/quantization_config": {}}, "no record for quant_method ''"),
    ("gptq", {}, {"/quantization_config": "gptq"}, "quantization_config is not a JSON object, but"),
    ("gptq", {}, {"/quantization_config": [{}]}, "quantization_config is not a JSON object"),
    ("awq", {}, {"version": 2}, "version is 2, not gemm or null"),
    ("awq", {}, {"version": "gemv"}, "quant_method 'awq': version is 'gemv', not gemm"),
    ("awq", {}, {"bits": 8}, "quant_method 'awq': bits is 8, not 4 or null"),
]


def _changed(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a config.json with other values in its section."""
    if "quantization_config" in changes:
        return changes
    (name, section), *_ = config.items()
    section = {**section}
    groups = section.get("config_groups", {})
    group = {**groups.get("group_0", {})}
    weights = {**group.get("weights", {})}
    found: dict[str, Any] = {}
    for key, value in changes.items():
        place, _, last = key.rpartition(".")
        {"weights": weights, "group": group, "": section}[place][last] = value
        if key.startswith("/"):
            found[key[1:]] = section.pop(key)
    if groups and "config_groups" not in changes:
        section["config_groups"] = {"group_0": {**group, "weights": weights}}
    return {name: {k: v for k, v in section.items() if v is not _GONE}, **found}


@pytest.mark.parametrize(
    ("base", "tensors", "changes", "problem"),
    [pytest.param(*row, id=f"{row[0]}-{row[3][:40]}-{k}") for k, row in enumerate(_TABLE)],
)
def test_a_contradiction_is_refused_and_only_copied(
    tmp_path: Path, base: str, tensors: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    """*Law*: `record` says the problem, a rule that names the record is refused, copies work."""
    make, record, config = _BASES[base]
    folder = write_model(tmp_path / "in", {"fc": make()[0] | tensors}, _changed(config, changes))
    said = refusal(folder)
    assert problem in said
    # else a rule may say what the weight is
    if "there is no record for" not in said and "give the name" not in said:
        said = refused(folder, tmp_path / "out", f"*: {record} -> plain, bf16")
        assert "fc" in said or "config.json" in said
    reorder.convert(folder, tmp_path / "out")
