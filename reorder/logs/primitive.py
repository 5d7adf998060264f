"""A primitive in a verbose line: its attributes, its problem and its tensors as values.

A problem is sizes by letters, ``mb2_ic16oc32_ih8oh8kh3...``, or dims joined by colons,
``3x7x16:1x16x5``. The primitive decides which of them are the dims of which tensor. Sources:
oneDNN 2.3 to 3.13, `verbose.cpp`, and lines of these versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from math import isfinite
from typing import Any

from memdesc.checked import Checked
from memdesc.desc import MemoryDesc
from memdesc.errors import MemdescError, short_repr
from memdesc.immutable import immutable, value_class
from memdesc.int64 import RUNTIME
from memdesc.lazy import cached_property
from memdesc.runtime_dims import RuntimeDesc
from memdesc.tuples import NamedTuple
from memdesc.verbose import DIMS, from_verbose, read_dims

# oneDNN 3: mask, dtype, groups, and words such as host_scalar; oneDNN 2: mask, and for mask 0 a
# number, or a star if it is known later. OpenVINO's build prints more, which is not read.
_PARAMETER = re.compile(
    r"(?P<mask>[0-9]{1,9})"
    r"(?::(?!nan)(?P<dtype>[a-z][a-z0-9_]*)(?::(?P<groups>[0-9]{1,19}(?:x[0-9]{1,19})+))?(?::[a-z_]+)*"
    r"|:(?:-?[0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?|-?nan)?\*?)?"
)
# separates two items; the plus in a number such as 1e+05 is followed by a digit
_NEXT = re.compile(r"\+(?=[a-z])")
# attributes that change neither the values nor the layouts of a reorder
_HARMLESS = {"scratchpad", "fpmath", "fpmath_mode", "acc-mode", "deterministic"}


class QuantizationParameter(NamedTuple):
    """A scale or a zero point: its argument, mask, type and groups.

    The argument is ``src``, ``wei``, ``src1``, ...; it is empty for the output scale of oneDNN 2.
    Bit d of the mask is set if the values differ along dim d; `groups` says how many adjacent
    elements along each of the last dims share one.
    """

    argument: str
    mask: int
    dtype: str = ""
    groups: tuple[int, ...] = ()


class PostOp(NamedTuple):
    """A post-op: its kind, such as ``sum`` or ``eltwise_relu``, and its parameters as printed."""

    kind: str
    parameters: tuple[str, ...] = ()


@immutable
class VerboseAttributes(NamedTuple):
    """The attributes of a primitive.

    Parameters
    ----------
    scales, zero_points : tuple of QuantizationParameter
        One for each `argument`, with `mask`, `dtype` and `groups`; the output scales of oneDNN 2
        have an empty argument.
    post_ops : tuple of PostOp
        In their order, each with `kind` and `parameters`.
    others : tuple of (str, str)
        Name without ``attr-`` and text of all other attributes: ``("scratchpad", "user")``. Names
        are those of oneDNN 3.

    Examples
    --------
    >>> line = "onednn_verbose,exec,cpu,eltwise,jit,undef,data:f32::blocked:ab::f0,"
    >>> line += "attr-post-ops:sum:0.5,,2x3,0.25"
    >>> reorder.logs.read_verbose([line]).entries[0].primitive.attributes.post_ops[0].kind
    'sum'
    """

    scales: tuple[QuantizationParameter, ...] = ()
    zero_points: tuple[QuantizationParameter, ...] = ()
    post_ops: tuple[PostOp, ...] = ()
    others: tuple[tuple[str, str], ...] = ()

    @property
    def not_understood(self) -> tuple[str, ...]:
        """The text of attributes that may change values in a way that memdesc does not know."""
        unknown = (attribute for attribute in self.others if attribute[0] not in _HARMLESS)
        return tuple(f"{name}:{text}" if text else name for name, text in unknown)


def read_attributes(text: str) -> VerboseAttributes:
    """Read the attributes of a line; those of unknown form are kept in `others`."""
    by_attribute: dict[str, tuple[QuantizationParameter, ...]] = {}
    post_ops: tuple[PostOp, ...] = ()
    others = []
    for word in text.split():
        name, _, value = word.partition(":")
        name = name.removeprefix("attr-")
        parameters: list[QuantizationParameter | None] = []
        if name in {"scales", "zero-points"}:
            parameters = [_parameter(*item.partition(":")[::2]) for item in _NEXT.split(value)]
        elif name == "oscale":
            parameters = [_parameter("", value)]
        known = tuple(parameter for parameter in parameters if parameter is not None)
        if name == "post-ops" and value:
            words = [item.split(":") for item in _NEXT.split(value)]
            post_ops = tuple(PostOp(kind, tuple(numbers)) for kind, *numbers in words)
        elif known and len(known) == len(parameters):
            attribute = "zero_points" if name == "zero-points" else "scales"
            by_attribute[attribute] = by_attribute.get(attribute, ()) + known
        else:
            others.append((name, value))
    return VerboseAttributes(**by_attribute, post_ops=post_ops, others=tuple(others))


def _parameter(argument: str, text: str) -> QuantizationParameter | None:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        return None
    groups = tuple(map(int, match["groups"].split("x"))) if match["groups"] else ()
    return QuantizationParameter(argument, int(match["mask"]), match["dtype"] or "", groups)


Dims = tuple[int, ...]

_SIZE = re.compile(r"_?(?P<name>[a-z]+)(?P<size>[0-9]{1,19}(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|\*)")
_AXIS = re.compile("[0-9]{1,3}")
# Dims by letters. A letter after a slash divides.
_SRC, _DST = "mb ic id ih iw", "mb oc od oh ow"
_CONVOLUTION = {"src": _SRC, "wei": "g oc/g ic/g kd kh kw", "bia": "oc", "dst": _DST}
_POOLED = "mb ic od oh ow"
# letters that a problem may lack: without groups, or with fewer spatial dims
_OPTIONAL = {"g", "id", "ih", "iw", "od", "oh", "ow", "kd", "kh", "kw"}
_BY_LETTERS: dict[str, dict[str, str]] = {
    "convolution": _CONVOLUTION,
    "deconvolution": _CONVOLUTION,
    "inner_product": {"src": _SRC, "wei": "oc ic id ih iw", "bia": "oc", "dst": "mb oc"},
    "pooling": {"src": _SRC, "dst": _POOLED, "ws": _POOLED},
    "resampling": {"src": _SRC, "dst": _POOLED},
    "batch_normalization": {"data": _SRC},
    "group_normalization": {"src": _SRC, "dst": _SRC},
    "lrn": {"data": _SRC},
    "rnn": {
        "src_layer": "t mb slc",
        "src_iter": "l d mb sic",
        "src_iter_c": "l d mb dhc",
        "wei_layer": "l d slc gates dhc",
        "wei_iter": "l d sic gates dhc",
        "wei_peephole": "l d peepholes dhc",
        "wei_proj": "l d dhc dic",
        "bias": "l d biases dhc",
        "dst_layer": "t mb dlc",
        "dst_iter": "l d mb dic",
        "dst_iter_c": "l d mb dhc",
    },
}
# Gates of RNN cells by the end of the algorithm's name: vanilla_lstm, lbr_gru, vanilla_augru.
_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
# Tensors whose dims are listed one after the other, in this order.
_LISTED = {
    "matmul": ("src", "wei", "dst"),
    "gemm": ("src_a", "src_b", "dst"),
    "gemm_api": ("src", "wei", "dst"),
    "binary": ("src0", "src1", "src2"),
    "prelu": ("data", "wei"),
    "reduction": ("src", "dst"),
    "resampling": ("src", "dst"),
    "sdpa": ("query", "key", "val"),
}
# Kinds whose tensors all have the dims that are listed, and what these are called.
_ALIKE = {
    "batch_normalization",
    "eltwise",
    "layer_normalization",
    "logsoftmax",
    "lrn",
    "reorder",
    "shuffle",
    "softmax",
    "sum",
}
_OF_ALL_DIMS = re.compile("src[0-9]*|dst|data")
_MATRICES = ("matmul", "gemm", "gemm_api")


class Problem(NamedTuple):
    """What a problem string contains: sizes by letters, or lists of dims; the other is empty."""

    sizes: Mapping[str, float]
    dims: tuple[Dims, ...]


def read_problem(text: str) -> Problem:
    """Read a problem string; one of neither form gives a problem without sizes and dims."""
    if re.fullmatch(f"{DIMS}(?::{DIMS})*", text):
        return Problem({}, tuple(map(read_dims, text.split(":"))))
    sizes: dict[str, float] = {}
    at = 0
    while match := _SIZE.match(text, at):  # a search would be quadratic
        size = match["size"]
        number = int if size.isdecimal() else float
        sizes[match["name"]] = RUNTIME if size == "*" else number(size)
        at = match.end()
    is_read = at == len(text) and all(map(isfinite, sizes.values()))
    return Problem(sizes if is_read else {}, ())


def tensor_dims(
    kind: str, problem: Problem, aux: Mapping[str, str], names: Sequence[str]
) -> dict[str, Dims]:
    """Return the dims of those tensors of a primitive whose dims follow from its problem.

    `aux` is the auxiliary field, such as ``axis`` of a concat, ``alg`` and ``direction`` of an RNN.
    `names` are the tensors of the line; several sources are ``src0``, ``src1``, ...
    """
    kind = kind.removesuffix("_v2")
    if problem.sizes:
        sizes = dict(problem.sizes) | (_rnn_sizes(problem.sizes, aux) if kind == "rnn" else {})
        known = {
            name: _by_letters(letters, sizes) for name, letters in _BY_LETTERS.get(kind, {}).items()
        }
    else:
        known = _by_lists(kind, problem.dims, aux, names)
    # a gradient has the dims of its tensor; a bare `diff` is the gradient of `data`
    return {
        name: dims
        for name in names
        if (dims := known.get("data" if name == "diff" else name.removeprefix("diff_")))
    }


def _by_letters(letters: str, sizes: Mapping[str, float]) -> Dims:
    dims = []
    for token in letters.split():
        letter, _, divisor = token.partition("/")
        if letter not in sizes and letter not in _OPTIONAL:
            return ()
        if letter in sizes:
            size = int(sizes[letter])
            if size != sizes[letter]:
                return ()
            dims.append(size // int(sizes.get(divisor, 1) or 1) if size > 0 else size)
    return tuple(dims)


def _rnn_sizes(sizes: Mapping[str, float], aux: Mapping[str, str]) -> dict[str, float]:
    """Return the sizes that follow from the type of cell and the direction."""
    cell, direction = aux.get("alg", ""), aux.get("direction", "")
    gates = next((count for end, count in _GATES.items() if cell.endswith(end)), 0)
    width = 2 if direction.endswith("concat") else 1
    return ({"dlc": width * sizes["dic"]} if "dic" in sizes else {}) | {
        "d": 2 if direction.startswith("bidirectional") else 1,
        "gates": gates,
        "biases": gates + cell.startswith("lbr_"),
        "peepholes": 3,
    }


def _by_lists(
    kind: str, lists: tuple[Dims, ...], aux: Mapping[str, str], names: Sequence[str]
) -> dict[str, Dims]:
    if not lists:
        return {}
    if kind == "concat":
        sources = [name for name in names if name != "dst"]
        known = dict(zip(sources, lists, strict=False))
        if len(lists) > len(sources):
            return known | {"dst": lists[-1]}
        return known | _concatenated(lists, aux.get("axis", ""))
    if kind in _LISTED:
        known = dict(zip(_LISTED[kind], lists, strict=False))
        if "dst" not in known and kind in _MATRICES and len(lists) > 1:
            known["dst"] = (*_broadcast(lists[0][:-2], lists[1][:-2]), lists[0][-2], lists[1][-1])
        elif kind == "sdpa" and {"query", "val"} <= known.keys():
            known["dst"] = (*known["query"][:-1], *known["val"][-1:])
        elif kind == "binary":
            known["dst"] = reduce(_broadcast, lists)
        return known
    if kind not in _ALIKE:
        return {}
    whole = lists[0]
    plain = (name.removeprefix("diff_") for name in (*names, "data"))
    known = {name: whole for name in plain if _OF_ALL_DIMS.fullmatch(name)}
    if kind == "layer_normalization":
        known |= {"stats": whole[:-1], "scale": whole[-1:], "shift": whole[-1:]}
    return known


def _broadcast(left: Dims, right: Dims) -> Dims:
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=False))


def _concatenated(lists: tuple[Dims, ...], axis: str) -> dict[str, Any]:
    first = lists[0]
    if not _AXIS.fullmatch(axis) or any(len(dims) != len(first) for dims in lists):
        return {}
    along = int(axis)
    if along >= len(first) or RUNTIME in (dims[along] for dims in lists):
        return {}
    total = sum(dims[along] for dims in lists)
    return {"dst": (*first[:along], total, *first[along + 1 :])}


# name, then : (since 3.4) or _, then the data type; for some primitives the descriptor of a bias is
# followed by a mask of the dims that are not 1
_TENSOR = re.compile(
    r"(?:(?P<name>[a-z][a-z0-9_]*?)[_:])?"
    r"(?P<desc>(?:undef|boolean|e8m0|bf16|[fsu][0-9]{1,2}(?:_e[0-9]m[0-9])?):.*?)"
    r"(?:_mask(?P<mask>[0-9]{1,4}))?"
)
_NO_DIMS = "the problem does not give its dims"
_NO_OFFSET = "a view whose offset0 the line does not give; it is 0 here"
# the flags of a descriptor are a, p, o, and 0 if offset0 is not 0
_VIEW = re.compile(r"\A(\w+:a?p?)0:")


@immutable
class VerboseTensor(NamedTuple):
    """A tensor of a primitive.

    Parameters
    ----------
    name : str
        ``src``, ``wei``, ``bia``, ``dst``, ...; if there are several, ``src0``, ``src1``, ...
    text : str
        The descriptor as it was printed, without the name: ``f32:p:blocked:aBcd16b::f0``.
    dims : tuple of int
        Its sizes, `RUNTIME` for those that are not known; empty if the problem does not give
        them.
    desc : MemoryDesc, RuntimeDesc or None
        None if the line does not describe memory.
    why : str
        Why there is no descriptor, or what the line does not give: the `offset0` of a view, which
        is 0 in `desc`. Otherwise empty.

    Examples
    --------
    >>> line = "onednn_verbose,exec,cpu,eltwise,jit,undef,data:f32::blocked:ab::f0,,,2x3,0.25"
    >>> reorder.logs.read_verbose([line]).entries[0].primitive.tensors["data"].desc
    memory_desc((2, 3), 'f32', 'ab')
    """

    name: str
    text: str
    dims: tuple[int, ...]
    desc: MemoryDesc | RuntimeDesc | None
    why: str = ""

    @property
    def is_absent(self) -> bool:
        """Whether the primitive lacks it: a convolution without bias still prints one."""
        return self.text.startswith("undef:")


@value_class
class VerbosePrimitive(Checked):
    """What the lines of one primitive have in common: all but event, time and timestamp.

    Parameters
    ----------
    engine : str
        ``cpu``, ``gpu``, ``gpu:1``, ``cpu2gpu``, ...
    kind : str
        ``convolution``, ``reorder``, ``matmul``, ...
    implementation : str
        Its name in oneDNN: ``jit:avx512_core``, ``brg_conv_fwd:avx512_core``, ``ref:any``.
    prop_kind : str
        ``forward_inference``, ``backward_data``, ...; ``undef`` if it has none.
    descriptors, attribute_text, aux_text, problem : str
        The other fields as printed.

    Examples
    --------
    >>> line = "onednn_verbose,exec,cpu,eltwise,jit,undef,data:f32::blocked:ab::f0,,,2x3,0.25"
    >>> primitive = reorder.logs.read_verbose([line]).entries[0].primitive
    >>> primitive.kind, primitive.implementation, primitive.problem
    ('eltwise', 'jit', '2x3')
    """

    engine: str
    kind: str
    implementation: str
    prop_kind: str
    descriptors: str
    attribute_text: str
    aux_text: str
    problem: str

    def __post_init__(self) -> None:
        for name, text in vars(self).items():
            if not isinstance(text, str):
                raise MemdescError(
                    f"{name} of a VerbosePrimitive must be a string, not {short_repr(text)}"
                )

    @cached_property
    def attributes(self) -> VerboseAttributes:
        """The attributes as values."""
        return read_attributes(self.attribute_text)

    @cached_property
    def aux(self) -> Mapping[str, str]:
        """The auxiliary field, by name: ``{"alg": "eltwise_relu", "alpha": "0.1"}``."""
        return dict(word.partition(":")[::2] for word in self.aux_text.split())

    @cached_property
    def sizes(self) -> Problem:
        """The problem as values: `sizes` by letters, or `dims` of each tensor."""
        return read_problem(self.problem)

    @cached_property
    def tensors(self) -> Mapping[str, VerboseTensor]:
        """The tensors by name, in the order of the line."""
        possible = [_TENSOR.fullmatch(word) for word in self.descriptors.split()]
        matches = [match for match in possible if match is not None]
        names = _names([match["name"] or "data" for match in matches])
        dims = tensor_dims(self.kind, self.sizes, self.aux, names)
        tensors = {}
        for name, match in zip(names, matches, strict=True):
            known = dims.get(name, ())
            if match["mask"] and "dst" in dims:
                mask = int(match["mask"])
                known = tuple(
                    size if mask >> dim & 1 else 1 for dim, size in enumerate(dims["dst"])
                )
            tensors[name] = _tensor(name, match["desc"], known)
        return tensors

    @property
    def is_reference(self) -> bool:
        """Whether oneDNN ran a reference implementation: plain loops over single elements."""
        return any(word.startswith("ref") for word in re.split("[:+_]", self.implementation))


def _names(names: list[str]) -> list[str]:
    """Return names, each with a number appended if it occurs several times."""
    return [
        f"{name}{names[:k].count(name)}" if names.count(name) > 1 else name
        for k, name in enumerate(names)
    ]


def _tensor(name: str, text: str, dims: tuple[int, ...]) -> VerboseTensor:
    if text.startswith("undef:"):
        return VerboseTensor(name, text, (), None, "the primitive has no such tensor")
    if not dims:
        return VerboseTensor(name, text, (), None, _NO_DIMS)
    at_zero = _VIEW.sub(r"\1:", text)
    try:
        desc = from_verbose(at_zero, dims)
        return VerboseTensor(name, text, dims, desc, "" if at_zero == text else _NO_OFFSET)
    except MemdescError as error:
        return VerboseTensor(name, text, dims, None, str(error))
