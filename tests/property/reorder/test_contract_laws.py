"""The laws of contracts: what `check` says of tensors whose files do not say their layout."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import reorder
from memdesc import memory_desc
from tests.checkpoints import write_safetensors

if TYPE_CHECKING:
    from numpy.typing import NDArray

# layouts without padding, so that programs may store their bytes in the shape of rows
_LAYOUTS = [
    ("BA16a64b4a", "s8", (64, 128)),
    ("ba", "f32", (6, 4)),
    ("AB8b8a", "f16", (16, 24)),
    ("ABcd4b4a", "bf16", (8, 4, 3, 3)),
    ("gptq", "u4", (64, 16)),
    ("marlin", "u4", (64, 64)),
    ("nvfp4_scales", "u8", (128, 8)),
]


@given(st.sampled_from(_LAYOUTS), st.booleans(), st.booleans(), st.integers(0, 2**32), st.data())
def test_damage_never_holds_and_a_sound_model_is_never_accused(
    form: tuple[str, str, tuple[int, ...]],
    is_plain: bool,
    is_flat: bool,
    seed: int,
    draw: st.DataObject,
) -> None:
    tag, dtype, dims = form
    desc, rows = memory_desc(dims, dtype, tag), memory_desc(dims, dtype)
    rng = np.random.default_rng(seed)
    few = draw.draw(st.sampled_from([1, 2, 256]))  # equal elements lie anywhere
    x = rng.integers(0, few, rows.nbytes, np.uint8)

    def packed(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return reorder.reorder(reorder.Memory(rows, data), desc).data

    models = {
        "packed": packed(x),
        "packed twice": packed(packed(x)),
        "not packed": x,
        "another order": packed(np.roll(x, rows.nbytes // 2)),
        "a byte": packed(x) ^ (np.arange(len(x)) == len(x) // 3).astype(np.uint8),
    }
    model = models[draw.draw(st.sampled_from([*models]))]
    reference = x if is_plain else packed(x)
    is_sound = np.array_equal(model, packed(x))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.safetensors" for name in ("model", "reference")]
        for path, data in zip(paths, (model, reference), strict=True):
            _write(path, data, desc, is_flat=is_flat)
        rules: dict[str, Any] = {"w": {"layout": tag, "dims": [*dims], "dtype": dtype}}
        kind = "plain" if is_plain else "packed"
        said = reorder.check(paths[0], rules, reference=paths[1], reference_is=kind)
        unsaid = reorder.check(paths[0], rules, reference=paths[1])
    assert said.holds == is_sound
    assert (said.unconfirmed == ()) == is_sound
    if is_sound:
        assert {each.key for each in unsaid.breaches} <= {"reference"}
    else:
        assert not unsaid.holds


def _write(path: Path, data: NDArray[np.uint8], desc: Any, *, is_flat: bool) -> None:
    """Store bytes as programs do: in the shape of the rows, with 4-bit elements in bytes."""
    numbers = data
    if not desc.dtype.is_packed:
        numbers = reorder.Memory(memory_desc((desc.nelems,), desc.dtype), data).numpy()
    shape = (-1,) if is_flat else (desc.dims[0], -1, *desc.dims[2:])
    write_safetensors(path, {"w": numbers.reshape(shape)})
