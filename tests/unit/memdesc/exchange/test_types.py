"""Data types in other systems: a name that the system has, or a refusal."""

from collections.abc import Iterator

import ml_dtypes
import pytest

from memdesc import UnsupportedFormatError, dtypes, memory_desc


@pytest.fixture
def added() -> Iterator[str]:
    """Return a data type that no system has a row for."""
    dtypes.add_row("f8_e3m4", 8, ml_dtypes.float8_e3m4)
    yield "f8_e3m4"
    del dtypes._BY_NAME["f8_e3m4"]  # noqa: SLF001 - nothing else takes a row out


@pytest.mark.parametrize("system", ["xla", "openvino", "pytorch"])
def test_a_type_without_a_row_is_refused(added: str, system: str) -> None:
    desc = memory_desc((2, 3, 5, 4), added, "nchw")
    with pytest.raises(UnsupportedFormatError, match=f"has no data type .*{added}"):
        desc.to_notation(system)


def test_openvino_has_no_type_without_negative_zero() -> None:
    with pytest.raises(UnsupportedFormatError, match="f8_e4m3fnuz"):
        memory_desc((2, 3, 5, 4), "f8_e4m3fnuz", "nchw").to_notation("openvino")


def test_mlir_writes_a_type_that_it_lacks_without_a_tensor(added: str) -> None:
    texts = memory_desc((2, 3), added, "ba").to_notation("mlir")
    assert added not in texts
