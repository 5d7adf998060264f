"""Launches: a nest, the pattern and text of its kernel, and the numbers that the kernel takes.

Texts are OpenCL C 1.2, and depend on the pattern alone. The parameters of a kernel are a struct of
integers by value, so that one kernel fits all sizes. Their names and order, for operand `src` and
then `dst`, and loop k; the last loops may be indirect, with offsets from tables instead of strides.

    src, or src_x, src_y      offset, or column and row, where the nest starts
    src_lane1, ...            offsets of the lanes after the first (buffers)
    extent0, valid0           iterations of loop 0, and those of them that hold data
    shift0                    log2 of the work items along loop 0, unless all share its steps
    groups0                   work-groups along loop 0, where another loop shares its dimension
    src0, or src_x0, src_y0   stride of loop 0
    size0, index0_, index0_0  a size, and the start and the strides of the index below it

A kernel that converts has the roles of its scales and zero points as further operands, where they
differ along the dims; then come the indirection tables. Its scalars come first, then the parameters
of its body:

    src_scale_value, ...      a number for all elements; the bits of a float
    src_end                   one past the last element that may be read, for aligned loads
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.opencl.kernel.access import PARAMETER, VECTOR, Access, Mode
from reorder.opencl.kernel.formula import Floats, KernelFormula
from reorder.plan.nodes import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from reorder.opencl.kernel.placement import Nest

MAX_INT = 2**31 - 1
# the name of every kernel
KERNEL = "reorder"
_PARAMS_PER_LINE = 8
# local memory that every kernel on NVIDIA's devices may use
MAX_LOCAL = 48 << 10
# NVIDIA's limit of work-groups in the second and third dimension
_MAX_GROUPS = 65535


def ceil_log2(extent: int) -> int:
    """Return the smallest k for which 2**k is at least the extent."""
    return (extent - 1).bit_length()


def floor_log2(extent: int) -> int:
    """Return the largest k for which 2**k is at most the extent."""
    return extent.bit_length() - 1


class DeviceTraits(NamedTuple):
    """What plans depend on: a device's largest work-group, its arithmetic and local memory.

    A nest that writes fewer than `min_tiled` bytes takes no tiles: kernels with tiles are built for
    each layout, others once for all sizes. The sizes of tiles and groups were the best in sweeps on
    an NVIDIA H200, and all devices use them (docs/benchmarks.md has the bandwidths). Buffers start
    at multiples of `alignment` bytes.
    """

    max_work_items: int
    floats: Floats = Floats()
    min_tiled: int = 1 << 16
    max_local: int = MAX_LOCAL
    alignment: int = VECTOR

    @property
    def unaligned(self) -> DeviceTraits:
        """The same for buffers that start at any element: without tiles."""
        return self._replace(min_tiled=1 << 62, alignment=1)


class KernelTask(NamedTuple):
    """A nest that a family of kernels may lower.

    `accesses` say how src and dst are accessed: as `IMAGE` or `ELEMENTS`. There is a `conversion`
    unless elements of whole bytes move between buffers; `numbers` are the parameters for its
    scalars. Without `converts` it keeps the bits.
    """

    nest: Nest
    accesses: tuple[Access, Access]
    device: DeviceTraits
    conversion: KernelFormula | None = None
    numbers: Mapping[str, int] = {}
    converts: bool = False

    @property
    def has_image(self) -> bool:
        """Whether src or dst is an image."""
        return any(access.mode == Mode.IMAGE for access in self.accesses)

    @property
    def bits(self) -> tuple[int, int]:
        """The bits of an element of src and of dst."""
        return self.accesses[0].bits, self.accesses[1].bits

    @property
    def varying(self) -> tuple[str, ...]:
        """The roles of the conversion that differ along the dims."""
        return () if self.conversion is None else self.conversion.varying

    def work_items(self, most: int) -> int:
        """Return the work items of a group: a power of two that the device allows."""
        return 1 << floor_log2(min(most, self.device.max_work_items))


@dataclass(frozen=True)
class Text:
    """The text of an index that is not negative; operators return the text of their result."""

    text: str
    divisor: int = 1

    def __str__(self) -> str:
        return f"(int)((uint)({self.text}) / {self.divisor}u)" if self.divisor > 1 else self.text

    def __add__(self, other: int | Text) -> Text:
        return Text(f"{self} + {other}") if other else self

    __radd__ = __add__

    def __mul__(self, factor: int) -> Text:
        return Text(f"({self}) * {factor}") if factor != 1 else self

    def __floordiv__(self, count: int) -> Text:
        return Text(self.text, self.divisor * count)

    def __mod__(self, count: int) -> Text:
        return Text(f"(int)((uint)({self.text}) / {self.divisor}u % {count}u)")


class LoopShape(NamedTuple):
    """How many steps of a loop a work item has, and the dimension that counts its groups."""

    steps: int
    grid_dim: int


class Body(ABC):
    """What the kernels of a family do; hashable, since the text depends on its fields."""

    # whether the text says that all work items of a group start at the same step of each loop
    shares_steps: bool = False

    @abstractmethod
    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body of the kernel."""

    def functions(self, pattern: Pattern) -> Iterator[str]:
        """Return the functions that the body calls, and an empty line before them."""
        yield ""
        if pattern.conversion is not None:
            yield from pattern.conversion.lines()

    def param_names(self) -> list[str]:
        """Return the names of the parameters that the body adds to those of the nest."""
        return []


class Pattern(NamedTuple):
    """The structure of a kernel without its numbers; the text depends on nothing else.

    `lanes` has an entry for each element that a work item moves: its lane in an image src, its
    index among the lanes for a buffer, or -1 if zero is written. A work-group has `work_items`
    work items. The last `indirect` loops have tables. With `is_wide` offsets have 64 bits.
    `params` are the names of the parameters, in order. There are `sizes` indices that are below a
    size where there is data.
    """

    src: Access
    dst: Access
    body: Body
    work_items: int
    conversion: KernelFormula | None = None
    lanes: tuple[int, ...] = (0,)
    loops: tuple[LoopShape, ...] = ()
    indirect: int = 0
    is_wide: bool = False
    params: tuple[str, ...] = ()
    sizes: int = 0

    @property
    def index_type(self) -> type[np.signedinteger[Any]]:
        """The type of offsets and parameters."""
        return np.int64 if self.is_wide else np.int32

    @property
    def operands(self) -> list[tuple[str, Access]]:
        """All operands by name; scales and zero points that differ along the dims are some."""
        varying = () if self.conversion is None else self.conversion.varying
        others = [*varying, *(f"index{k}_" for k in range(self.sizes))]
        return [("src", self.src), ("dst", self.dst), *((name, PARAMETER) for name in others)]

    def is_last_in_dimension(self, k: int) -> bool:
        """Whether no loop after loop k shares its dimension of the NDRange."""
        return all(other.grid_dim != self.loops[k].grid_dim for other in self.loops[k + 1 :])


class Launch(NamedTuple):
    """A kernel to enqueue."""

    pattern: Pattern
    params: tuple[int, ...]
    groups: tuple[int, ...]
    tables: tuple[NDArray[Any], ...] = ()


class Division(NamedTuple):
    """How a loop is divided: groups of `tile` steps, log2 of their work items, steps of each."""

    groups: int
    shift: int
    steps: int
    tile: int


def divided(extent: int, shift: int = 0, steps: int = 1, length: int = 1) -> Division:
    """Divide a loop among work items; each step takes `length` iterations."""
    tile = (steps << shift) * length
    return Division(-(-extent // tile), shift, steps, tile)


def share_out(extents: Sequence[int], total: int, given: Sequence[int] = ()) -> list[int]:
    """Give 2^total work items to loops; return log2 for each."""
    shifts = [*given, *(0 for _ in extents[len(given) :])]
    for k, extent in enumerate(extents):
        shifts[k] += max(min(ceil_log2(extent) - shifts[k], total - sum(shifts)), 0)
    # the remaining work items are idle, past the end of the last loop
    shifts[-1] += total - sum(shifts)
    return shifts


def lower_nest(
    nest: Nest,
    pattern: Pattern,
    loops: Iterable[Division],
    numbers: Mapping[str, int] = {},
    bound: int = 0,
) -> Launch:
    """Make the launch of a nest whose loops are innermost first and divided as `loops` says.

    `numbers` has the scalars of the conversion and the parameters of the body by name, and may have
    others. `bound` is a bound on offsets that do not follow from the loops.
    """
    loops = tuple(loops)
    dims = _grid_dims([loop.groups for loop in loops])
    # extents are rounded up to whole groups
    spans = [loop.groups * loop.tile for loop in loops]
    pattern = pattern._replace(
        loops=tuple(LoopShape(loop.steps, dim) for loop, dim in zip(loops, dims, strict=True)),
        indirect=len(nest.indirect),
        sizes=len(nest.sizes),
    )
    sizes = {f"size{k}": size for k, size in enumerate(nest.sizes)}
    numbers = {"src_end": end_of_src(nest), **sizes, **numbers}
    scalars = () if pattern.conversion is None else pattern.conversion.scalars
    names = [*(f"{role}_value" for role in scalars), *pattern.body.param_names()]
    params = {name: numbers[name] for name in names}
    params |= _nest_params(nest, pattern, loops)
    groups = [1, 1, 1]
    for loop, dim in zip(loops, dims, strict=True):
        groups[dim] *= loop.groups
    # a row for each operand that is accessed
    skipped = int(pattern.src.mode == Mode.NONE)
    rows = (list(loop.tables(0, loop.extent))[skipped:] for loop in nest.indirect)
    tables = [np.stack(row[:1] if skipped else row) for row in rows]
    far = sum(int(np.abs(table[table != NOWHERE]).max(initial=0)) for table in tables)
    bound = max(bound, offset_bound(nest, spans) + sum(spans) + far)
    return make_launch(pattern, params, tuple(groups), bound, tables)


def make_launch(
    pattern: Pattern,
    params: Mapping[str, int],
    groups: tuple[int, ...],
    bound: int,
    tables: Iterable[NDArray[np.int64]],
) -> Launch:
    """Return the launch of parameters by name; `bound` decides whether offsets have 64 bits."""
    of = pattern.conversion
    # a number of 64 bits is a parameter
    is_f64 = of is not None and of.work == "f64" and bool(of.scalars)
    pattern = pattern._replace(params=tuple(params), is_wide=is_f64 or bound > MAX_INT)
    limits = np.iinfo(pattern.index_type)
    typed = (np.maximum(table, limits.min).astype(limits.dtype) for table in tables)
    return Launch(pattern, tuple(params.values()), groups, tuple(typed))


def _grid_dims(counts: list[int]) -> list[int]:
    """Return the NDRange dimension of the groups of each loop; the outermost loop gets the last."""
    dims = [0] * len(counts)
    free = [2, 1]
    for k in reversed(range(1, len(counts))):
        if free and counts[k] <= _MAX_GROUPS:
            dims[k] = free.pop(0)
    return dims


def offset_bound(nest: Nest, spans: list[int]) -> int:
    """Return a bound on all offsets without those of tables, for some iterations of each loop."""
    bounds = [
        sum(map(abs, start)) + sum(abs(lane.offsets[k]) for lane in nest.lanes)
        for k, start in enumerate(nest.starts)
    ]
    for loop, span in zip(nest.loops, spans, strict=True):
        for k, stride in enumerate(loop.strides):
            bounds[k] += span * max(map(abs, stride), default=0)
    return max(bounds)


def _nest_params(nest: Nest, pattern: Pattern, divisions: tuple[Division, ...]) -> dict[str, int]:
    """Return the parameters of a nest, in order, by name."""
    params: dict[str, int] = {}
    for n, (operand, access) in enumerate(pattern.operands):
        params |= zip((f"{operand}{c}" for c in access.coords), nest.starts[n], strict=False)
        if access.mode == Mode.ELEMENTS:
            lanes = enumerate(nest.lanes[1:], 1)
            params |= {f"{operand}_lane{k}": lane.offsets[n] for k, lane in lanes}
    for k, loop in enumerate(nest.loops):
        params |= {f"extent{k}": loop.extent, f"valid{k}": loop.valid}
        if not pattern.body.shares_steps:
            params[f"shift{k}"] = divisions[k].shift
        if not pattern.is_last_in_dimension(k):
            params[f"groups{k}"] = divisions[k].groups
        for (operand, access), stride in zip(pattern.operands, loop.strides, strict=True):
            params |= zip((f"{operand}{c}{k}" for c in access.coords), stride, strict=False)
    return params


def end_of_src(nest: Nest) -> int:
    """Return the offset past the last element of src that a nest reads; 0 if it reads an image."""
    start = nest.starts[0]
    if len(start) != 1:
        return 0
    return start[0] + 1 + sum(max((loop.valid - 1) * loop.stride(0), 0) for loop in nest.loops)


def kernel_source(pattern: Pattern) -> str:
    """Return the program of a pattern; its only kernel is named `KERNEL`."""
    body = (f"    {line}" for line in pattern.body.lines(pattern))
    return "\n".join([*_head(pattern), "{", *body, "}", ""])


def _head(pattern: Pattern) -> Iterator[str]:
    if pattern.dst.image_type == "image3d_t":
        yield "#pragma OPENCL EXTENSION cl_khr_3d_image_writes : enable"
    yield f"typedef {'long' if pattern.is_wide else 'int'} index_t;"
    yield "typedef struct {"
    names = pattern.params
    for k in range(0, len(names), _PARAMS_PER_LINE):
        yield f"    index_t {', '.join(names[k : k + _PARAMS_PER_LINE])};"
    yield "} params_t;"
    if pattern.src.slice_rows or pattern.dst.slice_rows:
        yield "int4 in_slice(const int2 at, const int rows)"
        yield "{"
        yield "    return (int4)(at.x, at.y % rows, at.y / rows, 0);"
        yield "}"
    yield from pattern.body.functions(pattern)
    arguments = []
    for name, use, const in (("src", "read", "const "), ("dst", "write", "")):
        access: Access = getattr(pattern, name)
        if access.mode == Mode.IMAGE:
            arguments.append(f"__{use}_only {access.image_type} {name}")
        elif access.mode != Mode.NONE:
            arguments.append(f"__global {const}{access.element} *restrict {name}")
    if pattern.conversion is not None:
        arguments += [
            f"__global const {pattern.conversion.operand_type(role)} *restrict {role}"
            for role in pattern.conversion.varying
        ]
    arguments += [f"__global const index_t *restrict table{k}" for k in range(pattern.indirect)]
    yield f"__kernel __attribute__((reqd_work_group_size({pattern.work_items}, 1, 1)))"
    yield f"void {KERNEL}({', '.join(arguments)}, const params_t p)"


def shared_lines(conversion: KernelFormula, roles: Collection[str], s: int) -> Iterator[str]:
    """Return the values of roles that all elements of step s share."""
    for role in roles:
        read = conversion.operand_value(role, f"{role}_{s}")
        yield f"const {conversion.operand_type(role)} {role}_all = {read};"


def index_lines(pattern: Pattern) -> Iterator[str]:
    """Return the indices at which a work item, or its group, starts: i0, i1, ..."""
    shares_steps = pattern.body.shares_steps
    if not shares_steps:
        yield "uint item = get_local_id(0);"
    for dim in sorted({loop.grid_dim for loop in pattern.loops}):
        yield f"uint group{dim} = get_group_id({dim});"
    for k, loop in enumerate(pattern.loops):
        is_last = pattern.is_last_in_dimension(k)
        dim = loop.grid_dim
        group = f"group{dim}" if is_last else f"group{dim} % (uint)p.groups{k}"
        tile = f"(index_t)({group}){f' * {loop.steps}' if loop.steps > 1 else ''}"
        if shares_steps:
            yield f"const index_t i{k} = {tile};"
        else:
            digit = f"(index_t)(item & ((1u << p.shift{k}) - 1))"
            yield f"index_t i{k} = (({tile}) << p.shift{k}) + {digit};"
            yield f"item >>= p.shift{k};"
        if not is_last:
            yield f"group{dim} /= (uint)p.groups{k};"


def offset_at(operand: str, indices: Iterable[tuple[int, str]], *more: str) -> str:
    """Return the offset of an operand at the indices of some loops, which come as (loop, index)."""
    return " + ".join(
        [f"p.{operand}", *(f"{index} * p.{operand}{k}" for k, index in indices), *more]
    )


def start_lines(pattern: Pattern, operand: str, access: Access) -> Iterator[str]:
    """Return the coordinates of an operand at the indices of a work item."""
    indirect = (f"indirect{k}_{operand}" for k in range(pattern.indirect))
    for c in access.coords:
        at = offset_at(operand + c, indices_of(pattern), *indirect)
        ctype = "int" if c else "index_t"
        yield f"const {ctype} {operand}{c or '_offset'} = ({ctype})({at});"


def indices_of(pattern: Pattern) -> list[tuple[int, str]]:
    """Return the loops of a pattern with their indices."""
    return [(k, f"i{k}") for k in range(len(pattern.loops))]


def indirect_lines(pattern: Pattern, k: int) -> Iterator[str]:
    """Return indirect{k}_src, indirect{k}_dst and so on, and is_data{k}, of an indirect loop."""
    operands = [operand for operand, access in pattern.operands if access.mode != Mode.NONE]
    loop = len(pattern.loops) - pattern.indirect + k
    for n, operand in enumerate(operands):
        at = f"table{k}[{f'{n} * p.extent{loop} + ' if n else ''}i{loop}]"
        if operand == "src":
            yield f"const int is_data{k} = {at} != {'LONG' if pattern.is_wide else 'INT'}_MIN;"
            at = f"is_data{k} ? {at} : 0"
        yield f"const index_t indirect{k}_{operand} = {at};"
