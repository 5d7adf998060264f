"""Numbers of converted tensors: records, scales that are chosen or given, and types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import reorder
from tests.checkpoints import write_safetensors
from tests.unit.reorder.storage.convert.results import SMALL, converted, refused

if TYPE_CHECKING:
    from pathlib import Path


def test_scales_of_no_elements_are_1(tmp_path: Path) -> None:
    source = tmp_path / "in.npz"
    np.savez(source, a=np.ones((1, 0), np.float32), b=np.ones((0, 3), np.float32))
    rules = ("a: u8, scales=a", "b: AB4a4b, s8, scales=ab")
    found = converted(source, tmp_path / "out.safetensors", *rules)
    assert found["a_scale"].tolist() == [1]
    assert found["a_zero_point"].tolist() == [0]
    assert found["b_scale"].shape == (0, 3)


def test_scales_are_chosen_for_no_types_that_quantize_does_not_take(tmp_path: Path) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_safetensors(source, {"w": np.ones((8, 8), np.float32)})
    small = tmp_path / "small.safetensors"
    reorder.convert(source, small, ["w: f8_e4m3"], SMALL)
    said = refused(small, out, "w: s8, scales=a")
    assert "quantize takes floats of 16 bits or more, not f8_e4m3" in said


def test_scales_that_are_given_are_applied(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    found = converted(model, out, "lm_head.weight: s8, scale=0.05, zero_point=3")
    x = reorder.open_checkpoint(model)["lm_head.weight"].numpy()
    attr = reorder.Attr(dst_scale=0.05, dst_zero_point=3, saturate=True)
    assert np.array_equal(
        found["lm_head.weight"], reorder.reorder(x, dtype="s8", attr=attr).numpy()
    )


def test_types_that_an_archive_does_not_have_come_back(tmp_path: Path) -> None:
    names = ("in.safetensors", "b.npz", "c.gguf", "d.safetensors")
    first, *others = (tmp_path / name for name in names)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_safetensors(tmp_path / "x.safetensors", {"x": x, "y": x})
    rules = ["x: bf16", "y: f8_e5m2"]
    reorder.convert(tmp_path / "x.safetensors", first, rules, SMALL)
    source = first
    for target in others:
        reorder.convert(source, target, [], SMALL)
        source = target
    with reorder.open_checkpoint(first) as old, reorder.open_checkpoint(source) as new:
        assert new.metadata == {}
        for name, dtype in (("x", "bf16"), ("y", "f8_e5m2")):
            assert (new[name].dtype, new[name].shape) == (dtype, (2, 3))
            assert new[name].data.tobytes() == old[name].data.tobytes()


def test_tensors_without_a_data_type_are_copied(tmp_path: Path) -> None:
    x = np.arange(8, dtype=np.complex64)
    write_safetensors(tmp_path / "x.safetensors", {"x": x})
    reorder.convert(
        tmp_path / "x.safetensors", tmp_path / "y.safetensors", [], reorder.ConvertOptions()
    )
    with reorder.open_checkpoint(tmp_path / "y.safetensors") as found:
        assert (found["x"].dtype, found["x"].data.tobytes()) == ("C64", x.tobytes())
    said = refused(tmp_path / "x.safetensors", tmp_path / "z.safetensors", "x: f32")
    assert "rule 'x: f32': x: memdesc has no data type" in said
