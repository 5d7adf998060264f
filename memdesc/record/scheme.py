"""Scheme: how weights are quantised and stored, whatever their sizes.

A scheme is a row of data: its tensors, the rule that turns them into numbers, and its options. With
dims it makes a `RecordDesc`; `bind` finds the dims and options that stored tensors can have.

The shape of a tensor is an expression for each axis, a product: ``i*bits/32`` is the dim i times
the option bits, divided by 32, without a remainder; ``o^block`` is divided by the block and rounded
up; ``o~128`` is rounded up to a multiple. A divisor after ``*`` is the width of the words in which
several elements are stored; any other divisor is the size of the group of adjacent elements that
share an element of this tensor. A dim without an axis has one group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from math import gcd, prod
from typing import Any

import numpy as np

from memdesc.desc import MemoryDesc, memory_desc
from memdesc.dtypes import DATA_TYPES, data_type
from memdesc.errors import MemdescError, short_repr
from memdesc.int64 import checked_flag, checked_int
from memdesc.layout import Layout, dim_name, layout_by_strides
from memdesc.record.desc import RecordDesc
from memdesc.record.field import BIT_PLANES, Field
from memdesc.record.rule import Constant, Number, Rule
from memdesc.tags import LETTERS
from memdesc.tuples import NamedTuple

Options = Mapping[str, Any]
_FACTOR = re.compile(
    r"(\w+?)(?:\*(bits|\d+))?(?:([/^])(\w+))?(?:~(\d+))?(?:\*|$)"  # such as i, i*bits/32, i/group
)
# the value of an option that counts adjacent elements if all elements share a scale
ALL = -1


class Option(NamedTuple):
    """An option of a scheme."""

    name: str
    usual: Any
    # the legal values; empty for a count of adjacent elements, or ALL
    legal: tuple[Any, ...] = ()
    # what the values mean, for messages, if they change the numbers and not the tensors
    means: tuple[str, ...] = ()
    # whether it is a size of blocks that may be cut off, one for rows and columns or one for each
    is_block: bool = False

    def checked(self, scheme: str, value: Any) -> Any:
        """Return a value as a Python value. Fails if it is not legal."""
        what = f"{scheme}: {self.name}"
        if isinstance(value, np.generic | np.ndarray) and not value.ndim:
            value = value.item()
        if self.is_block:
            block_sizes(scheme, value)
            return value if isinstance(value, str) else int(value)
        if isinstance(self.usual, bool):
            return checked_flag(what, value)
        if not self.legal:
            count = checked_int(what, value)
            if count < 1 and not (count == ALL and self.has_all):
                most = f", or {ALL} for all" if self.has_all else ""
                raise MemdescError(f"{what} must be at least 1{most}, not {count}")
            return count
        hint = ""
        if self.usual in DATA_TYPES:
            # those of a shape are integers that are read, not bits of a type that a file lacks
            is_read = self.name == "shape"
            hint = "" if is_read else f"; give {self.name}= if the words hold one of these"
            with suppress(MemdescError):
                value = data_type(value).name
        # the dims decide whether a count may be ALL
        legal = (*self.legal, ALL) if self.has_all else self.legal
        if type(value) is not type(self.usual) or value not in legal:
            means = map("{!r} ({})".format, self.legal, self.means)
            *others, last = means if self.means else map(str, self.legal)
            raise MemdescError(
                f"{what} must be {', '.join(others)} or {last}, not {short_repr(value)}{hint}"
            )
        return value

    @property
    def has_all(self) -> bool:
        """Whether it is a count of adjacent elements, which may be ALL."""
        return self.name in ("group", "rows")


def check_names(name: str, legal: Options, given: Options) -> None:
    """Refuse an option that a record does not have."""
    for option in given:
        if option not in legal:
            what = f"takes {', '.join(legal)}" if legal else "takes none"
            raise MemdescError(f"{name} has no option {option!r}; it {what}")


def block_sizes(name: str, block: Any) -> tuple[int, int]:
    """Return the rows and columns of a block: a number for both, or a string such as 128x64."""
    if isinstance(block, str):
        if match := re.fullmatch("([1-9][0-9]{0,17})x([1-9][0-9]{0,17})", block):
            return int(match[1]), int(match[2])
    else:
        with suppress(MemdescError):
            if (size := checked_int("block", block)) > 0:
                return size, size
    raise MemdescError(
        f"{name}: block must be an integer of 1 or more, or two such as '128x64', not "
        f"{short_repr(block)}"
    )


class Factor(NamedTuple):
    """A number, or a dim in words or groups; numbers are options or digits."""

    name: str
    # bits of an element, if the divisor is the bits of a word; otherwise the divisor is a group
    width: str
    divisor: str
    # whether the last word or group may be cut off
    is_cut: bool
    # the size is rounded up to a multiple
    align: int


class Axis(NamedTuple):
    """The expression of an axis: a product."""

    text: str
    factors: tuple[Factor, ...]
    # the dims and options in it: 1 if they multiply, -1 if they divide
    powers: Mapping[str, int]
    # the product of the numbers in it
    number: Fraction


@lru_cache(maxsize=256)
def axis_of(text: str) -> Axis:
    """Read the expression of an axis."""
    factors = tuple(
        Factor(name, width, divisor, sign == "^", int(align or 1))
        for name, width, sign, divisor, align in re.findall(_FACTOR, text)
    )
    powers, number = dict[str, int](), Fraction(1)
    for name, width, divisor, *_ in factors:
        powers |= {word: power for word, power in ((name, 1), (width, 1), (divisor, -1)) if word}
    for word in filter(str.isdecimal, [*powers]):
        number *= Fraction(word) ** powers.pop(word)
    return Axis(text, factors, powers, number)


class Part(NamedTuple):
    """A tensor of a scheme, or one of the fields in a tensor."""

    name: str
    # the axes of the tensor as it is stored
    axes: tuple[Axis, ...]
    # the type of its elements, and of the words that they are stored in if that is another one;
    # ``{bits}`` stands for the value of an option
    element: str
    words: str
    # the order of the elements: a tag or the name of a packing, or what makes the layout of dims
    order: str | Callable[[tuple[int, ...], Options], Layout]
    # an option, or ``!`` and an option: the part exists if the option is true, or false
    when: str = ""
    # the tensor in which it is stored, if that has another name
    within: str = ""
    # the values of a tensor that follows from dims and options
    values: Callable[[tuple[int, ...], Options], Sequence[Any]] | None = None
    # what its values say: names of dims and options in order, or what reads its bytes
    shows: tuple[str, ...] | Callable[[bytes], dict[str, Any]] = ()
    # whether files that hold it say nothing about the elements in its words
    is_bare: bool = False
    # what it is in the rule: code, scale, divisor, zero or offset
    role: str = ""
    # the tensor that may have, for each input, the row of this one that it uses: an indirection
    # table
    by: str = ""

    @property
    def tensor(self) -> str:
        """The tensor in which it is stored."""
        return self.within or self.name

    def exists(self, options: Options) -> bool:
        """Whether a record with these options has it."""
        wanted, name = not self.when.startswith("!"), self.when.removeprefix("!")
        return not name or bool(options[name]) is wanted


class Words(NamedTuple):
    """How a tensor of a record is stored: the type and the shape of its words."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    # what the words hold; None if files do not say it
    desc: MemoryDesc | None


class Scheme(NamedTuple):
    """A way to store quantised weights, without sizes."""

    name: str
    # the parts, codes first, by the names of the dims: of a matrix and then, if the scheme has
    # them, of stacked matrices, such as the experts of a layer
    forms: Mapping[str, tuple[Part, ...]]
    options: Mapping[str, Option]
    # changes the rule that the roles of the parts make
    rule: Callable[[Rule, Options], Rule]
    # the order in which models have the dims as floats, if it is a different one
    model: str = ""
    # what separates the name of a layer and that of a tensor
    joint: str = "."

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts for a matrix."""
        return next(iter(self.forms.values()))

    @property
    def defaults(self) -> dict[str, Any]:
        """The options with their default values."""
        return {name: option.usual for name, option in self.options.items()}

    @property
    def tables(self) -> set[str]:
        """The indirection tables. Where readers need none, their values follow from the dims."""
        return {part.by for part in self.parts}

    def letters_of(self, ndims: int) -> str:
        """Return the names of this many dims, or the first letters if no form has as many."""
        return next((form for form in self.forms if len(form) == ndims), LETTERS[:ndims])

    def parts_of(self, letters: str, options: Options) -> tuple[Part, ...]:
        """Return the parts that a record with these dims and options has."""
        return tuple(part for part in self.forms[letters] if part.exists(options))

    def tensors(self, **options: Any) -> tuple[str, ...]:
        """Return the names of the tensors of a record with these options, codes first."""
        held = self.defaults | options
        return tuple(dict.fromkeys(part.tensor for part in self.parts if part.exists(held)))

    @property
    def optional(self) -> dict[str, str]:
        """The tensors that exist only if an option is not the default, with that option."""
        usual = self.tensors()
        return {p.tensor: p.when for p in self.parts if p.when and p.tensor not in usual}

    @property
    def is_told(self) -> bool:
        """Whether its tensors say what their options are, so that no file needs to declare them."""
        told = [part.shows for part in self.parts if part.shows]
        return any(callable(shows) or {*shows} & {*self.options} for shows in told)

    def shown(self, held: Any) -> dict[str, bool]:
        """Return the options that the names of its tensors show."""
        return {option: tensor in held for tensor, option in self.optional.items()}

    def checked(self, options: Options) -> dict[str, Any]:
        """Return all options. Fails if one is unknown or not legal."""
        return {
            name: option.checked(self.name, options.get(name, option.usual))
            for name, option in self.options.items()
        }

    def bound(self, dims: tuple[int, ...], options: Options) -> RecordDesc:
        """Return the record with these dims, and all options as `checked` returns them.

        Fails if the dims are not those of whole words and groups.
        """
        letters = self.letters_of(len(dims))
        if letters not in self.forms:
            listed = " or ".join(f"{len(form)} dims, ({', '.join(form)})" for form in self.forms)
            raise MemdescError(f"{self.name} is for {listed}; not for {dims}")
        sizes = _Sizes(self, dict(zip(letters, dims, strict=True)), options)
        parts = self.parts_of(letters, options)
        stored = [sizes.fields(part, is_code=part is parts[0]) for part in parts if not part.values]
        constants = tuple(
            Constant(part.tensor, sizes.filled(part.element), tuple(part.values(dims, options)))
            for part in parts
            if part.values
        )
        code = Number(tuple((plane.name, k * plane.bits) for k, plane in enumerate(stored[0])))
        rule = self.rule(_rule_of(code, parts), options)
        fields = tuple(chain.from_iterable(stored))
        return RecordDesc(dims, fields, rule, self.name, letters, (*options.items(),), constants)

    def words(self, desc: RecordDesc) -> Mapping[str, Words]:
        """Return how each tensor of a record of this scheme is stored."""
        letters = self.letters_of(len(desc.dims))
        sizes = _Sizes(self, dict(zip(letters, desc.dims, strict=True)), dict(desc.options))
        counts = {fixed.tensor: len(fixed.values) for fixed in desc.constants}
        parts = {x.tensor: x for x in reversed(self.parts_of(letters, sizes.options))}
        return {
            name: sizes.words(parts[name], desc, nbytes, counts.get(name))
            for name, nbytes in desc.tensors.items()
        }


def _rule_of(code: Number, parts: tuple[Part, ...]) -> Rule:
    scales, zeros, offsets = (
        tuple(
            Number(((part.name, 0),), divides=part.role == "divisor")
            for part in parts[1:]
            if part.role in roles
        )
        for roles in (("scale", "divisor"), ("zero",), ("offset",))
    )
    return Rule(code, scales, next(iter(zeros), None), offsets)


class _Sizes(NamedTuple):
    """The dims of a record of a scheme by their letters, and its options."""

    scheme: Scheme
    dims: Mapping[str, int]
    options: Options

    def filled(self, text: str) -> str:
        """Return a type or an order in which options stand."""
        return text.format(**self.options, word=32 // self.options.get("bits", 32))

    def value(self, word: str, letter: str) -> int:
        if word.isdecimal():
            return int(word)
        option, value = self.scheme.options[word], self.options[word]
        if option.is_block:
            return block_sizes(self.scheme.name, value)["oi".index(letter)]
        size = self.dims[letter]
        count = max(size, 1) if value == ALL else int(value)
        if option.has_all and option.legal and size:
            option.checked(self.scheme.name, count)
        return count

    def is_one(self, axis: Axis) -> bool:
        """Whether an axis has one element whatever the dims are."""
        divisor, *others = (factor.divisor for factor in axis.factors)
        is_whole = not others and self.options.get(divisor) == ALL
        return is_whole or axis.powers.keys().isdisjoint(self.dims)

    def extent(self, axis: Axis) -> int:
        """Return the size of an axis. Fails if a division has a remainder."""
        extent = 1
        for name, width, divisor, is_cut, align in axis.factors:
            if name not in self.dims:
                extent *= self.value(name, [*self.dims][-1])
                continue
            bits, step = (self.value(text or "1", name) for text in (width, divisor))
            size = self.dims[name] * bits
            if size % step and not is_cut:
                self._refuse(name, divisor, step // gcd(step, bits))
            extent *= -(-size // (step * align)) * align
        return extent

    def _refuse(self, letter: str, word: str, step: int) -> None:
        """Refuse a dim that is not a multiple of a step."""
        dim, name = [*self.dims].index(letter), self.scheme.name
        has_all = word in self.options and self.scheme.options[word].has_all
        way_out = f"; {word}={ALL} is one {word} for all" if has_all else ""
        where = f"along {dim_name(dim)}, not {self.dims[letter]}"
        raise MemdescError(f"{name} needs a multiple of {step} {where}{way_out}")

    def words(self, part: Part, desc: RecordDesc, nbytes: int, count: int | None) -> Words:
        """Return how a tensor is stored that begins with a part, or is a constant of `count`."""
        dtype = self.filled(part.words or part.element)
        if count is not None:
            return Words(dtype, (count,), nbytes, memory_desc((count,), dtype))
        held = [field for field in desc.fields if field.tensor == part.tensor]
        is_told = len(held) == 1 and not part.is_bare and held[0].kind not in BIT_PLANES
        shape = tuple(map(self.extent, part.axes))
        shape = (1,) if all(map(self.is_one, part.axes)) else shape
        return Words(dtype, shape, nbytes, held[0].desc if is_told else None)

    def groups(self, part: Part) -> tuple[int, ...]:
        """Return how many adjacent elements along each dim share an element of a part."""
        groups = {letter: max(size, 1) for letter, size in self.dims.items()}
        for name, width, divisor, *_ in (x for axis in part.axes for x in axis.factors):
            if name in groups:
                group = 1 if width else self.value(divisor or "1", name)
                groups[name] = min(group, groups[name])
        return tuple(groups.values())

    def fields(self, part: Part, *, is_code: bool) -> list[Field]:
        """Return the fields of a part: planes of 1 or 2 bits of codes that cross bytes."""
        for axis in part.axes:
            self.extent(axis)
        groups = (1,) * len(self.dims) if is_code else self.groups(part)
        whole = zip(self.dims.values(), groups, strict=True)
        sizes = tuple(-(-size // group) for size, group in whole)
        element, order = self.filled(part.element), part.order
        if callable(order):
            planes = [(part.name, element, order(sizes, self.options))]
        elif element in DATA_TYPES:
            planes = [(part.name, element, memory_desc(sizes, element, self.filled(order)).layout)]
        else:
            width = gcd(int(element[1:]), 8)
            count = int(element[1:]) // width
            strides = tuple(prod(sizes[k:]) * count for k in range(1, len(sizes) + 1))
            planes = [
                (
                    f"{part.name}_{plane * width}" if count > 1 else part.name,
                    f"u{width}",
                    layout_by_strides(sizes, strides, offset0=plane),
                )
                for plane in range(count)
            ]
        return [Field(*plane, groups, part.tensor) for plane in planes]
