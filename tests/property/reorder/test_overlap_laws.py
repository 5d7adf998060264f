"""Source and destination in one buffer: moved as from a copy, or refused and nothing written."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import reorder
from memdesc import MemdescError, MemoryDesc
from memdesc.errors import OverlapError
from tests.reorders import element_map, expect, random_bytes
from tests.strategies import desc_pairs, descs


@given(desc_pairs(max_nelems=256), st.integers(0, 300), st.integers(0, 300), st.integers(0, 9))
def test_within_one_buffer_data_move_as_from_a_copy_or_not_at_all(
    pair: tuple[MemoryDesc, MemoryDesc], src_start: int, dst_start: int, seed: int
) -> None:
    src, dst = pair
    align = dst.dtype.bits_dtype.itemsize
    starts = src_start // align * align, dst_start // align * align
    raw = random_bytes(max(starts[0] + src.min_nbytes, starts[1] + dst.min_nbytes) + 8, seed)
    raw = np.concatenate([raw, raw[:64]])[-raw.ctypes.data % 8 :] if raw.ctypes.data % 8 else raw
    source, target = (
        raw[start : start + desc.min_nbytes] for start, desc in zip(starts, pair, strict=True)
    )
    wanted = raw.copy()
    wanted[starts[1] : starts[1] + dst.min_nbytes] = expect(src, dst, source.copy(), target.copy())
    before = raw.copy()
    try:
        reorder.execute(reorder.plan_reorder(src, dst), source, target)
    except OverlapError:
        assert np.array_equal(raw, before)
        assert starts[1] < starts[0] + src.min_nbytes
        assert starts[0] < starts[1] + dst.min_nbytes
        return
    assert np.array_equal(raw, wanted)


@given(descs(max_nelems=256), st.integers(0, 9), st.data())
def test_adjacent_views_in_one_parent_are_never_mixed_up(
    parent: MemoryDesc, seed: int, data: st.DataObject
) -> None:
    size = tuple(data.draw(st.integers(0, size)) for size in parent.dims)
    try:
        views = [
            parent.submemory(
                size,
                tuple(
                    data.draw(st.integers(0, whole - own))
                    for whole, own in zip(parent.dims, size, strict=True)
                ),
            )
            for _ in range(2)
        ]
        plan = reorder.plan_reorder(views[0], views[1])
    except MemdescError:
        return
    raw = random_bytes(parent.min_nbytes, seed)
    wanted = raw.copy()
    count = views[1].min_nbytes
    wanted[:count] = expect(views[0], views[1], raw.copy(), raw[:count].copy())
    before = raw.copy()
    try:
        reorder.execute(plan, raw, raw)
    except OverlapError:
        assert np.array_equal(raw, before)
        # only what shares a byte is refused, wherever the proof is short
        bits = parent.dtype.bits
        touched = [{int(at) * bits // 8 for at in element_map(view, view)[0]} for view in views]
        assert touched[0] & touched[1] or parent.dtype.is_packed
        return
    assert np.array_equal(raw, wanted)
