"""Calls of reorder: what repeated ones cost, that they do the same, and what `out` takes."""

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from types import FrameType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, image_desc, memory_desc
from memdesc.errors import OverlapError
from reorder import calls
from reorder.memory.dlpack import TensorView
from tests.programs import run_python
from tests.unit.reorder.memory.producers import (
    Exchanged,
    Exported,
    Failing,
    Intercepting,
    Later,
    Negating,
    NegatingMore,
    Plain,
)
from tests.work import count_calls

_DIMS = (2, 17, 5, 4)


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """Begin without known calls, but with the code that runs them."""
    reorder.prepare(reorder.plan_reorder(NHWC, NHWC))
    calls.forget()
    yield
    calls.forget()


def cube(*dims: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).integers(-9, 9, dims).astype(dtype)


class Array(np.ndarray[Any, Any]):
    """An array of another class."""


# not typed: some calls are mistakes that a type checker would find
r: Any = reorder.reorder
X = cube(*_DIMS)
NHWC = memory_desc(_DIMS, "f32", "nhwc")
ATTR = reorder.Attr(dst_scale=0.5)
INTO = reorder.reorder(X, NHWC)
VIEW = np.empty((2, 5, 4, 17), np.float32).transpose(0, 3, 1, 2)
GAPS = memory_desc(_DIMS, "f32", strides=(400, 1, 80, 20))
LARGE, THIRD = cube(64, 128), X[..., ::2]
BROADCAST = np.broadcast_to(X[:1], _DIMS)
BLOCKS = cube(2, 3, 5, 4, 8)
RAW, RAW_OUT = X.reshape(-1), np.empty(X.size, np.float32)
IMAGE = image_desc(_DIMS, "f32", "in_out_channel")
PIXELS = reorder.reorder(X, IMAGE)
KINDS: dict[str, Callable[[], Any]] = {
    "name": lambda: r(X, "nhwc"),
    "padded": lambda: r(X, "nChw16c"),
    "descriptor": lambda: r(X, NHWC),
    "layout only": lambda: r(INTO, dtype="bf16"),
    "src": lambda: r(X, "nchw", src="nhwc"),
    "src of raw bytes": lambda: r(RAW, "nchw", src=NHWC),
    "gaps": lambda: r(THIRD, "nhwc"),
    "negative strides": lambda: r(X[:, ::-1, :, ::-2], "nhwc"),
    "transposed": lambda: r(X.T, "nhwc"),
    "broadcast": lambda: r(BROADCAST, "nhwc"),
    "fewer channels": lambda: r(X[:, :3], "nhwc"),
    "memory": lambda: r(INTO, "nchw"),
    # "f16" is a half here; numpy's "f16" has 16 bytes
    "dtype": lambda: r(X, "nhwc", dtype="f16"),
    "numpy's dtype": lambda: r(X, "nhwc", dtype=np.dtype(np.float16)),
    "numpy's dtype of f32": lambda: r(X, "nhwc", dtype=np.dtype("f4")),
    "a type of numpy": lambda: r(X, "nhwc", dtype=np.float16),
    "bf16": lambda: r(X, "nhwc", dtype=ml_dtypes.bfloat16),
    "one scale": lambda: r(X, "nhwc", dtype="s8", attr=ATTR),
    "out": lambda: r(X, out=INTO),
    "out in a view": lambda: r(X, out=VIEW),
    "out reversed": lambda: r(X, out=VIEW[:, ::-1]),
    "raw out": lambda: r(X, NHWC, out=RAW_OUT),
    "one thread": lambda: r(X, "nhwc", threads=1),
    "with gaps": lambda: r(X, GAPS),
    "aligned": lambda: r(LARGE, "ba"),
    "image": lambda: r(X, IMAGE),
    "name of an image": lambda: r(X, "in_out_channel"),
    "pixels": lambda: r(PIXELS, "nhwc", src=IMAGE),
    "view": INTO.numpy,
    "blocks": INTO.blocks,
}
TURNED: Any = X.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
TENSORS: Any = TensorView(X[:, :9]), *map(Exchanged, (X, TURNED, X[:, :9]))
SMALL = cube(1, 3, 4)
EQUAL = [
    memory_desc((1, 3, 4), "f32", "ncw"),
    memory_desc((1, 3, 4), "f32", "abc"),
    memory_desc((1, 3, 4), "f32", strides=(99, 4, 1)),
]
WRONG: list[dict[str, Any]] = [
    *({"dst": dst} for dst in (["nhwc"], "nhwx")),
    *({"dtype": dtype} for dtype in ("f33", [1])),
    *({"threads": count} for count in (True, 1.0, 0)),
    *({"attr": attr} for attr in (3, reorder.Attr(beta=1.0))),
    *({"out": out} for out in (reorder.Memory(memory_desc(_DIMS, "f32")), object())),
]
OTHERS: dict[str, Callable[[], Any]] = {
    # descriptors that are equal, but shown in other ways, as the result is
    **{f"equal {k}": partial(r, SMALL, desc) for k, desc in enumerate((*EQUAL, "ncw", "abc"))},
    **{
        f"equal memory {k}": partial(r, reorder.Memory(desc, SMALL.copy()), dtype="f16")
        for k, desc in enumerate(EQUAL)
    },
    **{f"tensor {k}": partial(r, tensor, "nhwc") for k, tensor in enumerate(TENSORS)},
    "out in rows": partial(r, X, out=np.empty_like(X)),
    # what is not known exactly
    "a new Attr": lambda: r(X, "nhwc", dtype="s8", attr=reorder.Attr(dst_scale=0.5, beta=0.0)),
    "another class": lambda: r(X.view(Array), "nhwc"),
    "matrix": lambda: r(X.reshape(34, 20).view(np.matrix), "ba"),
    "4 bits": lambda: r(cube(4, 6, dtype=ml_dtypes.int4), "ba"),
    "empty": lambda: r(X[:0], "nhwc"),
    "blocks, which are copied": lambda: r(BLOCKS, "nchw", src="nChw8c"),
    # what is refused, at every call with the same message
    "masked": partial(r, np.ma.masked_array(X), "nhwc"),
    "byte order": lambda: r(X.astype(">f4"), "nhwc"),
    **{str(given): partial(r, X, **{"dst": "nhwc", **given}) for given in WRONG},
}


def told(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or why it is refused."""
    try:
        return bits_of(call())
    except MemdescError as error:
        return str(error)


def bits_of(result: Any) -> tuple[Any, Any]:
    """Return what a result holds, and what it is."""
    if isinstance(result, reorder.Memory):
        desc = result.desc
        return result.data.tobytes(), (repr(desc), desc.letters, desc.strides, result.nbytes)
    return np.ascontiguousarray(result).tobytes(), (result.shape, result.strides)


def limited() -> None:
    with reorder.use_threads(1):
        reorder.reorder(X, "nhwc")


def test_later_calls_of_a_kind_give_the_same_by_at_most_five_functions_of_python() -> None:
    first = {}
    for kind, call in (KINDS | OTHERS).items():
        calls.forget()
        first[kind], *results = (told(call) for _ in range(4))
        assert results == [first[kind]] * 3, kind
        # of which one is the lambda around it
        assert count_calls(call, "call") <= 5 if kind in KINDS else True, kind
    # whatever is known
    rng = np.random.default_rng(0)
    for kind in (*first, *rng.permutation([*first] * 4)):
        assert told((KINDS | OTHERS)[kind]) == first[kind], kind
    for _ in range(3):
        limited()
    assert count_calls(limited, "call") <= 5


def test_arrays_of_a_known_kind_that_cannot_be_written_are_refused() -> None:
    both = np.zeros(X.size * 2, np.float32)
    x, out = both[: X.size].reshape(_DIMS), both[X.size :].reshape(_DIMS)
    for _ in range(3):
        reorder.reorder(x, NHWC, out=out)
        reorder.reorder(X, out=(tensor := Exchanged(np.zeros_like(X))))
    overlapping = both[X.size - 8 : 2 * X.size - 8].reshape(_DIMS)
    locked = out.copy()
    locked.flags.writeable = False
    raw = np.zeros(4 * X.size + 1, np.uint8)[1:].view(np.float32).reshape(_DIMS)
    learning = Exchanged(out)
    learning.requires_grad = True
    learning.detach = lambda: learning  # type: ignore[attr-defined] # what torch has
    before = both.tobytes(), tensor.view.array.tobytes()
    for given, kind, message in (
        ({"x": x, "dst": NHWC, "out": overlapping}, OverlapError, "share memory"),
        ({"x": x, "dst": NHWC, "out": locked}, MemdescError, "read-only"),
        ({"x": raw, "dst": NHWC}, MemdescError, "multiple of the 4 bytes"),
        ({"x": -X, "out": learning}, MemdescError, "requires a gradient"),
        ({"x": X, "out": Exchanged(locked)}, MemdescError, "read-only"),
    ):
        arguments: dict[str, Any] = given
        with pytest.raises(kind, match=message):
            reorder.reorder(**arguments)
        assert before == (both.tobytes(), tensor.view.array.tobytes())
    assert not locked.any()


def exchanged_calls(kind: Any = Exchanged, dtype: Any = np.float32) -> dict[str, Callable[[], Any]]:
    """Return calls of tensors whose class has a C function, as x and as `out`."""
    x, into = kind(X.astype(dtype)), np.empty((2, 5, 4, 17), dtype).transpose(0, 3, 1, 2)
    out, turned = kind(into), kind(X.transpose(0, 2, 3, 1).astype(dtype, "C"))
    memory = reorder.Memory(NHWC.with_dtype(dtype), turned.view.array)

    def into_out(given: Any) -> Any:
        into[:] = 0
        assert reorder.reorder(given, out=out) is out
        return into

    return {
        "name": lambda: reorder.reorder(x, "nChw16c"),
        "image": lambda: reorder.reorder(x, "in_out_channel", dtype="f16"),
        "src": lambda: reorder.reorder(turned, "nchw", src="nhwc"),
        "dtype": lambda: reorder.reorder(x, "nhwc", dtype="f32"),
        "raw": lambda: reorder.reorder(x, "nhwc", src=NHWC.with_dtype(dtype)),
        "out": lambda: into_out(X.astype(dtype)),
        "both": lambda: into_out(x),
        "memory": lambda: into_out(memory),
    }


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int16, np.bool_])
def test_tensors_of_a_class_with_a_c_function_are_known_themselves(dtype: Any) -> None:
    for name, call in exchanged_calls(Exchanged, dtype).items():
        result = bits_of(exchanged_calls(Exported, dtype)[name]())
        assert [bits_of(call()) for _ in range(4)] == [result] * 4
        asked = Exchanged.asked
        assert bits_of(call()) == result
        assert (Exchanged.asked == asked) == (name != "raw")
        assert Exchanged.held == 0


def test_what_c_may_not_read_goes_the_long_way() -> None:
    for _ in range(3):
        reorder.reorder(Exchanged(X), "nhwc")
    # what C exports has other elements than what Python does
    decoy = np.zeros_like(X)
    place = {"data": decoy.ctypes.data}
    for fields in (
        *({"major": 2}, {"device_type": 2}, {"ndim": 3}, {"code": 0}, {"bits": 16}, {"lanes": 2}),
        *({"data": 0}, {"strides": 0}),
        {"copies": 1},  # which C may read before it is freed
    ):
        for _ in range(4):
            x = Exchanged(X, **place | fields)
            assert np.array_equal(reorder.reorder(x, "nhwc").numpy(), X), fields
            # neither does the fast call run if only the other side does not fit
            out = np.zeros_like(X)
            assert reorder.reorder(x, out=out) is out
            assert np.array_equal(out, X)
    with pytest.raises(MemdescError, match="negates"):
        reorder.reorder(Exchanged(X, is_neg=1, **place), "nhwc")
    # a copy that the C function makes is never written, but what Python exports is
    copied = Exchanged(np.zeros_like(X), flags=2, **place)
    for _ in range(4):
        assert reorder.reorder(X, out=copied) is copied
    assert np.array_equal(copied.view.array, X)
    assert not decoy.any()
    assert Exchanged.held == 0


def test_a_class_whose_c_function_fails_is_read_by_python() -> None:
    for kind in (Failing, Later):
        for call in exchanged_calls(kind).values():
            results = [bits_of(call()) for _ in range(4)]
            assert results == [results[0]] * 4
            asked = Exchanged.asked
            assert bits_of(call()) == results[0]
            assert Exchanged.asked > asked


def test_a_subclass_that_may_export_something_else_is_read_by_python() -> None:
    for kind, exported, is_asked in (
        *((Negating, -X, False), (NegatingMore, -X, False)),  # and their base class is not asked
        *((Intercepting, X, True), (Plain, X, False)),
    ):
        for _ in range(4):
            asked = Exchanged.asked
            assert np.array_equal(reorder.reorder(kind(X), "nhwc").numpy(), exported)
        assert (Exchanged.asked > asked) == is_asked, kind


def _count_known() -> int:
    return sum(map(len, calls.known.values()))


def test_many_threads_reorder_many_kinds_with_a_small_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "MAX_KNOWN", 16)
    arrays = [cube(3 + k, 4) for k in range(20)]

    def work(seed: int) -> None:
        for k in np.random.default_rng(seed).integers(0, len(arrays), 400):
            attr = reorder.Attr(src_scale=float(k % 3 + 1))
            found = reorder.reorder(arrays[k], "ba", attr=attr).numpy()
            assert np.array_equal(found, arrays[k] * (k % 3 + 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert max(_count_known(), len(calls.usual)) <= 17


def test_limits_on_threads_may_be_set_without_end() -> None:
    """As by who takes `use_threads` for a setter: a key that had them all overran the stack."""
    run_python(
        "-c",
        "import numpy as np, reorder\n"
        "for _ in range(1_200_000):\n"
        "    reorder.use_threads(2).__enter__()\n"
        "for _ in range(3):\n"
        "    assert reorder.reorder(np.ones((3, 5), np.float32), 'ba').nbytes == 60\n",
    )


def test_another_kind_is_noted_as_fast_however_many_are_known() -> None:
    """A text that grows by a word brings a new shape with each call."""
    lines: list[int] = []

    def count(frame: FrameType, event: str, _value: object) -> Any:
        if frame.f_code.co_filename != calls.__file__:
            return None
        lines[-1] += event == "line"
        return count

    before = sys.gettrace()
    for k in range(200):
        x = np.zeros((k + 2, 3), np.float32)
        reorder.reorder(x, "ba")
        lines.append(0)
        sys.settrace(count)
        try:
            reorder.reorder(x, "ba")
        finally:
            sys.settrace(before)
    assert _count_known() >= len(lines)
    assert max(lines[100:]) <= max(lines[1:10])


def test_another_thread_may_assign_the_shape_of_an_array_meanwhile() -> None:
    shapes: tuple[tuple[int, ...], ...] = ((8, 64), (64, 8), (16, 32))
    x, wanted = np.arange(512, dtype=np.float32).reshape(shapes[0]), {}
    for shape in shapes:
        wanted[shape] = reorder.reorder(np.arange(512, dtype=np.float32).reshape(shape), "ba")
    ends = threading.Event()

    def assign() -> None:
        while not ends.is_set():
            for shape in shapes:
                x.shape = shape

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of numpy 2.5, for assigned shapes
        thread = threading.Thread(target=assign)
        thread.start()
        try:
            for _ in range(2000):
                memory = reorder.reorder(x, "ba")
                assert np.array_equal(memory.data, wanted[memory.desc.dims].data)
        finally:
            ends.set()
            thread.join()
        setattr(x, "dtype", np.int32)  # noqa: B010 - a type checker takes it for read-only
    assert reorder.reorder(x, "ba").desc.dtype.name == "s32"


def test_a_data_type_alone_keeps_the_layout() -> None:
    m = reorder.reorder(cube(2, 17, 3), "aBc8b")
    half = reorder.reorder(m, dtype="f16")
    assert half.desc == m.desc.with_dtype("f16")
    assert np.array_equal(half.numpy(), m.numpy().astype(np.float16))
    turned = reorder.reorder(cube(2, 3).T, dtype=np.dtype(np.float64))
    assert turned.desc == memory_desc((3, 2), "f64", "ba")
    repeated = np.broadcast_to(cube(1, 3), (2, 3))
    assert reorder.reorder(repeated, dtype="s32").desc == memory_desc((2, 3), "s32")


# Arrays and buffers that a caller gives to be written.


def test_a_result_goes_into_an_array_of_any_strides_or_a_buffer_and_nothing_else() -> None:
    views: list[Any] = [lambda x: x[:2, 2::-1], lambda x: x[1::-1, :6:2], lambda x: x.T[:2, :3]]
    for view, dtype in product(views, ("i1", "f4", ml_dtypes.bfloat16)):
        whole = np.full((7, 7), 9, dtype)
        wanted, out = whole.copy(), view(whole)
        view(wanted)[...] = cube(2, 3)
        assert reorder.reorder(cube(2, 3), out=out) is out
        assert whole.tobytes() == wanted.tobytes()
    desc, raw = memory_desc((2, 3), "f32", "Ab4a"), bytearray(48)
    assert reorder.reorder(cube(2, 3), desc, out=raw) is raw
    assert raw == reorder.reorder(cube(2, 3), desc).data.tobytes()
