"""Time reorders of a small array, as users write them: what a call costs besides the move.

    python -m tests.benchmarks.calls [--dims 2,17,5,4] [--seconds 0.5]

Each call takes turns with `np.ascontiguousarray(x.transpose(...))` of the same f32 array, which is
so small that one thread moves it. The least time of all rounds counts, since other programs only
add to it. The last column is how many functions written in Python a call enters.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import reorder
from memdesc import memory_desc
from tests.benchmarks.turns import in_turns, timer
from tests.work import count_calls

_DIMS = (2, 17, 5, 4)
_SLICE_SECONDS = 2e-4


class Call(NamedTuple):
    """One way to write the reorder."""

    name: str
    run: Callable[[], object]


def calls_of(dims: tuple[int, ...]) -> Iterator[Call]:
    """Yield the ways in which users write a reorder of an f32 array of four dims."""
    x = np.random.default_rng(0).random(dims, np.float32)
    attr, scales = reorder.Attr(dst_scale=1 / 127), np.linspace(0.5, 2, dims[1], dtype=np.float32)
    per_channel = reorder.Attr(dst_scale=scales, dst_scale_mask=2)
    yield Call('reorder(x, "nhwc")', lambda: reorder.reorder(x, "nhwc"))
    yield Call('reorder(x, "nChw16c"), padded', lambda: reorder.reorder(x, "nChw16c"))
    desc = memory_desc(dims, "f32", "nhwc")
    yield Call("reorder(x, desc)", lambda: reorder.reorder(x, desc))
    nhwc = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    yield Call('reorder(x, "nchw", src="nhwc")', lambda: reorder.reorder(nhwc, "nchw", src="nhwc"))
    halves, reverse, turned = x[..., ::2], x[:, ::-1], x.transpose(3, 1, 2, 0)
    yield Call("strided: x[..., ::2]", lambda: reorder.reorder(halves, "nhwc"))
    yield Call("negative strides: x[:, ::-1]", lambda: reorder.reorder(reverse, "nhwc"))
    yield Call("transposed x", lambda: reorder.reorder(turned, "nhwc"))
    memory = reorder.reorder(x, "nhwc")
    yield Call('reorder(memory, "nchw")', lambda: reorder.reorder(memory, "nchw"))
    yield Call('dtype="f16"', lambda: reorder.reorder(x, "nhwc", dtype="f16"))
    s8: dict[str, Any] = {"dtype": "s8", "attr": attr}
    yield Call("s8, one scale", lambda: reorder.reorder(x, "nhwc", **s8))
    channels: dict[str, Any] = {"dtype": "s8", "attr": per_channel}
    yield Call("s8, a scale per channel", lambda: reorder.reorder(x, "nhwc", **channels))
    yield Call(
        "s8, a new Attr for each call",
        lambda: reorder.reorder(x, "nhwc", dtype="s8", attr=reorder.Attr(dst_scale=1 / 127)),
    )
    yield Call(
        "s8, a new Attr per channel",
        lambda: reorder.reorder(
            x, "nhwc", dtype="s8", attr=reorder.Attr(dst_scale=scales, dst_scale_mask=2)
        ),
    )
    yield Call('image: "in_out_channel"', lambda: reorder.reorder(x, "in_out_channel"))
    out = reorder.Memory(desc)
    yield Call("out=memory", lambda: reorder.reorder(x, out=out))
    view = np.empty((dims[0], *dims[2:], dims[1]), np.float32).transpose(0, 3, 1, 2)
    yield Call("out=array, strided", lambda: reorder.reorder(x, out=view))
    raw = np.empty(view.shape, np.float32)
    yield Call("reorder(x, desc, out=array)", lambda: reorder.reorder(x, desc, out=raw))

    def limited() -> object:
        with reorder.use_threads(1):
            return reorder.reorder(x, "nhwc")

    yield Call("inside use_threads(1)", limited)
    plan = reorder.plan_reorder(memory_desc(dims, "f32", "nchw"), desc)
    run, flat = reorder.prepare(plan, threads=1), np.empty(dims, np.float32)
    yield Call("prepared: run(x, out)", lambda: run(x, flat))
    yield Call("execute(plan, x, out)", lambda: reorder.execute(plan, x, flat))
    yield Call("Memory(desc)", lambda: reorder.Memory(desc))
    blocked = reorder.reorder(x, "nChw16c")
    yield Call("memory.numpy()", memory.numpy)
    yield Call("memory.numpy() of blocks", blocked.numpy)
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return
    tensor = torch.from_numpy(x)
    yield Call("reorder(tensor of torch)", lambda: reorder.reorder(tensor, "nhwc"))
    last = torch.channels_last
    into = torch.empty(dims).contiguous(memory_format=last)
    yield Call("out=tensor of torch", lambda: reorder.reorder(x, out=into))
    yield Call("torch's contiguous", lambda: tensor.contiguous(memory_format=last))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each way to write the call."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dims", default=",".join(map(str, _DIMS)), help="four sizes")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each row")
    given = parser.parse_args(arguments)
    dims = tuple(int(size) for size in given.dims.split(","))
    x = np.zeros(dims, np.float32)
    # compile the code of repeated calls now, not after many of them
    desc = memory_desc(dims, "f32", "nhwc")
    reorder.prepare(reorder.plan_reorder(desc, desc))

    def copy() -> object:
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1))

    least = min(in_turns([timer(copy)], 0.1)[0])
    print(f"numpy's copy of f32 {dims}: {least * 1e6:.2f} us")
    print("| call | of numpy's copy | Python calls |\n| --- | ---: | ---: |")
    for call in calls_of(dims):
        timers = timer(call.run), timer(copy)
        ours, numpys = in_turns(
            timers, given.seconds / 2, slice_seconds=_SLICE_SECONDS, most_rounds=9999
        )
        found = min(ours) / min(numpys)
        print(f"| `{call.name}` | {found:.2f} | {count_calls(call.run, 'call')} |", flush=True)


if __name__ == "__main__":
    main()
