"""Compensation of int8 weights, computed by reorders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import memdesc
import reorder
from memdesc import Extra, memory_desc
from memdesc.desc import desc_of
from reorder import Attr

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def _check(memory: reorder.Memory, q: NDArray[Any]) -> None:
    """Compare compensation with sums over the logical array."""
    desc = memory.desc
    assert desc.extra is not None
    masks = {"s8s8": (desc.extra.s8s8_mask, -128), "asymmetric": (desc.extra.asymmetric_mask, -1)}
    found = memory.compensation()
    assert set(found) == {name for name, (mask, _) in masks.items() if mask is not None}
    for name, array in found.items():
        mask, factor = masks[name]
        assert mask is not None
        kept = [dim for dim in range(desc.ndims) if mask >> dim & 1]
        sums = factor * q.astype(np.int64).sum(
            axis=tuple(dim for dim in range(desc.ndims) if dim not in kept)
        )
        assert array.shape == tuple(desc.padded_dims[dim] for dim in kept)
        inside = tuple(slice(desc.dims[dim]) for dim in kept)
        assert np.array_equal(array[inside], sums)
        rest = array.copy()
        rest[inside] = 0
        assert not rest.any()


@pytest.mark.parametrize(
    "extra",
    [
        Extra(s8s8_mask=1),
        Extra(s8s8_mask=1, asymmetric_mask=1),
        Extra(asymmetric_mask=2),
        Extra(s8s8_mask=13),
    ],
)
@pytest.mark.parametrize("tag", ["ABcd4b16a4b", "abcd", "cdba", "ABcd8a8b", "Abcd16a"])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_sums_of_what_was_stored_are_after_it(dtype: Any, tag: str, extra: Extra) -> None:
    x = (np.random.default_rng(0).standard_normal((19, 21, 3, 2)) * 50).astype(dtype)
    desc = memory_desc(x.shape, "s8", tag).with_extra(extra)
    memory = reorder.reorder(
        x,
        desc,
        attr=Attr(dst_scale=np.linspace(0.5, 2, 19), dst_scale_mask=1)
        if dtype is np.float32
        else None,
    )
    q = memory.numpy()
    assert np.array_equal(q, reorder.reorder(memory, "abcd").numpy())
    _check(memory, q)
    by_definition = np.full(desc.nbytes, 77, np.uint8)
    source = reorder.reorder(x, "abcd")
    attr = (
        Attr(dst_scale=np.linspace(0.5, 2, 19), dst_scale_mask=1) if dtype is np.float32 else None
    )
    reorder.reference.execute_reference(source.desc, desc, source.data, by_definition, attr)
    _check(reorder.Memory(desc, by_definition), q)


def test_a_view_that_ends_inside_a_block_is_summed_too() -> None:
    view = memory_desc((8, 20), "s8", "aB16b").submemory((8, 3), (0, 0))
    desc = desc_of(view.dtype, view.layout, Extra(s8s8_mask=3, asymmetric_mask=1))
    x = np.random.default_rng(0).integers(-128, 128, (8, 3)).astype(np.int8)
    _check(reorder.reorder(x, desc), x)


def test_the_factor_for_saturating_instructions_multiplies_what_is_stored() -> None:
    x = np.array([[10.0, -30.0, 127.0]], np.float32)
    desc = memory_desc(x.shape, "s8", "ab").with_extra(Extra(s8s8_mask=1, scale_adjust=0.5))
    memory = reorder.reorder(x, desc)
    assert memory.numpy().tolist() == [[5, -15, 64]]
    _check(memory, memory.numpy())
    assert reorder.reorder(x, desc, attr=Attr(src_scale=2.0, dst_scale=4.0)).numpy().tolist() == [
        [2, -8, 32]
    ]
    assert reorder.reorder(
        x, desc, attr=Attr(src_scale=[2.0, 1.0, 1.0], src_scale_mask=2)
    ).numpy().tolist() == [[10, -15, 64]]


def test_compensated_weights_are_saved_and_loaded_and_have_none_without_extra(
    tmp_path: Path,
) -> None:
    desc = memory_desc((3, 5), "s8", "ab").with_extra(Extra(asymmetric_mask=1))
    memory = reorder.reorder(np.arange(15, dtype=np.int8).reshape(3, 5), desc)
    reorder.save(tmp_path / "w.npz", memory)
    again = reorder.load(tmp_path / "w.npz")
    assert again.desc == desc
    assert again.compensation()["asymmetric"].tolist() == [-10, -35, -60]
    assert reorder.reorder(again, "ab").compensation() == {}
    assert (
        reorder.Memory(
            memory_desc((0, 5), "s8", "ab").with_extra(Extra(asymmetric_mask=1))
        ).compensation()
        == {}
    )


@pytest.mark.parametrize(
    ("tag", "mask", "order"),
    [
        # (dim, step, extent) of the blocks of the sums, outermost in memory first
        ("Abcde16a", 3, [(0, 16, 2), (1, 1, 5), (0, 1, 16)]),
        ("bac", 3, [(1, 1, 5), (0, 1, 19)]),
        ("cba", 5, [(2, 1, 6), (0, 1, 19)]),
        ("BA16a64b4a", 3, [(1, 64, 1), (0, 64, 1), (0, 4, 16), (1, 1, 64), (0, 1, 4)]),
        ("ABc4a4b", 3, [(0, 4, 5), (1, 4, 2), (0, 1, 4), (1, 1, 4)]),
        ("acb", 1, [(0, 1, 19)]),
    ],
)
def test_sums_over_several_dims_lie_as_the_tag_trimmed_to_these_dims(
    tag: str, mask: int, order: list[tuple[int, int, int]]
) -> None:
    ndims = memdesc.tags.parse_tag(tag).ndims
    dims = (19, 5, 6, 2, 3)[:ndims]
    extra = Extra(s8s8_mask=mask, asymmetric_mask=mask)
    desc = memory_desc(dims, "s8", tag).with_extra(extra)
    x = np.random.default_rng(0).integers(-128, 128, dims).astype(np.int8)
    kept = [dim for dim in range(ndims) if mask >> dim & 1]
    sums = x.astype(np.int32).sum(axis=tuple(d for d in range(ndims) if d not in kept))
    shape = [desc.padded_dims[dim] for dim in kept]
    padded = np.zeros(shape, np.int32)
    padded[tuple(slice(dims[dim]) for dim in kept)] = sums
    # the written rule, apart from the library: every block a loop, dense in this order
    expected = np.zeros(padded.size, np.int32)
    for index in np.ndindex(*shape):
        offset = 0
        for dim, step, extent in order:
            offset = offset * extent + index[kept.index(dim)] // step % extent
        expected[offset] = padded[index]
    memory = reorder.reorder(x, desc)
    by_definition = reorder.Memory(desc)
    reorder.reference.execute_reference(memory_desc(dims, "s8"), desc, x, by_definition.data)
    for m in (memory, by_definition):
        _check(m, x)
        for name, factor in (("s8s8", -128), ("asymmetric", -1)):
            start, _ = desc.compensation_spans[name]
            stored = m.data[start : start + 4 * padded.size].view(np.int32)
            assert stored.tolist() == (factor * expected).tolist(), name
