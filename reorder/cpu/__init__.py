"""The CPU backend: compiled kernels move and convert the boxes of a plan.

How a box is executed:

* `schedule/` selects the micro-kernel that moves it, cuts it into tiles, and encodes it as an
  instruction of a program: `program` if elements are moved, `tile_program` if they are converted.
  Then `partition` cuts it into ranges of steps, and groups these into chunks for threads. All of
  these are pure functions.
* `kernels/` emits LLVM: the interpreters that run such programs, and the micro-kernels and stages
  that they call. `codecs/` emits the conversions of elements in registers.
* `runtime/` compiles an interpreter (`jit`), joins it with a program and its chunks (`batch`), and
  runs the chunks on threads (`job`, `pool`, `worker`).
* `execute` prepares all of this once for a plan, and runs it on buffers.

Import the package when it is needed: LLVM is only loaded to compile.
"""

from reorder.cpu.execute import PreparedReorder
from reorder.cpu.kernel_files import writable_folder as cache_folder
from reorder.cpu.machine import count_threads
from reorder.cpu.runtime.jit import compiled_kernels

__all__ = ["PreparedReorder", "cache_folder", "compiled_kernels", "count_threads"]
