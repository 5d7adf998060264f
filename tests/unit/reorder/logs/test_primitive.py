"""Primitives of verbose lines as values: `primitives.txt` has dims and attributes of each form."""

from pathlib import Path
from typing import Any

import pytest

from memdesc import RUNTIME
from reorder.logs import VerboseAttributes, VerbosePrimitive
from reorder.logs.primitive import PostOp, Problem, QuantizationParameter
from tests.refused import sections

_DIMS, _UNDERSTOOD, _KEPT = (
    [line.partition("  #")[::2] for line in lines]
    for lines in sections(Path(__file__).with_name("primitives.txt")).values()
)


def _primitive(
    kind: str, problem: str, names: str = "", attributes: str = "", aux: str = ""
) -> VerbosePrimitive:
    descriptors = " ".join(f"{name}:f32::blocked:a::f0" for name in names.split())
    return VerbosePrimitive("cpu", kind, "jit:uni", "undef", descriptors, attributes, aux, problem)


def _read(attributes: str) -> VerboseAttributes:
    return _primitive("matmul", "", attributes=attributes).attributes


def test_the_dims_of_tensors_follow_from_the_problem() -> None:
    for line, said in _DIMS:
        kind, problem, *more = line.split()
        wanted = dict(each.split("=") for each in said.split())
        # the comma is a blank in oneDNN 2.0 to 2.2
        primitive = _primitive(
            kind, problem.replace(",", " "), " ".join(wanted), aux=" ".join(more)
        )
        found = {
            name: "x".join("*" if n == RUNTIME else str(n) for n in tensor.dims or ()) or "-"
            for name, tensor in primitive.tensors.items()
        }
        assert found == wanted, line


@pytest.mark.parametrize("text", ["", "nothing", "2x", "x", "mb2ic", "2x3:", "m1;k2"])
def test_other_strings_give_no_dims(text: str) -> None:
    assert _primitive("convolution", text).sizes == Problem({}, ())
    tensors = _primitive("convolution", text, "src wei dst").tensors
    assert not any(tensor.dims for tensor in tensors.values())


def _attributes(text: str) -> VerboseAttributes:
    def parameter(argument: str, mask: int, **more: Any) -> QuantizationParameter:
        return QuantizationParameter(argument, mask)._replace(**more)

    names = {"A": VerboseAttributes, "P": parameter, "PostOp": PostOp}
    found: VerboseAttributes = eval(f"A({text})", names)
    return found


def test_attributes_are_read_as_all_versions_print_them() -> None:
    for line, wanted in _UNDERSTOOD:
        assert _read(line) == _attributes(wanted), line
        assert not _read(line).not_understood, line


def test_what_is_not_understood_is_kept_and_said() -> None:
    for line, kept in _KEPT:
        assert not kept or _read(line) == _attributes(kept), line
        assert _read(line).not_understood, line
        assert _read(f"attr-fpmath:bf16:true {line}").not_understood, line


def test_attributes_keep_their_order() -> None:
    kept = [(line, _attributes(kept)) for line, kept in _KEPT if line.startswith("attr-")]
    found = _read(" ".join(line for line, _ in kept)).others
    assert found == tuple(other for _, each in kept for other in each.others)
