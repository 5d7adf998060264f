"""Finding the libraries: what happens where one is missing, and that both answer."""

import platform

import pytest

from . import conftest
from .libdnnl import Library, Status


@pytest.mark.parametrize(
    ("version", "wheel"), [("3.2", "onednn-cpu-gomp==2023.2.0"), ("3.13", "onednn==2026.1.0")]
)
def test_a_missing_library_skips_with_the_name_of_its_wheel_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, version: str, wheel: str
) -> None:
    wanted = f"no libdnnl {version}: pip install {wheel}"
    for ci, machine, outcome in (
        ("false", "x86_64", pytest.skip),
        ("true", "aarch64", pytest.skip),
        ("true", "x86_64", pytest.fail),
    ):
        monkeypatch.setenv("CI", ci)
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        with pytest.raises(outcome.Exception, match=wanted):
            conftest.open_library(version, {})


def test_the_two_libraries_are_the_ones_that_the_tests_speak_of(
    dnnl_3_2: Library, dnnl_3_13: Library
) -> None:
    assert (dnnl_3_2.version[:2], dnnl_3_13.version[:2]) == ((3, 2), (3, 13))


def test_a_refusal_of_libdnnl_is_a_status_and_not_a_descriptor(library: Library) -> None:
    assert library.by_tag((2, -1), "f32", 3) is Status.INVALID_ARGUMENTS
    assert library.by_strides((2, 3), "f32", (2, 1)) is Status.INVALID_ARGUMENTS
