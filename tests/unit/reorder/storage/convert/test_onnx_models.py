"""Converted ONNX models compute what the originals do."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from reorder import ConvertOptions
from reorder.storage.containers.onnx import message_field
from reorder.storage.containers.table import plan_file, read_container
from tests.unit.reorder.storage.convert.results import refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = pytest.mark.peers

_RNG = np.random.default_rng(0)
_W = {name: _RNG.random((32, 32), np.float32) for name in ("w", "then_w", "else_w", "unused")}
_X = _RNG.random((4, 32), np.float32)


def _gemm(source: str, weight: str, target: str) -> Any:
    from onnx import helper  # a peer

    return helper.make_node("Gemm", [source, weight], [target])


def _value(name: str, shape: tuple[int, ...] = (4, 32)) -> Any:
    from onnx import TensorProto, helper  # a peer

    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _initializers(*names: str) -> list[Any]:
    from onnx import numpy_helper  # a peer

    return [numpy_helper.from_array(_W[name], name) for name in names]


def _branch(name: str) -> Any:
    """Return an inner graph with a weight of its own, which also uses one of the outer graph."""
    from onnx import helper  # a peer

    nodes = [_gemm("y", f"{name}_w", f"{name}_t"), _gemm(f"{name}_t", "outer", f"{name}_out")]
    return helper.make_graph(
        nodes, name, [], [_value(f"{name}_out")], initializer=_initializers(f"{name}_w")
    )


def _model(path: Path, *, is_external: bool = False) -> Path:
    """Write a model of branches, a function, and weights: used, sparse, given back, unused."""
    import onnx  # a peer
    from onnx import TensorProto, helper, numpy_helper  # a peer

    branches = {f"{name}_branch": _branch(name) for name in ("then", "else")}
    constant = numpy_helper.from_array(_W["w"][:4], "constant")
    values = helper.make_tensor("sparse", TensorProto.FLOAT, (2,), [1.0, 2.0])
    places = helper.make_tensor("", TensorProto.INT64, (2,), [0, 5])
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["c"], value=constant),
            _gemm("x", "w", "y"),
            helper.make_node("If", ["flag"], ["z"], **branches),
            helper.make_node("Plus", ["z", "c"], ["zc"], domain="mine"),
            helper.make_node("Reshape", ["sparse", "shape"], ["dense"]),
            helper.make_node("Add", ["zc", "dense"], ["out"]),
        ],
        "g",
        [_value("x"), helper.make_tensor_value_info("flag", TensorProto.BOOL, ())],
        [_value("out"), _value("given", (32, 32))],
        initializer=[
            *_initializers("w", "unused"),
            numpy_helper.from_array(_W["w"] + 1, "outer"),
            numpy_helper.from_array(_W["w"] + 2, "given"),
            helper.make_tensor("shape", TensorProto.INT64, (2,), [4, 32]),
            numpy_helper.from_array(np.ones((2, 2), np.complex64), "complex"),
        ],
        sparse_initializer=[helper.make_sparse_tensor(values, places, [128])],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    plus = helper.make_node("Add", ["a", "b"], ["sum"])
    function = helper.make_function("mine", "Plus", ["a", "b"], ["sum"], [plus], opsets[:1])
    model = helper.make_model(graph, ir_version=10, opset_imports=opsets, functions=[function])
    path.parent.mkdir(exist_ok=True)
    onnx.save(
        model, path, save_as_external_data=is_external, size_threshold=0, convert_attribute=True
    )
    return path


def _outputs(path: Path) -> list[NDArray[Any]]:
    import onnxruntime  # a peer

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options)
    flags = [np.array(flag) for flag in (True, False)]
    return [each for flag in flags for each in session.run(None, {"x": _X, "flag": flag})]


def _same(one: Path, other: Path) -> bool:
    pairs = zip(_outputs(one), _outputs(other), strict=True)
    return all(np.array_equal(old, new) for old, new in pairs)


def _converted(source: Path, target: Path, *rules: str) -> Path:
    reorder.convert(source, target, rules, ConvertOptions(verify=True))
    return target


@pytest.mark.parametrize("is_external", [False, True])
def test_a_copy_in_another_folder_computes_the_same(tmp_path: Path, *, is_external: bool) -> None:
    import onnx  # a peer

    source = _model(tmp_path / "in" / "x.onnx", is_external=is_external)
    assert len(list(source.parent.iterdir())) > is_external
    (tmp_path / "out").mkdir()
    target = _converted(source, tmp_path / "out" / "y.onnx")
    onnx.checker.check_model(target, full_check=False)
    for path in source.parent.iterdir():
        path.rename(tmp_path / path.name)  # nothing of the input is needed
    assert sorted(path.name for path in target.parent.iterdir()) == ["y.onnx", "y.onnx.data"]
    assert _same(tmp_path / "x.onnx", target)


def test_models_that_share_a_file_of_data_are_each_written_whole(tmp_path: Path) -> None:
    source = _model(tmp_path / "in" / "x.onnx", is_external=True)
    other = source.with_name("z.onnx")
    other.write_bytes(source.read_bytes())
    for path in (source, other):
        assert _same(source, _converted(path, tmp_path / f"{path.stem}2.onnx"))


@pytest.mark.parametrize(
    "rule",
    [
        "w: ba",
        "w: f16",
        "w: Ab16a",
        "w: rename=v",
        "w: src_scale=2",
        "w: ab, s8, scales=all",
        "w: ab, dims=16x64",
        "outer: ba",
        "given: ba",
        "o*: f16",
        "unused: rename=y",
        "unused: rename=then_w",
        "unused: rename=sparse",
        "unused: rename=x",
    ],
)
@pytest.mark.parametrize("is_external", [False, True])
def test_what_the_model_refers_to_is_not_changed(
    tmp_path: Path, rule: str, *, is_external: bool
) -> None:
    source = _model(tmp_path / "in" / "x.onnx", is_external=is_external)
    said = refused(source, tmp_path / "y.onnx", rule)
    assert "or write 'y.safetensors'" in said


def test_two_names_are_not_swapped(tmp_path: Path) -> None:
    source = _model(tmp_path / "in" / "x.onnx")
    rules = ["w: rename=outer", "outer: rename=w"]
    said = refused(source, tmp_path / "y.onnx", *rules)
    assert "would change, 'outer', 'w'; keep their names" in said


@pytest.mark.parametrize("is_external", [False, True])
@pytest.mark.parametrize(
    "rule",
    [
        "unused: ba",
        "unused: f16",
        "unused: Ab16a",
        "unused: rename=other",
        "unused: ab, u4, scales=all",
    ],
)
def test_what_nothing_refers_to_may_change(tmp_path: Path, rule: str, *, is_external: bool) -> None:
    source = _model(tmp_path / "in" / "x.onnx", is_external=is_external)
    target = _converted(source, tmp_path / "y.onnx", rule)
    assert _same(source, target)


def test_external_data_of_inner_graphs_stays_in_the_folder(tmp_path: Path) -> None:
    import onnx  # a peer

    for location, reason in (("../x", "leads out of"), ("none", "cannot be read")):
        path = _model(tmp_path / "in" / "x.onnx", is_external=True)
        model = onnx.load(path, load_external_data=False)
        tensor = model.graph.node[2].attribute[0].g.initializer[0]
        next(pair for pair in tensor.external_data if pair.key == "location").value = location
        path.write_bytes(model.SerializeToString())
        assert reason in refused(path, tmp_path / "y.onnx")
        for each in path.parent.iterdir():
            each.unlink()


def test_a_graph_of_many_small_fields_takes_a_few_times_its_bytes(tmp_path: Path) -> None:
    path = _model(tmp_path / "in" / "x.onnx")
    before = path.read_bytes()
    for count in (10_000, 100_000):
        path.write_bytes(before + message_field(7, b"\x98\x06\x01" * count))
        metadata = read_container(path).metadata
        tracemalloc.start()
        with pytest.raises(MemdescError, match="would change"):
            plan_file(tmp_path / "y.onnx", [], metadata)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 4 * path.stat().st_size + (1 << 20)


def test_a_damaged_graph_is_refused(tmp_path: Path) -> None:
    path = _model(tmp_path / "in" / "x.onnx")
    path.write_bytes(path.read_bytes() + b"\x3a\x03\x0a\x01\xff")
    assert "damaged" in refused(path, tmp_path / "y.onnx")


def test_types_that_only_onnx_has_are_refused_elsewhere(tmp_path: Path) -> None:
    source = _model(tmp_path / "in" / "x.onnx")
    assert not reorder.convert(source, tmp_path / "y.onnx").warnings
    assert "complex64" in refused(source, tmp_path / "y.safetensors")


def test_blocks_without_a_graph_are_written(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", w=_W["w"])
    target = _converted(tmp_path / "x.npz", tmp_path / "y.onnx", "w: Ab16a, f16")
    assert read_container(target).entries["w"].desc == memory_desc((32, 32), "f16", "Ab16a")


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_codes_whose_scales_only_nodes_know_are_not_taken_for_numbers(
    tmp_path: Path, kind: str
) -> None:
    import onnx  # a peer
    from onnx import helper, numpy_helper  # a peer

    codes = _RNG.integers(0, 100, (32, 32)).astype(kind)
    held = {"MatMul_12": codes, "val_3": np.float32(0.01), "val_4": codes[:1, 0].reshape(())}
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", [*held], ["w"]),
            helper.make_node("MatMul", ["x", "w"], ["out"]),
        ],
        "g",
        [_value("x")],
        [_value("out")],
        initializer=[numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    source = tmp_path / "x.onnx"
    onnx.save(helper.make_model(graph), source)
    for rule in ("MatMul_12: f32", "MatMul_12: ba", "val_4: f32"):
        said = refused(source, tmp_path / "y.safetensors", rule)
        assert "holds codes whose scales only the nodes of the model know" in said
    settings = ConvertOptions(allow_partial=True)
    report = reorder.convert(source, tmp_path / "y.safetensors", ["MatMul_12: f32"], settings)
    assert "changes MatMul_12 without its scales" in report.warnings[0]
    reorder.convert(source, tmp_path / "z.safetensors", ["val_3: f16"], ConvertOptions())
