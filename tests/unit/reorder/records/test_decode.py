from pathlib import Path

import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from memdesc.record import Codebook, Number, RecordDesc, known_records, record_desc
from tests.programs import run_python
from tests.records import bits_of, by_hand, dequantize_reference, number, random_record

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("name", known_records())
@pytest.mark.parametrize("threads", [1, 2])
def test_every_record_equals_its_definition(name: str, threads: int) -> None:
    record = random_record(record_desc((128, 768), name), RNG)
    expected = dequantize_reference(record)
    found = reorder.dequantize(record, threads=threads)
    assert found.desc == memory_desc((128, 768), "f32")
    assert (bits_of(found.numpy()) == bits_of(expected)).all()


@pytest.mark.parametrize("dims", [(0, 256), (3, 0), (256,), (2, 3, 256), (5, 1, 1, 512)])
def test_any_number_of_dims_is_decoded(dims: tuple[int, ...]) -> None:
    record = random_record(record_desc(dims, "q4_k"), RNG)
    for desc in (None, memory_desc(dims, "f32", "abcd"[: len(dims)][::-1])):
        found = reorder.dequantize(record, dst=desc).numpy()
        assert (bits_of(found) == bits_of(dequantize_reference(record))).all()


def _check(desc: RecordDesc) -> None:
    """Check that random bytes are decoded by the definition."""
    record = random_record(desc, RNG)
    found = reorder.dequantize(record).numpy()
    assert (bits_of(found) == bits_of(dequantize_reference(record))).all()


@pytest.mark.parametrize("kind", ["u4", "s4", "f4_e2m1", "s8", "u8", "s16", "bf16", "e8m0", "f64"])
@pytest.mark.parametrize("columns", [5, 1040])
@pytest.mark.parametrize("tag", ["ab", "ba"])
def test_records_by_hand_are_decoded_by_their_definition(kind: str, columns: int, tag: str) -> None:
    _check(by_hand((6, columns), f"q {kind} {tag}; d f32 /1x{columns}"))


@pytest.mark.parametrize(("kind", "shift"), [("u2", 20), ("u4", 16), ("u4", 17)])
def test_narrow_codes_keep_their_shifts(kind: str, shift: int) -> None:
    # bytes instead of them, shifted by more than 16 bits, would not be exact in f32
    _check(by_hand((5, 9), f"q {kind} ba; d f32", code=Number((("q", shift),))))


@pytest.mark.parametrize("size", [2, 4, 16])
def test_tables_may_hold_numbers_at_the_ends_of_f32(size: int) -> None:
    largest = float(np.finfo(np.float32).max)
    table = (-largest, largest, -0.0, 2.0**-149, *(0.1, -128.0, 1e-40) * 4)[:size]
    code = Number((("q", 0),), table=table)
    _check(by_hand((5, 48), f"q u{size.bit_length() - 1}; d f32 /1x16", code=code))


@pytest.mark.parametrize("dims", [(0, 1 << 56), (1 << 56, 0)])
@pytest.mark.parametrize("name", ["q4_0", "q5_0"])
def test_a_record_without_elements_needs_no_tables_of_its_other_dims(
    dims: tuple[int, ...], name: str
) -> None:
    record = reorder.records.Record(record_desc(dims, name))
    assert reorder.dequantize(record, dtype="f16").desc.dims == dims
    assert record.field("qs").size == 0


def test_groups_larger_than_a_dim_are_the_whole_dim() -> None:
    huge = 1 << 62
    fields = f"q s8; d f32 /{huge}x{huge}; m f32 /7x{huge}"
    desc = by_hand((6, 32), fields, "mine", offset=(number("m"),))
    _check(desc)
    given = {"q": np.ones((6, 32), np.int8), "d": np.full(1, 0.5, "f4"), "m": np.full(1, 2, "f4")}
    packed = reorder.records.repack(reorder.records.Record(desc, given), desc)
    assert (reorder.dequantize(packed).numpy() == 2.5).all()


@pytest.mark.parametrize(
    ("dims", "tag"),
    [
        ((1100, 1024), "(AB)16(ab)"),
        ((1100, 1024), "AB16b16a"),
        ((1100, 1024), "ba"),
        ((1100, 4, 256), "Abc16a"),
        ((2, (1 << 20) + 32), "ba"),
    ],
)
def test_more_elements_than_are_decoded_at_a_time_lie_as_the_layout_says(
    dims: tuple[int, ...], tag: str
) -> None:
    record = random_record(record_desc(dims, "q8_0"), RNG)
    found = reorder.dequantize(record, dst=tag)
    assert (bits_of(found.numpy()) == bits_of(dequantize_reference(record))).all()
    found.check_padding()


# The moment LLVM is looked for, which is what a signal would otherwise interrupt halfway.
_INTERRUPTED = """
import signal, sys, time
import memdesc, reorder

class Interrupted:
    is_over = False

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "llvmlite":
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.1)
            Interrupted.is_over = True
            raise ImportError

sys.meta_path.insert(0, Interrupted)
record = reorder.records.Record(memdesc.record.record_desc((1, 256), "q8_0"))
try:
    reorder.dequantize(record)
except KeyboardInterrupt:
    print(Interrupted.is_over)
"""


def test_an_interrupt_waits_until_llvm_is_loaded(tmp_path: Path) -> None:
    # without kernels of earlier processes, which need no LLVM
    ran = run_python("-c", _INTERRUPTED, NUMBA_CACHE_DIR=str(tmp_path))
    assert ran.stdout == "True\n"


# the vectors of a codebook of 3 bits in the order of lanes, and in others; of 8 bits
BOOKS = [
    (3, Codebook(4, bytes(range(100, 132)), (0, 1, 2, 3)), 4),
    (3, Codebook(4, bytes(range(240, 256)) * 2, (3, 1, 2, 0)), 4),
    (3, Codebook(3, bytes(range(24)), (2, 1)), 2),
    (3, Codebook(2, bytes(range(16)), (0, 1)), 1),
    (3, Codebook(16, bytes(range(128)), tuple(range(16))), 8),
    (8, Codebook(5, bytes(k % 251 for k in range(5 << 8)), (4, 0, 1, 2)), 1),
    (8, Codebook(3, bytes(k % 251 for k in range(3 << 8)), (2, 1)), 2),
]


@pytest.mark.parametrize(("bits", "book", "group"), BOOKS)
@pytest.mark.parametrize("columns", [64, 40])
def test_codebooks_by_hand_are_decoded_by_their_definition(
    bits: int, book: Codebook, group: int, columns: int
) -> None:
    kinds = ["u1"] * bits if bits == 3 else ["s8"]
    fields = [f"q{k} {kind} /1x{group}" for k, kind in enumerate(kinds)]
    parts = tuple((f"q{k}", k) for k in range(len(kinds)))
    point = number("z", 0, (*range(8), *range(-8, 0))) if columns == 64 else None
    code = Number(parts, codebook=book)
    text = "; ".join([*fields, f"d bf16 /1x{columns}", "z u4"])
    _check(by_hand((6, columns), text, code=code, zero=point))
