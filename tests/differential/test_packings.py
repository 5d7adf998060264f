"""Packings of weights as torch, torchao and onnxruntime make and use them."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc.record import record_desc
from tests.programs import run_python
from tests.records import plain_scales, random_record

pytestmark = pytest.mark.peers

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

# what torch calls the instructions that it uses -> the packing, and the record
_CPU_NAMES = {
    "AVX512": "torch_int4_cpu",
    "AVX2": "torch_int4_cpu_avx2",
    "DEFAULT": "torch_int4_cpu_default",
}
_PACK = """
import sys, numpy as np, torch
q = torch.from_numpy(np.load(sys.argv[1]).astype(np.int32))
np.save(sys.argv[2], torch.ops.aten._convert_weight_to_int4pack_for_cpu(q, 1).numpy())
print(torch.backends.cpu.get_cpu_capability())
"""


def four_bits(*dims: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 16, dims, np.uint8)


@pytest.mark.parametrize("capability", ["", "avx2", "default"])
def test_torch_packs_int4_weights_for_cpus_as_the_name_says(
    capability: str, tmp_path: Path
) -> None:
    q = four_bits(128, 96)
    np.save(tmp_path / "q.npy", q)
    files = tmp_path / "q.npy", tmp_path / "packed.npy"
    ran = run_python("-c", _PACK, *files, ATEN_CPU_CAPABILITY=capability)
    ours = reorder.reorder(q, _CPU_NAMES[ran.stdout.strip()], dtype="u4")
    assert np.array_equal(ours.data, np.load(tmp_path / "packed.npy").reshape(-1))


@pytest.mark.parametrize("source", ["gptq", "awq"])
def test_torch_multiplies_with_what_was_repacked_from_gpu_formats(source: str) -> None:
    rng = np.random.default_rng(0)
    desc = record_desc((256, 128), source, group=64)
    record = plain_scales(random_record(desc, rng), rng)
    name = _CPU_NAMES[torch.backends.cpu.get_cpu_capability()]
    packed = reorder.records.repack(record, name, scales="f32")
    numbers = reorder.dequantize(record).numpy()
    assert np.array_equal(reorder.dequantize(packed).numpy().T, numbers)

    # torch's own way: codes of 32 bits, packed by its operator
    pack = torch.ops.aten._convert_weight_to_int4pack_for_cpu  # noqa: SLF001 - the operator's name
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu  # noqa: SLF001 - likewise
    theirs = pack(torch.from_numpy(packed.field("weight").astype(np.int32)), 1)
    ours = torch.from_numpy(packed.tensors["weight"]).view(theirs.shape)
    assert torch.equal(ours, theirs)

    pairs = torch.from_numpy(packed.tensors["scales_and_zeros"].view(np.float32))
    pairs = pairs.view(256 // 64, 128, 2)
    x = torch.from_numpy(rng.standard_normal((4, 256), np.float32))
    product = multiply(x, ours, 64, pairs)
    assert torch.equal(product, multiply(x, theirs, 64, pairs))
    expected = x.double() @ torch.from_numpy(numbers).double()
    assert torch.allclose(product.double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
@pytest.mark.parametrize("inner_k_tiles", [2, 4, 8])
@pytest.mark.parametrize("rows", [64, 20])
def test_torch_packs_int4_weights_for_gpus_as_the_name_says(rows: int, inner_k_tiles: int) -> None:
    q = four_bits(rows, 256)
    pairs = torch.from_numpy(q[:, ::2] << 4 | q[:, 1::2]).cuda()
    pack = torch.ops.aten._convert_weight_to_int4pack  # noqa: SLF001 - the operator's name
    theirs = pack(pairs, inner_k_tiles).cpu().numpy()
    ours = reorder.reorder(q, f"tinygemm_k{inner_k_tiles}", dtype="u4")
    assert np.array_equal(ours.data, theirs.view(np.uint8).reshape(-1))


@pytest.mark.parametrize(("rows", "columns"), [(256, 8), (130, 5), (1, 1)])
def test_torchao_packs_block_scales_as_the_name_says(rows: int, columns: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own parts that are for other machines
        utils = pytest.importorskip("torchao.prototype.mx_formats.utils")
    scales = np.random.default_rng(0).integers(0, 255, (rows, columns), np.uint8)
    theirs = utils.to_blocked(torch.from_numpy(scales)).numpy().reshape(-1)
    assert np.array_equal(reorder.reorder(scales, "nvfp4_scales").data, theirs)


def _model() -> Any:
    """Return a model of three convolutions: of three channels, of blocks, depthwise."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    make = onnx.helper
    rng = np.random.default_rng(0)
    shapes = {"first": (32, 3, 3, 3), "blocks": (48, 32, 3, 3), "depthwise": (48, 1, 3, 3)}
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        make.make_node("Conv", ["x", "first"], ["a"], pads=[1, 1, 1, 1]),
        make.make_node("Conv", ["a", "blocks"], ["b"], pads=[1, 1, 1, 1]),
        make.make_node("Conv", ["b", "depthwise"], ["y"], group=48),
    ]
    ends = [
        make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 16, 16]), ("y", [1, 48, 14, 14]))
    ]
    graph = make.make_graph(nodes, "convolutions", ends[:1], ends[1:], weights)
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 13)], ir_version=8)


def test_onnxruntime_runs_filters_that_were_packed_here(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    model = _model()
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # it warns that the saved model is for this machine
    options.optimized_model_filepath = str(tmp_path / "packed.onnx")
    cpu = ["CPUExecutionProvider"]
    plain = runtime.InferenceSession(model.SerializeToString(), options, providers=cpu)
    packed = onnx.load(tmp_path / "packed.onnx")
    names = ("mlas_oihwbo", "mlas_oihwbibo", "mlas_oihwbo")
    assert len(packed.graph.initializer) == len(names)
    for name, before, after in zip(
        names, model.graph.initializer, packed.graph.initializer, strict=True
    ):
        filters = onnx.numpy_helper.to_array(before)
        theirs = onnx.numpy_helper.to_array(after)
        ours = {n: reorder.reorder(filters, f"{name}{n}").data.view(np.float32) for n in (8, 16)}
        # the block is that of the vector registers
        (n,) = (n for n in ours if np.array_equal(ours[n], theirs.reshape(-1)))
        after.raw_data = ours[n].tobytes()
    again = runtime.InferenceSession(packed.SerializeToString(), providers=cpu)
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    (expected,) = plain.run(None, {"x": x})
    (found,) = again.run(None, {"x": x})
    assert np.abs(expected).max() > 1
    assert np.array_equal(found, expected)
