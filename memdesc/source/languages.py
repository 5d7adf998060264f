"""How each language spells statements and functions, as rows of one table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from memdesc.errors import MemdescError, short_repr
from memdesc.immutable import immutable
from memdesc.source.statements import (
    AddInt32,
    ClearBytes,
    Found,
    If,
    Let,
    Loop,
    Once,
    Return,
    Store,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memdesc.dtypes import DataType
    from memdesc.source.statements import Function, Parameter, Statement

_INDENT = "    "


@immutable
class Language(NamedTuple):
    """How a language of the C family spells functions and their statements."""

    name: str
    # the first lines of a file
    head: tuple[str, ...]
    # the 64-bit integer type
    integer: str
    # integer types by their bits; `{u}` is `u` in unsigned ones
    integers: Mapping[int, str]
    # floating-point types by their bits; others are declared as integers
    floats: Mapping[int, str]
    # the qualifiers of a function that computes, and of one that writes memory
    pure: str = ""
    entry: str = ""
    # the qualifier of the arrays of a function that writes memory
    memory: str = ""
    # the definition of an array, and of a number
    constant: str = "#define {name} {{{values}}}"
    number: str = "#define {name} {value}"
    # first index and step of a loop that work items share; empty if there are no work items
    share: tuple[str, ...] = ()

    def comment(self, lines: Sequence[str]) -> list[str]:
        """Return a comment."""
        head, *others = lines
        if not others:
            return [f"/* {head} */"]
        return [f"/* {head}", *(f"   {line}" for line in others[:-1]), f"   {others[-1]} */"]

    def type_of(self, dtype: DataType) -> str:
        """Return the type of an array's elements, or of their bits if the language lacks it."""
        if dtype.numpy.kind == "f" and dtype.bits in self.floats:
            return self.floats[dtype.bits]
        u = "" if dtype.numpy.kind == "i" else "u"
        return self.integers[max(dtype.bits, 8)].format(u=u)

    def constants(self, values: dict[str, int | tuple[int, ...]]) -> list[str]:
        """Return definitions of numbers and arrays."""
        return [
            self.number.format(name=name, value=self.literal(value))
            if isinstance(value, int)
            else self.constant.format(
                name=name, count=len(value), values=", ".join(map(self.literal, value))
            )
            for name, value in values.items()
        ]

    def literal(self, value: int) -> str:
        """Return an integer that can stand in any expression."""
        return f"({value})" if value < 0 else str(value)

    def function(self, function: Function) -> list[str]:
        """Return the lines of a function."""
        is_entry = not function.result
        result = {"integer": self.integer, "status": "int", "": "void"}[function.result]
        qualifier = self.entry if is_entry else self.pure
        parameters = ", ".join(
            self.parameter(parameter, is_entry=is_entry) for parameter in function.parameters
        )
        body = self.lines(function.body, 1)
        text = "\n".join(body)
        unused = [
            f"{_INDENT}(void){parameter.name};"
            for parameter in function.parameters
            if not _is_used(parameter.name, text)
        ]
        head = f"{qualifier}{result} {function.name}({parameters})"
        return [*self.comment(function.comment), head, "{", *unused, *body, "}"]

    def parameter(self, parameter: Parameter, *, is_entry: bool) -> str:
        """Return the declaration of a parameter."""
        if parameter.dtype is None:
            return f"{self.integer} {parameter.name}"
        element = self.type_of(parameter.dtype)
        memory = self.memory if is_entry else ""
        const = "" if parameter.is_written else "const "
        return f"{memory}{const}{element} *{parameter.name}"

    def lines(self, statements: Sequence[Statement], depth: int) -> list[str]:
        """Return the lines of statements, without constants that nothing uses."""
        written: list[str] = []
        for statement in reversed(statements):
            if isinstance(statement, Let) and not _is_used(statement.name, "\n".join(written)):
                continue
            written = [*self._statement(statement, depth), *written]
        return written

    def expression(self, text: str) -> str:
        """Return an expression in the spelling of this language."""
        return text.replace(" // ", " / ").replace(" and ", " && ").replace(" or ", " || ")

    def _statement(  # noqa: C901, PLR0911, PLR0912 - a branch for each kind of statement
        self, statement: Statement, depth: int
    ) -> list[str]:
        pad = _INDENT * depth
        match statement:
            case Once(body) if not self.share:
                lines = self.lines(body, depth)
                if not any(line.startswith(f"{pad}const ") for line in lines):
                    return lines
                # its constants need a scope of their own
                return [pad + "{", *self.lines(body, depth + 1), pad + "}"]
            case Once(body):
                return self._statement(Loop("item", 1, body, is_shared=True), depth)
            case Loop(name, extent, body, is_shared):
                first, step = "0", f"++{name}"
                if is_shared and self.share:
                    first, step = self.share[0], f"{name} += {self.share[1]}"
                head = f"for ({self.integer} {name} = {first}; {name} < {extent}; {step}) {{"
                return [pad + head, *self.lines(body, depth + 1), pad + "}"]
            case Let(name, value):
                return [f"{pad}const {self.integer} {name} = {self.expression(value)};"]
            case If(condition, body, otherwise):
                found = [f"{pad}if ({self.expression(condition)}) {{", *self.lines(body, depth + 1)]
                if otherwise:
                    found += [pad + "} else {", *self.lines(otherwise, depth + 1)]
                return [*found, pad + "}"]
            case Store():
                return [pad + line for line in self._store(statement)]
            case AddInt32(array, at, value):
                place = f"{array} + {self.expression(at)}"
                return [
                    f"{pad}uint32_t sum = 0;",
                    f"{pad}memcpy(&sum, {place}, sizeof sum);",
                    f"{pad}sum += (uint32_t)({self.expression(value)});",
                    f"{pad}memcpy({place}, &sum, sizeof sum);",
                ]
            case ClearBytes(array, at, count):
                return [f"{pad}memset({array} + {at}, 0, {count});"]
            case Return(value):
                return [f"{pad}return {self.expression(value)};"]
            case Found(index, is_data):
                sets = [f"{pad}index[{k}] = {name};" for k, name in enumerate(index)]
                return [*sets, f"{pad}return {self.expression(is_data) or '1'};"]
        return [f"{pad}return -1;"]

    def _store(self, store: Store) -> list[str]:
        if not store.dtype.is_packed:
            value = self.expression(store.value)
            if store.condition:
                value = f"{self.expression(store.condition)} ? {value} : 0"
            return [f"{store.array}[{self.expression(store.at)}] = {value};"]
        at = f"at_{store.array}"
        byte = f"{store.array}[{at} / 2]"
        kept = f"{byte} & (240 >> ({at} % 2 * 4))"
        bits = f"({kept}) | {self.expression(store.value)} << ({at} % 2 * 4)"
        return [
            f"const {self.integer} {at} = {self.expression(store.at)};",
            f"{byte} = ({self.type_of(store.dtype)})({kept if store.value == '0' else bits});",
        ]


class _Python(Language):
    """Python; its arrays are flat numpy arrays or other sequences."""

    __slots__ = ()

    def comment(self, lines: Sequence[str]) -> list[str]:
        return [f"# {line}" for line in lines]

    def constants(self, values: dict[str, int | tuple[int, ...]]) -> list[str]:
        return [f"{name} = {value}" for name, value in values.items()]

    def function(self, function: Function) -> list[str]:
        names = [p.name for p in function.parameters if not (function.result and p.is_written)]
        head = f"def {function.name}({', '.join(names)}):"
        body = self.lines(function.body, 1) or [f"{_INDENT}pass"]
        return [*self.comment(function.comment), head, *body]

    def _statement(self, statement: Statement, depth: int) -> list[str]:  # noqa: PLR0911 - one for each kind
        pad = _INDENT * depth
        match statement:
            case Once(body):
                return self.lines(body, depth)
            case Loop(name, extent, body, _):
                return [f"{pad}for {name} in range({extent}):", *self.lines(body, depth + 1)]
            case If(condition, body, otherwise):
                found = [f"{pad}if {condition}:", *self.lines(body, depth + 1)]
                return [
                    *found,
                    *([pad + "else:", *self.lines(otherwise, depth + 1)] if otherwise else []),
                ]
            case Store() if statement.dtype.is_packed:
                at = f"at_{statement.array}"
                byte = f"{statement.array}[{at} // 2]"
                value = f"{byte} & (240 >> ({at} % 2 * 4))"
                if statement.value != "0":
                    value = f"({value}) | {statement.value} << ({at} % 2 * 4)"
                return [f"{pad}{at} = {statement.at}", f"{pad}{byte} = {value}"]
            case Store(array, _, at, value, condition):
                choice = f" if {condition} else 0" if condition else ""
                return [f"{pad}{array}[{at}] = {value}{choice}"]
            case Let(name, value):
                return [f"{pad}{name} = {value}"]
            case Return(value):
                return [f"{pad}return {value}"]
            case Found(index, _):
                return [f"{pad}return {', '.join(index)}{',' if len(index) == 1 else ''}"]
        return [f"{pad}return None"]


_FLOATS = MappingProxyType({32: "float", 64: "double"})
_C = MappingProxyType({bits: f"{{u}}int{bits}_t" for bits in (8, 16, 32, 64)})
_CXX = MappingProxyType({bits: f"std::{name}" for bits, name in _C.items()})
_OPENCL = MappingProxyType({8: "{u}char", 16: "{u}short", 32: "{u}int", 64: "{u}long"})

# by name; `c++` is C++17, `opencl` OpenCL C 1.2
LANGUAGES: Mapping[str, Language] = MappingProxyType(
    {
        row.name: row
        for row in (
            Language("c", ("#include <stdint.h>",), "int64_t", _C, _FLOATS),
            Language(
                "c++",
                ("#include <cstdint>",),
                "std::int64_t",
                _CXX,
                _FLOATS,
                pure="constexpr ",
                entry="inline ",
                constant="inline constexpr std::int64_t {name}[{count}] = {{{values}}};",
                number="inline constexpr std::int64_t {name} = {value};",
            ),
            # no floats: devices may flush denormals when loading them, and f16 and f64 are optional
            Language(
                "opencl",
                (),
                "long",
                _OPENCL,
                {},
                entry="__kernel ",
                memory="__global ",
                share=("get_global_id(0)", "get_global_size(0)"),
            ),
            Language(
                "cuda",
                ("#include <cstdint>",),
                "std::int64_t",
                _CXX,
                _FLOATS,
                pure="__host__ __device__ constexpr ",
                entry="__global__ ",
                share=(
                    "(std::int64_t)blockIdx.x * blockDim.x + threadIdx.x",
                    "(std::int64_t)gridDim.x * blockDim.x",
                ),
            ),
            _Python("python", (), "", {}, {}),
        )
    }
)


def language_of(name: object) -> Language:
    """Return the language of a name; refuse other names."""
    if isinstance(name, str) and name in LANGUAGES:
        return LANGUAGES[name]
    raise MemdescError(
        f"unknown language {short_repr(name)}; source is made in {', '.join(LANGUAGES)}"
    )


def _is_used(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None
