"""Every quantisation scheme: read as files declare it, decoded, inspected, moved, and refused."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.record import record_desc
from reorder.checkpoints.config import Configs, Layers, Said, declare, declared_by, method_in
from reorder.checkpoints.convert.targets import TARGETS
from reorder.cli import main
from reorder.memory.memory import Memory
from tests.unit.reorder.checkpoints.convert.results import SMALL, converted, refused, words_of
from tests.unit.reorder.checkpoints.schemes import (
    BESIDE,
    SCHEMES,
    Scheme,
    bitsandbytes,
    declared,
    hqq,
    record_in,
    refusal,
    write_model,
)

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
    desc = record_desc(wanted.shape, scheme.record, **scheme.options)
    said = {key: value for key, value in desc.options if key in _SAID}
    bare = write_model(tmp_path / "bare", {scheme.prefix: layer}, {})
    for path, name, options in (
        (folder, (), {}),
        (folder, (scheme.record,), said),
        (bare, (scheme.record,), said),
    ):
        record = record_in(path, scheme.prefix, *name, **options)
        assert record.desc == desc
        assert np.array_equal(reorder.dequantize(record, dtype=kind).numpy(), wanted)
    assert main(["inspect", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    layouts = {row["name"]: row["layout"].partition(" ")[0] for row in facts["tensors"]}
    names = [f"{scheme.prefix}{end}" for end in layer]
    assert layouts == dict.fromkeys(names, scheme.record) | dict.fromkeys(BESIDE, "plain")
    assert not facts["notes"]


@pytest.mark.parametrize("name", [name for name in SCHEMES if name.startswith(("awq", "gptq"))])
def test_a_weight_whose_tensors_are_saved_with_their_layouts_is_read(
    tmp_path: Path, name: str
) -> None:
    """*Law*: the dims of a weight follow from those of its tensors, which count no words then."""
    scheme = SCHEMES[name]
    layer, _ = scheme.make()
    record = record_in(write_model(tmp_path, {"fc": layer}, scheme.config), "fc")
    fields = {f"fc.{part.tensor}": part.desc for part in record.desc.fields}
    saved = {f"fc.{each}": held for each, held in record.tensors.items()}
    path = tmp_path / "x.npz"
    reorder.save(path, {each: Memory(fields[each], held) for each, held in saved.items()})
    said = {key: value for key, value in record.desc.options if key in _SAID}
    assert record_in(path, "fc", scheme.record, **said).desc == record.desc


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
    # what is written anew says what was read, by the same method
    (section,) = {str(each): each for each in Configs(folder).sections[1]}.values()
    layers = Layers({scheme.prefix: Said("", desc.name, dict(desc.options))}, [], [scheme.prefix])
    (anew, *_) = (declare(layers, {}, method_in(section)) or {}).values()
    assert method_in(anew) == method_in(section)
    told = [declared_by("", each).at(scheme.prefix) for each in (section, anew)]
    old, new = ({said.name: said for said in each}[scheme.record] for each in told)
    assert old.group in (None, new.group)
    assert old.options.items() <= new.options.items() <= dict(desc.options).items()
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
    is_mlx = letters == "eoi" and scheme.record == "mlx"
    for to, target in TARGETS.items():
        out = tmp_path / to
        try:
            reorder.convert(folder, out, options=settings, to=to)
        except MemdescError as error:
            said = str(error)
            taken = {each for way in target.ways for each in (*way.sources, way.dst.name)}
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
                only = f"{scheme.prefix} is {scheme.record}, and --to {to} takes only "
                assert ("has other axes in MLX" if is_mlx else only) in said
            assert target.dtype is None or is_mlx
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


def test_blocks_of_integers_do_not_become_floats_in_the_same_tensors(tmp_path: Path) -> None:
    scheme = next(
        each
        for each in SCHEMES.values()
        if each.record == "pack_quantized" and each.options.get("rows", 1) > 1
    )
    folder = write_model(tmp_path / "in", {"fc": scheme.make()[0]}, scheme.config)
    rule = f"fc: {_named(scheme, 'bits')} -> compressed_mxfp4"
    assert "their codes stand for different numbers" in refused(folder, tmp_path / "out", rule)


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
