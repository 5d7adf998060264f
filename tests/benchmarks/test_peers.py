"""Other libraries as peers, with a library of three loops in place of HPTT."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memdesc import MemdescError
from reorder.bench.measure import measure
from tests.benchmarks.cases import parse_cases
from tests.benchmarks.libraries import (
    dense_permutation,
    hptt_peer,
    mkl_library,
    mkl_peer,
    onednn_peer,
    onnxruntime_peer,
    open_library,
)
from tests.benchmarks.peers import main
from tests.compiled import compile_library
from tests.differential.libdnnl import find_libraries

pytestmark = pytest.mark.peers

# HPTT's C++ functions, as C sees them, for tensors in row-major order and default plans. WRONG
# leaves the last element out.
_SOURCE = """
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#define TRANSPOSE(CREATE, EXECUTE, T) \\
typedef struct { \\
    const int *perm; int dim; T alpha, beta; const T *a; const int *size; T *b; \\
} T##s; \\
void *CREATE(void **made, const int *perm, int dim, T alpha, const T *a, const int *size, \\
             const int *outer_a, T beta, T *b, const int *outer_b, int method, int threads, \\
             const int *ids, bool row_major); \\
void *CREATE(void **made, const int *perm, int dim, T alpha, const T *a, const int *size, \\
             const int *outer_a, T beta, T *b, const int *outer_b, int method, int threads, \\
             const int *ids, bool row_major) { \\
    T##s *plan = malloc(sizeof(T##s)); \\
    (void)threads; \\
    if (outer_a || outer_b || method || ids || !row_major) abort(); \\
    *plan = (T##s){perm, dim, alpha, beta, a, size, b}; \\
    made[0] = plan; \\
    return made; \\
} \\
void EXECUTE(T##s *plan); \\
void EXECUTE(T##s *plan) { \\
    const int *perm = plan->perm, *size = plan->size; \\
    size_t strides[8], count = 1; \\
    for (int k = plan->dim - 1; k >= 0; k--) { strides[k] = count; count *= (size_t)size[k]; } \\
    for (size_t i = 0; i < count - WRONG; i++) { \\
        size_t rest = i, from = 0; \\
        for (int k = plan->dim - 1; k >= 0; k--) { \\
            size_t extent = (size_t)size[perm[k]]; \\
            from += rest % extent * strides[perm[k]]; \\
            rest /= extent; \\
        } \\
        T old = plan->beta != 0 ? plan->beta * plan->b[i] : 0; \\
        plan->b[i] = plan->alpha * plan->a[from] + old; \\
    } \\
}
TRANSPOSE(_ZN4hptt11create_planEPKiifPKfS1_S1_fPfS1_NS_15SelectionMethodEiS1_b,
          _ZN4hptt9TransposeIfE7executeEv, float)
TRANSPOSE(_ZN4hptt11create_planEPKiidPKdS1_S1_dPdS1_NS_15SelectionMethodEiS1_b,
          _ZN4hptt9TransposeIdE7executeEv, double)
"""


def _library(folder: Path, wrong: int) -> str:
    compile_library(_SOURCE, folder, ("gcc", "c"), f"-DWRONG={wrong}")
    (path,) = folder.glob("*.so")
    return str(path)


@pytest.mark.parametrize(
    ("words", "extents", "order"),
    [
        ("--stag=abc --dtag=cab 3x4x5", (3, 4, 5), (2, 0, 1)),
        ("--stag=acb --dtag=bac 3x4x5", (3, 5, 4), (2, 0, 1)),
        ("--stag=abcd --dtag=acdb 2x1x3x4", (1, 2, 3, 4), (0, 1, 2, 3)),
    ],
)
def test_a_permutation_is_that_of_the_dims_in_memory(
    words: str, extents: tuple[int, ...], order: tuple[int, ...]
) -> None:
    (case,) = parse_cases(words.split())
    assert dense_permutation(case) == (extents, order)


@pytest.mark.parametrize(
    "words",
    [
        "--stag=abcd --dtag=aBcd8b 2x8x3x4",
        "--sdt=f32 --ddt=s8 3x4",
        "--strides=9x1 --dtag=ab 3x4",
        "--sdt=s4 --stag=ab --dtag=ba 4x4",
        "--scale=2 3x4",
    ],
)
def test_blocks_gaps_and_conversions_are_not_permutations(words: str) -> None:
    (case,) = parse_cases(words.split())
    assert dense_permutation(case) is None


def test_a_library_is_timed_if_it_moves_what_we_move(tmp_path: Path) -> None:
    for wrong in (0, 1):
        folder = tmp_path / str(wrong)
        folder.mkdir()
        path = _library(folder, wrong)
        for case in parse_cases(["--stag=abc", "--dtag=cab", "--sdt=f32,f64,s8", "3x4x5"]):
            result = measure(case, 1, [partial(hptt_peer, path=path)], 0.001)
            has_function = case.src.dtype.bits in {32, 64}
            assert list(result.peers) == ["source0"] * (has_function and not wrong)
            assert result.differs == ["source0"] * (has_function and wrong)


def _facts(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--threads=1", "--seconds=0.001", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_measures_what_bench_measures_and_a_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _library(tmp_path, 0)
    words = ["--stag=abc", "--dtag=cab", "30x40x50", f"--peer-library={path}"]
    facts = _facts(capsys, *words, "--peers=numpy,source0")
    (case,) = facts["cases"]
    assert set(case["peers"]) == {"numpy", "source0"}
    assert [row["beside"] for row in facts["summary"]] == ["memcpy", "numpy", "source0"]
    assert {kernel["threads"] for kernel in facts["kernels"]} == {1}
    few = ["--threads=1", "--seconds=0.001", "--in-process"]
    assert main([*words, "--peers=source0", *few]) == 0
    assert "memcpy  source0  kernels" in capsys.readouterr().out


def test_random_cases_are_reported_with_the_slowest_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = ["--random=2", "--seed=55", "--classes=permutation", "--peers=", "--in-process"]
    facts = _facts(capsys, *few)
    assert len(facts["cases"]) == 2
    assert {row["beside"] for row in facts["slowest"]} == {"memcpy"}
    row = facts["summary"][0]
    assert row["least"] <= row["p5"] <= row["p25"] <= row["p50"] <= row["p75"] <= row["p95"]
    assert main([*few, "--threads=1", "--seconds=0.001"]) == 0
    assert "slowest cases, beside memcpy" in capsys.readouterr().out


def test_each_onednn_has_a_process_and_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    if not (versions := find_libraries()):
        pytest.skip("no libdnnl: pip install onednn-cpu-gomp")
    names = [f"onednn {version}" for version in versions]
    words = ["--stag=abcd", "--dtag=aBcd16b", "2x32x4x4", f"--peers={','.join(names)}"]
    (case,) = _facts(capsys, *words)["cases"]
    # whether it generates code depends on the processor
    assert {peer.rpartition(" ")[0] for peer in case["peers"]} == set(names)
    assert case["differs"] == []


@pytest.mark.parametrize(
    "words",
    [
        "--sdt=f32,s8 --stag=abx,axb --dtag=aBx16b,axb,ABx4b16a4b 5x17x3x4 1x3x2x7",
        "--sdt=f32 --ddt=s8 --scale=mask:2 --zero-point=3 --beta=0.5 4x8",
        "--sdt=f32 --strides=16x1: 4x8",
    ],
)
def test_onednn_writes_the_bits_that_we_write(words: str) -> None:
    seen = set()
    for version in find_libraries():
        for case in parse_cases(words.split()):
            result = measure(case, 1, [partial(onednn_peer, version=version)], 0.001)
            assert result.differs == []
            seen |= set(result.peers)
    assert seen or not find_libraries()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["4xq"], "neither an option nor dims"),
        (["4x6", "--threads=two"], "'two' is not a number"),
        (["4x6", "--peers=ipp"], "no peer 'ipp'"),
    ],
)
def test_what_is_no_case_or_option_is_refused(
    words: list[str], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--seconds=0.001"]) == 2
    assert says in capfd.readouterr().err


def test_a_file_that_is_not_such_a_library_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "empty.so"
    file.touch()
    with pytest.raises(MemdescError, match="is not a library with HPTT's hptt::create_plan"):
        open_library(str(file))
    assert main(["4x6", f"--peer-library={file}"]) == 2
    assert "is not a library" in capsys.readouterr().err


@pytest.mark.peers
def test_onnxruntime_and_mkl_write_the_same_bits() -> None:
    words = "--sdt=f32,s8,f64 --stag=abc --dtag=cab,bac 3x40x50 --reset --stag=ab --dtag=ba 70x90"
    results = [
        measure(case, 1, [onnxruntime_peer, mkl_peer], 0.001) for case in parse_cases(words.split())
    ]
    assert all(result.differs == [] for result in results)
    assert all("onnxruntime" in result.peers for result in results)
    assert ("mkl" in results[-1].peers) == (mkl_library() is not None)
