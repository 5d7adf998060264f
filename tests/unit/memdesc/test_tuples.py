"""NamedTuple makes what typing.NamedTuple makes."""

import copy
import inspect
import pickle
import typing

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
    try:
        return repr(call())
    except (TypeError, ValueError, AttributeError) as error:
        return str(error).replace("Typed", "Point")


def test_a_value_is_a_tuple_with_names() -> None:
    point = Point(1)
    assert (point, point.x, point.y, Point(y=2, x=1).y) == ((1, None), 1, None, 2)
    assert (repr(point), repr(Named(1))) == ("Point(x=1, y=None)", "Named(x=1, y=None)")
    assert point.moved(2) == Point._make((3, None)) == (3, None)
    assert (Named(1, 2).text, type(Named(1)._replace(x=2))) == ("1, 2", Named)
    for other in (pickle.loads(pickle.dumps(point)), copy.deepcopy(point), point._replace()):
        assert (other, type(other), other._asdict()) == (point, Point, {"x": 1, "y": None})


def test_a_class_and_its_errors_say_what_those_of_typing_say() -> None:
    for name in ("_fields", "_field_defaults", "__match_args__", "__doc__"):
        assert getattr(Point, name) == getattr(Typed, name)
    assert typing.get_type_hints(Point) == typing.get_type_hints(Typed)
    assert [*inspect.signature(Point).parameters] == [*inspect.signature(Typed).parameters]
    assert (type(Point), Point.x.__doc__) == (type, Typed.x.__doc__)

    def errors(kind: typing.Any) -> list[str]:
        return [
            _error(kind),
            _error(lambda: kind(1, 2, 3)),
            _error(lambda: kind(1, z=2)),
            _error(lambda: kind._make([1])),
            _error(lambda: kind(1)._replace(z=1, w=2)),
            _error(lambda: setattr(kind(1), "x", 1)),
            _error(lambda: setattr(kind(1), "z", 1)),
        ]

    ours = errors(Point)
    assert ours == errors(Typed)
    assert ours[0] == "Point.__new__() missing 1 required positional argument: 'x'"
