"""What LLVM makes of the micro-kernels for 64-bit ARM: the instructions that the processor has."""

from __future__ import annotations

import pytest

from tests.arm.kernels import KERNELS, assembly

# processors, and whether they round to bf16 by an instruction
_BFLOAT = {"cortex-a76": False, "neoverse-v1": True, "apple-m1": False}
# what each loop must have, and, of the loads and stores, no others
_WANTED = {
    "short row": {"ldp", "stp"},
    "tile of 8-bit elements": {"trn1", "trn2", "zip2", "st2"},
    "tile of 16-bit elements": {"trn1", "trn2", "zip2", "st2"},
    "tile of 32-bit elements": {"trn1", "trn2", "zip1", "zip2"},
    "tile of 64-bit elements": {"zip1", "zip2"},
    "two rows of 16 bits to pairs": {"st2"},
    "four rows of 8 bits to quads": {"st4"},
    "triples of 8 bits to three rows": {"ld3"},
    "f32 to f16": {"fcvtn", "fcvtn2"},
    "f16 to f32": {"fcvtl", "fcvtl2"},
    "bf16 to f32": {"shll", "fminnm"},
    "f32 to s8": {"fcvtns", "sqxtn"},
}
# loads and stores of single elements
_SCALAR = {"ldrb", "ldrh", "ldrsb", "ldrsh", "strb", "strh", "umov", "smov"}


@pytest.mark.parametrize(
    "processor",
    [
        name if has else pytest.param(name, marks=pytest.mark.campaign)
        for name, has in _BFLOAT.items()
    ],
)
def test_loops_have_the_instructions_of_vectors(processor: str) -> None:
    loops = assembly([processor])[processor]
    for kernel in KERNELS:
        names = set(loops[kernel].names)
        assert _WANTED.get(kernel, set()) <= names, kernel
        assert not names & _SCALAR, kernel
    for bits in (8, 16, 32, 64):
        lines = loops[f"tile of {bits}-bit elements"].lines
        spilled = [line for line in lines if "[sp" in line and line.split()[1][0] in "qdv"]
        assert not spilled, f"registers of the tile of {bits}-bit elements are spilled"
    assert ("bfcvtn" in loops["f32 to bf16"].names) == _BFLOAT[processor]
