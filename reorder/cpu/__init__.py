"""The CPU backend: compiled kernels move and convert the boxes of a plan.

How a box is executed:

* `schedule/` selects the micro-kernel that moves it, cuts it into tiles, and encodes it as an
  instruction of a program: `program` if elements are moved, `tile_program` if they are converted.
  Then `partition` cuts it into ranges of steps, and groups these into chunks for threads, and
  `batches` puts these together. All of these are pure functions of the box and the machine.
* `kernels/` emits LLVM, by `llvm/`: the interpreters that run such programs, and the micro-kernels
  and stages that they call. `codecs/` emits the conversions of elements in registers.
* `runtime/` compiles an interpreter (`jit`), writes the addresses of compiled code and of arrays
  into a program (`stages`), and runs its chunks on threads (`pool`, `worker`).
* `decoding/` decodes block-quantised tensors by kernels of their own, on the same threads.
* `execute` prepares all of this once for a plan, and runs it on buffers.

Import the package when it is needed: LLVM is only loaded to compile.
"""

from reorder.cpu.execute import PreparedReorder
from reorder.cpu.host import count_threads
from reorder.cpu.kernel_files import writable_folder as cache_folder
from reorder.cpu.runtime.jit import compiled_kernels

__all__ = ["PreparedReorder", "cache_folder", "compiled_kernels", "count_threads"]
