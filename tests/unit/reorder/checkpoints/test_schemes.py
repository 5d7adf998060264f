"""Every quantisation scheme: read as files declare it, decoded, inspected, moved, and refused."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.record import record_desc
from reorder.checkpoints.config import Configs
from reorder.checkpoints.convert.targets import TARGETS
from reorder.cli import main
from tests.unit.reorder.checkpoints.convert.results import SMALL, converted, refused, words_of
from tests.unit.reorder.checkpoints.schemes import (
    BESIDE,
    SCHEMES,
    Scheme,
    bitsandbytes,
    compressed,
    declared,
    fp8,
    hqq,
    mlx,
    modelopt,
    nvfp4,
    record_in,
    refusal,
    write_model,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_KINDS = {DATA_TYPES[kind].numpy: kind for kind in ("f32", "bf16", "f16")}
# options that shapes may not show
_SAID = ("bits", "zeros", "block")
_each = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
# one scheme of each record
_FIRSTS = {(scheme.record, scheme.prefix): scheme for scheme in reversed(SCHEMES.values())}


def _named(scheme: Scheme, *keys: str) -> str:
    """Return the record as rules name it, with some of its options."""
    options = ", ".join(f"{key}={scheme.options[key]}" for key in keys if key in scheme.options)
    return f"{scheme.record}({options.lower()})" if options else scheme.record


def _decoded_name(scheme: Scheme) -> str:
    """Return the name of a weight as floats; experts in one tensor have no `.weight`."""
    return scheme.prefix if "experts" in scheme.prefix else f"{scheme.prefix}.weight"


@_each
def test_a_weight_is_read_decoded_and_inspected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: Scheme
) -> None:
    layer, wanted = scheme.make()
    folder = write_model(tmp_path / "in", {scheme.prefix: layer}, scheme.config)
    kind = _KINDS[wanted.dtype]
    said = {key: scheme.options[key] for key in _SAID if key in scheme.options}
    for name, options in ((), {}), ((scheme.record,), said):
        record = record_in(folder, scheme.prefix, *name, **options)
        assert record.desc == record_desc(wanted.shape, scheme.record, **scheme.options)
        assert np.array_equal(reorder.dequantize(record, dtype=kind).numpy(), wanted)
    assert main(["inspect", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    layouts = {row["name"]: row["layout"].partition(" ")[0] for row in facts["tensors"]}
    names = [f"{scheme.prefix}{end}" for end in layer]
    assert layouts == dict.fromkeys(names, scheme.record) | dict.fromkeys(BESIDE, "plain")
    assert not facts["notes"]


@_each
def test_a_weight_is_written_and_declared_as_it_was(tmp_path: Path, scheme: Scheme) -> None:
    layer, _ = scheme.make()
    folder = write_model(tmp_path / "in", {scheme.prefix: layer}, scheme.config)
    rule = f"*: {_named(scheme, *_SAID)} -> {_named(scheme, *scheme.options)}"
    made = converted(folder, tmp_path / "out", rule)
    assert made.keys() == {f"{scheme.prefix}{end}" for end in layer} | {*BESIDE}
    for end, array in layer.items():
        assert made[f"{scheme.prefix}{end}"].tobytes() == array.tobytes()
    desc = record_in(folder, scheme.prefix).desc
    assert record_in(tmp_path / "out", scheme.prefix).desc == desc
    one, other = (Configs(tmp_path / each).declared for each in ("in", "out"))
    assert one is not None
    assert other is not None
    assert (one.whole.name, one.whole.group) == (other.whole.name, other.whole.group)
    assert one.whole.options.items() <= other.whole.options.items()
    reorder.save(tmp_path / "x.safetensors", {scheme.prefix: record_in(folder, scheme.prefix)})
    assert reorder.load(tmp_path / "x.safetensors", reorder.records.Record).desc == desc


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(scheme, marks=() if scheme in _FIRSTS.values() else pytest.mark.campaign)
        for scheme in SCHEMES.values()
    ],
    ids=SCHEMES,
)
def test_a_weight_becomes_each_target_with_its_numbers_or_is_refused(
    tmp_path: Path, scheme: Scheme
) -> None:
    """*Law*: a weight that the target cannot hold is refused by name; everything else is exact."""
    layer, wanted = scheme.make()
    folder = write_model(tmp_path / "in", {scheme.prefix: layer}, scheme.config)
    wanted, letters = wanted.astype(np.float32), record_in(folder, scheme.prefix).desc.letters
    # models have floats in (out, in), but those of gpt-oss in (in, out)
    is_turned = letters == "io" or scheme.record == "gpt_oss_mxfp4"
    method = scheme.config.get("quantization_config", {}).get("quant_method")
    settings = SMALL._replace(max_bytes=max(1 << 14, wanted.nbytes // 3))
    for to, target in TARGETS.items():
        out = tmp_path / to
        try:
            reorder.convert(folder, out, options=settings, to=to)
        except MemdescError as error:
            said = str(error)
            taken = {each for way in target.ways for each in (*way.sources, way.record)}
            assert f"--to {to}" in said
            if said.endswith(f"they are {to} already; copy it"):
                assert target.method in (None, method)
            elif scheme.record in taken:
                reasons = (
                    "zero points: .* cannot hold|group must be .* not 16|codes of u4, not u8"
                    "|all experts of a layer in one tensor, and loaders of"
                )
                assert re.search(reasons, said)
                assert scheme.prefix in said
            else:
                assert f"{scheme.prefix} is {scheme.record}, and --to {to} takes only " in said
            assert target.dtype is None
            assert not out.exists()
            continue
        if target.dtype is not None:
            name, made = _decoded_name(scheme), words_of(out)
            assert made.keys() == {name, *BESIDE}
            assert Configs(out).declared is None
            floats = wanted.astype(DATA_TYPES[target.dtype].numpy)
            assert np.array_equal(made[name], floats.swapaxes(-1, -2) if is_turned else floats)
            continue
        record = record_in(out, scheme.prefix)
        found = reorder.dequantize(record).numpy()
        found = found if record.desc.letters == letters else found.swapaxes(-1, -2)
        # of NVFP4, the reciprocal of a scale is rounded
        near = 2.0**-21 if "nvfp4" in scheme.record else 0
        assert np.allclose(found, wanted, rtol=near, atol=0)


_BY_RECORD = {scheme.record: scheme for scheme in SCHEMES.values()}


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", _BY_RECORD)
def test_scales_that_are_not_finite_are_refused(tmp_path: Path, name: str, value: float) -> None:
    """*Law*: neither decoded nor stored in another way, whatever the scheme."""
    scheme = _BY_RECORD[name]
    layer, _ = scheme.make()
    folder = write_model(tmp_path / "in", {scheme.prefix: layer}, scheme.config)
    desc = record_in(folder, scheme.prefix).desc
    numbers = (*desc.rule.scale, *desc.rule.offset, *filter(None, [desc.rule.zero]))
    fields = [desc.field(number.parts[0][0]) for number in numbers]
    assert fields
    for field in fields:
        if field.kind[0] in "su":
            continue
        kind = DATA_TYPES[field.kind].numpy
        # the names of experts in one tensor lack `weight`
        ends = (f".{field.tensor}", f"_{field.tensor}", field.tensor.removeprefix("weight"))
        end = min((each for each in layer if each.endswith(ends)), key=len)
        words = layer[end].copy()
        words.reshape(-1).view(kind)[-1] = value
        # of the types of 8 bits, none has infinities
        shown = "NaN" if np.isnan(words.reshape(-1).view(kind)[-1]) else value
        write_model(tmp_path / "in", {scheme.prefix: layer | {end: words}}, scheme.config)
        for target in ("plain, bf16", _named(scheme, *scheme.options)):
            said = refused(folder, tmp_path / "out", f"*: {_named(scheme, *_SAID)} -> {target}")
            assert f"{field.name} of {field.kind} is {shown} at" in said
            assert "and 1 of " in said


def _damaged(layer: dict[str, NDArray[Any]]) -> list[tuple[str, dict[str, NDArray[Any]]]]:
    """Return a layer with each of its tensors missing, cut, turned, or of another type."""
    made = []
    for end, array in layer.items():
        rest = {each: other for each, other in layer.items() if each != end}
        made.append((f"no {end}", rest))
        if array.size > 1:
            made.append((f"{end} cut", layer | {end: array[..., :-1]}))
            made.append((f"{end} with a dim", layer | {end: array[None, None]}))
            if array.ndim > 1 and len({*array.shape}) > 1:
                made.append((f"{end} without a row", layer | {end: array[:-1]}))
                made.append((f"{end} turned", layer | {end: array.swapaxes(0, -1)}))
        made.append((f"{end} wide", layer | {end: np.ones(array.shape)}))
    return made


@pytest.mark.parametrize("scheme", _FIRSTS.values(), ids=map(str, _FIRSTS))
def test_a_damaged_weight_is_refused_before_anything_is_written(
    tmp_path: Path, scheme: Scheme
) -> None:
    """*Law*: a weight is read as a whole, or refused in one line that names it."""
    layer, _ = scheme.make()
    for damage, damaged in _damaged(layer):
        folder = write_model(tmp_path / "in", {scheme.prefix: damaged}, scheme.config)
        try:
            record = record_in(folder, scheme.prefix)
        except MemdescError:
            for said in (
                refusal(folder, scheme.prefix),
                refusal(folder, scheme.prefix, scheme.record),
                refused(folder, tmp_path / "out", f"*: {_named(scheme, *_SAID)} -> plain, bf16"),
            ):
                assert scheme.prefix in said or scheme.record in said, damage
        else:  # a scale of FP8 may serve fewer codes
            assert [*record.desc.tensors.values()] == [each.nbytes for each in damaged.values()]


_BLOCKS, _W4 = partial(fp8, "weight_scale_inv", (3, 2)), {"type": "float", "num_bits": 4}
_W8 = {"type": "float", "num_bits": 8}
_NVFP4 = partial(nvfp4, divides=True)


def _deepseek(**more: Any) -> dict[str, Any]:
    return declared("fp8", **{"fmt": "e4m3", "weight_block_size": [128, 128], **more})


def _scaled(*shape: int) -> dict[str, Any]:
    return {".weight_scale_inv": np.ones(shape, np.float32)}


def _nf4(kind: str = "nf4", **more: Any) -> dict[str, Any]:
    usual = {"load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": kind}
    return declared("bitsandbytes", **usual | {"bnb_4bit_use_double_quant": False} | more)


def _absmax(count: int) -> dict[str, Any]:
    return {".weight.absmax": np.zeros(count, np.float32)}


def _mlx(bits: Any = 4, group: int = 64, **more: Any) -> dict[str, Any]:
    return {"quantization": {"group_size": group, "bits": bits, **more}}


_KIND = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {}}
_AWQ = {"quant_method": "awq"}
_NESTED = {".weight.nested_absmax": np.zeros(1, np.float32)}
# what makes a weight, tensors that are changed or left out, what config.json says, the problem
_RECORDS = {fp8: "fp8_block", nvfp4: "compressed_nvfp4", bitsandbytes: "bnb_nf4", mlx: "mlx"}
_RECORDS |= {hqq: "hqq"}
_CONTRADICTIONS: list[tuple[Any, dict[str, Any], Any, str]] = [
    (_BLOCKS, _scaled(2, 2), _deepseek(), "declares fp8_block: 'fc.weight_scale_inv' of f32 has"),
    (_BLOCKS, _scaled(2, 3), _deepseek(), "has the shape (2, 3) and 24 bytes, not (3, 2) of f32"),
    (_BLOCKS, _scaled(1, 3, 1, 2), _deepseek(), "and shape (1, 3, 1, 2) does not have the dims"),
    (_BLOCKS, _scaled(300, 1), _deepseek(), "has the shape (300, 1)"),
    (_BLOCKS, _scaled(), _deepseek(), "has the shape ()"),
    (_BLOCKS, {}, _deepseek(weight_block_size=[64, 64]), "not (5, 3) of f32"),
    (_BLOCKS, {}, _deepseek(weight_block_size=[64, 128]), "and 24 bytes, not (5, 2) of f32"),
    (_BLOCKS, {}, _deepseek(weight_block_size=[128]), "is [128], not two positive integers"),
    (_BLOCKS, {}, _deepseek(weight_block_size=[0, 0]), "is [0, 0], not two positive"),
    (_BLOCKS, {}, _deepseek(weight_block_size=[True, True]), "is [True, True], not two positive"),
    (_BLOCKS, {}, _deepseek(fmt="e5m2"), "'fc.weight' of f8_e4m3 has the shape"),
    (_BLOCKS, {}, _deepseek(fmt="e3m4"), "fmt is 'e3m4', not e4m3 or e5m2"),
    (_BLOCKS, {".weight_scale": np.ones((3, 2), np.float32)}, _deepseek(), "belong to fc.weight"),
    (
        _BLOCKS,
        {},
        compressed("float-quantized", **_W8, strategy="block", block_structure=[128, 128]),
        "no tensor 'weight_scale'",
    ),
    (
        _BLOCKS,
        {},
        compressed("float-quantized", **_W8, strategy="group", group_size=128),
        "strategy is 'group', not tensor",
    ),
    (
        _BLOCKS,
        {},
        compressed("pack-quantized", **_W8, strategy="channel"),
        "format is 'pack-quantized', not float",
    ),
    (_BLOCKS, {}, declared("compressed-tensors"), "format is missing, not float-quantized"),
    (_BLOCKS, {}, {"quantization_config": _KIND}, "config_groups is {}, not an object"),
    (
        partial(fp8, "weight_scale", (300, 1), block=(1, 130)),
        {".weight_scale": np.ones((1, 300), np.float32)},
        compressed("float-quantized", **_W8, strategy="channel"),
        "(1, 300) and 1200 bytes, not (300, 1)",
    ),
    *(
        (_NVFP4, {}, config, problem)
        for config, problem in (
            (
                compressed("nvfp4-pack-quantized", **_W4, strategy="tensor_group", group_size=32),
                "group_size is 32, not 16",
            ),
            (
                compressed("nvfp4-pack-quantized", **_W8, strategy="tensor_group", group_size=16),
                "num_bits is 8, not 4",
            ),
            (
                compressed(
                    "nvfp4-pack-quantized",
                    **_W4,
                    strategy="tensor_group",
                    group_size=16,
                    scale_dtype="torch.bfloat16",
                ),
                "scale_dtype is 'torch.bfloat16', not torch.float8_e4m3fn or null",
            ),
            (
                compressed("mxfp6-pack-quantized", **_W4, strategy="group", group_size=32),
                "'mxfp6-pack-quantized', not ",
            ),
            (
                compressed("mxfp4-pack-quantized", **_W4, strategy="group", group_size=32),
                "declares compressed_mxfp4: 'fc.weight_sca",
            ),
            (modelopt("NVFP4"), "'fc' is not modelopt_nvfp4: no tensor 'weight'"),
            (modelopt("NVFP4", group_size=32), "group_size is 32, not 16 or null"),
            (modelopt("NVFP4_AWQ"), "quant_algo is 'NVFP4_AWQ', not FP8"),
            (declared("mxfp4"), "'fc' is not gpt_oss_mxfp4: no tensor 'blocks'"),
        )
    ),
    (bitsandbytes, {}, _nf4("fp4"), "'fc' is not bnb_fp4: no tensor"),
    (bitsandbytes, {}, _nf4("int4"), "bnb_4bit_quant_type is 'int4', not nf4"),
    (bitsandbytes, _absmax(95), _nf4(), "has the shape (95,)"),
    (
        bitsandbytes,
        {".weight.quant_map": np.zeros(16, np.float32)},
        _nf4(),
        "does not hold what",
    ),
    (
        bitsandbytes,
        _NESTED,
        _nf4(bnb_4bit_use_double_quant=True),
        "'bnb_nested' cannot be described as a record: with double quantisation, a scale is a",
    ),
    (
        bitsandbytes,
        _NESTED,
        _nf4(),
        "declares bnb_nf4: 'bnb_nested' cannot be described as a record: with double",
    ),
    (bitsandbytes, {}, _nf4(load_in_4bit=False, load_in_8bit=True), "LLM.int8 multiplies codes by"),
    (bitsandbytes, {}, _nf4(load_in_4bit=False), "load_in_4bit is False, not True"),
    *((mlx, {}, _mlx(bits), f"not have i*bits/32 with bits={bits}") for bits in (3, 5)),
    (mlx, {}, _mlx(7), "bits must be 1, 2, 3, 4, 5, 6 or 8, not 7"),
    (mlx, {}, _mlx(4, 32), "'fc.scales' of bf16 has the shape (24, 4)"),
    (mlx, {}, [], "it is not a JSON object, but []"),
    (mlx, {}, _mlx(4, 48), "group must be 32, 64 or 128, not 48"),
    (mlx, {}, _mlx(8), "'fc.scales' of bf16 has the shape (24, 4)"),
    (mlx, {}, _mlx("4"), "bits must be an integer, not '4'"),
    (mlx, {}, _mlx(0), "bits is 0, not a positive integer"),
    (mlx, {}, _mlx(mode="q4"), "mode is 'q4', not affine or null"),
    (mlx, {}, _mlx(mode="mxfp4"), "group_size is 64, not 32 or null"),
    (mlx, {}, _mlx(4, 32, mode="mxfp4"), "'fc.scales' of bf16 has the shape (24, 4)"),
    (mlx, {}, _mlx(fc=False), "config.json ignores fc, but its tensors"),
    (mlx, {}, _mlx(fc={"bits": 8, "mode": 3}), "mode is 3, not affine or null"),
    (
        mlx,
        {},
        _mlx() | {"quantization_config": _mlx(8)["quantization"]},
        "declares mlx(bits=8, group=64), and config.json mlx(bits=4, group=64)",
    ),
    (
        mlx,
        {},
        _mlx() | {"quantization_config": _mlx(fc=_mlx(8)["quantization"])["quantization"]},
        "correct the one that is wrong",
    ),
    (
        mlx,
        {},
        _mlx() | {"quantization_config": _AWQ},
        "declares awq, and config.json mlx(bits=4, group=64)",
    ),
    (mlx, {}, {"quantization": {"quant_algo": None}}, "its tensors fit mlx: give the name"),
    *(
        (hqq, {f".{end}": array}, declared("hqq"), problem)
        for end, array, problem in (
            ("axis", np.array(0, np.int32), "'fc.axis' does not hold what"),
            ("nbits", np.array(3, np.int32), "bits must be 1, 2, 4 or 8, not 3"),
            ("nbits", np.array(8, np.int32), "'fc.W_q' of u8 has the shape (48, 64)"),
            (
                "nbits",
                np.zeros(2, np.int32),
                "'fc.nbits' of s32 and shape (2,) does not hold an integer",
            ),
            ("nbits", np.array(4.0, np.float32), "does not hold an integer"),
            ("group_size", np.array(96, np.int32), "a group of 96 does not divide"),
            ("group_size", np.array(32, np.int32), "has the shape"),
            ("shape", np.array((24, 128), np.int64), "has the shape"),
            ("shape", np.array((25, 256), np.int64), "needs a multiple of 2 along a"),
            ("shape", np.array(24, np.int64), "does not hold 2 integers"),
            ("quant_zero", np.array(1, np.uint8), "'fc.quant_zero' does not hold what"),
            ("compute_dtype", np.frombuffer(b"torch.bfloat32", np.uint8), "does not hold what"),
            ("zero", np.zeros((96, 1), np.float16), "'fc.zero' of f16 has the shape"),
        )
    ),
]


@pytest.mark.parametrize(("make", "change", "config", "problem"), _CONTRADICTIONS)
def test_what_files_and_tensors_contradict_is_refused(
    tmp_path: Path, make: Any, change: dict[str, Any], config: Any, problem: str
) -> None:
    layer, _ = make()
    folder = write_model(tmp_path / "in", {"fc": layer | change}, config)
    said = refusal(folder)
    assert problem in said
    # else a rule may say what the weight is
    if "there is no record for" not in said and "give the name" not in said:
        kind = getattr(make, "func", make)
        said = refused(folder, tmp_path / "out", f"*: {_RECORDS[kind]} -> plain, bf16")
        assert "fc" in said or "config.json" in said


@pytest.mark.parametrize("made", [hqq(), hqq(8, 64, "f16"), bitsandbytes(), bitsandbytes("fp4")])
def test_tensors_that_say_what_they_are_need_no_declaration(
    tmp_path: Path, made: tuple[dict[str, Any], Any]
) -> None:
    layer, numbers = made
    # hqq itself declares nothing in its files
    folder = write_model(tmp_path / "in", {"fc": layer}, {"model_type": "llama"})
    reorder.convert(folder, tmp_path / "out", options=SMALL, to="f16")
    found = words_of(tmp_path / "out")["fc.weight"].view(np.float16)
    assert (found == numbers.astype(np.float16)).all()
    # what a file declares is not overruled
    folder = write_model(tmp_path / "in", {"fc": layer}, declared("mystery"))
    assert "there is no record for quant_method 'mystery'; its tensors fit" in refusal(folder)
