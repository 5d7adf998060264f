"""Weights of each quantisation scheme as its producer stores them, and their numbers by definition.

A layer is its tensors by the ends of their names; `SCHEMES` says how files declare each.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.record import record_desc
from tests.records import random_record

Layer = dict[str, NDArray[Any]]
Weight = tuple[Layer, NDArray[Any]]


DIMS, EXPERTS = (24, 256), (3, 48, 64)
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
BESIDE: Layer = {
    "norm.weight": np.ones(64, ml_dtypes.bfloat16),
    "lm_head.weight": np.ones((8, 64), ml_dtypes.bfloat16),
}


class Scheme(NamedTuple):
    """A scheme: its record, what config.json says, and what makes a weight.

    Numbers are in the type in which the scheme computes them.
    """

    record: str
    config: Mapping[str, Any]
    make: Callable[[], Weight]
    options: Mapping[str, Any] = {}
    prefix: str = "fc"


def write_model(
    path: Path, layers: Mapping[str, Layer], config: Mapping[str, Any], beside: Layer = BESIDE
) -> Path:
    """Write a model: layers by their prefixes, what config.json says, and other tensors."""
    path.mkdir(exist_ok=True)
    tensors = {
        f"{name}{end}": each for name, layer in layers.items() for end, each in layer.items()
    }
    reorder.save(path / "model.safetensors", tensors | beside)
    (path / "config.json").write_text(json.dumps(config))
    return path


def record_in(folder: Path, prefix: str, *name: str, **options: Any) -> reorder.records.Record:
    """Return a weight of a model."""
    with reorder.open_checkpoint(folder) as checkpoint:
        return checkpoint.record(prefix, *name, **options)


def numbers_in(
    folder: Path, prefix: str = "fc", *name: str, dtype: str = "f32", **options: Any
) -> NDArray[Any]:
    """Return the numbers of a weight of a model."""
    return reorder.dequantize(record_in(folder, prefix, *name, **options), dtype=dtype).numpy()


def refusal(folder: Path, prefix: str = "fc", *name: str, **options: Any) -> str:
    """Return why a weight of a model is not read."""
    with pytest.raises(MemdescError) as caught:
        record_in(folder, prefix, *name, **options)
    return str(caught.value)


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    """Return how compressed-tensors declares a model with one kind of weights."""
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    section = {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}
    return {"quantization_config": section}


def modelopt(algorithm: str, **more: Any) -> dict[str, Any]:
    """Return how ModelOpt declares a model."""
    return declared("modelopt", quant_algo=algorithm, **more)


def declared(method: str, **more: Any) -> dict[str, Any]:
    """Return what config.json says of weights of a method."""
    return {"quantization_config": {"quant_method": method, **more}}


def _of_each(scales: NDArray[Any], group: int) -> NDArray[np.float32]:
    return scales.astype(np.float32).repeat(group, -1)


def fp8(
    scale: str,
    shape: tuple[int, ...],
    dims: tuple[int, ...] = (300, 130),
    block: tuple[int, int] = (128, 128),
    *,
    kind: str = "f32",
    codes: str = "f8_e4m3",
) -> Weight:
    """Return FP8 weights; `shape` is that of the scales as stored, `block` what shares one."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(dims).astype(DATA_TYPES[codes].numpy)
    counts = (*dims[:-2], *(-(-size // step) for size, step in zip(dims[-2:], block, strict=True)))
    values = 2.0 ** rng.integers(-9, -3, counts) * (rng.integers(1, 9, counts) / 8)
    scales = values.astype(DATA_TYPES[kind].numpy)
    each = scales.astype(np.float32).repeat(block[0], -2).repeat(block[1], -1)
    numbers = weight.astype(np.float32) * each[..., : dims[-2], : dims[-1]]
    return {".weight": weight, f".{scale}": scales.reshape(shape)}, numbers


def _packed(dims: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return random codes of 4 bits as words, and their values."""
    words = np.random.default_rng(0).integers(0, 256, (*dims[:-1], dims[-1] // 2), np.uint8)
    return words, _E2M1[np.stack([words & 15, words >> 4], -1).reshape(dims)]


def nvfp4(dims: tuple[int, ...] = (48, 64), *, divides: bool = False) -> Weight:
    """Return NVFP4 weights of ModelOpt, or of compressed-tensors, which divides by a scale."""
    words, values = _packed(dims)
    scales = np.random.default_rng(1).lognormal(0, 1, (*dims[:-1], dims[-1] // 16))
    small, whole = scales.astype(ml_dtypes.float8_e4m3fn), np.float32(1234.5 if divides else 0.0123)
    each = _of_each(small, 16)
    if divides:
        layer = {"_packed": words, "_scale": small, "_global_scale": whole.reshape(1)}
        return {f".weight{end}": array for end, array in layer.items()}, values * (each / whole)
    layer = {".weight": words, ".weight_scale": small, ".weight_scale_2": np.array(whole)}
    return layer, values * (each * whole)


def _exponents(dims: tuple[int, ...]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    rng = np.random.default_rng(2)
    stored = rng.integers(117, 130, (*dims[:-1], dims[-1] // 32), np.uint8)
    return stored, np.exp2(stored.astype(np.float32) - 127)


def mxfp4(dims: tuple[int, ...], *ends: str) -> Weight:
    """Return MXFP4 weights, by the ends of the names of codes and scales."""
    words, values = _packed(dims)
    stored, scales = _exponents(dims)
    if ends[0] == "_blocks":
        words = words.reshape(*stored.shape, 16)
    return dict(zip(ends, (words, stored), strict=True)), values * _of_each(scales, 32)


def deepseek_fp4() -> Weight:
    """Return an expert of DeepSeek-V4: pairs of codes as signed bytes, and types for exponents."""
    layer, numbers = mxfp4((48, 64), ".weight", ".scale")
    kinds = {".weight": np.int8, ".scale": DATA_TYPES["e8m0"].numpy}
    return {end: array.view(kinds[end]) for end, array in layer.items()}, numbers


def _mxfp8(dims: tuple[int, ...], *ends: str) -> Weight:
    codes = np.random.default_rng(0).standard_normal(dims).astype(ml_dtypes.float8_e4m3fn)
    stored, scales = _exponents(dims)
    layer = dict(zip(ends, (codes, stored), strict=True))
    return layer, codes.astype(np.float32) * _of_each(scales, 32)


def _renamed(made: Weight, *ends: str) -> Weight:
    return dict(zip(ends, made[0].values(), strict=True)), made[1]


def _inputs_first(made: Weight) -> Weight:
    """Return experts whose inputs come before their outputs, as ModelOpt stores them."""
    turned = {
        end.replace(".weight", "_weight") if "scale" in end else "": np.ascontiguousarray(
            array.swapaxes(1, 2) if array.ndim else array
        )
        for end, array in made[0].items()
    }
    turned["_weight_scale_2"] = made[0][".weight_scale_2"]
    return turned, made[1].swapaxes(1, 2)


def mlx(bits: int = 4, group: int = 64, kind: str = "bf16", seed: int = 0) -> Weight:
    """Return weights of MLX; each operation is rounded to the type of the scales."""
    rng, dtype = np.random.default_rng(seed), DATA_TYPES[kind].numpy
    codes = rng.integers(0, 1 << bits, DIMS, np.uint8)
    scales, biases = (
        rng.standard_normal((DIMS[0], DIMS[1] // group)).astype(dtype) for _ in range(2)
    )
    product = (_of_each(scales, group) * codes).astype(dtype)
    numbers = (product.astype(np.float32) + _of_each(biases, group)).astype(dtype)
    # a row's codes are contiguous, from the lowest bit up
    rows = (codes[..., None] >> np.arange(bits, dtype=np.uint8) & 1).reshape(len(codes), -1)
    words = np.packbits(rows, axis=1, bitorder="little").view(np.uint32)
    return {".weight": words, ".scales": scales, ".biases": biases}, numbers


def _as_mlx(made: Weight) -> Weight:
    """Return codes as words and scales as bytes, as MLX stores floats."""
    codes, scales = made[0].values()
    return {".weight": codes.view(np.uint32), ".scales": scales.view(np.uint8)}, made[1]


def _mlx_nvfp4() -> Weight:
    (words, values), scales = _packed((48, 64)), np.random.default_rng(1).lognormal(0, 1, (48, 4))
    small = scales.astype(ml_dtypes.float8_e4m3fn)
    return _as_mlx(({".weight": words, ".scales": small}, values * _of_each(small, 16)))


def _mlx_experts(bits: int, group: int) -> Weight:
    """Return the experts of a layer in one tensor."""
    each = [mlx(bits, group, seed=seed) for seed in range(3)]
    layer = {end: np.stack([tensors[end] for tensors, _ in each]) for end in each[0][0]}
    return layer, np.stack([numbers for _, numbers in each])


def bitsandbytes(kind: str = "nf4", block: int = 64, storage: str = "u8") -> Weight:
    """Return weights of bitsandbytes; `storage` is the type of the words that hold the codes."""
    rng = np.random.default_rng(0)
    table = np.array(record_desc(DIMS, f"bnb_{kind}").rule.code.table, np.float32)
    codes = rng.integers(0, 16, DIMS, np.uint8)
    absmax = rng.random((DIMS[0], DIMS[1] // block)).astype(np.float32)
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [*DIMS]}
    layer = {
        "": (codes[:, ::2] << 4 | codes[:, 1::2]).view(DATA_TYPES[storage].numpy).reshape(-1, 1),
        ".absmax": absmax.reshape(-1),
        ".quant_map": table,
        f".quant_state.bitsandbytes__{kind}": np.frombuffer(json.dumps(state).encode(), np.uint8),
    }
    return {f".weight{end}": array for end, array in layer.items()}, table[codes] * _of_each(
        absmax, block
    )


def hqq(bits: int = 4, group: int = 64, kind: str = "bf16") -> Weight:
    """Return weights of HQQ; each operation is rounded to the type of the scales."""
    rng, dtype = np.random.default_rng(bits), DATA_TYPES[kind].numpy
    codes = rng.integers(0, 1 << bits, DIMS, np.uint8)
    rows = codes.reshape(8 // bits, -1, group)
    packed = sum(part << bits * (len(rows) - 1 - k) for k, part in enumerate(rows))
    count = DIMS[0] * DIMS[1] // group
    scale = rng.random((count, 1)).astype(dtype)
    zero = (rng.random((count, 1)) * (1 << bits)).astype(dtype)
    name = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}[kind]
    texts = {
        "packing": f"{bits}bit_u8",
        "unpack_view_dtype": "torch.uint8",
        "compute_dtype": f"torch.{name}",
    }
    off = ("view_as_float", "quant_scale", "quant_zero", "offload_meta")
    on = ("encoded_state_dict", "stores_quant_config", "channel_wise", "optimize")
    tensors: Layer = {
        "W_q": np.asarray(packed, np.uint8),
        "scale": scale,
        "zero": zero,
        "shape": np.array(DIMS, np.int64),
        **{
            each: np.array(number, np.int32)
            for each, number in {"nbits": bits, "group_size": group, "axis": 1}.items()
        },
        **{each: np.frombuffer(text.encode(), np.uint8) for each, text in texts.items()},
        "round_zero": np.array(bits == 4, np.uint8),
        **{each: np.array(flag, np.uint8) for flag in (0, 1) for each in (off, on)[flag]},
    }
    each = [array.reshape(DIMS[0], -1).repeat(group, 1) for array in (scale, zero)]
    moved = (codes.astype(np.float32) - each[1].astype(np.float32)).astype(dtype)
    numbers = (moved.astype(np.float32) * each[0].astype(np.float32)).astype(dtype)
    return {f".{end}": array for end, array in tensors.items()}, numbers


def _stored(
    name: str, role: str, dims: tuple[int, int], scales: tuple[int, ...]
) -> tuple[type, tuple[int, ...]]:
    """Return how producers store a tensor of integers, whose scales have a shape, or its scales."""
    match role:
        case "weight":
            return np.int8, dims
        case "weight_shape":
            return np.int64, (2,)
        case "weight_zero_point":
            return np.int8 if name == "int_quantized" else np.int32, (-1, scales[1])
        case "qzeros":
            return np.int32, (scales[0], -1)
        case "weight_packed" | "qweight":
            return np.int32, (-1, dims[1]) if name == "gptq" else (dims[0], -1)
    return np.float16, scales


def recorded(name: str, dims: tuple[int, int] = (30, 48), **options: Any) -> Weight:
    """Return random weights of a record, and what it decodes to."""
    desc = record_desc(dims, name, scales="f16", **options)
    record = random_record(desc, np.random.default_rng(0))
    (scale,) = (field for field in desc.fields if field.kind == "f16")
    scales = np.random.default_rng(1).random(scale.layout.dims).astype(np.float16)
    record.set_field(scale.name, scales)
    if desc.rule.zero and desc.rule.zero.minus:
        # the largest value is ambiguous, and refused
        (name_of_zeros, _), *_ = desc.rule.zero.parts
        points = record.field(name_of_zeros)
        record.set_field(name_of_zeros, np.minimum(points, points.dtype.type(points.max() - 1)))
    layer: Layer = {}
    for role, data in record.tensors.items():
        kind, shape = _stored(name, role, dims, scales.shape)
        layer[f".{role}"] = data.view(kind).reshape(shape)
    return layer, reorder.dequantize(record).numpy()


_TENSOR: dict[str, Any] = {"block": (300, 130)}
_CHANNEL: dict[str, Any] = {"block": (1, 130)}
_DEEPSEEK = declared("fp8", fmt="e4m3", weight_block_size=[128, 128])
_INV = {"scale_inv": True}


def _mlx(bits: int, group: int, kind: str = "bf16", *keys: str) -> Scheme:
    section = {"group_size": group, "bits": bits}
    config = dict.fromkeys(keys or ("quantization",), section)
    options = {**section, "scales": kind, "group": group}
    del options["group_size"]
    return Scheme("mlx", config, partial(mlx, bits, group, kind), options)


def _mode(mode: str, bits: int, group: int) -> dict[str, Any]:
    return {"quantization": {"group_size": group, "bits": bits, "mode": mode}}


def _hqq(bits: int, group: int, kind: str) -> Scheme:
    options = {"bits": bits, "group": group, "scales": kind}
    return Scheme("hqq", declared("hqq", quant_config={}), partial(hqq, bits, group, kind), options)


# strategies of integers: what config.json says, and the options
STRATEGIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "group": ({"strategy": "group", "group_size": 16}, {"group": 16}),
    "channel": ({"strategy": "channel"}, {"group": -1}),
    "tensor": ({"strategy": "tensor"}, {"group": -1, "rows": -1}),
    "block": ({"strategy": "block", "block_structure": [5, 16]}, {"group": 16, "rows": 5}),
}


def _integers(form: str, bits: int, strategy: str, *, zeros: bool) -> Scheme:
    said, options = STRATEGIES[strategy]
    weights = {"type": "int", "num_bits": bits, "symmetric": not zeros, **said}
    options = options | {"zeros": zeros} | ({"bits": bits} if form == "pack" else {})
    name = f"{form}_quantized"
    config = compressed(f"{form}-quantized", **weights)
    make = partial(recorded, name, (40, 96), **options)
    return Scheme(name, config, make, {"scales": "f16", **options})


def _words(name: str, config: dict[str, Any], **options: Any) -> Scheme:
    options = {"group": 64, **options}
    config = declared(**{"bits": 4, "group_size": 64, **config})
    return Scheme(name, config, partial(recorded, name, (128, 256), **options), options)


def _bitsandbytes(kind: str, block: int, storage: str) -> Scheme:
    config = declared("bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type=kind)
    make = partial(bitsandbytes, kind, block, storage)
    return Scheme(f"bnb_{kind}", config, make, {"block": block})


def _fp8(scale: str, *shape: int, **more: Any) -> Weight:
    return fp8(scale, shape, **more)


def _of_fp8(fmt: str | None = "e4m3", **keys: Any) -> dict[str, Any]:
    return declared("fp8", fmt=fmt, **keys)


def _bytes(strategy: str, form: str = "float-quantized", **more: Any) -> dict[str, Any]:
    return compressed(form, type="float", num_bits=8, strategy=strategy, **more)


def _fours(form: str, **more: Any) -> dict[str, Any]:
    return compressed(form, type="float", num_bits=4, **more)


_NAIVE, _BY_ROWS = "naive-quantized", "FP8_PER_CHANNEL_PER_TOKEN"
_FOR_32: dict[str, Any] = {"strategy": "group", "group_size": 32}
_FOR_16: dict[str, Any] = {"strategy": "tensor_group", "group_size": 16}
# a record, and its options; what config.json says; its weights; their prefix
_TABLE = """
fp8_block, _INV | _DEEPSEEK | _fp8("weight_scale_inv", 3, 2)
fp8_block, _INV | _of_fp8(fmt=None, weight_block_size=[128, 128]) | _fp8("weight_scale_inv", 3, 2)
fp8_block, dict(_INV, codes="f8_e5m2", scales="f16")
    | _of_fp8("e5m2", weight_block_size=[128, 128])
    | _fp8("weight_scale_inv", 3, 2, kind="f16", codes="f8_e5m2")
fp8_block, dict(_INV, block="125x100") | _of_fp8(weight_block_size=[125, 100])
    | _fp8("weight_scale_inv", 3, 2, block=(125, 100))
fp8_block | _bytes("block", block_structure=[128, 128]) | _fp8("weight_scale", 3, 2)
fp8_block, {"block": 64} | _bytes("block", block_structure=[64, 64])
    | _fp8("weight_scale", 5, 3, block=(64, 64))
fp8_block, {"block": "7x33"} | _bytes("block", block_structure=[7, 33])
    | _fp8("weight_scale", 43, 4, block=(7, 33))
fp8_channel | _bytes("channel") | _fp8("weight_scale", 300, 1, **_CHANNEL)
fp8_channel | _bytes("channel", _NAIVE) | _fp8("weight_scale", 300, 1, **_CHANNEL)
fp8_channel | declared("fbgemm_fp8") | _fp8("weight_scale", 300, 1, **_CHANNEL)
fp8_channel, {"scales": "bf16"} | _bytes("channel")
    | _fp8("weight_scale", 300, 1, **_CHANNEL, kind="bf16")
fp8_channel | modelopt(_BY_ROWS) | _fp8("weight_scale", 300, **_CHANNEL)
fp8_tensor | _bytes("tensor") | _fp8("weight_scale", 1, **_TENSOR)
fp8_tensor | declared("fp8", activation_scheme="static") | _fp8("weight_scale", **_TENSOR)
fp8_tensor, _INV | declared("fp8", weight_block_size=None) | _fp8("weight_scale_inv", **_TENSOR)
fp8_tensor | modelopt("FP8") | _fp8("weight_scale", **_TENSOR)
fp8_block | modelopt("fp8_pb_wo") | _fp8("weight_scale", 3, 2)
fp8_block | modelopt("FP8_PB_WO") | _fp8("weight_scale", 3, 1, 2, 1)
compressed_nvfp4 | _fours("nvfp4-pack-quantized", **_FOR_16) | nvfp4(divides=True)
compressed_mxfp4 | _fours("mxfp4-pack-quantized", scale_dtype="torch.uint8", **_FOR_32)
    | mxfp4((48, 64), ".weight_packed", ".weight_scale")
mxfp8 | _bytes(form="mxfp8-quantized", **_FOR_32) | _mxfp8((48, 64), ".weight", ".weight_scale")
modelopt_nvfp4 | modelopt("NVFP4", group_size=16) | nvfp4()
modelopt_nvfp4 | modelopt("W4A16_NVFP4") | nvfp4()
modelopt_mxfp4 | modelopt("mxfp4") | mxfp4((48, 64), ".weight", ".weight_scale")
modelopt_mxfp4 | modelopt("W4A8_MXFP4_FP8", group_size=32)
    | mxfp4((48, 64), ".weight", ".weight_scale")
mxfp8 | modelopt("MXFP8") | _mxfp8((48, 64), ".weight", ".weight_scale")
deepseek_fp8, {"block": 128} | _DEEPSEEK | _fp8("scale", 3, 2, kind="e8m0")
deepseek_fp4 | _DEEPSEEK | deepseek_fp4() | layers.0.ffn.w1
gpt_oss_mxfp4 | declared("mxfp4", modules_to_not_convert=["lm_head"])
    | mxfp4(EXPERTS, "_blocks", "_scales") | mlp.experts.gate_up_proj
fp8_block, _INV | _DEEPSEEK
    | _renamed(fp8("", (3, 3, 2), (3, 257, 129)), "", "_scale_inv") | mlp.experts.gate_up_proj
mxfp8 | modelopt("MXFP8") | _mxfp8(EXPERTS, "", "_weight_scale") | mlp.experts.gate_up_proj
modelopt_nvfp4 | modelopt("NVFP4") | _inputs_first(nvfp4(EXPERTS)) | mlp.experts.gate_up_proj
mlx_mxfp4 | _mode("mxfp4", 4, 32) | _as_mlx(mxfp4((48, 64), ".weight", ".scales"))
mlx_mxfp8 | _mode("mxfp8", 8, 32) | _as_mlx(_mxfp8((48, 64), ".weight", ".scales"))
mlx_nvfp4 | _mode("nvfp4", 4, 16) | _mlx_nvfp4()
"""


def _row(line: str) -> Scheme:
    """Return a line of the table."""
    name, config, make, *prefix = (part.strip() for part in line.split(" | "))
    record, _, options = name.partition(", ")
    given = eval(options) if options else {}
    return Scheme(record, eval(config), eval(f"lambda: {make}"), given, *prefix)


_ALL = (
    *map(_row, _TABLE.strip().replace("\n    |", " |").splitlines()),
    *(
        _mlx(*each)._replace(make=partial(_mlx_experts, *each))
        for each in ((3, 64), (4, 32), (8, 128))
    ),
    *(_mlx(bits, 32) for bits in (1, 2, 4, 5, 8)),
    *(_mlx(bits, 32, kind) for bits in (3, 6) for kind in ("f32", "bf16", "f16")),
    *(_mlx(bits, group) for bits, group in ((3, 64), (6, 128))),
    _mlx(4, 64, "bf16", "quantization_config"),
    _mlx(4, 64, "bf16", "quantization", "quantization_config"),
    *(
        _bitsandbytes("nf4", *each)
        for each in ((32, "u8"), (64, "u8"), (256, "u8"), (64, "bf16"), (64, "f32"))
    ),
    *(_bitsandbytes("fp4", *each) for each in ((64, "u8"), (64, "bf16"))),
    *(_hqq(*each, "bf16") for each in ((8, 64), (4, 64), (4, 32), (2, 128), (1, 256))),
    *(_hqq(4, 64, kind) for kind in ("f32", "f16")),
    *(
        _integers(form, bits, strategy, zeros=zeros)
        for form, bits in (("pack", 4), ("pack", 8), ("int", 8))
        for strategy in STRATEGIES
        for zeros in (False, True)
        # packed zero points have a scale in each row
        if not (zeros and form == "pack" and strategy in {"tensor", "block"})
    ),
    _words("awq", {"method": "awq", "version": "GEMM"}),
    _words("awq", {"method": "AWQ"}),
    _words("gptq", {"method": "gptq", "desc_act": False}, zeros="v1"),
    _words("gptq", {"method": "gptq", "checkpoint_format": "gptq", "bits": 8}, bits=8),
    *(
        _words("gptq", {"method": "gptq", key: "gptq_v2", "bits": 8}, bits=8, zeros="v2")
        for key in ("checkpoint_format", "format")
    ),
)
# by the record and its number
SCHEMES = {f"{scheme.record}-{k}": scheme for k, scheme in enumerate(_ALL)}
