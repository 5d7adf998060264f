"""Damaged groups of MLX, bitsandbytes and HQQ: a source changes, and nothing is misread."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reorder
from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.record import record_desc
from reorder.checkpoints.stored import written_tensors
from tests.checkpoints import write_safetensors
from tests.files import json_mutations
from tests.records import bits_of, dequantize_reference, plain_scales, random_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_DIMS = (24, 256)
_MAX_MESSAGE = 1000
_BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": False}
# record, options, and the section that declares it
_KINDS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *(
        ("mlx", {"bits": bits, "group": 64, "scales": "f16"}, {"group_size": 64, "bits": bits})
        for bits in (3, 4, 8)
    ),
    ("mlx_mxfp4", {}, {"group_size": 32, "bits": 4, "mode": "mxfp4"}),
    ("bnb_nf4", {}, _BNB | {"bnb_4bit_quant_type": "nf4"}),
    ("hqq", {"bits": 2, "group": 64}, {"quant_method": "hqq"}),
]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as path:
        yield Path(path)


@lru_cache(maxsize=8)
def _whole(kind: int) -> tuple[dict[str, NDArray[Any]], str, NDArray[np.float32]]:
    """Return the tensors of a group, the section that declares it, and its numbers."""
    name, options, section = _KINDS[kind]
    desc = record_desc(_DIMS, name, **options)
    record = plain_scales(random_record(desc, np.random.default_rng(0)), np.random.default_rng(1))
    key = "quantization" if name.startswith("mlx") else "quantization_config"
    tensors = {
        tensor.name: record.tensors[role].view(DATA_TYPES[tensor.dtype].numpy).reshape(tensor.shape)
        for role, tensor in written_tensors("fc", desc, "safetensors").items()
    }
    return tensors, json.dumps({key: section}), dequantize_reference(record)


def _damaged(tensors: dict[str, NDArray[Any]], data: st.DataObject) -> dict[str, NDArray[Any]]:
    """Return tensors of which one is gone, has another type, shape, size or name."""
    name = data.draw(st.sampled_from(sorted(tensors)))
    array, found = tensors[name], dict(tensors)
    match data.draw(st.sampled_from(["gone", "type", "shape", "size", "value", "renamed"])):
        case "gone":
            del found[name]
        case "type":
            kind = np.dtype(data.draw(st.sampled_from([np.uint8, np.int32, np.float32])))
            row = array.shape[-1] * array.itemsize
            found[name] = array if row % kind.itemsize else array.view(kind)
        case "shape":
            shapes = [(-1,), array.shape[::-1], (1, *array.shape), (*array.shape, 1)]
            found[name] = array.reshape(data.draw(st.sampled_from(shapes)))
        case "size":
            found[name] = array[: data.draw(st.integers(0, max(len(array) - 1, 0)))]
        case "value" if name.rpartition(".")[2] not in {"weight", "scales", "biases", "W_q"}:
            found[name] = array.copy()
            found[name].view(np.uint8).reshape(-1)[0] ^= 1
        case _:
            found[f"{name}s"] = found.pop(name)
    return found


@given(kind=st.integers(0, len(_KINDS) - 1), data=st.data())
def test_a_damaged_group_is_refused_or_has_the_numbers_it_had(
    folder: Path, kind: int, data: st.DataObject
) -> None:
    tensors, text, numbers = _whole(kind)
    is_value = False
    config = text.encode()
    if data.draw(st.booleans()):
        config = data.draw(json_mutations(json.loads(text)))
    else:
        changed = _damaged(tensors, data)
        # other scales are other numbers
        scales = {"fc.scale", "fc.zero", "fc.weight.absmax"}
        is_value = any(
            name in changed
            and changed[name].shape == array.shape
            and changed[name].tobytes() != array.tobytes()
            for name, array in tensors.items()
            if name in scales
        )
        tensors = changed
    write_safetensors(
        folder / "model.safetensors",
        {
            name: np.ascontiguousarray(a).view(np.int32) if a.dtype == np.uint32 else a
            for name, a in tensors.items()
        },
    )
    (folder / "config.json").write_bytes(config)
    with reorder.open_checkpoint(folder) as checkpoint:
        try:
            record = checkpoint.record("fc")
        except MemdescError as error:
            assert len(str(error)) < _MAX_MESSAGE
            return
    if not is_value:
        assert (bits_of(dequantize_reference(record)) == bits_of(numbers)).all()
