"""Every hint of reorder works: the call that fails, what its message says, the call that follows.

A hint in one of the modules below that no row covers fails a test.
"""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memdesc
import reorder
from memdesc import array_desc, image_desc, memory_desc
from reorder import Memory, logs, plan_reorder
from reorder.cli import main
from tests import hints
from tests.hints import ROOT, Row

# covered beside the command line, devices, Dask and Zarr; not covered: checkpoints
_OTHERS = (
    "reorder/bench/",
    "reorder/cli/",
    "reorder/dask.py",
    "reorder/opencl/",
    "reorder/checkpoints/",
    "reorder/zarr.py",
)
MODULES = [
    module
    for path in sorted((ROOT / "reorder").rglob("*.py"))
    if not (module := path.relative_to(ROOT).as_posix()).startswith(_OTHERS)
]
# not typed: most calls are mistakes that a type checker would find
md: Any = memdesc
r: Any = reorder

X = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)
D = memory_desc((2, 3), "f32", "ab")
PADDED = memory_desc((3,), "u8", "A4a")
PLAN = plan_reorder(D, "ba")
SIX = np.zeros((2, 3), np.float32)
S4 = memory_desc((2, 4), "s4", "ab")


def run(plan: reorder.plan.ReorderPlan, x: object, out: object) -> object:
    reorder.execute(plan, x, out)
    return out


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


class Tensor:
    """A tensor with what torch's have, over an array."""

    def __init__(
        self,
        array: Any,
        *,
        requires_grad: bool = False,
        negated: bool = False,
        device: object = (1, 0),
    ) -> None:
        self.array, self.device = array, device
        self.requires_grad, self.negated = requires_grad, negated

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.device or self.array.device_of_nothing

    def is_neg(self) -> bool:
        return self.negated

    def resolve_neg(self) -> Tensor:
        return Tensor(-self.array)

    def detach(self) -> Tensor:
        return Tensor(self.array)


class Nested:
    """An object with the array protocol alone."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(X, dtype, copy=copy)


_MISALIGNED = np.zeros(25, np.uint8)[1:]
_STEPPED = np.zeros((2, 6), np.float32)[:, ::2]
_ODD = np.zeros(5, np.dtype([("a", "u1"), ("b", "<f4")]))["b"]
_REPEATED = memory_desc((4, 3), "u8", strides=(0, 1))

SIGNED = np.arange(-4, 4, dtype=np.float32).reshape(2, 4)
QUANTIZED = reorder.quantize(SIGNED, "s8")
RECORD = reorder.records.Record(md.record.record_desc((2, 32), "q4_0"))
SEVERAL = reorder.records.Record(md.record.record_desc((2, 4), "fp8_channel"))
SCALE = np.ones((2, 1), np.float32)
ONES = np.ones((2, 1), np.float16)
STEPPED_BYTES = np.zeros(72, np.uint8)[::2]
BLOCKS = np.zeros((2, 18), np.uint8)
SHARED = np.zeros(256, np.uint8)
RUNTIME = md.runtime_desc((md.RUNTIME, 3), "f32", "ab")
HUGE = Memory(memory_desc((0, 2**62), "f64", "ab"))
MASKED = np.ma.masked_less(SIGNED, 0)
S8 = memory_desc((4, 4), "s8", "ab")
SUMS = S8.with_extra(md.Extra(s8s8_mask=1))
HALVED = plan_reorder(D, D.with_dtype("f16"))
DATA = ROOT / "tests/data/layers"
LOG = logs.read_verbose(DATA / "torch-2.13.log")

ROWS = (
    Row(
        "reorder() packs them",
        lambda: array_desc(np.zeros(4, S4.dtype.numpy)),
        lambda: reorder.reorder(np.zeros(4, S4.dtype.numpy), "a"),
    ),
    # buffers
    Row(
        "pass its bytes, .data",
        lambda: run(PLAN, Memory(D), SIX),
        lambda: run(PLAN, Memory(D).data, SIX.copy()),
    ),
    Row(
        "pass f32 elements or raw bytes",
        lambda: run(PLAN, np.zeros((2, 3)), SIX),
        lambda: (run(PLAN, SIX, SIX.copy()), run(PLAN, SIX, np.zeros(24, np.uint8))),
    ),
    Row(
        "describe it with array_desc() or copy it",
        lambda: run(PLAN, _STEPPED, SIX),
        lambda: (run(PLAN, _STEPPED.copy(), SIX.copy()), array_desc(_STEPPED)),
    ),
    Row(
        "pass a writable buffer, or a copy",
        lambda: run(PLAN, SIX, bytes(24)),
        lambda: (run(PLAN, SIX, bytearray(24)), run(PLAN, SIX, SIX.copy())),
    ),
    Row(
        "bytes of f32; copy it",
        lambda: run(PLAN, _MISALIGNED, SIX),
        lambda: run(PLAN, _MISALIGNED.copy(), SIX.copy()),
    ),
    Row(
        "pass a numpy array or bytes",
        lambda: run(PLAN, "x", SIX),
        lambda: (run(PLAN, bytes(24), SIX.copy()), run(PLAN, SIX, SIX.copy())),
    ),
    Row(
        "pass a writable numpy array or a bytearray",
        lambda: run(PLAN, SIX, "x"),
        lambda: (run(PLAN, SIX, bytearray(24)), run(PLAN, SIX, SIX.copy())),
    ),
    # Memory
    Row(
        "pass a copy, or zero_pad=False if it is zero already",
        lambda: Memory(PADDED, bytes(4)),
        lambda: (Memory(PADDED, bytearray(bytes(4))), Memory(PADDED, bytes(4), zero_pad=False)),
    ),
    Row(
        "so numpy(copy=False) is impossible; see blocks() for a view",
        lambda: reorder.reorder(X, "nChw4c").numpy(copy=False),
        lambda: reorder.reorder(X, "nChw4c").blocks(),
    ),
    Row(
        "attach a copy",
        lambda: Memory(D, bytes(24)).apply(np.negative),
        lambda: Memory(D, bytearray(bytes(24))).apply(np.negative),
    ),
    # reorder
    Row(
        "pass np.asarray(x)",
        lambda: reorder.reorder([[1.0, 2.0]], "ba"),  # type: ignore[call-overload] # the mistake
        lambda: reorder.reorder(np.asarray([[1.0, 2.0]]), "ba"),
    ),
    Row(
        "pass np.asarray(x)",
        lambda: reorder.reorder(Nested(), "nhwc"),  # type: ignore[call-overload] # likewise
        lambda: reorder.reorder(np.asarray(Nested()), "nhwc"),
    ),
    Row(
        "to describe raw bytes, pass src=, a MemoryDesc",
        lambda: reorder.reorder(bytes(24), "ba"),  # type: ignore[call-overload] # likewise
        lambda: reorder.reorder(bytes(24), "ba", src=D),  # type: ignore[call-overload] # a buffer
    ),
    Row(
        "pass its elements as a numpy array",
        lambda: reorder.reorder(3, "a"),  # type: ignore[call-overload] # likewise
        lambda: reorder.reorder(np.array([3]), "a"),
    ),
    Row(
        "pass dst, the layout to move into ('plain' is row-major), or out",
        lambda: reorder.reorder(SIX),
        lambda: (
            reorder.reorder(SIX, "plain"),
            reorder.reorder(SIX, out=Memory(D)),
            reorder.reorder(SIX, dtype="f16"),
        ),
    ),
    Row(
        "leave them out, or pass an out with that descriptor",
        lambda: reorder.reorder(SIX, "ba", out=Memory(D)),
        lambda: (
            reorder.reorder(SIX, out=Memory(D)),
            reorder.reorder(SIX, "ba", out=Memory(PLAN.dst)),
        ),
    ),
    Row(
        "pass a writable array, or leave it out",
        lambda: reorder.reorder(SIX, "ba", out=read_only(np.zeros((2, 3), np.float32))),
        lambda: (
            reorder.reorder(SIX, out=np.zeros((2, 3), np.float32)),
            reorder.reorder(SIX, "ba"),
        ),
    ),
    Row(
        "pass a Memory, which holds two",
        lambda: reorder.reorder(np.zeros((2, 4), S4.dtype.numpy), out=np.zeros((2, 4), "int4")),
        lambda: reorder.reorder(np.zeros((2, 4), S4.dtype.numpy), out=Memory(S4)),
    ),
    Row(
        "for a flat buffer give src=memory_desc(dims, dtype, 'nhwc')",
        lambda: reorder.reorder(X.reshape(-1), "nchw", src="nhwc"),
        lambda: reorder.reorder(
            X.reshape(-1), "nchw", src=memory_desc((1, 4, 3, 2), "f32", "nhwc")
        ),
    ),
    Row(
        "pass a MemoryDesc as src",
        lambda: reorder.reorder(np.zeros((1, 1, 4, 8, 16), "f4"), "nchw", src="bf8_xy16"),
        lambda: reorder.reorder(
            np.zeros((1, 1, 4, 8, 16), "f4"),
            "nchw",
            src=memory_desc((1, 8, 8, 8), "f32", "bf8_xy16"),
        ),
    ),
    Row(
        "leave src out",
        lambda: reorder.reorder(X.transpose(0, 2, 3, 1), "nchw", src="nhwc"),
        lambda: (
            reorder.reorder(X.transpose(0, 2, 3, 1), "nchw"),
            reorder.reorder(np.ascontiguousarray(X.transpose(0, 2, 3, 1)), "nchw", src="nhwc"),
        ),
    ),
    Row(
        "if the axes are in memory order, give src=, such as src='nhwc'",
        lambda: reorder.reorder(X.transpose(0, 2, 3, 1).copy(), out=Memory(array_desc(X))),
        lambda: reorder.reorder(
            X.transpose(0, 2, 3, 1).copy(), out=Memory(array_desc(X)), src="nhwc"
        ),
    ),
    Row(
        "(see permute_axes, reshape, submemory)",
        lambda: plan_reorder(D, memory_desc((6,), "f32", "a")),
        lambda: plan_reorder(D.reshape((6,)), memory_desc((6,), "f32", "a")),
    ),
    Row(
        "leave it out, or pass out=Memory(image_desc.desc) and no dst",
        lambda: reorder.reorder(X, "in_out_channel", out=Memory(array_desc(X))),
        lambda: (
            reorder.reorder(X, "in_out_channel"),
            reorder.reorder(X, out=Memory(image_desc(X.shape, "f32", "in_out_channel").desc)),
        ),
    ),
    # quantization, records
    Row(
        "leave symmetric out",
        lambda: r.quantize(SIGNED, "u4", symmetric=True),
        lambda: (r.quantize(SIGNED, "u4"), r.quantize(SIGNED, "s4", symmetric=True)),
    ),
    Row(
        "pass the scales that quantize() returned",
        lambda: r.dequantize(QUANTIZED.memory),
        lambda: r.dequantize(QUANTIZED.memory, QUANTIZED.scales),
    ),
    Row("do not pass others", lambda: r.dequantize(RECORD, 2.0), lambda: r.dequantize(RECORD)),
    Row(
        "see record_desc()",
        lambda: r.records.Record(D),
        lambda: r.records.Record(md.record.record_desc((2, 32), "q4_0")),
    ),
    Row("see .tensors", lambda: SEVERAL.data, lambda: SEVERAL.tensors["weight"].data),
    Row(
        "pass a copy of it to Record",
        lambda: r.records.Record(RECORD.desc, bytes(36)).set_field("d", ONES),
        lambda: r.records.Record(RECORD.desc, bytearray(bytes(36))).set_field("d", ONES),
    ),
    Row(
        "pass a dict of weight, weight_scale",
        lambda: r.records.Record(SEVERAL.desc, bytes(4)),
        lambda: r.records.Record(SEVERAL.desc, SEVERAL.tensors),
    ),
    Row(
        "pass its bytes as uint8",
        lambda: r.records.Record(
            SEVERAL.desc, {**SEVERAL.tensors, "weight_scale": ONES.astype("f8")}
        ),
        lambda: r.records.Record(
            SEVERAL.desc, {**SEVERAL.tensors, "weight_scale": SCALE.view("u1")}
        ),
    ),
    Row(
        "from numpy.ascontiguousarray",
        lambda: r.records.Record(RECORD.desc, STEPPED_BYTES),
        lambda: r.records.Record(RECORD.desc, np.ascontiguousarray(STEPPED_BYTES)),
    ),
    Row(
        "pass the name, the number or the gguf.GGMLQuantizationType of one of",
        lambda: r.records.dequantize_gguf(BLOCKS, "Q9"),
        lambda: [r.records.dequantize_gguf(BLOCKS, each) for each in ("Q4_0", 2)],
    ),
    Row(
        "out is read-only; pass a writable array",
        lambda: r.records.dequantize_gguf(BLOCKS, "Q4_0", out=read_only(np.zeros((2, 32), "f4"))),
        lambda: r.records.dequantize_gguf(BLOCKS, "Q4_0", out=np.zeros((2, 32), "f4")),
    ),
    Row(
        "pass separate memory",
        lambda: r.records.dequantize_gguf(
            SHARED[:36].reshape(2, 18), "Q4_0", out=SHARED.view("f4").reshape(2, 32)
        ),
        lambda: r.records.dequantize_gguf(
            SHARED[:36].reshape(2, 18), "Q4_0", out=np.zeros((2, 32), "f4")
        ),
    ),
    # plans and attributes
    Row(
        "see memdesc.runtime_desc",
        lambda: r.plan.plan_runtime(D, D),
        lambda: r.plan.plan_runtime(RUNTIME, RUNTIME),
    ),
    Row(
        "pass a tag to runtime_desc",
        lambda: r.plan.plan_runtime(md.runtime_desc((2, 3), "f32", "*"), RUNTIME),
        lambda: r.plan.plan_runtime(md.runtime_desc((md.RUNTIME, 3), "f32", "ab"), RUNTIME),
    ),
    Row(
        "pass out=, the memory that holds it",
        lambda: r.reorder(SIX, "ba", attr=r.Attr(beta=1)),
        lambda: r.reorder(SIX, attr=r.Attr(beta=1), out=Memory(D)),
    ),
    Row(
        "pass a zero point of 0",
        lambda: plan_reorder(D, D, r.Attr(src_zero_point=3)),
        lambda: plan_reorder(D, D, r.Attr(src_zero_point=0)),
    ),
    Row(
        "pass x.filled(value), or x.data",
        lambda: r.reorder(MASKED, "ba"),
        lambda: (r.reorder(MASKED.filled(0), "ba"), r.reorder(MASKED.data, "ba")),
    ),
    Row(
        "use 'c' or 'c++', or with_extra(None)",
        lambda: plan_reorder(S8, SUMS).source("cuda"),
        lambda: (
            plan_reorder(S8, SUMS).source("c"),
            plan_reorder(S8, SUMS).source("c++"),
            plan_reorder(S8, SUMS.with_extra(None)).source("cuda"),
        ),
    ),
    Row(
        "use 'c' or 'c++'",
        lambda: HALVED.source("cuda"),
        lambda: (HALVED.source("c"), HALVED.source("c++")),
    ),
    Row("see plan_reorder", lambda: r.prepare(D), lambda: r.prepare(plan_reorder(D, D))),
    # arrays of a Memory
    Row("see .elements", lambda: Memory(S4).blocks(), lambda: Memory(S4).elements),
    Row("use .numpy()", lambda: Memory(D)[[0, 1]], lambda: Memory(D).numpy()[[0, 1]]),
    Row(
        "pass out.detach()",
        lambda: r.reorder(SIX, out=Tensor(SIX.copy(), requires_grad=True)),
        lambda: r.reorder(SIX, out=Tensor(SIX.copy(), requires_grad=True).detach()),
    ),
    Row(
        "pass x.resolve_neg()",
        lambda: r.reorder(Tensor(SIX, negated=True), "ba"),
        lambda: r.reorder(Tensor(SIX, negated=True).resolve_neg(), "ba"),
    ),
    Row(
        "pass a dense copy on the CPU",
        lambda: r.reorder(Tensor(None), "ba"),
        lambda: r.reorder(np.asarray(SIX), "ba"),
    ),
    Row(
        "pass a dense tensor on the CPU",
        lambda: r.reorder(Tensor(SIX, device=0), "ba"),
        lambda: r.reorder(Tensor(SIX), "ba"),
    ),
    Row(
        "pass a tensor",
        lambda: r.reorder(Tensor(SIX, device="cpu"), "ba"),
        lambda: r.reorder(Tensor(SIX), "ba"),
    ),
    Row("see .data", HUGE.blocks, lambda: HUGE.data),
    # identification, logs, kernels
    Row(
        "give like=, a tensor of the same values, or dims=, the logical sizes",
        lambda: r.identify(SIX),
        lambda: (r.identify(SIX, like=SIX), r.identify(SIX, dims=(2, 3))),
    ),
    Row(
        "give like=, a tensor of the same values, or leave it out",
        lambda: r.identify(SIX, dims=(2, 3), atol=1),
        lambda: (r.identify(SIX, SIX, atol=1), r.identify(SIX, dims=(2, 3))),
    ),
    Row(
        "holds references; pass bytes",
        lambda: r.identify(np.array([None]), dims=(8,)),
        lambda: r.identify(np.array([None]).tobytes(), dims=(8,)),
    ),
    Row("; pass bytes", lambda: r.identify(3, dims=(8,)), lambda: r.identify(bytes(8), dims=(8,))),
    Row(
        "give how many times the model ran",
        lambda: logs.report(LOG, runs=0),
        lambda: logs.report(LOG, runs=1),
    ),
    Row(
        "give what openvino.save_model(compiled.get_runtime_model(), 'model.xml') wrote",
        lambda: logs.read_layers(DATA / "torch-2.13.log"),
        lambda: [
            logs.read_layers(DATA / each) for each in ("openvino-2026.4.xml", "torch-2.13.json")
        ],
    ),
    Row(
        "give a list of names, such as ['f32']",
        lambda: r.precompile.compile_kernels("f32"),
        lambda: r.precompile.compile_kernels([], []),
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.hint[:60])
def test_a_hint_is_given_and_works(row: Row) -> None:
    hints.check(row)


def test_padding_over_broadcast_data_is_left_alone_if_the_caller_says_so() -> None:
    desc = copy(_REPEATED)
    assert Memory(desc, bytes(3), zero_pad=False).desc == desc


# not hints, and hints that other tests follow: of a device, of padding over broadcast data
_REASONS = (
    "needs a copy",
    "several indices would write one element",
    "may write one element of",
    "give these bytes",
    "the size and zero padding leave",
    "after the event instead of",
    "does not give its dims",
    "the line does not give",
    "known when the kernel runs: use when()",  # in kernels, not in calls
    "leave cpu= out",  # on machines without a processor to assume
    "runs on a device; leave threads out",
    "pass queue=",
    "so its padding overlaps its data; pass zero_pad=False",
    "reorder its chunks with reorder.dask.reorder(x, dst)",
)


def test_no_hint_is_without_a_row() -> None:
    assert hints.without_row(MODULES, map(hints.message, ROWS), _REASONS) == []


@pytest.mark.parametrize(
    ("axes", "name"), [((0, 2, 3, 1), "nhwc"), ((3, 2, 0, 1), "dcab"), ((1, 0, 2, 3), "bacd")]
)
def test_compare_says_in_what_order_the_dims_of_the_other_file_may_be(
    axes: tuple[int, ...], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    paths = [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
    for path, array in zip(paths, (x, np.ascontiguousarray(x.transpose(axes))), strict=True):
        np.save(path, array)
    assert main(["compare", *paths]) == 2
    assert f"such as --from-b {name}" in capsys.readouterr().err
    assert main(["compare", *paths, "--from-b", name]) == 0
