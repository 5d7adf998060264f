"""How each language spells generated functions and their lines, as rows of one table.

Lines and their expressions have Python's syntax. Expressions are made of integers, names,
parentheses and ``+ - * // % >> << & ^ | < >= and or``; operands of ``//`` and ``%`` are never
negative, so all languages agree. A comment ``# shared`` marks a loop that the work items of a
device share, and ``# packed`` the store of a byte with two elements. The body of ``once:`` runs in
one work item. What follows ``return`` and its comment are an index and the condition that it is not
padding. A line that ends with a semicolon is C's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from memdesc.dtypes import DataType
from memdesc.errors import MemdescError, short_repr
from memdesc.immutable import immutable
from memdesc.tuples import NamedTuple


class Line(NamedTuple):
    """A statement, and those inside it."""

    text: str
    body: tuple[Line, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.text, *map(str, self.body)])


class Parameter(NamedTuple):
    """A parameter: a 64-bit integer, or an array of some type that is read or written."""

    name: str
    dtype: DataType | None = None
    is_written: bool = False


class Function(NamedTuple):
    """A function; `result` is ``"integer"``, ``"status"`` (an int) or empty.

    A function without a result writes memory, and is a kernel on devices.
    """

    name: str
    comment: tuple[str, ...]
    result: str
    parameters: tuple[Parameter, ...]
    body: tuple[Line, ...]


_INDENT = "    "


@immutable
class Language(NamedTuple):
    """How a language of the C family spells functions and their lines."""

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
    # what begins a comment, separates its lines, and ends it; what separates the parts of a file
    comments: tuple[str, str, str] = ("/* ", "\n   ", " */")
    gap: str = "\n\n"
    # first index and step of a loop that work items share; empty if there are no work items
    share: tuple[str, ...] = ()

    def joined(self, parts: Sequence[Sequence[str]]) -> str:
        """Return the text of a file."""
        return self.gap.join("\n".join(part) for part in parts if part) + "\n"

    def comment(self, lines: Sequence[str]) -> list[str]:
        """Return a comment."""
        first, between, last = self.comments
        return f"{first}{between.join(lines)}{last}".split("\n")

    def type_of(self, dtype: DataType) -> str:
        """Return the type of an array's elements, or of their bits if the language lacks it."""
        if dtype.numpy.kind == "f" and dtype.bits in self.floats:
            return self.floats[dtype.bits]
        u = "" if dtype.numpy.kind == "i" else "u"
        return self.integers[max(dtype.bits, 8)].format(u=u)

    def constants(self, values: dict[str, int | tuple[int, ...]]) -> list[str]:
        """Return definitions of numbers and arrays."""
        return [
            self.number.format(name=name, value=value)
            if isinstance(value, int)
            else self.constant.format(
                name=name, value=value, count=len(value), values=", ".join(map(str, value))
            )
            for name, value in values.items()
        ]

    def function(self, function: Function) -> list[str]:
        """Return the lines of a function."""
        is_entry = not function.result
        result = {"integer": self.integer, "status": "int", "": "void"}[function.result]
        qualifier = self.entry if is_entry else self.pure
        parameters = ", ".join(
            self.parameter(parameter, is_entry=is_entry) for parameter in function.parameters
        )
        body = self._lines(function.body, _INDENT)
        text = "\n".join(body)
        unused = [
            f"{_INDENT}(void){parameter.name};"
            for parameter in function.parameters
            if not re.search(rf"\b{parameter.name}\b", text)
        ]
        head = f"{qualifier}{result} {function.name}({parameters})"
        return [*self.comment(function.comment), head, "{", *unused, *body, "}"]

    def parameter(self, parameter: Parameter, *, is_entry: bool) -> str:
        """Return the declaration of a parameter."""
        if parameter.dtype is None:
            return f"{self.integer} {parameter.name}"
        memory = self.memory if is_entry else ""
        const = "" if parameter.is_written else "const "
        return f"{memory}{const}{self.type_of(parameter.dtype)} *{parameter.name}"

    def _lines(self, lines: Sequence[Line], pad: str) -> list[str]:
        written: list[str] = []
        for text, body in _used(lines):
            # constants of one work item need a scope of their own, where there are no others
            if text == "once:" and (
                self.share or not any(_LET.match(line.text) for line in _used(body))
            ):
                inside = (Line(_ONE_ITEM, body),) if self.share else body
                written += self._lines(inside, pad)
                continue
            if text == "else:":
                written[-1] = f"{pad}}} else {{"
            else:
                written += [pad + part for part in self._spelled(text)]
            if body:
                written += [*self._lines(body, pad + _INDENT), f"{pad}}}"]
        return written

    def _spelled(self, text: str) -> list[str]:
        """Return a line in C, as several if it returns an index."""
        for python, c in ((" // ", " / "), (" and ", " && "), (" or ", " || ")):
            text = text.replace(python, c)
        code, _, remark = text.partition("  # ")
        first, _, rest = code.partition(" ")
        if first == "return" and remark:
            index = filter(None, rest.split(","))
            sets = [f"index[{k}] = {name.strip()};" for k, name in enumerate(index)]
            return [*sets, f"return {remark};"]
        if loop := _LOOP.match(code):
            name, extent = loop.groups()
            start, step = "0", f"++{name}"
            if remark and self.share:
                start, step = self.share[0], f"{name} += {self.share[1]}"
            code = f"for ({self.integer} {name} = {start}; {name} < {extent}; {step}) {{"
        elif first == "if":
            code = f"if ({rest[:-1]}) {{"
        elif _LET.match(code):
            code = f"const {self.integer} {code};"
        elif "] = " in code:
            target, _, value = code.partition(" = ")
            value, _, condition = value.removesuffix(" else 0").partition(" if ")
            value = f"{condition} ? {value} : 0" if condition else value
            # a byte with two elements is made of an int
            cast = f"({self.integers[8].format(u='u')})({value})" if remark else value
            code = f"{target} = {cast};"
        elif not code.endswith(";"):
            code = {"once:": "{", "return None": "return -1;"}.get(code, f"{code};")
        return [code]


class _Python(Language):
    """Python; its arrays are flat numpy arrays or other sequences."""

    __slots__ = ()

    def function(self, function: Function) -> list[str]:
        names = [p.name for p in function.parameters if not (function.result and p.is_written)]
        body = self._lines(function.body, _INDENT) or [f"{_INDENT}pass"]
        head = f"def {function.name}({', '.join(names)}):"
        return [*self.comment(function.comment), head, *body]

    def _lines(self, lines: Sequence[Line], pad: str) -> list[str]:
        written: list[str] = []
        for text, body in _used(lines):
            is_once = text == "once:"
            written += [] if is_once else [pad + text.partition("  # ")[0]]
            written += self._lines(body, pad if is_once else pad + _INDENT)
        return written


_LOOP = re.compile(r"for (\w+) in range\((\d+)\):")
_LET = re.compile(r"(\w+) = ")
_ONE_ITEM = "for item in range(1):  # shared"


def _used(lines: Sequence[Line]) -> list[Line]:
    """Return lines without constants that nothing after them uses."""
    kept: list[Line] = []
    for line in reversed(lines):
        constant = _LET.match(line.text)
        if not constant or re.search(rf"\b{constant[1]}\b", "\n".join(map(str, kept))):
            kept.insert(0, line)
    return kept


_FLOATS = MappingProxyType({32: "float", 64: "double"})
_C = MappingProxyType({bits: f"{{u}}int{bits}_t" for bits in (8, 16, 32, 64)})
_CXX = MappingProxyType({bits: f"std::{name}" for bits, name in _C.items()})
_OPENCL = MappingProxyType({8: "{u}char", 16: "{u}short", 32: "{u}int", 64: "{u}long"})

# by name; `c++` is C++17, `opencl` OpenCL C 1.2
_CONSTEXPR = "inline constexpr std::int64_t {name}"
_ROWS = (
    Language("c", ("#include <stdint.h>",), "int64_t", _C, _FLOATS),
    Language("c++", ("#include <cstdint>",), "std::int64_t", _CXX, _FLOATS)._replace(
        pure="constexpr ",
        entry="inline ",
        constant=f"{_CONSTEXPR}[{{count}}] = {{{{{{values}}}}}};",
        number=f"{_CONSTEXPR} = {{value}};",
    ),
    # no floats: devices may flush denormals when loading them, and f16 and f64 are optional
    Language("opencl", (), "long", _OPENCL, {})._replace(
        entry="__kernel ",
        memory="__global ",
        share=("get_global_id(0)", "get_global_size(0)"),
    ),
    Language("cuda", ("#include <cstdint>",), "std::int64_t", _CXX, _FLOATS)._replace(
        pure="__host__ __device__ constexpr ",
        entry="__global__ ",
        share=(
            "(std::int64_t)blockIdx.x * blockDim.x + threadIdx.x",
            "(std::int64_t)gridDim.x * blockDim.x",
        ),
    ),
    _Python("python", (), "", {}, {})._replace(
        constant="{name} = {value}",
        number="{name} = {value}",
        comments=("# ", "\n# ", ""),
        gap="\n\n\n",
    ),
)
LANGUAGES: Mapping[str, Language] = MappingProxyType({row.name: row for row in _ROWS})


def language_of(name: object) -> Language:
    """Return the language of a name; refuse other names."""
    if isinstance(name, str) and name in LANGUAGES:
        return LANGUAGES[name]
    raise MemdescError(
        f"unknown language {short_repr(name)}; source is made in {', '.join(LANGUAGES)}"
    )
