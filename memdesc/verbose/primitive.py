"""A primitive as a verbose line describes it: its tensors, attributes and problem as values."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from memdesc.checked import Checked
from memdesc.errors import MemdescError, short_repr
from memdesc.verbose.attributes import read_attributes
from memdesc.verbose.descriptor import from_verbose
from memdesc.verbose.problem import read_problem, tensor_dims

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memdesc.desc import MemoryDesc
    from memdesc.runtime_dims import RuntimeDesc
    from memdesc.verbose.attributes import VerboseAttributes
    from memdesc.verbose.problem import Problem

__all__ = ["VerbosePrimitive", "VerboseTensor"]

# name, then : (since 3.4) or _, then the data type; the dims of a bias that differ from 1 are
# behind the descriptor of some primitives
_TENSOR = re.compile(
    r"(?:(?P<name>[a-z][a-z0-9_]*?)[_:])?"
    r"(?P<desc>(?:undef|boolean|e8m0|bf16|[fsu][0-9]{1,2}(?:_e[0-9]m[0-9])?):.*?)"
    r"(?:_mask(?P<mask>[0-9]{1,4}))?"
)
_NO_DIMS = "the problem does not hold its dims"
_NO_OFFSET = "a view whose offset0 the line does not hold; it is 0 here"
# flags of a descriptor: a, p, o, and 0 for an offset0 other than 0
_VIEW = re.compile(r"\A(\w+:a?p?)0:")


class VerboseTensor(NamedTuple):
    """A tensor of a primitive.

    Parameters
    ----------
    name : str
        ``src``, ``wei``, ``bia``, ``dst``, ...; of several with one name ``src0``, ``src1``, ...
    text : str
        The descriptor as it was printed, without the name: ``f32:p:blocked:aBcd16b::f0``.
    dims : tuple of int
        Its sizes as the problem says, `RUNTIME` where they are not known; empty where the
        problem does not say them.
    desc : MemoryDesc, RuntimeDesc or None
        None if the line does not describe memory.
    why : str
        Why there is no descriptor, or what of it the line does not hold: the `offset0` of a
        view, which is 0 in `desc`. Else empty.
    """

    name: str
    text: str
    dims: tuple[int, ...]
    desc: MemoryDesc | RuntimeDesc | None
    why: str = ""

    @property
    def is_absent(self) -> bool:
        """Whether the primitive does not have it: a convolution without bias prints one."""
        return self.text.startswith("undef:")


@dataclass(frozen=True)
class VerbosePrimitive(Checked):
    """What the lines of one primitive share: all but event, time and timestamp.

    Parameters
    ----------
    engine : str
        ``cpu``, ``gpu``, ``gpu:1``, ``cpu2gpu``, ...
    kind : str
        ``convolution``, ``reorder``, ``matmul``, ...
    implementation : str
        oneDNN's name of it: ``jit:avx512_core``, ``brg_conv_fwd:avx512_core``, ``ref:any``.
    prop_kind : str
        ``forward_inference``, ``backward_data``, ...; ``undef`` where there is none.
    descriptors, attribute_text, aux_text, problem : str
        The other fields as they were printed.
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
                msg = f"{name} of a VerbosePrimitive must be a string, not {short_repr(text)}"
                raise MemdescError(msg)

    @cached_property
    def attributes(self) -> VerboseAttributes:
        """The attributes as values."""
        return read_attributes(self.attribute_text)

    @cached_property
    def aux(self) -> Mapping[str, str]:
        """The auxiliary field, by name: ``{"alg": "eltwise_relu", "alpha": "0.1"}``."""
        return {
            name: value
            for name, _, value in (word.partition(":") for word in self.aux_text.split())
        }

    @cached_property
    def sizes(self) -> Problem:
        """The problem as values."""
        return read_problem(self.problem)

    @cached_property
    def tensors(self) -> Mapping[str, VerboseTensor]:
        """The tensors by name, in the order of the line."""
        found = [_TENSOR.fullmatch(word) for word in self.descriptors.split()]
        matches = [match for match in found if match is not None]
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
        """Whether oneDNN ran a reference implementation, plain loops over single elements."""
        return any(part.startswith("ref") for part in re.split("[:+_]", self.implementation))


def _names(given: list[str]) -> list[str]:
    """Return names, with numbers behind those that are there several times."""
    counts, seen = Counter(given), Counter[str]()
    names = []
    for name in given:
        names.append(f"{name}{seen[name]}" if counts[name] > 1 else name)
        seen[name] += 1
    return names


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
