"""Bad input: an error that says what is wrong, before anything is enqueued or written."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

from memdesc import RUNTIME, MemdescError, image_desc, memory_desc, runtime_desc
from reorder import Attr, Memory, opencl, quantize, reorder, save, use_threads
from reorder.opencl import memory_objects
from reorder.plan import plan_runtime
from tests import hints, refused
from tests.hints import ROOT
from tests.opencl.runtimes import Runtime, eventually
from tests.opencl.runtimes import refused as expect_refusal
from tests.opencl.world import FLAGS, IMAGE, PLAIN, X, world

_MODULES = [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "reorder/opencl").rglob("*.py"))]
# what no device here refuses, and what test_arrays.py and test_binaries.py see
_REASONS = (
    "have no images of",
    "has no images",
    "cannot write",
    "has no f64",
    "is shared virtual memory, but device",
    "do not take shared virtual memory",
    "is not a number of bytes",
)
_LINES = refused.sections(Path(__file__).with_name("refused.txt"))["on a device"]


def same_refusal(*calls: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that makes all calls, which must be refused for the same reason."""

    def call(*given: Any) -> None:
        errors = []
        for one in calls:
            with pytest.raises(MemdescError) as caught:
                one(*given)
            errors.append(caught.value)
        assert len({str(error)[:60] for error in errors}) == 1
        raise errors[0]

    return call


@pytest.fixture
def names(runtime: Runtime, tmp_path: Path) -> dict[str, Any]:
    """What the calls in the table name."""
    made = world(runtime)
    q, image, src, dst, memory = (made[name] for name in ("q", "image", "src", "dst", "memory"))
    nhwc = np.ascontiguousarray(X.transpose(0, 2, 3, 1))
    one, turned = (runtime_desc((RUNTIME, 5, 3, 2), "f32", tag) for tag in ("nhwc", "nchw"))
    plan, out = plan_runtime(one, turned), reorder(X, "nchw", queue=q)
    rows = runtime.device.device.max_mem_alloc_size // 12 + 1
    repeated = memory_desc((rows, 3), "f32", strides=(0, 1))
    calls = {
        "all_wait": same_refusal(
            lambda given: opencl.pack(q, X, IMAGE, wait_for=given),
            lambda given: opencl.enqueue_pack(q, X, image, IMAGE, wait_for=given),
            lambda given: opencl.unpack(q, image, "nchw", IMAGE, wait_for=given),
            lambda given: opencl.enqueue_reorder(q, src, dst, src=PLAIN, dst=PLAIN, wait_for=given),
        ),
        "all_threads": same_refusal(
            lambda threads: reorder(X, "nhwc", queue=q, threads=threads),
            lambda threads: reorder(memory, "nchw", threads=threads),
            lambda threads: reorder(X, out=memory, threads=threads),
            lambda threads: quantize(X, "s8", queue=q, threads=threads),
            lambda threads: quantize(memory, "s8", threads=threads),
            lambda threads: plan(memory, out, threads=threads),
        ),
        "all_axes": same_refusal(
            lambda: opencl.pack(q, nhwc, IMAGE),
            lambda: opencl.enqueue_pack(q, nhwc, image, IMAGE),
            lambda: reorder(nhwc, IMAGE, queue=q),
        ),
    }
    flags, host = FLAGS.USE_HOST_PTR | FLAGS.READ_WRITE, np.zeros(128, np.uint8)
    kept: dict[str, Any] = {
        "file": tmp_path / "x.npz",
        "save": save,
        "REPEATED": Memory(repeated, np.zeros(3, np.float32), zero_pad=False),
        "spare": cl.Buffer(runtime.context, FLAGS.READ_WRITE, 120),
        "raw": cl.array.to_device(q, host)[1:121],
        "over": lambda start: cl.Buffer(runtime.context, flags, hostbuf=host[start : start + 120]),
    }
    return globals() | made | calls | kept | {"ocl": opencl, "bfloat16": ml_dtypes.bfloat16}


def test_what_is_wrong_is_refused_with_its_numbers_and_nothing_is_written(
    runtime: Runtime, names: dict[str, Any]
) -> None:
    # in the second round reorders of such buffers are known
    for _ in range(2):
        messages = refused.check(_LINES, names)
        assert hints.without_row(_MODULES, messages, _REASONS) == []
        assert (runtime.read(names["dst"]).view(np.float32) == 7).all()
        known = cl.Buffer(runtime.context, FLAGS.READ_WRITE, 512)
        for attr in (None, Attr(beta=0.5)):
            opencl.enqueue_reorder(
                runtime.queue, names["src"], known, src=PLAIN, dst=PLAIN, attr=attr
            ).wait()
    # kernels may write what they may not read; what a thread or an event of a list may be
    written = names["write_only"]
    opencl.enqueue_reorder(runtime.queue, names["src"], written, src=PLAIN, dst=PLAIN).wait()
    opencl.unpack(runtime.queue, names["image"], "nchw", IMAGE, wait_for=(names["event"],))[
        1
    ].wait()
    with use_threads(2):
        reorder(X, "nhwc", queue=runtime.queue)
    with pytest.raises(cl.LogicError, match="double-unref"):
        names["gone"].release()


@pytest.mark.parametrize("name", ["in_out_chanel", "nChw16x", "abcd|4x", "winograd_filter"])
def test_a_wrong_name_has_one_message_on_the_cpu_and_on_devices(
    runtime: Runtime, name: str
) -> None:
    with pytest.raises(MemdescError) as on_cpu:
        reorder(X, name)
    with expect_refusal(str(on_cpu.value)):
        reorder(X, name, queue=runtime.queue)
    memory = reorder(X, "abcd", queue=runtime.queue)
    with expect_refusal(str(on_cpu.value)):
        reorder(memory, name)


def test_what_a_runtime_lets_go_works_or_is_refused(runtime: Runtime) -> None:
    part = cl.Buffer(runtime.context, FLAGS.READ_WRITE, 8192).get_sub_region(0, 4096)
    queue, dst = cl.CommandQueue(cl.Context([runtime.device.device])), runtime.buffer(X)
    gc.collect()
    calls: dict[str, Callable[[], cl.Event]] = {
        "part of a Buffer that was released": lambda: opencl.enqueue_reorder(
            runtime.queue, part, dst, src=PLAIN, dst=PLAIN
        ),
        "keep the Context as long as its queues are used": lambda: opencl.pack(queue, X, IMAGE)[1],
    }
    for message, call in calls.items():
        try:
            call().wait()
        except MemdescError as refusal:
            assert message in str(refusal)


def test_nothing_is_allocated_where_a_pair_is_refused(runtime: Runtime) -> None:
    gc.collect()
    runtime.queue.finish()
    # buffers and images hold their context, and the frames of an error would hold them
    held = runtime.context.reference_count
    with pytest.raises(MemdescError, match="dst_zero_point is for integers") as no_points:
        reorder(X, "nhwc", attr=Attr(dst_zero_point=3), queue=runtime.queue)
    assert eventually(lambda: runtime.context.reference_count <= held)
    assert no_points.tb


def test_nothing_is_kept_of_what_was_refused_or_is_done(runtime: Runtime) -> None:
    small = runtime.buffer(np.zeros(2, np.float32))
    images = [
        image_desc(X.shape, "f32", "in_out_channel"),
        image_desc(X.shape, "s32", "in_out_channel"),
    ]

    def use() -> None:
        opencl.pack(runtime.queue, X, images[0])[1].wait()
        reorder(X, "aBcd3b", queue=runtime.queue).get()
        for src, image, desc in ((small, images[0], PLAIN), (X, images[1], PLAIN.with_dtype("u8"))):
            with pytest.raises(MemdescError):
                opencl.pack(runtime.queue, src, image, src=desc)

    use()
    gc.collect()
    runtime.queue.finish()
    # buffers, images, kernels and events each hold their context
    held = runtime.context.reference_count
    for _ in range(5):
        use()
    gc.collect()
    runtime.queue.finish()
    assert eventually(lambda: runtime.context.reference_count <= held)


@pytest.mark.parametrize(
    ("function", "found", "message"),
    [
        ("_limits", ((0, 0), False, True), "has no images; reorder into a buffer of image.desc"),
        ("_supported", frozenset(), "the devices of the context have no images of RGBA FLOAT"),
    ],
)
def test_what_no_device_here_lacks_is_refused(
    function: str, found: Any, message: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_objects, function, lambda *_: found)
    # a queue that knows no call
    with expect_refusal(message):
        opencl.pack(cl.CommandQueue(runtime.context), X, IMAGE)
