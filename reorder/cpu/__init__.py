"""The CPU backend: boxes walked by kernels that numba compiles.

Import it when it is needed: numba takes a third of a second to load.
"""

from reorder.cpu.execute import PreparedReorder
from reorder.cpu.runtime.jit import compiled_kernels
from reorder.cpu.runtime.layers import layer_name
from reorder.cpu.runtime.walker import cache_folder
from reorder.cpu.target import count_threads

__all__ = ["PreparedReorder", "cache_folder", "compiled_kernels", "count_threads", "layer_name"]
