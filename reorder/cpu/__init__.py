"""The CPU backend: compiled kernels move and convert the boxes of a plan.

Import it when it is needed: numba takes a third of a second to load.
"""

from reorder.cpu.execute import PreparedReorder
from reorder.cpu.machine import count_threads
from reorder.cpu.runtime.jit import cache_folder, compiled_kernels

__all__ = ["PreparedReorder", "cache_folder", "compiled_kernels", "count_threads"]
