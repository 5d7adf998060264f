"""Problem strings of verbose lines, and the dims of each tensor that they hold.

A problem is sizes by letters, ``mb2_ic16oc32_ih8oh8kh3...``, or dims joined by colons,
``3x7x16:1x16x5``. Which of them are the dims of which tensor depends on the primitive. Sources:
oneDNN 2.2 to 3.13, `verbose.cpp`, and lines of these versions.
"""

from __future__ import annotations

import re
from functools import reduce
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc.int64 import RUNTIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Problem", "read_problem", "tensor_dims"]

Dims = tuple[int, ...]

_DIMS = r"(?:[0-9]{1,19}|\*)(?:x(?:[0-9]{1,19}|\*))*"
_SIZE = re.compile(r"_?(?P<name>[a-z]+)(?P<size>[0-9]{1,19}(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|\*)")
_AXIS = re.compile("[0-9]{1,3}")
# Dims by letters. A letter that the problem does not have is skipped: id, od and kd of planes, g of
# convolutions without groups. A letter behind a slash divides.
_SRC, _DST = "mb ic id ih iw", "mb oc od oh ow"
_CONVOLUTION = {"src": _SRC, "wei": "g oc/g ic/g kd kh kw", "bia": "oc", "dst": _DST}
_POOLED = "mb ic od oh ow"
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
# Gates of RNN cells, by the end of the algorithm's name: vanilla_lstm, lbr_gru, vanilla_augru.
_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
# Tensors whose dims are listed one by one, in this order.
_LISTED = {
    "matmul": ("src", "wei", "dst"),
    "gemm": ("src_a", "src_b", "dst"),
    "gemm_api": ("src", "wei", "dst"),
    "binary": ("src0", "src1", "src2"),
    "prelu": ("data", "wei"),
    "reduction": ("src", "dst"),
}
_MATRICES = ("matmul", "gemm", "gemm_api")


class Problem(NamedTuple):
    """A problem string, read: sizes by letters, or dims joined by colons; the other is empty."""

    sizes: Mapping[str, float]
    dims: tuple[Dims, ...]


def read_problem(text: str) -> Problem:
    """Read a problem string; what has neither form gives neither.

    Examples
    --------
    >>> read_problem("mb2ic16_ih8oh16_iw8ow16").sizes["oh"]
    16
    >>> read_problem("3x7x16:1x16x5").dims
    ((3, 7, 16), (1, 16, 5))
    """
    if re.fullmatch(f"{_DIMS}(?::{_DIMS})*", text):
        return Problem({}, tuple(_dims(part) for part in text.split(":")))
    sizes: dict[str, float] = {}
    at = 0
    while (match := _SIZE.match(text, at)) is not None:
        sizes[match["name"]] = _number(match["size"])
        at = match.end()
    is_read = at == len(text) and all(map(isfinite, sizes.values()))
    return Problem(sizes if is_read else {}, ())


def tensor_dims(
    kind: str, problem: Problem, aux: Mapping[str, str], names: Sequence[str]
) -> dict[str, Dims]:
    """Return the dims of those tensors of a primitive that its problem says.

    Parameters
    ----------
    kind : str
        The primitive, such as ``convolution``.
    problem : Problem
        What `read_problem` returned.
    aux : mapping of str to str
        The auxiliary field: ``axis`` of a concat, ``alg`` and ``direction`` of an RNN.
    names : sequence of str
        The tensors of the line; several sources are ``src0``, ``src1``, ...
    """
    kind = kind.removesuffix("_v2")
    if problem.sizes:
        sizes = dict(problem.sizes) | (_rnn_sizes(problem.sizes, aux) if kind == "rnn" else {})
        known = {
            name: _by_letters(recipe, sizes) for name, recipe in _BY_LETTERS.get(kind, {}).items()
        }
    else:
        known = _by_lists(kind, problem.dims, aux, names)
    # a gradient has the dims of its tensor; a bare `diff` is that of `data`
    return {
        name: dims
        for name in names
        if (dims := known.get("data" if name == "diff" else name.removeprefix("diff_")))
    }


def _dims(text: str) -> Dims:
    return tuple(RUNTIME if size == "*" else int(size) for size in text.split("x"))


def _number(digits: str) -> float:
    if digits == "*":
        return RUNTIME
    return int(digits) if digits.isdecimal() else float(digits)


def _by_letters(recipe: str, sizes: Mapping[str, float]) -> Dims:
    found = []
    for token in recipe.split():
        letter, _, divisor = token.partition("/")
        if letter in sizes:
            size = int(sizes[letter])
            if size != sizes[letter]:
                return ()
            found.append(size // int(sizes.get(divisor, 1) or 1) if size > 0 else size)
    return tuple(found)


def _rnn_sizes(sizes: Mapping[str, float], aux: Mapping[str, str]) -> dict[str, float]:
    """Return the sizes that follow from the cell and the direction."""
    cell, direction = aux.get("alg", ""), aux.get("direction", "")
    gates = next((count for end, count in _GATES.items() if cell.endswith(end)), 0)
    width = 2 if direction.endswith("concat") else 1
    return {
        "d": 2 if direction.startswith("bidirectional") else 1,
        "gates": gates,
        "biases": gates + cell.startswith("lbr_"),
        "peepholes": 3,
        "dlc": width * sizes.get("dic", 0),
    }


def _by_lists(
    kind: str, lists: tuple[Dims, ...], aux: Mapping[str, str], names: Sequence[str]
) -> dict[str, Dims]:
    if not lists:
        return {}
    if kind == "concat":
        known = dict(zip([name for name in names if name != "dst"], lists, strict=False))
        return known | _concatenated(lists, aux.get("axis", ""))
    if kind in _LISTED:
        known = dict(zip(_LISTED[kind], lists, strict=False))
        if "dst" not in known and kind in _MATRICES and len(lists) > 1:
            known["dst"] = (*_broadcast(lists[0][:-2], lists[1][:-2]), lists[0][-2], lists[1][-1])
        elif kind == "binary":
            known["dst"] = reduce(_broadcast, lists)
        return known
    # all tensors have the same dims, but for those of a layer normalization
    whole = lists[0]
    known = dict.fromkeys((name.removeprefix("diff_") for name in names), whole)
    if kind == "layer_normalization":
        known |= {"stats": whole[:-1], "scale": whole[-1:], "shift": whole[-1:]}
    return known | {"data": whole}


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
