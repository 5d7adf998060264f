"""Damaged weights of every scheme: config.json or a tensor changes, and nothing is misread.

The tensors decide every number, so a weight whose sources still agree has the numbers it had.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from tests.checkpoints import write_safetensors
from tests.files import json_mutations
from tests.records import bits_of, dequantize_reference
from tests.unit.reorder.checkpoints.schemes import SCHEMES

_MAX_MESSAGE = 1000
_SCHEMES = [*SCHEMES.values()]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as path:
        yield Path(path)


@lru_cache(maxsize=len(_SCHEMES))
def _whole(number: int) -> tuple[dict[str, NDArray[Any]], str]:
    """Return the tensors of a weight, and the config.json that declares it."""
    scheme = _SCHEMES[number]
    layer, _ = scheme.make()
    tensors = {f"{scheme.prefix}{end}": np.atleast_1d(each) for end, each in layer.items()}
    return tensors, json.dumps(scheme.config)


def _read(
    folder: Path, number: int, tensors: dict[str, NDArray[Any]], config: bytes
) -> NDArray[Any]:
    """Write a weight, and return what it is read as."""
    write_safetensors(
        folder / "model.safetensors", {name: _signed(array) for name, array in tensors.items()}
    )
    (folder / "config.json").write_bytes(config)
    with reorder.open_checkpoint(folder) as checkpoint:
        return dequantize_reference(checkpoint.record(_SCHEMES[number].prefix))


def _signed(array: NDArray[Any]) -> NDArray[Any]:
    """Return words in the type in which producers store them."""
    return np.ascontiguousarray(array).view(np.int32) if array.dtype == np.uint32 else array


@lru_cache(maxsize=len(_SCHEMES))
def _numbers(folder: Path, number: int) -> NDArray[Any]:
    """Return the numbers of an undamaged weight; test_schemes.py has them by definition."""
    tensors, config = _whole(number)
    return _read(folder, number, tensors, config.encode())


def _damaged(tensors: dict[str, NDArray[Any]], data: st.DataObject) -> dict[str, NDArray[Any]]:
    """Return tensors of which one is gone, has another type or shape, or belongs to none."""
    name = data.draw(st.sampled_from(sorted(tensors)))
    array, found = tensors[name], dict(tensors)
    match data.draw(st.sampled_from(["gone", "type", "shape", "size", "more", "dims", "renamed"])):
        case "gone":
            del found[name]
        case "type":
            kinds = [np.int32, np.int8, np.uint8, np.float16, np.float32, np.int64]
            kind = np.dtype(data.draw(st.sampled_from(kinds)))
            row = array.shape[-1] * array.itemsize
            found[name] = array if row % kind.itemsize else np.ascontiguousarray(array).view(kind)
        case "shape":
            shapes = [(-1,), array.shape[::-1], (1, *array.shape), (*array.shape, 1)]
            shape = data.draw(st.sampled_from(shapes))
            found[name] = array.reshape(shape)
        case "size":
            axis = data.draw(st.integers(0, array.ndim - 1))
            step = data.draw(st.sampled_from([0, 1, 2, -1]))
            sizes = [array.shape[axis] * step] if step >= 0 else [max(array.shape[axis] - 1, 0)]
            found[name] = np.resize(
                array, (*array.shape[:axis], *sizes, *array.shape[axis + 1 :])
            ).astype(array.dtype)
        case "more":
            roles = ["weight_g_idx", "weight_zero_point", "weight_global_scale", "weight_shape"]
            role = data.draw(st.sampled_from([*roles, "qzeros", "weight", "weight_packed"]))
            found.setdefault(f"fc.{role}", np.zeros(data.draw(st.sampled_from([2, 48])), np.int32))
        case "dims":
            sizes = [data.draw(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 99)) for _ in "oi"]
            found |= {"fc.weight_shape": np.array(sizes)} if "fc.weight_shape" in found else {}
        case _:
            found[f"{name}s"] = found.pop(name)
    return found


@given(data=st.data())
def test_a_damaged_group_is_refused_or_has_the_numbers_it_had(
    folder: Path, data: st.DataObject
) -> None:
    """Damage one source of a weight: it is refused, or read with the numbers that it had."""
    number = data.draw(st.integers(0, len(_SCHEMES) - 1))
    tensors, config = _whole(number)
    numbers, text = _numbers(folder, number), config.encode()
    if data.draw(st.booleans()):
        text = data.draw(json_mutations(json.loads(config)))
    else:
        tensors = _damaged(tensors, data)
    try:
        found = _read(folder, number, tensors, text)
    except MemdescError as error:
        assert len(str(error)) < _MAX_MESSAGE
        return
    if found.shape != numbers.shape:
        # a scale for a row or a block does not say how long its rows are
        assert _SCHEMES[number].record in {"int_quantized", "fp8_block", "fp8_tensor"}
    else:
        assert np.array_equal(bits_of(found), bits_of(numbers))
