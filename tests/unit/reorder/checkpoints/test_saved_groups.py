"""A saved Quantized or Record of several tensors keeps its meaning wherever its file is read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from memdesc.record import record_desc
from reorder import Quantized, load_all, save
from reorder.cli import main
from reorder.records import Record
from tests.checkpoints import awq_layer, fp8_layer, model_folder, write_config, write_safetensors
from tests.unit.reorder.checkpoints.convert.results import SMALL, converted, refused
from tests.unit.reorder.checkpoints.schemes import record_in, refusal

_ENDINGS = (".safetensors", ".npz")


def quantized(seed: int = 0) -> Quantized:
    x = np.random.default_rng(seed).random((32, 64), np.float32)
    return reorder.quantize(x, "s8", axis=(0, 1), groups=(1, 16))


def record() -> tuple[Record, NDArray[np.float32]]:
    layer = awq_layer()
    desc = record_desc((128, 256), "awq", group=64, scales="f16")
    made = Record(desc, {name: array.view(np.uint8).reshape(-1) for name, array in layer.items()})
    values: NDArray[np.float32] = reorder.dequantize(made).numpy()
    return made, values


@pytest.fixture(params=_ENDINGS)
def saved(request: Any, tmp_path: Path) -> Path:
    path = tmp_path / f"saved{request.param}"
    plain = np.ones((16, 16), np.float32)
    save(path, {"w": quantized(), "fc.weight": record()[0], "rest": plain})
    return path


def check(path: Path, quantised: str | None = "w", awq: str | None = "fc.weight") -> None:
    """Check that a file holds what was saved, under these names."""
    wanted = quantized()
    scaled = load_all(path, Quantized)
    assert [*scaled] == ([quantised] if quantised else [])
    for found in scaled.values():
        assert np.array_equal(reorder.dequantize(found).numpy(), reorder.dequantize(wanted).numpy())
        assert (found.axis, found.groups) == (wanted.axis, wanted.groups)
    records = load_all(path, Record)
    assert [*records] == ([awq] if awq else [])
    for each in records.values():
        assert each.desc == record()[0].desc
        assert np.array_equal(reorder.dequantize(each).numpy(), record()[1])


def test_all_their_tensors_may_take_new_names_and_stay_whole(saved: Path, tmp_path: Path) -> None:
    converted(saved, tmp_path / "out", settings=SMALL._replace(shard_bytes=1 << 11))
    assert len([*(tmp_path / "out").glob("*.safetensors")]) > 1
    check(tmp_path / "out")
    for target in (tmp_path / "out.gguf", tmp_path / "out.safetensors"):
        converted(saved, target, "*: rename=model.*")
        check(target, "model.w", "model.fc.weight")
    converted(saved, tmp_path / "x.safetensors", "fc.qweight: rename=codes")
    check(tmp_path / "x.safetensors", awq="codes.weight")
    # nothing but what is stored with them says that these belong together
    odd = tmp_path / "odd.npz"
    converted(saved, odd, "w: rename=a", "w_scale: rename=b")
    check(odd, "a")
    with reorder.open_checkpoint(odd) as checkpoint:
        assert checkpoint["a"].scaled_by == ("b", "w_zero_point")
    assert "a would no longer fit b, w_zero_point" in refused(odd, tmp_path / "x.npz", "a: ba")
    said = refused(saved, tmp_path / "y.npz", "fc.qweight: rename=w.qweight", "w: rename=w.weight")
    assert "would both be called w.weight" in said
    # the name of a tensor that belongs to another is free
    save(saved, {"w": quantized(), "w_scale": record()[0], "rest": np.ones(3)})
    converted(saved, tmp_path / "y.npz", "rest: f16")
    check(tmp_path / "y.npz", "w", "w_scale")
    converted(saved, tmp_path / "z.npz", "*: rename=z.*")
    check(tmp_path / "z.npz", "z.w", "z.w_scale")


def test_their_parts_do_not_change_alone(saved: Path, tmp_path: Path) -> None:
    way = "reorder.dequantize(reorder.load_all(path, reorder.Quantized)['w']) decodes it"
    way_out = f"'w' is a Quantized: {way}"
    for rule in ("w: ba", "w_scale: f16", "w*: ba", "w: f32"):
        assert way_out in refused(saved, tmp_path / "out.safetensors", rule)
    assert way_out in refused(saved, tmp_path / "out.safetensors", to="bf16")
    w = reorder.dequantize(reorder.load_all(saved, reorder.Quantized)["w"])
    assert w.desc.dtype.name == "f32"
    assert "'fc: awq -> ...'" in refused(saved, tmp_path / "out.safetensors", "fc.scales: ba")
    rules = ("fc: awq -> gptq", "fc.scales: rename=x")  # which the record would ignore
    said = refused(saved, tmp_path / "out.safetensors", *rules)
    assert "fc.scales would no longer fit fc.qweight, fc.qzeros" in said


def test_the_descriptor_says_which_record_it_is(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with reorder.open_checkpoint(saved) as checkpoint:
        for name in ((), ("awq",)):
            assert checkpoint.record("fc", *name).desc == record()[0].desc
        assert np.array_equal(reorder.dequantize(checkpoint.record("fc")).numpy(), record()[1])
        for other, options in (("gptq", {}), ("awq", {"group": 32})):
            with pytest.raises(MemdescError, match=r"stored (with|as part of)"):
                checkpoint.record("fc", other, **options)
        with pytest.raises(MemdescError, match="'w' is a Quantized: "):
            checkpoint.record("w")
        assert checkpoint["w"].scaled_by == ("w_scale", "w_zero_point")
    assert main(["inspect", str(saved)]) == 0
    shown = capsys.readouterr().out
    assert all(each in shown for each in ("awq qweight", "awq qzeros", "w: ", "is a Quantized"))


_WEIGHTS = {"type": "int", "num_bits": 4, "strategy": "channel"}
_OTHERS = {"group_0": {"targets": ["re:other"], "weights": _WEIGHTS}}
_COMPRESSED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
_NO_AWQ = "config.json: there is no record for quant_method 'awq'"


_AWQ, _GPTQ = record()[0], Record(record_desc((256, 16), "gptq", group=128, zeros="v2"))


@pytest.mark.parametrize(
    ("made", "section", "problem"),
    [
        (_AWQ, {"quant_method": "gptq"}, "declares gptq, not awq"),
        (_AWQ, {"quant_method": "awq", "group_size": 32}, "config.json declares group_size 32"),
        (_AWQ, {"quant_method": "awq", "version": "gemv"}, f"'fc' say awq, but {_NO_AWQ}"),
        (_AWQ, {"quant_method": "awq", "bits": 8}, f"'fc' say awq, but {_NO_AWQ}"),
        (_AWQ, {"quant_method": "awq", "bits": 4, "group_size": 64}, ""),
        # no group lists the layer
        (_AWQ, {**_COMPRESSED, "config_groups": _OTHERS}, ""),
        (_GPTQ, {"quant_method": "gptq", "checkpoint_format": "gptq"}, "gptq: 'fc.qweight' is "),
        (_GPTQ, {"quant_method": "gptq", "checkpoint_format": "gptq_v2"}, ""),
    ],
)
def test_a_config_agrees_with_the_descriptor_or_is_not_overruled(
    tmp_path: Path, made: Record, section: dict[str, Any], problem: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    save(folder / "model.safetensors", {"fc": made})
    write_config(folder, **section)
    # who asks for what was saved gets it, whatever a config says
    assert load_all(folder / "model.safetensors", Record)["fc"].desc == made.desc
    if problem:
        assert problem in refusal(folder)
        with pytest.raises(MemdescError) as caught:
            reorder.convert(folder, tmp_path / "out", to="bf16")
        assert problem in str(caught.value)
    else:
        assert record_in(folder, "fc.qweight").desc == made.desc


def test_declared_weights_of_a_model_are_records(tmp_path: Path) -> None:
    tensors = model_folder(tmp_path / "m")
    found = load_all(tmp_path / "m", Record)
    with reorder.open_checkpoint(tmp_path / "m") as checkpoint:
        for name, each in found.items():
            wanted = reorder.dequantize(checkpoint.record(name)).numpy()
            assert np.array_equal(reorder.dequantize(each).numpy(), wanted)
    assert [*found] == [f"model.layers.{k}.mlp" for k in range(2)]
    plain = load_all(tmp_path / "m", reorder.Memory)
    assert {*plain} == {name for name in tensors if ".mlp." not in name}
    with pytest.raises(MemdescError, match=r"'model.layers.0.mlp' is a Record, not a Memory"):
        load_all(tmp_path / "m")


def test_codes_that_are_not_what_config_declares_are_read_only_as_they_are_stored(
    tmp_path: Path,
) -> None:
    layer = {f"fc.{name}": x for name, x in fp8_layer().items()}
    write_safetensors(tmp_path / "x.safetensors", layer)
    assert {*load_all(tmp_path / "x.safetensors")} == {*layer}  # nothing declares a record
    write_config(tmp_path, quant_method="awq", bits=4)
    for kind in (None, Record):
        with pytest.raises(MemdescError, match=r"declares awq: .*; load_all"):
            load_all(tmp_path / "x.safetensors", kind)
    assert {*load_all(tmp_path / "x.safetensors", reorder.Memory)} == {*layer}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{", "it is not JSON"),
        ('{"quantization_config": "awq"}', "is not a JSON object"),
        ('{"quantization_config": {"quant_method": 3}}', "must be a string, not 3"),
    ],
)
def test_a_damaged_config_does_not_keep_tensors_from_being_read_as_they_are_stored(
    tmp_path: Path, config: str, problem: str
) -> None:
    layer = {f"fc.{name}": x for name, x in fp8_layer().items()}
    write_safetensors(tmp_path / "x.safetensors", layer)
    (tmp_path / "config.json").write_text(config)
    for kind in (None, Record):
        with pytest.raises(MemdescError, match=rf"{problem}.*; load_all\(path, reorder.Memory\)"):
            load_all(tmp_path / "x.safetensors", kind)
    assert {*load_all(tmp_path / "x.safetensors", reorder.Memory)} == {*layer}
    assert problem in refusal(tmp_path, "fc", "fp8_block")


def test_a_weight_with_a_note_is_asked_for_again(tmp_path: Path) -> None:
    reorder.save(tmp_path / "x.npz", {"w": reorder.quantize(np.ones((4, 8), np.float32), "s8")})
    with reorder.open_checkpoint(tmp_path / "x.npz") as found:
        for _ in range(2):
            assert isinstance(found["w"].weight(), reorder.Quantized)
