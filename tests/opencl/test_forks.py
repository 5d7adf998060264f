"""A forked child refuses OpenCL where its parent used it, since a runtime would wait for ever."""

import os
import subprocess
import sys

import pytest

from tests.opencl.runtimes import Runtime

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")

_PARENT = '''
import os, signal, sys, tempfile, time
from pathlib import Path
import numpy as np, pyopencl as cl, pyopencl.array
import memdesc
from reorder import opencl, quantize, reorder
from reorder.opencl import runtimes

name, use = sys.argv[1:]
x = np.ones((1, 8, 3, 2), np.float32)
plain = memdesc.memory_desc(x.shape, "f32")
contexts = []
pixels = memdesc.image_desc(x.shape, "f32", "in_out_channel")


def queue_of(device):
    # Intel's queues do not keep their context
    contexts.append(cl.Context([device]))
    return cl.CommandQueue(contexts[-1])


def in_child(what, function):
    child = os.fork()
    if not child:
        try:
            print(what, "works:", function(), flush=True)
        except memdesc.MemdescError as error:
            print(what, "is refused:", error, flush=True)
        finally:
            os._exit(0)
    end = time.monotonic() + 20
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            print(what, "hangs", flush=True)
            break
        time.sleep(0.01)


CALLS = """
opencl.devices()
opencl.find_device()
opencl.pack(queue, x, pixels)
opencl.enqueue_pack(queue, x, image, pixels)
opencl.unpack(queue, image, "nhwc", pixels)
opencl.enqueue_unpack(queue, image, array, "nchw", pixels)
opencl.enqueue_reorder(queue, array, memory.data, src=plain, dst=memory.desc)
reorder(x, "nhwc", queue=queue)
reorder(memory, "nchw")
reorder(array, "nhwc")
memory.get()
memory[0, 0, 0, 0]
opencl.DeviceMemory(queue, memory.data, memory.desc)
opencl.kernel_texts(plain, plain, device=queue.device)
quantize(memory, "s8")
in_child("the child", opencl.devices)
"""
if use == "memdesc":
    queue = queue_of(opencl.find_device(name).device)
    memory = reorder(x, "nhwc", queue=queue)
    array = cl.array.to_device(queue, x)
    image, event = opencl.pack(queue, x, pixels)
    event.wait()
    for call in CALLS.strip().splitlines():
        in_child(call, lambda: eval(call))
    assert memory.get().numpy().tobytes() == x.tobytes()
elif use == "pyopencl":
    # a program without memdesc finds the runtime by the files that it names
    libraries = runtimes.libraries()
    with tempfile.TemporaryDirectory() as folder:
        for k, library in enumerate(libraries):
            Path(folder, f"{k}.icd").write_text(library)
        before = os.environ.get(runtimes.VARIABLE)
        os.environ[runtimes.VARIABLE] = folder
        (platform,) = (one for one in cl.get_platforms() if one.name.strip() == name)
        queue = queue_of(platform.get_devices()[0])
        if before is None:
            del os.environ[runtimes.VARIABLE]
        else:
            os.environ[runtimes.VARIABLE] = before
    cl.enqueue_marker(queue).wait()
    in_child("the parent's queue", lambda: reorder(x, "nhwc", queue=queue))
    in_child("devices", opencl.devices)
else:
    own = lambda: queue_of(opencl.find_device(name).device)
    in_child("reorder", lambda: reorder(x, "nhwc", queue=own()).get().numpy().sum())
print("the end")
'''


def lines_of(runtime: Runtime, use: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PARENT, runtime.name, use],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=400,
    )
    *lines, end = done.stdout.splitlines()
    assert end == "the end"
    return lines


@pytest.mark.parametrize("use", ["memdesc", "pyopencl"])
def test_a_child_refuses_opencl_if_its_parent_used_it(use: str, runtime: Runtime) -> None:
    lines = lines_of(runtime, use)
    assert len(lines) == (17 if use == "memdesc" else 2)
    reason = "is refused: this process was forked from one that had used OpenCL"
    assert [line for line in lines if reason not in line or "'spawn'" not in line] == [
        line for line in lines if line == 'in_child("the child", opencl.devices) works: None'
    ]


def test_a_child_uses_opencl_if_its_parent_did_not(runtime: Runtime) -> None:
    assert lines_of(runtime, "nothing") == ["reorder works: 48.0"]
