"""The stages of conversion at every length, in and beyond the caches, and for other processors."""

import platform
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite import binding, ir
from numpy.typing import NDArray

from memdesc import memory_desc
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from reorder import Attr, execute, plan_reorder
from reorder.assumed import PROCESSORS
from reorder.cpu.codecs import Codec
from reorder.cpu.llvm.emit import IRValue
from reorder.reference import execute_reference
from tests.conversions import run
from tests.processors import environment_of
from tests.programs import run_python
from tests.reorders import beyond_caches, beyond_own_caches, check
from tests.unit.reorder.cpu.kernels.convert_matrix import (
    channels,
    groups,
    layouts,
    lengths,
    padding,
)

_SIZES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "cache-resident": nullcontext,
    "exceeds the cache": beyond_caches,
}


@pytest.mark.parametrize("size", _SIZES)
def test_rows_of_every_length_are_converted_from_and_to_every_offset(size: str) -> None:
    with _SIZES[size]():
        lengths()


@pytest.mark.parametrize("size", _SIZES)
def test_matrices_are_converted_between_layouts_with_attributes(size: str) -> None:
    with _SIZES[size]():
        layouts(streams=size != "cache-resident")


@pytest.mark.parametrize("size", _SIZES)
def test_operands_in_groups_of_every_length_are_found(size: str) -> None:
    with _SIZES[size]():
        groups()


def test_every_channel_of_few_has_its_own_scale_and_zero_point() -> None:
    channels()


@pytest.mark.parametrize("size", _SIZES)
def test_blocks_that_end_in_padding_are_converted_to_zeros_there(size: str) -> None:
    with _SIZES[size]():
        padding(streams=size != "cache-resident")


@pytest.mark.parametrize(
    ("types", "attr"),
    [
        (("f32", "bf16"), None),
        (("s8", "f32"), None),
        (("f32", "s4"), None),
        (("u8", "f32"), Attr(src_scale=0.3)),
    ],
)
def test_long_rows_that_are_streamed_equal_the_definition(
    types: tuple[str, str], attr: Attr | None
) -> None:
    for dims, strides in (((3, 5003), (5003, 1)), ((2, 2, 1031), (4000, 1500, 1))):
        src, dst = (memory_desc(dims, dtype, strides=strides) for dtype in types)
        with beyond_own_caches():
            check((src, dst, attr), 1, at_end=True, threads=2)


def _seldom(special: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return bits of f32 in groups of which some hold one special number each, and others none."""
    numbers = (
        np.random.default_rng(0).standard_normal((2 * special.size, 64), np.float32).view(np.uint32)
    )
    numbers[np.arange(special.size), np.arange(special.size) * 7 % 64] = special
    return numbers.reshape(-1)


# in hexadecimal: around 0 and infinity; around 2^-64, 2^64 and ties of bf16; quotients around
# 2^-70, halves of integers and floats beside them, beyond s32
_WORDS = """
0 1 7FFFFF 800000 800001 7F7FFFFF 7F7F8000 7F800000 7F800001 7FC00000 7FFFFFFF
1F7FFFFF 1F800000 1F800001 5F7FFFFF 5F800000 5F800001 3F808000 3F818000 007F8000 00008000
1C7FFFFF 1C800000 3F000000 3EFFFFFF 3F000001 42FF0000 42FEFFFF 42FF0001 4F000000 4F800000
"""
_RARE = np.array([int(word, 16) for word in _WORDS.split()], np.uint32)


@pytest.mark.parametrize("dst", ["bf16", "f16", "f32", "s8", "u8", "s32", "f8_e4m3"])
@pytest.mark.parametrize(
    "scale",
    # powers of two are multiplied by their inverses, up to 2^24
    [1.0, 0.3, 3.0, 2.0**-24, 1.2 * 2.0**-24, 2.0**24, 1.9 * 2.0**23, 2.0**25, -0.7, 1.9999999],
)
def test_one_rare_number_among_many_becomes_what_it_would_alone(dst: str, scale: float) -> None:
    codes = _seldom(np.concatenate([_RARE, _RARE | np.uint32(1 << 31)]))
    _check_codes(codes, "f32", dst, None if scale == 1 else Attr(dst_scale=scale))


def _check_codes(codes: NDArray[Any], src: str, dst: str, attr: Attr | None) -> None:
    size = codes.nbytes * BYTE_BITS // DATA_TYPES[src].bits
    pair = memory_desc((size,), src, "a"), memory_desc((size,), dst, "a")
    ours, wanted = (np.zeros(pair[1].nbytes, np.uint8) for _ in range(2))
    execute(plan_reorder(*pair, attr), codes.view(np.uint8), ours)
    execute_reference(*pair, codes.view(np.uint8), wanted, attr)
    wrong = np.flatnonzero((ours != wanted).reshape(size, -1).any(axis=1))
    assert not wrong.size, (wrong[:5], codes.view(f"u{DATA_TYPES[src].bits // 8}")[wrong[:5]])


@pytest.mark.parametrize(
    ("src", "dst"), [("f16", "f32"), ("s8", "bf16"), ("u8", "f32"), ("s32", "u8")]
)
def test_all_codes_are_divided_as_alone(src: str, dst: str) -> None:
    # in order, so that vectors without and with rare numbers follow each other
    codes = np.arange(1 << 16, dtype=np.uint16)
    for scale in (0.3, -0.7, 1.9999999, 1.2 * 2.0**-24, 1.9 * 2.0**23, 1.2 * 2.0**39):
        _check_codes(codes, src, dst, Attr(dst_scale=scale))


_REPEATED_PAIRS = {
    "cache-resident": (("f32", "s8"), ("u8", "f32"), ("s64", "f64"), ("f32", "s4")),
    "exceeds the cache": (("f32", "s8"), ("u8", "f32"), ("f32", "s4")),
}


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize(
    ("dims", "tag", "mask"),
    [
        ((2, 32, 5, 7), "aBcd16b", 2),
        ((2, 40, 3, 3), "aBcd8b", 2),
        ((2, 40, 3, 3), "aBcd16b", 2),
        ((3, 5, 16), "abc", 4),
        ((3, 5, 24), "abc", 4),
        ((3, 5, 8), "abc", 5),
        ((16, 3, 64), "abc", 5),
        ((32, 48), "AB8b16a", 3),
        ((256, 9), "Ab128a", 1),
        ((2, 128, 3, 3), "acdb", 2),
    ],
)
def test_parameters_that_repeat_along_a_row_are_those_of_their_elements(
    dims: tuple[int, ...], tag: str, mask: int, size: str
) -> None:
    sizes = [size for dim, size in enumerate(dims) if mask >> dim & 1]
    values = np.random.default_rng(0).uniform(0.2, 3, sizes)
    attrs = (
        Attr(src_scale=values, src_scale_mask=mask),
        Attr(dst_scale=values, dst_scale_mask=mask, beta=0.5),
    )
    with _SIZES[size]():
        for attr, types, stag in product(attrs, _REPEATED_PAIRS[size], (tag, "abcd"[: len(dims)])):
            check(
                (memory_desc(dims, types[0], stag), memory_desc(dims, types[1], tag), attr),
                3,
                at_end=True,
            )


@pytest.mark.parametrize(
    ("work", "dtype"), [("f32", "s32"), ("f32", "u32"), ("f64", "s64"), ("f64", "u64")]
)
def test_floats_around_the_limits_of_integers_as_wide_become_those(work: str, dtype: str) -> None:
    bits = DATA_TYPES[dtype].bits
    numbers = np.dtype(f"f{bits // BYTE_BITS}")
    limits = [sign * 2.0**power for sign in (1, -1) for power in (0, bits - 1, bits, bits + 1)]
    around = np.array([0.0, *limits, np.inf, -np.inf, np.nan], numbers)
    values = np.concatenate(
        [
            around,
            *(np.nextafter(around, numbers.type(to)) for to in (np.inf, -np.inf)),
            *(np.arange(-8, 8) + numbers.type(part) for part in (0.5, 0.49, 0.51)),
        ]
    ).astype(numbers)
    # NaN of both signs, quiet and signalling
    codes = values.view(f"u{numbers.itemsize}")
    inf = np.array(np.inf, numbers).view(codes.dtype)
    codes = np.concatenate([codes, [inf + 1, inf * 2 - 1, inf + 1 | 1 << (bits - 1)]]).astype(
        codes.dtype
    )
    for start in range(8):
        shifted = np.roll(codes, start)
        ours, wanted = (run(shifted, work, dtype, by=by) for by in ("kernels", "definition"))
        assert np.array_equal(ours, wanted), shifted[ours != wanted]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")
@pytest.mark.parametrize(
    ("processor", "work", "dtype"),
    [
        *(("haswell", "f32", dtype) for dtype in ("s32", "u32")),
        *(("skylake-avx512", "f32", dtype) for dtype in ("s32", "u32")),
        *(("skylake-avx512", "f64", dtype) for dtype in ("s64", "u64")),
    ],
)
def test_no_float_is_rounded_alone(processor: str, work: str, dtype: str) -> None:
    codec = Codec(ir.IRBuilder(), 8)
    kinds = codec.values(work), codec.integers(DATA_TYPES[dtype].bits)
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(kinds[1], kinds[:1]), "encode")
    builder = ir.IRBuilder(function.append_basic_block())
    values = IRValue(builder, function.args[0])
    builder.ret(Codec(builder, 8).encode(values, work, dtype))
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(processor, opt=3)
    assembly = machine.emit_assembly(binding.parse_assembly(str(module)))
    assert "vcvttp" in assembly
    assert "cvtts" not in assembly


@pytest.mark.campaign
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86-64 machines")
@pytest.mark.parametrize("processor", PROCESSORS)
def test_conversions_for_other_processors_are_right_on_this_one(
    processor: str, tmp_path: Path
) -> None:
    program = Path(__file__).with_name("convert_matrix.py")
    ran = run_python(program, **environment_of(processor, tmp_path))
    assert ran.stdout == f"{len(DATA_TYPES) ** 2} pairs\n"
