import numpy as np
import pytest

from memdesc.errors import short_repr


def test_a_short_repr_is_not_cut() -> None:
    assert short_repr((2, "abc")) == "(2, 'abc')"
    assert short_repr("x" * 118) == repr("x" * 118)


def test_a_long_repr_is_cut_and_its_length_is_given() -> None:
    assert short_repr("x" * 119) == "'" + "x" * 59 + "... (121 characters)"


@pytest.mark.parametrize(
    ("array", "described"),
    [
        (np.zeros((2, 3), np.float32), "an ndarray of shape (2, 3) and dtype float32"),
        (np.zeros(1000, "S3"), "an ndarray of shape (1000,) and dtype |S3"),
        (np.ma.zeros((9, 9)), "a MaskedArray of shape (9, 9) and dtype float64"),
        (np.array(1.5), "array(1.5)"),
        (np.array([2, 3]), "array([2, 3])"),
        (np.float32(1.5), "np.float32(1.5)"),
    ],
)
def test_an_array_longer_than_a_line_is_described_by_shape_and_dtype(
    array: object, described: str
) -> None:
    assert short_repr(array) == described


def test_a_number_that_python_does_not_print_is_replaced_by_its_type() -> None:
    assert short_repr((10**5000,)) == "a tuple with a number too long to print"


def test_values_that_cannot_be_printed_are_named_by_their_type() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    class Lines:
        def __repr__(self) -> str:
            return "a\nb"

    assert short_repr(Lines()) == "a\nb"
    assert short_repr(Broken()) == "a Broken that cannot be printed"
