import re
from typing import Any

import numpy as np
import pytest

import memdesc
import reorder
from memdesc import memory_desc
from reorder import identify


def four_bits(*dims: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 16, dims, np.uint8)


def floats(*dims: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(0).standard_normal(dims, np.float32)


def test_the_names_of_one_layout_are_one_candidate_the_simplest_first() -> None:
    q = four_bits(64, 128)
    found = identify(reorder.reorder(q, "gptq", dtype="u4").data, q)
    (only,) = found.candidates
    # with these dims AB8b8a puts every element where Ab8a does
    assert only.names[0].text == "Ab8a"
    assert found.verdict.startswith("one layout gives these bytes: Ab8a (gptq, ")
    assert "OI8i8o" in {each.text for each in only.names}
    assert only.desc.layout == memory_desc(q.shape, "u4", "Ab8a").layout


def test_padding_that_is_not_zero_is_reported() -> None:
    x = floats(2, 17, 5, 4)
    m = reorder.reorder(x, "nChw8c")
    m.elements[-1] = 7
    found = identify(m.data.tobytes(), x)
    assert not found.candidates[0].is_padding_zero
    assert found.verdict.endswith(", with padding that is not zero")


def test_values_that_differ_leave_the_nearest_layouts() -> None:
    x = floats(2, 17, 5, 4)
    m = reorder.reorder(x, "nChw8c")
    m.elements[3] ^= 1
    found = identify(m, x)
    assert found.candidates == ()
    assert [each.desc for each in found.near] == [m.desc]
    assert found.near[0].agreement == 1 - 1 / x.size
    assert found.verdict.startswith(
        "no known layout gives these bytes; 99.85% of the elements are where aBcd8b (nChw8c, "
    )


def test_a_difference_that_the_samples_miss_is_found() -> None:
    q = four_bits(512, 512)
    m = reorder.reorder(q, "marlin", dtype="u4")
    m.data[12345] ^= 1
    found = identify(m, q)
    assert found.candidates == ()
    assert found.near[0].agreement == 1 - 1 / q.size


def test_values_that_say_nothing_leave_several_layouts() -> None:
    found = identify(np.zeros(680, np.float32), np.zeros((2, 17, 5, 4), np.float32))
    assert len(found.candidates) == 24
    assert found.verdict.startswith(
        "24 layouts give these bytes, since the values do not tell them apart: abcd ("
    )
    assert found.verdict.endswith("; ...")


def test_pixels_have_the_name_of_their_image_type() -> None:
    x = floats(1, 6, 5, 4)
    pixels = reorder.reorder(x, memdesc.image_desc(x.shape, "f32", "in_out_channel"))
    found = identify(pixels, x)
    names = "in_out_channel, mnn_image, paddle_image_default"
    assert found.verdict == f"one layout gives these bytes: acBd4b ({names})"
    (candidate,) = found.candidates
    assert ("mace", "in_out_channel", "image") in candidate.names


def test_other_values_have_no_layout() -> None:
    found = identify(floats(680) + 9, floats(2, 17, 5, 4))
    assert (found.candidates, found.near) == ((), ())
    assert found.verdict == "no known layout of (2, 17, 5, 4) elements of f32 gives these bytes"


def test_bytes_of_another_size_have_no_layout_and_the_nearest_sizes_are_reported() -> None:
    found = identify(bytes(3836), floats(2, 17, 5, 4))
    assert found.verdict == (
        "no known layout of (2, 17, 5, 4) elements of f32 takes 3836 bytes; the nearest sizes are "
        "3264, 3840, 4352"
    )
    assert identify(bytes(3836), dims=(2, 17, 5, 4)).verdict.startswith(
        "no known layout of (2, 17, 5, 4) elements of any type takes 3836 bytes; the nearest sizes"
    )


def test_zero_padding_chooses_without_a_reference() -> None:
    scales = np.random.default_rng(0).integers(1, 255, (130, 5), np.uint8)
    found = identify(reorder.reorder(scales, "nvfp4_scales").data, dims=(130, 5))
    (only,) = found.candidates
    assert "nvfp4_scales" in {each.text for each in only.names}
    assert found.verdict.startswith(
        "the size and zero padding leave one layout: AB32a/1.4a/32.4b ("
    )


def test_without_a_reference_several_layouts_may_remain_the_most_padded_first() -> None:
    m = reorder.reorder(floats(2, 17, 5, 4), "nChw8c")
    found = identify(m, dims=(2, 17, 5, 4), dtype="f32")
    assert m.desc in {each.desc for each in found.candidates}
    assert found.verdict == (
        "the size and zero padding leave 2 layouts; a tensor of the same values tells them apart"
    )
    found = identify(reorder.reorder(floats(16, 16), "ba"), dims=(16, 16), dtype="f32")
    assert "layouts, none of which has padding; a tensor" in found.verdict
    padding = [each.desc.padded_nelems - each.desc.nelems for each in found.candidates]
    assert padding == sorted(padding, reverse=True)


@pytest.mark.parametrize(
    ("dims", "first"),
    [
        ((4, 6), ["ab", "ba"]),
        ((2, 6, 5, 4), ["abcd", "acdb"]),
        ((2, 16, 16, 4), ["abcd", "acdb"]),
        ((2, 6, 5, 4, 3), ["abcde", "acdeb"]),
    ],
)
def test_of_layouts_without_padding_the_common_ones_come_first(
    dims: tuple[int, ...], first: list[str]
) -> None:
    found = identify(floats(*dims), dims=dims).candidates
    assert [each.names[0].text for each in found[: len(first)]] == first
    blocks = [len(each.desc.blocks) for each in found]
    assert blocks == sorted(blocks)


def test_a_permutation_that_no_system_names_is_found() -> None:
    x = floats(2, 3, 5, 7, 4)
    m = reorder.reorder(x, "ecadb")
    assert {name.vocabulary for name in m.desc.names()} == {"memdesc"}
    assert [each.desc for each in identify(m, x).candidates] == [m.desc]
    assert m.desc in {each.desc for each in identify(m, dims=x.shape).candidates}


def test_padding_that_is_not_zero_in_any_layout_is_reported() -> None:
    found = identify(np.ones(1024, np.float32), dims=(2, 17, 4, 4), dtype="f32")
    assert found.candidates == ()
    assert re.fullmatch(
        r"all \d+ layouts of this size have padding that is not zero here", found.verdict
    )


def test_bytes_come_from_any_buffer_or_tensor() -> None:
    x = floats(4, 8)
    expected = identify(x.T.copy(), x)
    assert len(expected.candidates) == 1
    packed = np.zeros(129, np.uint8)[1:]
    packed[:] = x.T.copy().view(np.uint8).reshape(-1)
    for data in (
        x.T,
        memoryview(x.T.copy().data),
        packed,
        reorder.reorder(x, "ba"),
        reorder.reorder(x, "ba").block_tensor(),
    ):
        assert identify(data, x).candidates[0].desc in {
            expected.candidates[0].desc,
            memory_desc(x.shape, "f32"),
        }


_STORED = [
    ("bf16", "f32", "f16", "of f16 gives these bytes; as bf16, aBcd8b ("),
    ("s32", "f32", None, "of f32 gives these bytes; as s32 or u32, aBcd8b ("),
    ("f32", "s32", None, "of s32 or u8 or s8 gives these bytes; as f32, aBcd8b ("),
    ("f8_e4m3", "f32", "f8_e5m2", "of f8_e5m2 gives these bytes; as f8_e4m3, aBcd8b ("),
    ("f16", "f32", "bf16", "of bf16 gives these bytes; as f16, aBcd8b ("),
    ("bf16", "f32", None, "of f32 gives these bytes; as bf16, aBcd8b ("),
    ("f64", "f32", "bf16", "of bf16 gives these bytes; as f64, aBcd8b ("),
    ("s8", "f32", None, "of f32 gives these bytes; as s8 or u8, aBcd8b ("),
]


@pytest.mark.parametrize(
    ("stored", "like", "told", "verdict"),
    [*_STORED[:4], *(pytest.param(*row, marks=pytest.mark.slow) for row in _STORED[4:])],
)
def test_a_layout_in_another_type_is_reported_and_is_not_a_candidate(
    stored: str, like: str, told: str | None, verdict: str
) -> None:
    x = np.random.default_rng(0).integers(0, 120, (2, 17, 5, 4)).astype(np.float32)
    held = reorder.reorder(x, "nChw8c", dtype=stored)
    found = identify(held, reorder.reorder(x, "plain", dtype=like), dtype=told)
    assert verdict in found.verdict
    assert found.candidates == ()
    assert (found.near[0].desc, found.near[0].agreement) == (held.desc, 1)


def test_fractions_are_not_looked_for_among_integers() -> None:
    x = np.array([[0.25, 0.5], [0.75, 1.5]], np.float32)
    assert identify(np.rint(x).astype(np.int32), x).near == ()


def test_four_bit_elements_with_the_first_in_the_high_half_are_said_to_be_swapped() -> None:
    codes = np.random.default_rng(0).integers(0, 16, (16, 32), np.uint8)
    packed = reorder.reorder(codes, "ba", dtype="u4").data
    for dtype in (None, "u4"):
        found = identify(packed >> 4 | packed << 4, codes, dtype=dtype)
        assert not found.candidates
        assert "; with the halves of each byte swapped, as u4, ba (" in found.verdict
    assert "swapped" not in identify(packed[::-1], codes).verdict


def test_a_reference_that_was_rounded_to_another_type_is_near() -> None:
    x = floats(2, 17, 5, 4)
    found = identify(reorder.reorder(x, "nhwc", dtype="bf16"), x.astype(np.float16))
    assert 0.9 < found.near[0].agreement < 1
    assert found.verdict.endswith(" has them, as bf16")


@pytest.mark.parametrize(
    ("stored", "told", "doubt"),
    [
        ("f32", "f32", ""),
        ("f32", None, ""),
        ("f32", "s32", "the bytes look like f32: as s32, 0% of them are ordinary"),
        ("s32", "f32", "the bytes look like s32 or u32: as f32, 0% of them are ordinary"),
        ("f16", "bf16", "the bytes look like f16 or s16 or u16: as bf16, 0% of them are ordinary"),
        # any 8 bits are an ordinary integer, and any 4 bits an ordinary number
        ("u8", "s8", ""),
        ("u4", "s4", ""),
    ],
)
def test_without_a_reference_the_bytes_tell_types_apart(
    stored: str, told: str | None, doubt: str
) -> None:
    x: Any = np.random.default_rng(0).integers(1, 15, (16, 24)) / (640 if stored == "f16" else 1)
    found = identify(reorder.reorder(x, "ba", dtype=stored), dims=x.shape, dtype=told)
    assert found.verdict.partition("; but ")[2] == doubt
    by_type = {str(each.dtype): each for each in found.readings}
    if told is not None:
        assert {memdesc.data_type(name).bits for name in by_type} <= {memdesc.data_type(told).bits}
    if stored == "u4":
        assert by_type == {}
    else:
        reading = by_type[stored]
        assert reading.ordinary == 1
        assert reading.least == pytest.approx(abs(x).min(), rel=1e-3)
        assert reading.most == pytest.approx(abs(x).max(), rel=1e-3)


def test_bytes_of_zeros_look_like_no_type() -> None:
    assert identify(bytes(64), dims=(4, 4), dtype="f32").readings == ()
    (reading,) = (
        each
        for each in identify(np.full(16, np.nan, np.float32), dims=(4, 4)).readings
        if str(each.dtype) == "f32"
    )
    assert reading.ordinary == 0
    assert np.isnan((reading.least, reading.most)).all()


def test_types_of_narrow_integers_are_tried_where_the_values_fit_only() -> None:
    wide = np.array([[1, 2], [3, 300]], np.int32)
    assert "of s32 takes 2 bytes" in identify(b"12", wide).verdict
    assert "of s32 or u4 or s4 or u8 or s8 takes" in identify(b"1", wide % 7).verdict
    assert "of f32 takes" in identify(b"1", wide.astype(np.float32)).verdict


def test_values_of_another_kernel_are_found_within_a_tolerance() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 17, 5, 4), np.float32)
    dump = reorder.reorder(x * np.float32(1 + 3e-7), "nChw8c")
    missed = reorder.identify(dump, x)
    assert not missed.candidates
    assert "gives these bytes; with rtol=0.001 aBcd8b (" in missed.verdict
    assert {each.desc for each in missed.near} == {dump.desc}
    for found in (reorder.identify(dump, x, rtol=1e-6), reorder.identify(dump, x, atol=1e-5)):
        assert found.candidates[0].desc == dump.desc
    assert not reorder.identify(dump, x, rtol=1e-8).candidates
    assert not reorder.identify(dump, rng.permutation(x), rtol=1e-3).candidates


def test_integers_that_f64_does_not_hold_differ_by_more_than_a_tolerance() -> None:
    x = np.arange(12, dtype=np.int64).reshape(3, 4) + 2**60
    dump = np.ascontiguousarray(x.T)
    dump[1, 1] += 50
    assert reorder.identify(dump, x, atol=50).candidates
    assert not reorder.identify(dump, x, atol=0.5).candidates


def test_infinities_and_nans_are_equal_within_a_tolerance_only_to_themselves() -> None:
    x = np.arange(1, 25, dtype=np.float32).reshape(4, 6)
    x[0, 0], x[1, 1] = np.inf, np.nan
    found = reorder.identify(reorder.reorder(x, "ba"), x, rtol=1e-3)
    assert [each.desc for each in found.candidates] == [memory_desc((4, 6), "f32", "ba")]
    x[0, 0] = -np.inf
    assert not reorder.identify(reorder.reorder(x, "ba"), np.abs(x), rtol=1e-3).candidates
