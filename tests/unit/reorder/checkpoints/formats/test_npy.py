"""Files of numpy's .npy are read as numpy reads them, and written as it writes them."""

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reorder.checkpoints.formats.npy import header_of, read_data, read_header

_ARRAYS = [
    np.zeros((), np.float64),
    np.arange(3, dtype=np.int8),
    np.arange(6, dtype=">f4").reshape(2, 3),
    np.asfortranarray(np.arange(24, dtype=np.uint16).reshape(2, 3, 4)),
    np.zeros((0, 5), np.float16),
    np.ones((1,) * 20, np.bool_),
    np.array(["a", "bcd"]),
    np.zeros(3, "M8[ns]"),
    np.zeros(3, "V5"),
    np.zeros(3, np.complex64),
]


@pytest.mark.parametrize("array", _ARRAYS, ids=lambda x: f"{x.dtype.str}{x.shape}")
def test_an_array_is_read_and_written_as_numpy_does(array: NDArray[Any]) -> None:
    for version in ((1, 0), (2, 0)):
        file = io.BytesIO()
        np.lib.format.write_array(file, array, version)
        whole = file.getvalue()
        file.seek(0)
        header = read_header(file)
        data = read_data(file, header, len(whole))
        found = data.view(header.dtype).reshape(
            header.shape, order="F" if header.is_fortran else "C"
        )
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.flags.f_contiguous == array.flags.f_contiguous
        assert found.tobytes() == array.tobytes()
        if version == (1, 0) and array.dtype.kind != "V":
            assert header_of(array.dtype, array.shape, is_fortran=array.flags.fnc) == header
