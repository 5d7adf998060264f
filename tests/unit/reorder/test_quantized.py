import copy
from array import array
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import reorder
from memdesc import memory_desc


def _weights(*dims: int, dtype: Any = np.float32) -> Any:
    rng = np.random.default_rng(2)
    return (
        rng.standard_normal(dims) * rng.uniform(0.01, 10, (dims[0], *(1,) * (len(dims) - 1)))
    ).astype(dtype)


def _error(w: Any, q: reorder.Quantized, **how: Any) -> Any:
    back = reorder.dequantize(q.memory, q.scales, q.zero_points, **how)
    return abs(back.numpy().astype(np.float64) - w.astype(np.float64))


def test_each_channel_comes_back_within_half_a_step() -> None:
    w = _weights(32, 17, 3, 2)
    ohwi, blocked = memory_desc((32, 17, 3, 2), "s8", "Ohwi8o"), reorder.reorder(w, "OIhw16i16o")
    for dtype in ("s8", "u8"):
        for target in (None, "OIhw4i16o4i", "hwio", ohwi.with_dtype(dtype)):
            q = reorder.quantize(w, dtype, axis=0, dst=target)
            assert q.memory.desc.dtype.name == dtype
            assert q.scales.shape == q.zero_points.shape == (32,)
            assert bool(q.zero_points.any()) == (dtype == "u8")
            assert (_error(w, q, axis=0) <= q.scales[:, None, None, None] * 0.501).all()
            q.memory.check_padding()
            # as is a memory, where it lies
            same = reorder.quantize(blocked, dtype, 0, target)
            assert same.memory.data.tobytes() == q.memory.data.tobytes()


def test_symmetric_ranges_reach_the_largest_number_and_zero_is_exact() -> None:
    w = np.array([[-2.0, 0.0, 1.0], [0.0, 0.0, 0.0], [5.0, 1.0, 0.0]], np.float32)
    q = reorder.quantize(w, "s8", axis=0)
    assert q.memory.numpy().tolist() == [[-127, 0, 64], [0, 0, 0], [127, 25, 0]]
    assert q.scales.tolist() == np.array([2 / 127, 1, 5 / 127], np.float32).tolist()
    assert not reorder.dequantize(reorder.quantize(w, "u8", axis=0)).numpy()[w == 0].any()
    assert reorder.quantize(abs(w), "u8", axis=0, symmetric=True).zero_points.tolist() == [0, 0, 0]
    assert reorder.quantize(w, "s8", axis=0, symmetric=False).zero_points.any()
    # a range wider than the type has a scale
    q = reorder.quantize(np.array([-1.5e308, 0, 1.5e308]), "u8")
    assert (float(q.scales), q.memory.numpy().tolist()) == (1.5e308 / 127.5, [0, 128, 255])


def test_the_type_of_a_descriptor_is_the_type_to_go_back_to() -> None:
    q = reorder.quantize(np.array([[1.0, -127.0]], np.float32), "s8")
    desc = memory_desc((1, 2), "f16", "ba")
    assert reorder.dequantize(q, dst=desc).desc == desc
    assert reorder.dequantize(q, dst=desc, dtype="f64").desc == desc.with_dtype("f64")


def test_one_scale_for_all_uses_the_range_of_the_type() -> None:
    for dtype, given, kind, most in (
        *(("f8_e4m3", np.float64, "f8", 0.04), ("f8_e5m2", np.float16, "f4", 0.13)),
        *(("f4_e2m1", np.float64, "f8", 0.17), ("s4", ml_dtypes.bfloat16, "f4", 0.08)),
    ):
        w = _weights(4, 33, dtype=given)
        q = reorder.quantize(w, dtype)
        assert (q.scales.shape, q.scales.dtype) == ((), np.dtype(kind))
        assert _error(w, q).max() < most * float(abs(w.astype(np.float64)).max())


def test_what_quantize_returned_is_enough_to_go_back() -> None:
    w = _weights(8, 64)
    for axis, groups, kept, shape in (
        *((None, (), (), ()), (-1, (), (1,), (64,)), ((1, 0), (), (0, 1), (8, 64))),
        ((0, 1), (2, 16), (0, 1), (4, 4)),
    ):
        q = reorder.quantize(w, "u4", axis, groups=groups)
        assert (q.axis, q.groups, q.scales.shape, q.memory.nbytes) == (kept, groups, shape, 256)
        steps = np.kron(q.scales, np.ones(groups)) if groups else q.scales
        assert (_error(w, q, axis=axis, groups=groups) <= steps * 0.501).all()
        wanted = reorder.dequantize(q.memory, q.scales, q.zero_points, axis, groups=groups).numpy()
        replaced = q._replace(scales=q.scales.copy())
        for again in (q, copy.copy(q), replaced, reorder.Quantized(*q, kept, groups)):
            assert np.array_equal(reorder.dequantize(again).numpy(), wanted)
        assert repr(q).endswith(f", axis={kept}, groups={groups})")
        # arguments of the caller come first
        assert np.array_equal(reorder.dequantize(q, 2 * q.scales).numpy(), 2 * wanted)
        zeros = np.zeros_like(q.zero_points)
        assert not np.array_equal(reorder.dequantize(q, zero_points=zeros).numpy(), wanted)


def test_a_number_is_the_scale_or_the_zero_point_of_all_elements() -> None:
    q = reorder.quantize(np.arange(8, dtype=np.float32).reshape(2, 4), "s8", axis=0)
    codes = q.memory.numpy().astype(np.float32)
    wanted = q.scales[:, None] * (codes - 5)
    assert (reorder.dequantize(q, zero_points=5).numpy() == wanted).all()
    assert (reorder.dequantize(q, scales=np.float32(2)).numpy() == 2 * codes).all()


def test_numbers_of_groups_may_be_any_sequence() -> None:
    q = reorder.quantize(_weights(2, 8), "u8", axis=0)
    wanted = reorder.dequantize(q).numpy()
    scales, points = q.scales.tolist(), q.zero_points.tolist()
    for sequence in (tuple, list, partial(array, "f"), partial(np.array, dtype=np.float32)):
        assert (reorder.dequantize(q, scales=sequence(scales)).numpy() == wanted).all()
    for sequence in (tuple, list, partial(array, "B")):
        assert (reorder.dequantize(q, zero_points=sequence(points)).numpy() == wanted).all()


def test_a_quantised_tensor_is_a_tuple_of_three() -> None:
    q = reorder.quantize(_weights(4, 6), "u8", axis=0)
    memory, scales, zero_points = q
    assert isinstance(q, tuple)
    assert q._fields == ("memory", "scales", "zero_points")
    assert [*map(id, q)] == [*map(id, (q.memory, q.scales, q.zero_points))]
    # made by hand, of what another library quantised
    wanted = reorder.dequantize(q).numpy()
    by_hand = reorder.Quantized(memory, scales, zero_points)
    assert np.array_equal(reorder.dequantize(by_hand, axis=0).numpy(), wanted)
    html = q._repr_html_()
    assert html.endswith(memory._repr_html_())
    assert html.startswith("<p>Quantized, axis (0,), groups (); scales: float32 (4,), zero points")


def test_tensors_without_elements_are_quantised_and_back() -> None:
    for dims, axis, groups, count in (
        *(((0, 3), 1, (), (3,)), ((3, 0), (0, 1), (), (3, 0)), ((0, 4), (0, 1), (1, 2), (0, 2))),
    ):
        for dtype in ("s8", "u4", "f8_e4m3"):
            q = reorder.quantize(np.zeros(dims, np.float32), dtype, axis, groups=groups)
            assert q.scales.shape == q.zero_points.shape == count
            assert reorder.dequantize(q).numpy().shape == dims
