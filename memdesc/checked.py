"""Checked: values that are copied, unpickled and read from JSON through a constructor that checks.

So a damaged pickle, or one from another version, gives an error or a valid value. This protects
against accidents only: a malicious pickle can run any code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any, NoReturn, Self, get_args, get_origin, get_type_hints

import numpy as np

from memdesc.errors import MemdescError, short_repr
from memdesc.tuples import NamedTuple


class Checked:
    """Mixin for values that only their constructor makes. They are formatted as their text.

    Dataclasses need nothing else; other classes define `_arguments`.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return remade(type(self), *self._arguments())

    def __setstate__(self, _state: object) -> NoReturn:
        raise MemdescError(
            f"the pickle of a {type(self).__name__} sets fields without its constructor: it is "
            "damaged or from another version; make it again"
        )

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @classmethod
    def _made(cls, *arguments: Any) -> Any:
        """Make a value from what `_arguments` returns."""
        return cls(*arguments)

    def _arguments(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)  # type: ignore[attr-defined] # of a dataclass; other classes override this


def remade(cls: type[Checked], *arguments: Any) -> tuple[Any, ...]:
    """Return what `__reduce__` returns, so that pickle calls the constructor with these arguments.

    The class is named by a string: given the class itself, pickle can make an object of it without
    the constructor.
    """
    return _make, (f"{cls.__module__}:{cls.__qualname__}", *map(_pickled, arguments))


def _make(name: str, *arguments: Any) -> Any:
    """Call the constructor of a class named `module:class`; unpickling calls this."""
    module, _, qualname = name.partition(":")
    cls = attrgetter(qualname)(import_module(module))
    if not (isinstance(cls, type) and issubclass(cls, Checked)):
        raise MemdescError(
            f"a pickle says that {name!r} is a value of memdesc, which it is not: it is damaged"
        )
    return cls._made(*map(_unpickled, arguments))


def check_types(value: Any, way_out: str = "") -> None:
    """Refuse a value made by hand that has a field of another type than its class declares."""
    cls = type(value)
    for name, wanted in _types_of(cls):  # type: ignore[arg-type] # a class is hashable
        part = getattr(value, name)
        if not _is_of(part, wanted):
            declared = cls.__annotations__[name]
            text = getattr(declared, "__forward_arg__", declared)
            article = "an" if cls.__name__[0] in "AEIOU" else "a"
            raise MemdescError(
                f"{name} of {article} {cls.__name__} must be {text}, not {short_repr(part)}"
                f"{way_out}"
            )


@cache
def _types_of(cls: Hashable) -> list[tuple[str, Any]]:
    return [(name, hint) for name, hint in get_type_hints(cls).items() if name[0] != "_"]


def _is_of(value: Any, wanted: Any) -> bool:
    """Whether a value is of a type, or a tuple or a union of types; a bool is not a number."""
    types = get_args(wanted)
    if get_origin(wanted) is tuple:
        if types[-1] is ...:
            return isinstance(value, tuple) and all(_is_of(item, types[0]) for item in value)
        is_pair = isinstance(value, tuple) and len(value) == len(types)
        return is_pair and all(map(_is_of, value, types))
    if types:
        return any(_is_of(value, cls) for cls in types)
    if wanted in (int, float):
        return type(value) is int or type(value) is wanted
    return isinstance(value, wanted)


class _Array(NamedTuple):
    """An array as bytes, or a numpy scalar, which has no shape here.

    numpy's own pickles contain dtype flags, which crash the process if they are damaged.
    """

    data: bytes
    dtype: str
    shape: tuple[int, ...] | None


def _pickled(value: Any) -> Any:
    """Return an argument with each array, even in tuples, replaced by an `_Array`."""
    if isinstance(value, np.ndarray | np.generic):
        shape = value.shape if isinstance(value, np.ndarray) else None
        return _Array(value.tobytes(), value.dtype.name, shape)
    return tuple(map(_pickled, value)) if type(value) is tuple else value


def _unpickled(value: Any) -> Any:
    if isinstance(value, _Array):
        array = np.frombuffer(value.data, value.dtype)
        return array[0] if value.shape is None else array.reshape(value.shape)
    return tuple(map(_unpickled, value)) if type(value) is tuple else value


# version of the JSON form; a different form gets a different number
SCHEMA = 1
# the form with XOR terms, which a reader of schema 1 would skip
SWIZZLED = 2


class Written(Checked):
    """Mixin for descriptors that can be written as JSON, and read back as equal ones."""

    __slots__ = ()
    # returns what `to_json` writes; makes a value of JSON that `check_schema` has not seen yet
    _fields: Callable[[], dict[str, Any]]
    _of_fields: Callable[[Any], Self]

    def to_json(self) -> str:
        """Write the descriptor as JSON that other programs can read.

        The keys are oneDNN's fields. A layout that these cannot describe has ``axes`` and
        ``blocks`` instead of ``padded_dims``, ``strides`` and the inner blocks, and ``xor`` if it
        is swizzled. An image has the descriptor of its pixels, its sides, its kind and its name.
        ``schema`` is 1, or 2 with ``xor``: readers skip unknown keys, and a form that older readers
        would misread gets a new number. `docs/descriptor.schema.json` is the JSON Schema
        of a `MemoryDesc`.

        >>> print(memdesc.memory_desc((2, 17), "f32", "aB8b").to_json())
        {"schema": 1, "dtype": "f32", "dims": [2, 17], "offset0": 0, \
"padded_offsets": [0, 0], "extra": null, \
"padded_dims": [2, 24], "strides": [24, 8], "inner_blks": [8], "inner_idxs": [1]}
        """
        import json  # slow to load

        return json.dumps(self._fields())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Make a descriptor from what `to_json` wrote.

        *Law*: `type(d).from_json(d.to_json()) == d`.

        Raises
        ------
        MemdescError
            If the text is not a JSON object of this schema, or what it describes is not legal.

        Examples
        --------
        >>> text = memdesc.image_desc((1, 6, 5, 4), "f16", "tvm_texture").to_json()
        >>> memdesc.ImageDesc.from_json(text)
        image_desc((1, 6, 5, 4), 'f16', 'tvm_texture')
        """
        import json  # slow to load

        try:
            return cls._of_fields(json.loads(text))
        except MemdescError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            reason = f"the key {error} is missing" if isinstance(error, KeyError) else error
            raise MemdescError(f"not a descriptor: {reason}; to_json() shows the form") from error


def check_schema(fields: Any) -> None:
    """Refuse anything but an object of a known schema."""
    if not isinstance(fields, dict):
        raise MemdescError(
            f"a descriptor is a JSON object, not {short_repr(fields)}; to_json() shows the form"
        )
    schema = fields["schema"]
    if not isinstance(schema, int) or schema is True or schema not in {SCHEMA, SWIZZLED}:
        raise MemdescError(
            f"descriptor of schema {short_repr(schema)}; this version reads schema {SCHEMA} and "
            f"{SWIZZLED}"
        )
    if schema == SWIZZLED and "axes" not in fields:
        raise MemdescError(f"a descriptor of schema {SWIZZLED} has axes, blocks and xor")
