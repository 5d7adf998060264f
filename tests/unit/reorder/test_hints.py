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
from memdesc import memory_desc
from reorder import Memory, logs, plan_reorder
from reorder.cli import main
from tests import hints
from tests.hints import ROOT

# covered beside the command line, devices, Dask, Zarr and files; not covered: rules of conversions
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

ROWS = hints.rows("""
    reorder() packs them
        md.array_desc(np.zeros(4, S4.dtype.numpy))
        reorder.reorder(np.zeros(4, S4.dtype.numpy), "a")
    # buffers
    pass its bytes, .data
        run(PLAN, Memory(D), SIX)
        run(PLAN, Memory(D).data, SIX.copy())
    pass f32 elements or raw bytes
        run(PLAN, np.zeros((2, 3)), SIX)
        run(PLAN, SIX, SIX.copy())
        run(PLAN, SIX, np.zeros(24, np.uint8))
    describe it with array_desc() or copy it
        run(PLAN, _STEPPED, SIX)
        run(PLAN, _STEPPED.copy(), SIX.copy())
        md.array_desc(_STEPPED)
    pass a writable buffer, or a copy
        run(PLAN, SIX, bytes(24))
        run(PLAN, SIX, bytearray(24))
        run(PLAN, SIX, SIX.copy())
    bytes of f32; copy it
        run(PLAN, _MISALIGNED, SIX)
        run(PLAN, _MISALIGNED.copy(), SIX.copy())
    pass a numpy array or bytes
        run(PLAN, "x", SIX)
        run(PLAN, bytes(24), SIX.copy())
        run(PLAN, SIX, SIX.copy())
    pass a writable numpy array or a bytearray
        run(PLAN, SIX, "x")
        run(PLAN, SIX, bytearray(24))
        run(PLAN, SIX, SIX.copy())
    # Memory
    pass a copy, or zero_pad=False if it is zero already
        Memory(PADDED, bytes(4))
        Memory(PADDED, bytearray(bytes(4)))
        Memory(PADDED, bytes(4), zero_pad=False)
    so numpy(copy=False) is impossible; see blocks() for a view
        reorder.reorder(X, "nChw4c").numpy(copy=False)
        reorder.reorder(X, "nChw4c").blocks()
    attach a copy
        Memory(D, bytes(24)).apply(np.negative)
        Memory(D, bytearray(bytes(24))).apply(np.negative)
    # reorder
    pass np.asarray(x)
        reorder.reorder([[1.0, 2.0]], "ba")
        reorder.reorder(np.asarray([[1.0, 2.0]]), "ba")
    pass np.asarray(x)
        reorder.reorder(Nested(), "nhwc")
        reorder.reorder(np.asarray(Nested()), "nhwc")
    to describe raw bytes, pass src=, a MemoryDesc
        reorder.reorder(bytes(24), "ba")
        reorder.reorder(bytes(24), "ba", src=D)
    pass its elements as a numpy array
        reorder.reorder(3, "a")
        reorder.reorder(np.array([3]), "a")
    pass dst, the layout to move into ('plain' is row-major), or out
        reorder.reorder(SIX)
        reorder.reorder(SIX, "plain")
        reorder.reorder(SIX, out=Memory(D))
        reorder.reorder(SIX, dtype="f16")
    leave them out, or pass an out with that descriptor
        reorder.reorder(SIX, "ba", out=Memory(D))
        reorder.reorder(SIX, out=Memory(D))
        reorder.reorder(SIX, "ba", out=Memory(PLAN.dst))
    pass a writable array, or leave it out
        reorder.reorder(SIX, "ba", out=read_only(np.zeros((2, 3), np.float32)))
        reorder.reorder(SIX, out=np.zeros((2, 3), np.float32))
        reorder.reorder(SIX, "ba")
    pass a Memory, which holds two
        reorder.reorder(np.zeros((2, 4), S4.dtype.numpy), out=np.zeros((2, 4), "int4"))
        reorder.reorder(np.zeros((2, 4), S4.dtype.numpy), out=Memory(S4))
    for a flat buffer give src=memory_desc(dims, dtype, 'nhwc')
        reorder.reorder(X.reshape(-1), "nchw", src="nhwc")
        reorder.reorder(X.reshape(-1), "nchw", src=memory_desc((1, 4, 3, 2), "f32", "nhwc"))
    pass a MemoryDesc as src
        reorder.reorder(np.zeros((1, 1, 4, 8, 16), "f4"), "nchw", src="bf8_xy16")
        reorder.reorder(np.zeros((1, 1, 4, 8, 16), "f4"), "nchw", src=memory_desc((1, 8, 8, 8),
            "f32", "bf8_xy16"))
    leave src out
        reorder.reorder(X.transpose(0, 2, 3, 1), "nchw", src="nhwc")
        reorder.reorder(X.transpose(0, 2, 3, 1), "nchw")
        reorder.reorder(np.ascontiguousarray(X.transpose(0, 2, 3, 1)), "nchw", src="nhwc")
    if the axes are in memory order, give src=, such as src='nhwc'
        reorder.reorder(X.transpose(0, 2, 3, 1).copy(), out=Memory(md.array_desc(X)))
        reorder.reorder(X.transpose(0, 2, 3, 1).copy(), out=Memory(md.array_desc(X)), src="nhwc")
    (see permute_axes, reshape, submemory)
        plan_reorder(D, memory_desc((6,), "f32", "a"))
        plan_reorder(D.reshape((6,)), memory_desc((6,), "f32", "a"))
    leave it out, or pass out=Memory(image_desc.desc) and no dst
        reorder.reorder(X, "in_out_channel", out=Memory(md.array_desc(X)))
        reorder.reorder(X, "in_out_channel")
        reorder.reorder(X, out=Memory(md.image_desc(X.shape, "f32", "in_out_channel").desc))
    # quantization, records
    leave symmetric out
        r.quantize(SIGNED, "u4", symmetric=True)
        r.quantize(SIGNED, "u4")
        r.quantize(SIGNED, "s4", symmetric=True)
    pass the scales that quantize() returned
        r.dequantize(QUANTIZED.memory)
        r.dequantize(QUANTIZED.memory, QUANTIZED.scales)
    do not pass others
        r.dequantize(RECORD, 2.0)
        r.dequantize(RECORD)
    see record_desc()
        r.records.Record(D)
        r.records.Record(md.record.record_desc((2, 32), "q4_0"))
    see .tensors
        SEVERAL.data
        SEVERAL.tensors["weight"].data
    pass a copy of it to Record
        r.records.Record(RECORD.desc, bytes(36)).set_field("d", ONES)
        r.records.Record(RECORD.desc, bytearray(bytes(36))).set_field("d", ONES)
    pass a dict of weight, weight_scale
        r.records.Record(SEVERAL.desc, bytes(4))
        r.records.Record(SEVERAL.desc, SEVERAL.tensors)
    pass its bytes as uint8
        r.records.Record(SEVERAL.desc, {**SEVERAL.tensors, "weight_scale": ONES.astype("f8")})
        r.records.Record(SEVERAL.desc, {**SEVERAL.tensors, "weight_scale": SCALE.view("u1")})
    from numpy.ascontiguousarray
        r.records.Record(RECORD.desc, STEPPED_BYTES)
        r.records.Record(RECORD.desc, np.ascontiguousarray(STEPPED_BYTES))
    pass the name, the number or the gguf.GGMLQuantizationType of one of
        r.records.dequantize_gguf(BLOCKS, "Q9")
        [r.records.dequantize_gguf(BLOCKS, each) for each in ("Q4_0", 2)]
    out is read-only; pass a writable array
        r.records.dequantize_gguf(BLOCKS, "Q4_0", out=read_only(np.zeros((2, 32), "f4")))
        r.records.dequantize_gguf(BLOCKS, "Q4_0", out=np.zeros((2, 32), "f4"))
    pass separate memory
        r.records.dequantize_gguf(SHARED[:36].reshape(2, 18), "Q4_0",
            out=SHARED.view("f4").reshape(2, 32))
        r.records.dequantize_gguf(SHARED[:36].reshape(2, 18), "Q4_0", out=np.zeros((2, 32), "f4"))
    # plans and attributes
    see memdesc.runtime_desc
        r.plan.plan_runtime(D, D)
        r.plan.plan_runtime(RUNTIME, RUNTIME)
    pass a tag to runtime_desc
        r.plan.plan_runtime(md.runtime_desc((2, 3), "f32", "*"), RUNTIME)
        r.plan.plan_runtime(md.runtime_desc((md.RUNTIME, 3), "f32", "ab"), RUNTIME)
    pass out=, the memory that holds it
        r.reorder(SIX, "ba", attr=r.Attr(beta=1))
        r.reorder(SIX, attr=r.Attr(beta=1), out=Memory(D))
    pass a zero point of 0
        plan_reorder(D, D, r.Attr(src_zero_point=3))
        plan_reorder(D, D, r.Attr(src_zero_point=0))
    pass x.filled(value), or x.data
        r.reorder(MASKED, "ba")
        r.reorder(MASKED.filled(0), "ba")
        r.reorder(MASKED.data, "ba")
    use 'c' or 'c++', or with_extra(None)
        plan_reorder(S8, SUMS).source("cuda")
        plan_reorder(S8, SUMS).source("c")
        plan_reorder(S8, SUMS).source("c++")
        plan_reorder(S8, SUMS.with_extra(None)).source("cuda")
    use 'c' or 'c++'
        HALVED.source("cuda")
        HALVED.source("c")
        HALVED.source("c++")
    see plan_reorder
        r.prepare(D)
        r.prepare(plan_reorder(D, D))
    # arrays of a Memory
    see .elements
        Memory(S4).blocks()
        Memory(S4).elements
    use .numpy()
        Memory(D)[[0, 1]]
        Memory(D).numpy()[[0, 1]]
    pass out.detach()
        r.reorder(SIX, out=Tensor(SIX.copy(), requires_grad=True))
        r.reorder(SIX, out=Tensor(SIX.copy(), requires_grad=True).detach())
    pass x.resolve_neg()
        r.reorder(Tensor(SIX, negated=True), "ba")
        r.reorder(Tensor(SIX, negated=True).resolve_neg(), "ba")
    pass a dense copy on the CPU
        r.reorder(Tensor(None), "ba")
        r.reorder(np.asarray(SIX), "ba")
    pass a dense tensor on the CPU
        r.reorder(Tensor(SIX, device=0), "ba")
        r.reorder(Tensor(SIX), "ba")
    pass a tensor
        r.reorder(Tensor(SIX, device="cpu"), "ba")
        r.reorder(Tensor(SIX), "ba")
    see .data
        HUGE.blocks()
        HUGE.data
    # identification, logs, kernels
    give like=, a tensor of the same values, or dims=, the logical sizes
        r.identify(SIX)
        r.identify(SIX, like=SIX)
        r.identify(SIX, dims=(2, 3))
    give like=, a tensor of the same values, or leave it out
        r.identify(SIX, dims=(2, 3), atol=1)
        r.identify(SIX, SIX, atol=1)
        r.identify(SIX, dims=(2, 3))
    holds references; pass bytes
        r.identify(np.array([None]), dims=(8,))
        r.identify(np.array([None]).tobytes(), dims=(8,))
    ; pass bytes
        r.identify(3, dims=(8,))
        r.identify(bytes(8), dims=(8,))
    give how many times the model ran
        logs.report(LOG, runs=0)
        logs.report(LOG, runs=1)
    give what openvino.save_model(compiled.get_runtime_model(), 'model.xml') wrote
        logs.read_layers(DATA / "torch-2.13.log")
        [logs.read_layers(DATA / each) for each in ("openvino-2026.4.xml", "torch-2.13.json")]
    give a list of names, such as ['f32']
        r.precompile.compile_kernels("f32")
""")


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


def test_every_hint_is_given_and_works() -> None:
    hints.check(ROWS, globals(), MODULES, _REASONS)


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
