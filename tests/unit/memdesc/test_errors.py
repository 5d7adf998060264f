from __future__ import annotations

import pytest

from memdesc import (
    MemdescError,
    NotBlockedError,
    OverlapError,
    PaddingError,
    UnknownFormatError,
    UnsupportedFormatError,
)
from memdesc.errors import short_repr


@pytest.mark.parametrize(
    "error",
    [NotBlockedError, OverlapError, PaddingError, UnknownFormatError, UnsupportedFormatError],
)
def test_every_error_is_a_memdesc_error_and_a_value_error(error: type[Exception]) -> None:
    assert issubclass(error, MemdescError)
    assert issubclass(error, ValueError)


def test_a_short_repr_is_not_cut() -> None:
    assert short_repr((2, "abc")) == "(2, 'abc')"
    assert short_repr("x" * 118) == repr("x" * 118)


def test_a_long_repr_is_cut_and_its_length_is_given() -> None:
    assert short_repr("x" * 119) == "'" + "x" * 59 + "... (121 characters)"


def test_a_number_that_python_does_not_print_is_replaced_by_its_type() -> None:
    assert short_repr((10**5000,)) == "a tuple with a number too long to print"
