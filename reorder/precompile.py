"""Compile kernels before their first use, for example in a container image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any

from memdesc import MemdescError, data_type, memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import short_repr
from memdesc.record import known_records, record_desc
from memdesc.record.rows import read_name
from reorder.cpu.decoding.jobs import decoder_at
from reorder.cpu.decoding.pattern import DecodeKernel
from reorder.cpu.host import this_machine
from reorder.cpu.kernel_files import writable_folder
from reorder.cpu.runtime.fast_call import fast_call
from reorder.cpu.runtime.jit import compiled_kernels, interpreter_at, whole_kernel
from reorder.cpu.runtime.pool import compile_pool
from reorder.cpu.runtime.stages import stage_at, tile_interpreter_at
from reorder.cpu.schedule.batches import BatchBuilder, needs_tiles
from reorder.cpu.schedule.post_ops import operands_at, operations_at
from reorder.cpu.schedule.select import Kernel
from reorder.cpu.schedule.tile_batches import tile_batches
from reorder.cpu.schedule.tile_program import StageTypes
from reorder.plan.plan import ReorderPlan, plan_reorder
from reorder.records.decode import DIRECT, dequantize_record, read_by_kernels
from reorder.records.record import Record
from reorder.values.attr import Attr
from reorder.values.formats import FLOATS

_BITS = (4, 8, 16, 32, 64)
# Caches that hold no tensor, and caches that hold any: tiles differ between them.
_CACHES = (0, 1 << 62)
# From nchw: tiles without runs that are contiguous on both sides, and with long ones. Some types
# read whole lines, which are prefetched, only with few channels, others only with many.
_DIMS, _LAYOUTS = ((2, 16, 32, 32), (2, 64, 32, 32)), ("nhwc", "cnhw")
# Formulas that have operations in all places: alone, first, between others and last. A stage is
# compiled for one operation; those of these formulas give their places to all others.
_FORMULAS: tuple[dict[str, Any], ...] = (
    {},
    {"src_scale": 2.0},
    {"src_zero_point": 1 << 24},  # subtracted in f64
    {"src_scale": 2.0, "dst_scale": 3.0},
    {"src_scale": 2.0, "dst_scale": 3.0, "beta": 0.5},
)
# Dims that the blocks of all records divide.
_RECORD_DIMS = (256, 4096)


def compile_kernels(
    dtypes: Iterable[Any] | None = None,
    records: Iterable[str] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Compile the CPU kernels into the folder of compiled code, for later processes.

    Otherwise, each kernel is compiled at its first use. Kernels already in the folder are loaded,
    so a second call is quick. The files work only on processors like this one: the processor's name
    and features are part of their keys, so on others kernels are compiled again.

    Parameters
    ----------
    dtypes : iterable of DataType, str or numpy dtype, optional
        The types that tensors are converted between; by default all. Kernels that move elements
        without conversion are always compiled, for all widths.
    records : iterable of str, optional
        Names of the records to decode, see `memdesc.record.known_records`; by default all.
    progress : callable, optional
        Called before each step with the number of steps done and their total.

    Returns
    -------
    list of dict
        For each kernel of this process: ``"kernel"``, its name; ``"seconds"``, the time it took;
        ``"is_loaded"``, whether it was found in the folder.

    Raises
    ------
    MemdescError
        If a type or a record is unknown, or no writable folder exists.

    Examples
    --------
    >>> made = reorder.precompile.compile_kernels(dtypes=[], records=[])
    >>> names = [kernel["kernel"] for kernel in made]
    >>> "interpreter of 4-bit elements, runs" in names
    True
    """
    names = [*DATA_TYPES]
    if dtypes is not None:
        names = [data_type(dtype).name for dtype in _listed(dtypes, "dtypes")]
    kinds: Iterable[str] = known_records()
    if records is not None:
        kinds = [read_name(name)[0] for name in _listed(records, "records")]
    if writable_folder() is None:
        raise MemdescError(
            "there is no writable folder for compiled code, so kernels compiled now would be lost "
            "when this process ends; set NUMBA_CACHE_DIR to a writable folder"
        )
    conversions = [partial(_compile_conversion, src, dst) for src in names for dst in names]
    steps: list[Callable[[], object]] = [*_moves(), *conversions, *_decoders(kinds)]
    for done, step in enumerate(steps):
        if progress is not None:
            progress(done, len(steps))
        step()
    return compiled_kernels()


def _listed(given: Iterable[Any], what: str) -> list[Any]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise MemdescError(
            f"{what} is {short_repr(given)}; give a list of names, such as [{given!r}]"
        )
    return [*given]


def _moves() -> Iterator[Callable[[], object]]:
    """Yield functions that each compile a kernel for moves."""
    yield compile_pool
    yield fast_call
    for bits, streams in product(_BITS, (False, True)):
        kernel = whole_kernel(Kernel(bits, streams))
        if not (kernel.is_packed and streams):
            yield partial(interpreter_at, kernel)
    yield tile_interpreter_at


def _compile_conversion(src: str, dst: str) -> None:
    """Compile the stages between two types, with all operations that each may have."""
    for formula in _FORMULAS:
        try:
            attr = Attr(**formula)
            for dims, name in product(_DIMS, _LAYOUTS):
                sides = memory_desc(dims, src, "nchw"), memory_desc(dims, dst, name)
                _compile_stages(plan_reorder(*sides, attr))
        except MemdescError:
            continue  # this formula does not apply to these types


def _compile_stages(plan: ReorderPlan) -> None:
    if not needs_tiles(plan):
        return
    for nbytes in _CACHES:
        machine = this_machine()._replace(cache_nbytes=nbytes, streamed_nbytes=0)
        for batch in tile_batches(BatchBuilder(plan, machine.threads, machine)):
            for types in batch.program:
                if isinstance(types, StageTypes):
                    _compile_places(types)


def _compile_places(types: StageTypes) -> None:
    """Compile a stage with all operations, also without non-temporal stores and prefetching."""
    streams, bits = {types.streams, False}, {types.prefetched_bits, 0}
    for operation in operations_at(types, this_machine().instructions):
        for streamed, prefetched, operands in product(streams, bits, operands_at(operation)):
            code = types._replace(operation=operation, streams=streamed, operands=operands)
            stage_at(code._replace(prefetched_bits=prefetched))


def _decoders(records: Iterable[str]) -> Iterator[Callable[[], object]]:
    for name in records:
        desc = record_desc(_RECORD_DIMS, name)
        record = Record(desc)
        for dtype in FLOATS:
            yield partial(dequantize_record, record, dtype, None, None)
        access, _ = read_by_kernels(record, None)
        kernels = [] if access is None else [DecodeKernel(access.pattern, kind) for kind in DIRECT]
        for kernel in kernels:
            if kernel.fills_lines:
                yield partial(decoder_at, kernel._replace(streams=True))
