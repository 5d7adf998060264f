"""What config.json and the tensors of a weight contradict is refused, and only ever copied."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from reorder.checkpoints.config import method_in
from tests.unit.reorder.checkpoints.convert.results import converted, refused
from tests.unit.reorder.checkpoints.schemes import (
    SCHEMES,
    Scheme,
    declared,
    hqq,
    mlx,
    modelopt,
    refusal,
    write_model,
)

_COMPRESSED, _FOUR = "compressed-tensors", {"group_size": 64, "bits": 4}


def _scheme(record: str, method: str) -> Scheme:
    """Return the first scheme of a record that a method declares."""
    found = (each for each in SCHEMES.values() if each.record == record)
    return next(x for x in found if method_in(next(iter(x.config.values()))) == method)


_BASES = {
    "fp8": _scheme("fp8_block", "fp8"),
    "inv": _scheme("fp8_block", "fp8")._replace(config=_scheme("fp8_block", _COMPRESSED).config),
    "rows": _scheme("fp8_channel", _COMPRESSED),
    "nvfp4": _scheme("compressed_nvfp4", _COMPRESSED),
    "pack": _scheme("pack_quantized", _COMPRESSED),
    "bnb": _scheme("bnb_nf4", "bitsandbytes"),
    "mlx": _scheme("mlx", "mlx")._replace(make=mlx, config={"quantization": _FOUR}),
    "hqq": _scheme("hqq", "hqq")._replace(make=hqq),
    "gptq": _scheme("gptq", "gptq"),
    "awq": _scheme("awq", "awq"),
}
_GONE: Any = object()
# a base, and lines of what it has instead => the problem: `.NAME` is a tensor, `weights.KEY` and
# `group.KEY` are in a group, `/KEY` is in config.json itself, and `config` is all of it
_TABLE = r"""
fp8
    .weight_scale_inv=ones(2, 2) => declares fp8_block: 'fc.weight_scale_inv' of
    .weight_scale_inv=ones(1, 3, 1, 2) => (1, 3, 1, 2) does not have the dims
    .pre_quant_scale=ones(64) => fc.pre_quant_scale belong to fc.weight, and
    .svdquant_lora_a=ones(64) => fc.svdquant_lora_a belong to fc.weight, and
    .weight_scale=ones(3, 2) => belong to fc.weight
    weight_block_size=[64, 64] => not (5, 3) of f32
    fmt='e4m3fn' => there is no record for quant_method 'fp8': fmt is 'e4m3fn', not e4m3 or e5m2
    fmt='e5m2' => 'fc.weight' of f8_e4m3 has the shape
inv
    as it is => no tensor 'weight_scale'
    format=GONE => format is missing, not float-quantized
    config_groups={} => num_bits is missing, not 8
    config_groups={'FP8': ['Linear']} => num_bits is missing, not 8
rows
    .weight_scale=ones(1, 300) => (1, 300) and 1200 bytes, not (300, 1)
nvfp4
    format='mxfp4-pack-quantized'; weights.strategy='group'; weights.group_size=32
        => declares compressed_mxfp4: 'fc.weight_sca
    .weight_zero_point=ones(64) => its numbers would be different
    config=modelopt('NVFP4') => 'fc' is not modelopt_nvfp4: no tensor 'weight'
    config=declared('mxfp4') => 'fc' is not gpt_oss_mxfp4: no tensor 'blocks'
pack
    weights.num_bits=8 => (40, 12) and 1920 bytes, not (40, 24)
    weights.num_bits=3 => bits must be 4 or 8, not 3
    weights.group_size=24 => the shape (40, 6) and 480 bytes, not (40, 4) of f16
    weights.strategy='channel' => and 480 bytes, not (40, 1) of f16
    weights.strategy='tensor_group'
        => strategy is 'tensor_group', not channel or tensor or group or block;
    weights.symmetric=False => no tensor 'weight_zero_point'
    weights.symmetric=1 => symmetric is 1, not True
    weights.symmetric='true' => symmetric is 'true', not True
    weights.actorder='group' => declares act-order, which assigns inputs to gro
    format='int-quantized'; weights.num_bits=8 => no tensor 'weight'; int_
    ignore='lm_head' => ignore must be a list of strings, not 'lm_head'
    ignore=['fc'] => config.json ignores fc, but its tensors are quantised
    ignore=['re:fc'] => config.json ignores fc, by 're:fc', but its tensors are quantised
    config_groups=[{}] => config_groups must be an object, not [{
    group.targets=['re:.*proj'] => none of which is fc
    group.targets=['re:('] => config.json: '(' is not a regular
    group.targets=['re:(.*.*)*x'] => repeats a group
    ignore=['re:(a|aa)+$'] => repeats a group
    group.targets=None => declares no layers
    .weight_g_idx=REVERSED => fc.weight_g_idx assigns inputs to groups in an arb
    .weight_zero_point=np.zeros((4, 3), 'i4')
        => would be different; correct config.json if there are zeros
    .weight_zero_point=np.zeros((40, 6), 'i4'); weights.symmetric=False
        => 'fc.weight_zero_point' of s32 has the shape (40, 6) and 960 bytes, not (5, 6)
    .weight_shape=np.array([30, 40]) => needs a multiple of 16 along b (dim 1)
    .weight_shape=np.array([40, 192]) => (40, 12) and 1920 bytes, not (40, 24)
    .weight_shape=np.array([2 ** 62, 2 ** 62]) => 4611686018
    .weight_shape=np.array([30, 48, 1]) => does not hold 2 integers
    .weight_shape=np.array([30, 48], 'i2') => must be s64 or s32, not 's16'
    .weight_scale=ones(30, 3, kind='i4') => scales must be f16, bf16 or f32, not 's3
bnb
    bnb_4bit_quant_type='fp4' => 'fc' is not bnb_fp4: no tensor
    .weight.quant_map=ones(16) => does not hold what
    .weight.nested_absmax=ones(1); bnb_4bit_use_double_quant=True
        => 'bnb_nested' cannot be described as a
    .weight.nested_absmax=ones(1)
        => declares bnb_nf4: 'bnb_nested' cannot be described as a record: with dou
    load_in_4bit=False; load_in_8bit=True => LLM.int8 multiplies codes by
    .state=text(b'') => declares bnb_nf4:
    .state=text(b'{') => declares bnb_nf4:
    .state=text(b'[]') => declares bnb_nf4:
    .state=text(b'{"shape": [24, 256]}') => declares bnb_nf4:
    .state=state(shape=24) => declares bnb_nf4:
    .state=state(shape=[24, 'a']) => declares bnb_nf4:
    .state=state(shape=[24, 9223372036854775807]) => declares bnb_nf4:
    .state=state(shape=[256, 24]) => declares bnb_nf4:
    .state=state(blocksize='64') => declares bnb_nf4:
    .state=state(blocksize=0) => declares bnb_nf4:
    .state=state(blocksize=48) => declares bnb_nf4:
    .state=state(dtype='int8') => declares bnb_nf4:
    .state=state(dtype=['a']) => declares bnb_nf4:
    .state=state(quant_type=None) => declares bnb_nf4:
    .state=text(b'\xff' * 79) => declares bnb_nf4:
mlx
    bits=3 => not have i*bits/32 with bits=3
    bits=7 => bits must be 1, 2, 3, 4, 5, 6 or 8, not 7
    group_size=48 => group must be 32, 64 or 128, not 48
    mode='mxfp4'; group_size=32 => 'fc.scales' of bf16 has the shape (24, 4)
    fc=False => config.json ignores fc, but its tensors
    fc={'bits': 8, 'mode': 3} => mode is 3, not affine or null
    /quantization_config=EIGHT => mlx(bits=8, group=64), and config.json declares mlx(bits=4
    /quantization_config=FOUR | {'fc': EIGHT}
        => correct the one that is wrong
    /quantization_config={'quant_method': 'awq'} => declares awq, and config.json declares mlx(
    /quantization={'quant_algo': None} => its tensors fit mlx: give the name
hqq
    .axis=ZERO => 'fc.axis' does not hold what
    .nbits=ZERO + 3 => bits must be 1, 2, 4 or 8, not 3
    .nbits=ZERO + 8 => 'fc.W_q' of u8 has the shape (48, 64)
    .nbits=ones(2, kind='i4') => s32 and shape (2,) does not hold an integer
    .nbits=np.array(4.0, 'f4') => does not hold an integer
    .group_size=ZERO + 96 => needs a multiple of 96 along
    .shape=np.array((25, 256)) => needs a multiple of 2 along a
    .shape=np.array(24) => does not hold 2 integers
    .quant_zero=ONE => 'fc.quant_zero' does not hold what
    .compute_dtype=text(b'torch.bfloat32') => does not hold what
    .zero=ones(96, 1, kind='f2') => 'fc.zero' of f16 has the shape
gptq
    format='gptq_v2'; checkpoint_format='gptq'
        => checkpoint_format is 'gptq', but format is 'gptq_v2'; correct
    checkpoint_format='bitblas' => is 'bitblas', not gptq or gptq_v2
    quant_method={} => quant_method must be a string, not {}
    bits=True => bits is True, not a positive integer
    bits=3 => gptq: bits must be 4 or 8, not 3
    group_size=32 => declares group_size 32, but the shapes of the tensors say grou
    desc_act=True => declares act-order, which assigns inputs to groups by data
    dynamic=1 => dynamic must be an object
    dynamic={'-:f.': {}} => config.json ignores fc, by '-:f.', but its tensors are quantised
    modules_to_not_convert='fc' => convert must be a list of strings, not 'fc
    quant_method='awq' => has the shape
    config=declared('exl2', bits=4.0) => no record for quant_method 'exl2'
    /quantization_config={} => no record for quant_method ''
    /quantization_config='gptq' => quantization_config is not a JSON object, but
awq
    version=GONE; format='gemv' => version is 'gemv', not gemm
    version='gemv' => quant_method 'awq': version is 'gemv', not gemm
"""


def _state(**keys: Any) -> Any:
    """Return what bitsandbytes says of a weight, with other values."""
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [24, 256], **keys}
    return _text(json.dumps(state).encode())


def _text(text: bytes) -> Any:
    return np.frombuffer(text, np.uint8)


_NAMES: dict[str, Any] = {
    "EIGHT": _FOUR | {"bits": 8},
    "FOUR": _FOUR,
    "GONE": _GONE,
    "ONE": np.array(1, np.uint8),
    "REVERSED": np.arange(96, dtype=np.int32)[::-1].copy() // 16,
    "ZERO": np.array(0, np.int32),
    "declared": declared,
    "modelopt": modelopt,
    "np": np,
    "ones": lambda *shape, kind="f4": np.ones(shape, kind),
    "state": _state,
    "text": _text,
}


def _rows() -> Iterator[tuple[str, str, str]]:
    """Yield the base, the changes and the problem of each line."""
    base = ""
    for line in _TABLE.replace("\n        =>", " =>").splitlines():
        changes, _, problem = line.partition(" => ")
        base = base if problem else line
        if problem:
            yield base, changes.strip(), problem


def _changed(
    config: Mapping[str, Any], changes: str
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the tensors that a weight has instead, and config.json with other values."""
    ((name, section),) = deepcopy(config).items()
    whole, tensors = {name: section}, dict[str, NDArray[Any]]()
    group = section.get("config_groups", {}).get("group_0", {})
    places = {"": section, "group": group, "weights": group.get("weights"), "/": whole}
    for change in changes.split("; ") if changes != "as it is" else ():
        key, _, text = change.partition("=")
        value = eval(text, dict(_NAMES))
        place, _, last = key.replace("/", "/.").rpartition(".")
        if key == "config":
            whole = value
        elif key.startswith("."):
            tensors[key.replace(".state", ".weight.quant_state.bitsandbytes__nf4")] = value
        elif value is _GONE:
            del places[place][last]
        else:
            places[place][last] = value
    return tensors, whole


@pytest.mark.parametrize(("base", "changes", "problem"), [*_rows()])
def test_a_contradiction_is_refused_and_only_copied(
    tmp_path: Path, base: str, changes: str, problem: str
) -> None:
    """*Law*: `record` says the problem, a rule that names the record is refused, copies work."""
    record, config, make, *_ = _BASES[base]
    tensors, changed = _changed(config, changes)
    layer, numbers = make()
    folder = write_model(tmp_path / "in", {"fc": layer | tensors}, changed)
    said = refusal(folder)
    assert problem in said
    if "ignores" in said:  # nor does a name overrule it
        assert problem in refusal(folder, "fc", record)
    # else a rule may say what the weight is
    if "there is no record for" in said or "give the name" in said:
        if base == "fp8":
            rule = "fc: fp8_block(scale_inv=true, block=128) -> plain, f32"
            found = converted(folder, tmp_path / "named", rule)["fc.weight"]
            assert np.array_equal(found, numbers)
    else:
        said = refused(folder, tmp_path / "out", f"*: {record} -> plain, bf16")
        assert "fc" in said or "config.json" in said
    reorder.convert(folder, tmp_path / "out")
