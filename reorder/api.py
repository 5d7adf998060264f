"""reorder(), prepare() and execute(): read the arguments once, then choose a backend."""

from __future__ import annotations

from collections import deque
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast, overload

import numpy as np

from memdesc import ImageDesc, MemdescError, MemoryDesc
from memdesc.names.images import is_image
from reorder.calls import SEEN, Passed, key_of, known_at, known_call, note, note_tensors, usual
from reorder.memory.dlpack import MAX_CLASSES, from_dlpack, is_exporter
from reorder.memory.inputs import as_memory, as_output, from_pixels, result_desc, to_pixels
from reorder.memory.memory import Memory, MemoryDraft
from reorder.plan.plan import ReorderPlan, checked_plan, plan_reorder
from reorder.stack import load_late
from reorder.threads import checked_threads, current_limit, limits, refuse_threads
from reorder.values.attr import Attr, check_beta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyopencl as cl
    from numpy.typing import NDArray
    from pyopencl.array import Array

    from memdesc.tags import FormatTag
    from reorder.cpu import PreparedReorder
    from reorder.memory.dlpack import Exporter
    from reorder.opencl import DeviceMemory

    # an `out` on the CPU is returned as the object that was passed
    Written = TypeVar("Written", bound=NDArray[Any] | Exporter | bytearray | memoryview)
    OnHost = Memory | NDArray[Any] | Exporter
    OnDevice = cl.Buffer | cl.Image | cl.SVMPointer | Array | DeviceMemory
    Layout = str | FormatTag | MemoryDesc

    class _Named(TypedDict, total=False):
        src: Layout | ImageDesc | None
        dtype: Any
        attr: Attr | None

    class _OnHost(_Named, total=False):
        threads: int | None
        queue: None

    class _OnDevice(_Named, total=False):
        threads: None
        wait_for: Sequence[cl.Event] | None


ndarray, uint8 = np.ndarray, np.dtype(np.uint8)
# the types that most callers pass
_HOST = (ndarray, Memory)
# modules whose classes hold device memory
_ON_DEVICE = ("reorder.opencl.", "pyopencl.")


@overload
def reorder(
    x: OnHost, dst: Layout | None = None, *, out: Memory | None = None, **named: Unpack[_OnHost]
) -> Memory: ...
@overload
def reorder(
    x: OnHost, dst: Layout | None = None, *, out: Written, **named: Unpack[_OnHost]
) -> Written: ...
@overload
def reorder(
    x: OnHost, dst: ImageDesc, *, out: None = None, **named: Unpack[_OnHost]
) -> NDArray[Any]: ...
@overload
def reorder(
    x: OnHost | OnDevice,
    dst: Layout | ImageDesc | None = None,
    *,
    out: OnDevice | None = None,
    queue: cl.CommandQueue,
    **named: Unpack[_OnDevice],
) -> DeviceMemory: ...
@overload
def reorder(
    x: Array | DeviceMemory,
    dst: Layout | ImageDesc | None = None,
    *,
    out: OnDevice | None = None,
    queue: None = None,
    **named: Unpack[_OnDevice],
) -> DeviceMemory: ...
@overload
def reorder(
    x: OnHost | OnDevice,
    dst: Layout | ImageDesc | None = None,
    *,
    out: Array | DeviceMemory,
    queue: None = None,
    **named: Unpack[_OnDevice],
) -> DeviceMemory: ...
def reorder(  # noqa: C901, PLR0912, PLR0913 - all but the first two are named; for the rest see below
    x: Memory | NDArray[Any] | Exporter | OnDevice,
    dst: str | FormatTag | MemoryDesc | ImageDesc | None = None,
    *,
    src: str | FormatTag | MemoryDesc | ImageDesc | None = None,
    dtype: Any = None,
    attr: Attr | None = None,
    out: Memory | OnDevice | Written | None = None,
    threads: int | None = None,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> Memory | NDArray[Any] | DeviceMemory | Written:
    """Move a tensor into another layout, or data type, or both.

    Parameters
    ----------
    x : Memory, ndarray, tensor with DLPack, or a device object
        The tensor. The axes of an ndarray are its logical dims, with any strides; the same
        goes for tensors of torch, JAX and others, of any type, including bf16. A
        pyopencl Buffer, Array or Image, or a DeviceMemory, is reordered on its device.
    dst : str, FormatTag, MemoryDesc or ImageDesc, optional
        The layout to move into: a name, which may be an image type, or a descriptor. By default
        the layout of `out`; if only `dtype` is given, that of x.
    src : str, FormatTag, MemoryDesc or ImageDesc, optional
        For an array or tensor whose axes are in memory order: the layout they spell, such as
        ``"nhwc"``; refused if its strides say otherwise. With a MemoryDesc, x is a raw buffer that
        it describes; with an ImageDesc, its pixels as an array of shape (height, width, channels).
    dtype : DataType, str or numpy dtype, optional
        What to convert to; by default the type of dst or `out`, otherwise that of x.
    attr : Attr, optional
        Scales, zero points, accumulation into `out`.
    out : Memory, ndarray, buffer, tensor with DLPack, or device object, optional
        Where the result goes; by default new memory. The axes of an array are its logical dims,
        with any strides; a contiguous one is a raw buffer if dst is a MemoryDesc.
    threads : int, optional
        At most this many threads; by default the limit of `use_threads`, or all that
        numba may use. Not on a device.
    queue : pyopencl.CommandQueue, optional
        Where to reorder on an OpenCL device.
    wait_for : sequence of pyopencl.Event, optional
        On a device: events that must be complete before x is read and `out` written. Events that
        the arguments carry are always waited for.

    Returns
    -------
    Memory, ndarray or DeviceMemory
        `out`, or new memory. Its padding is zero. On the CPU an image is returned as its pixels,
        of shape (height, width, channels); on a device, as a `reorder.opencl.DeviceMemory`. Type
        checkers infer this from an ImageDesc, but not from the name of an image type.

    Raises
    ------
    MemdescError
        If the layouts do not fit each other or the buffers; nothing is written then.

    Examples
    --------
    >>> x = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)
    >>> m = reorder.reorder(x, "nChw8c")
    >>> m.desc.padded_dims, m.nbytes
    ((2, 24, 5, 4), 3840)
    >>> bool((reorder.reorder(m, "nhwc").numpy() == x).all())
    True
    >>> reorder.reorder(m, "nhwc", dtype="s8", attr=reorder.Attr(dst_scale=1 / 127)).desc.dtype
    data_type('s8')
    """
    key: Any = None
    entry: Any = None
    # see reorder/calls.py; a function of Python would take a tenth of a small reorder
    is_plain = queue is None and wait_for is None and (attr is None or type(attr) is Attr)
    if is_plain and (threads is None or type(threads) is int):
        limit = limits()[0] if threads is None else threads
        to = dst if type(dst) is str else id(dst)
        of = src if src is None or type(src) is str else id(src)
        kind = dtype if dtype is None or type(dtype) is str else id(dtype)
        array: Any = x
        target: Any = out
        given: Any = type(x)
        into: Any = type(out)
        if given is Memory:
            array, given = array.data, id(array.desc)
        if into is Memory:
            target, into = target.data, id(target.desc)
        way = given, to, of, kind, attr, limit, into
        entry = usual.get(way)
        if type(entry) is dict:
            if given is not ndarray:
                entry = None
            elif into is ndarray:
                from_array = array.shape, array.strides, array.dtype
                entry = entry.get((*from_array, target.shape, target.strides, target.dtype))
            else:
                entry = entry.get((array.shape, array.strides, array.dtype, None, None, None))
        if not entry and not (_is_of_device(type(x)) or _is_of_device(type(out))):  # type: ignore[arg-type] # a class has a hash
            key = key_of(way, x, out)
            entry = known_at(key)
        while entry:
            run, desc, allocate, nbytes, _owners = entry
            if out is None:
                data = allocate(nbytes, uint8)
                made: Any = run(array, data)
                if made is None:
                    made = MemoryDraft()  # as Memory.attached does
                    made.desc, made.data, made.__class__ = desc, data, Memory
                if made is not False:
                    return made  # type: ignore[no-any-return] # a Memory, or pixels
            elif run(array, target) is None:
                return out  # type: ignore[return-value] # not an object on a device
            if key is not None:
                break
            key = key_of(way, x, out)
            entry = known_at(key)
    if queue is not None or is_on_device(x) or is_on_device(out):
        if threads is not None:
            refuse_threads(threads)
        return _load_device()(
            x, dst, src=src, dtype=dtype, attr=attr, out=out, queue=queue, wait_for=wait_for
        )
    if wait_for is not None:
        raise MemdescError(
            "wait_for takes events of a device, but this reorder runs on the CPU; pass queue="
        )
    call = x, dst, src, dtype, attr, out, threads
    return cast("Memory | Written", _reorder_on_cpu(call, key, entry))


def _is_tensor(given: object) -> bool:
    return type(given) not in _HOST and not isinstance(given, ndarray) and is_exporter(given)


def _reorder_on_cpu(call: tuple[Any, ...], key: Any, entry: Any) -> Any:
    """Check everything and reorder; leave what was found for later calls with the same key."""
    x, dst, src, dtype, attr, out, threads = call
    given, named, returned = x, (dst, src, dtype), out
    if isinstance(attr, Attr) and attr.is_large:
        key = None  # which would keep its arrays
    if _is_tensor(x) and not isinstance(src, MemoryDesc | ImageDesc):
        x = from_dlpack(x, "x")
    if _is_tensor(out):
        array = from_dlpack(out, "out", write=True)
        out = array if array.flags.writeable else out
    if x is not given or out is not returned:
        # the arrays that tensors export go the way of all arrays
        done: Any = reorder(x, dst, src=src, dtype=dtype, attr=attr, out=out, threads=threads)
        if key is not None and not entry:
            note_tensors(key, x, out)
        return done if out is None else returned
    # another thread may assign the shape of a caller's array, but not that of a view
    x = x.view() if type(x) is ndarray else x
    out = out.view() if type(out) is ndarray else out
    source = from_pixels(x, src) if isinstance(src, ImageDesc) else as_memory(x, src)
    if out is not None and (isinstance(dst, ImageDesc) or (isinstance(dst, str) and is_image(dst))):
        raise MemdescError(
            "out cannot be an image in host memory; leave it out, or pass "
            "out=Memory(image_desc.desc) and no dst"
        )
    if isinstance(dst, MemoryDesc) and dtype is not None:
        dst, dtype = dst.with_dtype(dtype), None
    target = out if out is None or isinstance(out, Memory) else as_output(out, dst)
    wanted = result_desc(dst, dtype, source.desc, None if target is None else target.desc)
    desc = wanted.desc if isinstance(wanted, ImageDesc) else wanted
    plan = plan_reorder(source.desc, desc, attr)
    check_beta(attr, target)
    memory = Memory.to_fill(desc) if target is None else target
    run = _prepared(plan, threads)
    run(source.data, memory.data)
    if entry is None and key is not None:
        note(key, SEEN)
    elif entry is SEEN and desc.nelems:
        _, shown = key
        sides = Passed(shown[:3], x, source), Passed(shown[3:], out, memory)
        note(key, known_call(run, *sides, named, wanted))
    if isinstance(wanted, ImageDesc):
        return to_pixels(memory, wanted)
    return memory if returned is None else returned


def is_on_device(memory: Any) -> bool:
    """Whether an object is pyopencl's or a DeviceMemory; neither is imported to find out."""
    return _is_of_device(type(memory))  # type: ignore[arg-type] # a class has a hash


@lru_cache(MAX_CLASSES)
def _is_of_device(kind: Any) -> bool:
    modules = [base.__module__ for base in kind.__mro__]
    return any(module.startswith(_ON_DEVICE) or module == "pyopencl" for module in modules)


def execute(plan: ReorderPlan, x: Any, out: Any, *, threads: int | None = None) -> None:
    """Run a plan on two buffers.

    Parameters
    ----------
    plan : ReorderPlan
        From `plan_reorder`.
    x, out : ndarray or object with the buffer protocol
        What `plan.src` and `plan.dst` describe: C-contiguous arrays of the dtype or of its bits,
        or raw bytes (uint8), of at least `min_nbytes` bytes. Padding of `out` becomes zero; the
        gaps of a strided layout keep what they hold.
    threads : int, optional
        At most this many threads; by default the limit of `use_threads`, or all that
        numba may use.

    Raises
    ------
    MemdescError
        If a buffer does not fit, or the two overlap; nothing is written then.

    Examples
    --------
    >>> src, dst = (memdesc.memory_desc((2, 3), "s8", tag) for tag in ("ab", "ba"))
    >>> plan = reorder.plan_reorder(src, dst)
    >>> out = np.zeros(6, np.int8)
    >>> reorder.execute(plan, np.arange(6, dtype=np.int8), out)
    >>> out
    array([0, 3, 1, 4, 2, 5], dtype=int8)
    """
    _prepared(plan, threads)(x, out)


def prepare(plan: ReorderPlan, *, threads: int | None = None) -> Callable[[Any, Any], None]:
    """Return a callable that runs a plan many times.

    As with `plan_reorder`, the most recent results are cached, unless the arrays of the plan's
    `attr` exceed 64 KiB.

    Parameters
    ----------
    plan : ReorderPlan
        From `plan_reorder`.
    threads : int, optional
        As for `execute`.

    Returns
    -------
    callable
        `run(x, out)`, which takes what `execute` takes and may be called from
        several threads at once.

    Examples
    --------
    >>> plan = reorder.plan_reorder(memdesc.memory_desc((64, 48), "f32", "ab"),
    ...                             memdesc.memory_desc((64, 48), "f32", "ba"))
    >>> run = reorder.prepare(plan, threads=1)
    """
    run = _prepared(plan, threads)
    run.load_fast_call()
    return run


# most programs only plan, or use a device
_backend = load_late("reorder.cpu.execute")

# What the plans prepared last carry; beyond this many, the oldest plans forget it.
_MAX_PREPARED = 512
_carried: deque[dict[Any, Any]] = deque()


def _prepared(plan: ReorderPlan, threads: int | None) -> PreparedReorder:
    """Check the arguments; return what runs the plan, which the plan carries unless it is large."""
    if type(plan) is not ReorderPlan:
        checked_plan(plan)
    if threads is None:
        threads = current_limit()
    elif type(threads) is not int:
        threads = checked_threads(threads)
    carried: dict[int | None, PreparedReorder] = plan.prepared
    run = carried.get(threads)
    if run is None:
        run = _backend().PreparedReorder(plan, threads)
        if plan.attr is None or not plan.attr.is_large:
            run = carried.setdefault(threads, run)
            _carried.append(carried)
            if len(_carried) > _MAX_PREPARED:
                _carried.popleft().clear()
    return run


@cache
def _load_device() -> Callable[..., DeviceMemory]:
    from reorder.opencl.enqueue import reorder_on_device  # loads pyopencl, which only devices need

    return reorder_on_device
