"""NamedTuple makes what typing.NamedTuple makes."""

import copy
import inspect
import pickle
import typing

import pytest

from memdesc.tuples import NamedTuple


class Point(NamedTuple):
    """A point."""

    x: int
    y: "int | None" = None

    def moved(self, by: int) -> "Point":
        return self._replace(x=self.x + by)


class Named(Point):
    @property
    def text(self) -> str:
        return f"{self.x}, {self.y}"


class Typed(typing.NamedTuple):
    """A point."""

    x: int
    y: "int | None" = None


def _error(call: typing.Callable[[], object]) -> str:
    with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
        call()
    return str(caught.value).replace("Typed", "Point")


def test_a_value_is_a_tuple_with_names() -> None:
    point = Point(1)
    assert (point, point.x, point.y, Point(y=2, x=1).y) == ((1, None), 1, None, 2)
    assert repr(point) == "Point(x=1, y=None)"
    assert point.moved(2) == Point._make((3, None)) == (3, None)
    assert (point._asdict(), type(point.moved(2))) == ({"x": 1, "y": None}, Point)
    assert (Named(1, 2).text, repr(Named(1)), type(Named(1)._replace(x=2))) == (
        *("1, 2", "Named(x=1, y=None)"),
        Named,
    )
    for other in (pickle.loads(pickle.dumps(point)), copy.deepcopy(point)):
        assert (other, type(other)) == (point, Point)
    match point:
        case Point(1, y):
            assert y is None


def test_a_class_says_of_itself_what_that_of_typing_says() -> None:
    for name in ("_fields", "_field_defaults", "__match_args__", "__doc__"):
        assert getattr(Point, name) == getattr(Typed, name)
    assert typing.get_type_hints(Point) == typing.get_type_hints(Typed)
    assert [*inspect.signature(Point).parameters] == [*inspect.signature(Typed).parameters]
    assert (type(Point), Point.x.__doc__) == (type, Typed.x.__doc__)


@pytest.mark.parametrize("kind", [Point, Typed])
def test_errors_are_those_of_typing(kind: typing.Any) -> None:
    assert [
        _error(call)
        for call in (
            kind,
            lambda: kind(1, 2, 3),
            lambda: kind(1, z=2),
            lambda: kind._make([1]),
            lambda: kind(1)._replace(z=1, w=2),
            lambda: setattr(kind(1), "x", 1),
            lambda: setattr(kind(1), "z", 1),
        )
    ] == [
        "Point.__new__() missing 1 required positional argument: 'x'",
        "Point.__new__() takes from 2 to 3 positional arguments but 4 were given",
        "Point.__new__() got an unexpected keyword argument 'z'",
        "Expected 2 arguments, got 1",
        "Got unexpected field names: ['z', 'w']",
        "can't set attribute",
        "'Point' object has no attribute 'z'",
    ]


def test_fields_with_defaults_come_last_and_there_are_no_other_bases() -> None:
    with pytest.raises(TypeError, match="a field without a default cannot follow one with"):
        exec("class Wrong(NamedTuple):\n    x: int = 0\n    y: int", {**globals()})
    with pytest.raises(TypeError, match="can only inherit from"):
        exec("class Wrong(NamedTuple, dict):\n    x: int", {**globals()})
