"""Conversions that are refused before anything is written: `refused.txt` has a line for each."""

from itertools import repeat
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from reorder.checkpoints import ConvertOptions
from tests import refused
from tests.checkpoints import write_safetensors
from tests.unit.reorder.checkpoints.convert import results
from tests.unit.reorder.checkpoints.schemes import recorded

_CONV = "conv.weight: ohwi"
_SECTIONS = refused.sections(Path(__file__).with_name("refused.txt"))


@pytest.mark.parametrize("section", _SECTIONS)
def test_a_call_is_refused_before_anything_is_written(
    model: Path, tmp_path: Path, section: str
) -> None:
    def call(out: str = "out", **given: Any) -> None:
        options = ConvertOptions(**{k: given.pop(k) for k in {*ConvertOptions._fields} & {*given}})
        target = tmp_path / out
        reorder.convert(model, target, **{"map": [_CONV], "options": options, **given})

    def rule(*lines: str, out: str = "out", **given: Any) -> None:
        try:
            call(out, map=lines, **given)
        except MemdescError as error:
            assert f"rule {lines[0]!r}" in str(error)
            assert "\n" not in str(error)
            raise

    def file(text: bytes) -> None:
        (tmp_path / "rules.txt").write_bytes(text)
        call(map=[tmp_path / "rules.txt"])

    def number(dtype: Any, value: float, kind: str) -> None:
        x = np.ones((64, 8), dtype)
        x[40, 3] = value
        source = tmp_path / "x.safetensors"
        write_safetensors(source, {"w": x, "v": np.ones(3, np.float32)})
        options = ConvertOptions(threads=1, max_bytes=4096)
        reorder.convert(source, tmp_path / "out.npz", map=[f"w: {kind}"], options=options)

    names: dict[str, Any] = {"np": np, "bf16": ml_dtypes.bfloat16, "number": number}
    names |= {"call": call, "rule": rule, "file": file, "CONV": _CONV, "repeat": repeat}
    refused.check(_SECTIONS[section], names)
    assert {path.name for path in tmp_path.iterdir()} <= {"model", "rules.txt", "x.safetensors"}


@pytest.mark.parametrize("is_last", [True, False])
def test_parts_of_records_that_only_some_weights_have_are_refused_in_any_order(
    tmp_path: Path, *, is_last: bool
) -> None:
    parts = recorded("pack_quantized", (64, 64), group=32, zeros=True)[0]
    with_zeros = {f"a{name}": array for name, array in parts.items()}
    without = {f"b{name}": x for name, x in parts.items() if name != ".weight_zero_point"}
    both = {**without, **with_zeros} if is_last else {**with_zeros, **without}
    source = tmp_path / "in.safetensors"
    for roles, missing in (
        (("zero_point",), "weight_packed, weight_scale, weight_shape: a record of pack_quantized"),
        (("packed", "shape"), "weight_scale: a record of pack_quantized has"),
        (("packed",), "weight_scale, weight_"),
    ):
        held = {f"c.weight_{role}": parts[f".weight_{role}"] for role in roles}
        write_safetensors(source, both | held)
        rule = "*: pack_quantized -> plain, f32"
        said = results.refused(source, tmp_path / "out.safetensors", rule)
        names = ", ".join(f"weight_{role}" for role in roles)
        assert f"c has {names}, but no {missing}" in said
