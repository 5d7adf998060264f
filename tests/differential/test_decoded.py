"""Weights decoded here, and by the library that defines their format: all bits are equal.

Sources: compressed-tensors 0.20 (`compressors`, `quantization/lifecycle/forward.py`), ModelOpt 0.47
(`quantization/qtensor`), transformers 5.24 (`integrations/mxfp4.py`, `finegrained_fp8.py`),
DeepSeek-V3 (`inference/kernel.py`), MLX (`mx.dequantize` rounds the product and then the sum to
the type of the scales).
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc.dtypes import DATA_TYPES
from memdesc.record import record_desc
from reorder.checkpoints.formats.entry import record_tensors
from tests.records import random_record

pytestmark = [
    pytest.mark.judges,
    pytest.mark.filterwarnings("ignore"),  # of the libraries that are asked
]

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_TORCH = {
    **TYPES,
    **{f"{sign}{bits}": f"{word}int{bits}" for sign, word in (("s", ""), ("u", "u"))
       for bits in (8, 16, 32, 64)},
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "e8m0": "uint8",
}  # fmt: skip


def tensors_of(record: reorder.records.Record) -> dict[str, Any]:
    """Return the tensors of a record in torch, as files of their producer have them."""
    stored = record_tensors("x", "x", record.desc, "safetensors")
    return {
        role: torch.from_numpy(record.tensors[role][: each.nbytes].copy())
        .view(getattr(torch, _TORCH[each.dtype]))
        .reshape(each.shape)
        for role, each in stored.items()
    }


def same(found: Any, wanted: Any, *, is_signed: bool = True) -> bool:
    """Whether all bits are equal; NaNs are equal, and zeros of either sign if they have none."""
    one, other = (np.asarray(each, np.float32) for each in (found, wanted))
    one, other = (one, other) if is_signed else (one + np.float32(0), other + np.float32(0))
    bits = one.view(np.uint32) == other.view(np.uint32)
    return one.shape == other.shape and bool((bits | (np.isnan(one) & np.isnan(other))).all())


def numbers(tensor: Any) -> NDArray[np.float32]:
    """Return a tensor of torch or MLX as f32, which holds the values of all types here."""
    if hasattr(tensor, "detach"):
        return np.asarray(tensor.detach().float())
    mx = pytest.importorskip("mlx.core")
    return np.array(tensor.astype(mx.float32))


def decoded(record: reorder.records.Record, kind: str) -> NDArray[np.float32]:
    """Return what a record becomes here."""
    return reorder.dequantize(record, dtype=kind).numpy().astype(np.float32)


class Case(NamedTuple):
    """A record, the types it is decoded to, and the library that decodes its tensors."""

    library: str
    record: str
    dims: tuple[int, ...]
    kinds: tuple[str, ...]
    decode: Callable[[dict[str, Any], str], Any]
    options: Mapping[str, Any] = {}
    # whether a code of -0 is one there
    is_signed: bool = True
    # what is repacked to the record, if it is not made as one
    source: tuple[str, Mapping[str, Any]] | None = None

    @property
    def name(self) -> str:
        options = ", ".join(f"{key}={value}" for key, value in self.options.items())
        source = f"{self.source[0]} -> " if self.source else ""
        return f"{self.library}: {source}{self.record}({options}) {'x'.join(map(str, self.dims))}"


def _made(case: Case) -> reorder.records.Record:
    """Return a record of random bits, with scales of either sign, and exponents of numbers."""
    name, options = case.source or (case.record, case.options)
    desc = record_desc(case.dims, name, **options)
    rng = np.random.default_rng(0)
    record = random_record(desc, rng)
    codes = {name for name, _ in desc.rule.code.parts}
    for part in desc.fields:
        shape = part.layout.dims
        if part.kind in TYPES and part.name not in codes:
            values = rng.lognormal(-5, 3, shape) * rng.choice([-1, 1], shape)
            record.set_field(part.name, values.astype(part.desc.dtype.numpy))
        elif part.kind == "e8m0":  # without NaN, which not all have
            exponents = rng.integers(0, 255, shape, np.uint8)
            record.set_field(part.name, exponents.view(DATA_TYPES["e8m0"].numpy))
    return record


STRATEGIES: dict[str, dict[str, Any]] = {
    "group": {"strategy": "group", "group_size": 8},
    "channel": {"strategy": "channel"},
    "tensor": {"strategy": "tensor"},
    "block": {"strategy": "block", "block_structure": [4, 8]},
}
_STEPS: dict[str, dict[str, Any]] = {
    "group": {"group": 8},
    "channel": {"group": -1},
    "tensor": {"group": -1, "rows": -1},
    "block": {"group": 8, "rows": 4},
}


def _by_compressed(form: str, scheme: Callable[[], Any]) -> Callable[[dict[str, Any], str], Any]:
    def decode(tensors: dict[str, Any], kind: str) -> Any:
        compressors = pytest.importorskip("compressed_tensors.compressors")
        decompress = compressors.BaseCompressor.get_value_from_registry(form).decompress
        found = decompress(tensors, scheme())["weight"]
        assert found.dtype == getattr(torch, TYPES[kind])
        return found

    return decode


def _integers() -> Iterator[Case]:
    """Yield the formats of integers of compressed-tensors."""

    def decode(form: str, bits: int, strategy: str, *, zeros: bool) -> Any:
        def scheme() -> Any:
            quantization = pytest.importorskip("compressed_tensors.quantization")
            weights = {"num_bits": bits, "type": "int", "symmetric": not zeros}
            arguments = quantization.QuantizationArgs(**weights, **STRATEGIES[strategy])
            return quantization.QuantizationScheme(
                targets=["Linear"], weights=arguments, format=f"{form}-quantized"
            )

        return _by_compressed(f"{form}-quantized", scheme)

    forms = (("pack", 4), ("pack", 8), ("int", 8))
    for (form, bits), strategy, zeros, kind in product(forms, _STEPS, (False, True), TYPES):
        if zeros and form == "pack" and strategy not in {"group", "channel"}:
            continue  # it packs zero points of these only
        options = {"zeros": zeros, "scales": kind, **_STEPS[strategy]}
        options |= {"bits": bits} if form == "pack" else {}
        for dims in ((32, 40), (8, 8), (4, 64), (29, 37)):
            if strategy in {"channel", "tensor"} or not any(size % 8 for size in dims):
                own = decode(form, bits, strategy, zeros=zeros)
                yield Case("CT", f"{form}_quantized", dims, (kind,), own, options)


def _small_floats() -> Iterator[Case]:
    """Yield NVFP4, MXFP4 and MXFP8 of compressed-tensors, ModelOpt and transformers."""

    def preset(name: str) -> Callable[[], Any]:
        def scheme() -> Any:
            quantization = pytest.importorskip("compressed_tensors.quantization.quant_scheme")
            return quantization.preset_name_to_scheme(name, ["Linear"])

        return scheme

    for record, form, name in (
        ("compressed_nvfp4", "nvfp4-pack-quantized", "NVFP4A16"),
        ("compressed_mxfp4", "mxfp4-pack-quantized", "MXFP4A16"),
        ("mxfp8", "mxfp8-quantized", "MXFP8A16"),
    ):
        yield Case("CT", record, (72, 256), ("bf16",), _by_compressed(form, preset(name)))
    yield Case("CT in f32", "compressed_nvfp4", (72, 256), ("f32",), _divided)
    for record in ("modelopt_nvfp4", "modelopt_mxfp4", "mxfp8"):
        # the table of NVFP4 has 0 for the code of -0
        is_signed = record != "modelopt_nvfp4"
        yield Case("ModelOpt", record, (72, 256), (*TYPES,), of_modelopt, {}, is_signed)
    yield Case("transformers", "gpt_oss_mxfp4", (3, 40, 96), ("f32", "bf16"), _of_gpt_oss)
    for record, dims, kind in (
        ("fp8_block", (3, 256, 128), "f32"),
        ("fp8_tensor", (3, 40, 72), "f32"),
        ("fp8_channel", (3, 40, 72), "f32"),
        ("mxfp8", (3, 40, 96), "bf16"),  # it rounds to bf16 if scales are exponents
    ):
        yield Case("transformers", record, dims, (kind,), _by_transformers)


def _divided(tensors: dict[str, Any], kind: str) -> Any:
    """Return NVFP4 of compressed-tensors in f32, which divides by a scale."""
    nvfp4 = pytest.importorskip("compressed_tensors.compressors.nvfp4")
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from compressed_tensors.quantization.quant_scheme import NVFP4A16

    packed = tensors["weight_packed"]
    return dequantize(
        nvfp4.unpack_fp4_from_uint8(packed, len(packed), 2 * packed.shape[1]),
        tensors["weight_scale"].to(torch.bfloat16),
        args=NVFP4A16["weights"],
        dtype=getattr(torch, TYPES[kind]),
        global_scale=tensors["weight_global_scale"],
    )


def of_modelopt(tensors: dict[str, Any], kind: str) -> Any:
    """Return what ModelOpt makes of the codes, scales and scale of scales of a weight."""
    formats = pytest.importorskip("modelopt.torch.quantization.qtensor")
    dtype = getattr(torch, TYPES[kind])
    weight, scale, *rest = tensors.values()
    sizes = *weight.shape[:-1], 2 * weight.shape[-1]
    if rest:
        made = formats.NVFP4QTensor(sizes, dtype, weight)
        return made.dequantize(dtype, scale=scale, double_scale=rest[0], block_sizes={-1: 16})
    if weight.dtype == torch.uint8:
        made = formats.MXFP4QTensor(sizes, dtype, weight)
        return made.dequantize(dtype, scale=scale, block_sizes={-1: 32})
    if scale.dtype == torch.uint8:
        return formats.MXFP8QTensor(weight.shape, dtype, weight).dequantize(dtype, scale=scale)
    blocks = scale.reshape(-(-weight.shape[0] // 128), -1)
    made = formats.FP8QTensor(weight.shape, dtype, weight)
    return made.dequantize(dtype, scale=blocks, block_sizes={-1: 128, -2: 128})


def _of_gpt_oss(tensors: dict[str, Any], kind: str) -> Any:
    mxfp4 = pytest.importorskip("transformers.integrations.mxfp4")
    dtype = getattr(torch, TYPES[kind])
    made = mxfp4.convert_moe_packed_tensors(tensors["blocks"], tensors["scales"], dtype=dtype)
    return made.transpose(1, 2)  # it has inputs before outputs


def _by_transformers(tensors: dict[str, Any], kind: str) -> Any:
    fp8 = pytest.importorskip("transformers.integrations.finegrained_fp8")
    weight, scale = tensors.values()
    given = {"weight": weight, "weight_scale_inv": scale.reshape(_of_blocks(weight, scale))}
    found = fp8.Fp8Dequantize(None).convert(given)["weight"]
    assert found.dtype == getattr(torch, TYPES[kind])
    return found


def _of_blocks(weight: Any, scale: Any) -> tuple[int, ...]:
    """Return the shape of scales with both dims of a block."""
    rows = min(weight.shape[1], max(scale.numel() // len(weight), 1))
    return tuple(scale.shape) if scale.ndim == 3 else (len(weight), rows, 1)


def _of_fp8() -> Iterator[Case]:
    """Yield FP8 by the formula of DeepSeek-V3: f32 codes times f32 scales, rounded once."""

    def decode(tensors: dict[str, Any], kind: str) -> Any:
        weight, scale = tensors.values()
        if scale.dtype == torch.uint8:
            scale = scale.view(torch.float8_e8m0fnu)
        each = scale.float().reshape(scale.shape if scale.ndim == 2 else (-1, 1))
        for axis, (size, count) in enumerate(zip(weight.shape, each.shape, strict=True)):
            group = 128 if 1 < count < size else size // count
            each = each.repeat_interleave(group, axis).narrow(axis, 0, size)
        return (weight.float() * each).to(getattr(torch, TYPES[kind]))

    names, codes = ("fp8_tensor", "fp8_channel", "fp8_block"), ("f8_e4m3", "f8_e5m2")
    sizes = ((300, 130), (1, 7), (129, 1))
    for name, code, scales, dims in product(names, codes, (*TYPES, "e8m0"), sizes):
        yield Case("DeepSeek", name, dims, (*TYPES,), decode, {"codes": code, "scales": scales})


MODES = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}


def _of_mlx() -> Iterator[Case]:
    def decode(group: int, bits: int, mode: str) -> Any:
        def made(tensors: dict[str, Any], kind: str) -> Any:
            mx = pytest.importorskip("mlx.core")
            mx.set_default_device(mx.cpu)
            parts = [_in_mlx(mx, each) for each in tensors.values()]
            parts += [None] * (3 - len(parts))
            return mx.dequantize(*parts, group, bits, mode=mode, dtype=getattr(mx, TYPES[kind]))

        return made

    for bits, group, scales in product((1, 2, 3, 4, 5, 6, 8), (32, 64, 128), TYPES):
        options = {"bits": bits, "group": group, "scales": scales}
        yield Case("MLX", "mlx", (48, 384), (*TYPES,), decode(group, bits, "affine"), options)
    stack = decode(64, 5, "affine")
    yield Case("MLX", "mlx", (4, 48, 256), ("bf16",), stack, {"bits": 5, "group": 64})
    for (mode, steps), dims in product(MODES.items(), ((255, 256), (4, 48, 256))):
        yield Case("MLX", f"mlx_{mode}", dims, ("f32", "bf16"), decode(*steps, mode))
    for mode in ("mxfp4", "mxfp8"):
        ocp = f"ocp_{mode}", {"swizzled": False}
        made = decode(*MODES[mode], mode)
        yield Case("MLX", f"mlx_{mode}", (256, 128), ("f32",), made, source=ocp)


def _in_mlx(mx: Any, tensor: Any) -> Any:
    if tensor.dtype == torch.bfloat16:
        return mx.array(tensor.view(torch.uint16).numpy()).view(mx.bfloat16)
    return mx.array(tensor.numpy())


@pytest.mark.parametrize(
    "case", [*_integers(), *_small_floats(), *_of_fp8(), *_of_mlx()], ids=lambda case: case.name
)
def test_a_record_is_decoded_as_by_its_library(case: Case) -> None:
    """Law: the bits of every number are those that the library computes."""
    record = _made(case)
    tensors = tensors_of(reorder.records.repack(record, case.record) if case.source else record)
    for kind in case.kinds:
        theirs = numbers(case.decode(tensors, kind))
        assert same(decoded(record, kind), theirs, is_signed=case.is_signed)


def test_an_exponent_of_255_is_not_a_number_by_ocp_and_a_power_of_two_in_transformers() -> None:
    record = reorder.records.Record(record_desc((1, 1, 32), "gpt_oss_mxfp4"))
    record.tensors["blocks"][:] = 0x11  # codes of 0.5
    record.tensors["scales"][:] = 255
    assert (_of_gpt_oss(tensors_of(record), "f32") == 2.0**127).all()
    assert np.isnan(decoded(record, "f32")).all()
