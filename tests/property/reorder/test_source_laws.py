"""Generated sources of plans against the reorders that they were made of."""

import tempfile
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reorder
from memdesc import MemoryDesc, memory_desc
from memdesc.dtypes import DATA_TYPES
from reorder import Attr
from reorder.plan import ReorderPlan
from tests.attributes import conversions
from tests.compiled import COMPILERS, address, compile_library, run_python
from tests.conversions import every_code, random_codes
from tests.reorders import elements, few_boxes
from tests.strategies import desc_pairs

Case = tuple[MemoryDesc, MemoryDesc, Attr | None]


_MANY = st.lists(conversions(max_nelems=512), min_size=6, max_size=12)
_SEEDS = st.integers(0, 2**31)


def check(cases: list[Case], seed: int, compiler: tuple[str, str], *flags: str) -> None:
    """Compile the sources of plans as one, and compare what each writes with its definition."""
    lang = compiler[1]
    plans = [reorder.plan_reorder(*case) for case in cases]
    sources = [plan.source(lang, f"t{k}") for k, plan in enumerate(plans)]
    if lang == "c++":
        sources += [_export(source, f"t{k}") for k, source in enumerate(sources)]
    with tempfile.TemporaryDirectory() as folder:
        library = compile_library("\n".join(sources), Path(folder), compiler, *flags)
        for k, plan in enumerate(plans):
            name = f"t{k}_reorder" if lang == "c" else f"t{k}"
            src = elements(plan.src, seed + k)
            before = elements(plan.dst, seed + k + 1)
            wanted, moved = before.copy(), before.copy()
            reorder.reference.execute_reference(plan.src, plan.dst, src, wanted, plan.attr)
            arrays = [src, moved, *_parameters(plan)]
            getattr(library, name)(*map(address, arrays))
            assert np.array_equal(moved, wanted), f"{plan}\n{sources[k]}"


def _export(source: str, name: str) -> str:
    """Return a function with the name of C; the arrays are any addresses."""
    parameters = source.rpartition("_reorder(")[2].partition(")")[0].split(", ")
    kinds = [parameter.rpartition(" *")[0] for parameter in parameters]
    arguments = ", ".join(f"static_cast<{kind} *>(p{k})" for k, kind in enumerate(kinds))
    taken = ", ".join(
        f"{'const ' if kind.startswith('const') else ''}void *p{k}" for k, kind in enumerate(kinds)
    )
    return f'extern "C" void {name}({taken}) {{ {name}_reorder({arguments}); }}'


def _parameters(plan: ReorderPlan) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    """Return the arrays that differ along the dims, as the source asks for them."""
    is_wide = 64 in {plan.src.dtype.bits, plan.dst.dtype.bits}
    return [
        operand.values.astype(
            np.int32 if "point" in operand.role else np.float64 if is_wide else np.float32
        )
        for operand in plan.bound_attr.varying
    ]


# options for speed that keep IEEE 754 change nothing
_FAST = ("-O3", "-march=native", "-ffp-contract=fast")


@settings(max_examples=settings().max_examples // 40)
@given(_MANY, _SEEDS)
@pytest.mark.parametrize(
    ("compiler", "flags"),
    [*product(COMPILERS, [("-O1",)]), (("gcc", "c"), _FAST), (("clang", "c++"), _FAST)],
)
def test_a_compiled_plan_writes_the_bits_of_the_reorder(
    compiler: tuple[str, str], flags: tuple[str, ...], cases: list[Case], seed: int
) -> None:
    check(cases, seed, compiler, *flags)


@settings(max_examples=settings().max_examples // 40)
@given(_MANY, _SEEDS)
def test_a_compiled_plan_with_indirect_loops_does_the_same(cases: list[Case], seed: int) -> None:
    with few_boxes():
        check(cases, seed, ("gcc", "c"), "-O1")


@pytest.mark.campaign
@pytest.mark.parametrize("compiler", COMPILERS, ids="-".join)
def test_every_code_of_every_type_becomes_the_bits_of_every_other_type(
    compiler: tuple[str, str], tmp_path: Path
) -> None:
    codes = {
        name: every_code(name) if dtype.bits <= 16 else random_codes(name, 100_000)
        for name, dtype in DATA_TYPES.items()
    }
    plans = {}
    for src, dst in permutations(DATA_TYPES, 2):
        row = memory_desc((codes[src].size,), src, "a")
        plans[src, dst] = reorder.plan_reorder(row, row.with_dtype(dst))
    sources = [plan.source(compiler[1], f"{src}_{dst}") for (src, dst), plan in plans.items()]
    if compiler[1] == "c++":
        names = [f"{src}_{dst}" for src, dst in plans]
        sources += [_export(source, name) for source, name in zip(sources, names, strict=True)]
    library = compile_library("\n".join(sources), tmp_path, compiler, "-O2")
    for (src, dst), plan in plans.items():
        given_ = codes[src]
        if plan.src.dtype.is_packed:
            given_ = given_[0::2] | given_[1::2] << 4
        wanted, moved = (np.zeros(plan.dst.min_nbytes, np.uint8) for _ in range(2))
        reorder.reference.execute_reference(plan.src, plan.dst, given_.view(np.uint8), wanted)
        call = getattr(library, f"{src}_{dst}{'_reorder' if compiler[1] == 'c' else ''}")
        call(address(given_), address(moved))
        assert np.array_equal(moved, wanted), (src, dst)


@settings(max_examples=40)
@given(desc_pairs(max_nelems=384))
def test_a_plan_in_python_moves_the_elements_of_the_reorder(
    pair: tuple[MemoryDesc, MemoryDesc],
) -> None:
    src, dst = pair
    if src.dtype.bits != 8:
        src, dst = src.with_dtype("u8"), dst.with_dtype("u8")
    move = run_python(reorder.plan_reorder(src, dst).source("python", "t"))["t_reorder"]
    given_ = np.random.default_rng(0).integers(0, 256, src.min_nbytes, np.uint8)
    wanted = np.full(dst.min_nbytes, 0xA5, np.uint8)
    moved = wanted.copy()
    reorder.reference.execute_reference(src, dst, given_, wanted)
    move(given_, moved)
    assert np.array_equal(moved, wanted)
