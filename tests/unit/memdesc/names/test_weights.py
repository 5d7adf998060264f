import numpy as np
import pytest

from memdesc import Axis, Block, Layout, MemoryDesc, memory_desc
from memdesc.names import resolve
from memdesc.names.weights import ALIASES, EXPERTS, PACKINGS
from tests.packings import FORMULAS

DTYPES = {4: "u4", 8: "u8", 16: "f16", 32: "f32", 0: "s8"}
# sizes of dims that are not blocks
SIZES = {"t": 2, "n": 2, "h": 3, "w": 5, "g": 3, "e": 3}
CASES = [(name, bits) for name, row in PACKINGS.items() for bits in row.tags]


def described(name: str, bits: int, *, uneven: bool) -> MemoryDesc:
    """Describe two or three blocks of each dim; with uneven sizes where they are padded."""
    row = PACKINGS[name]
    blocks = resolve(name, (), bits or 8).block_sizes
    dims = [
        SIZES.get(letter, 3) if block == 1 else (2 + k % 2) * block
        for k, (letter, block) in enumerate(zip(row.letters, blocks, strict=True))
    ]
    if uneven:
        dims = [
            size if letter in {*row.whole, "t"} else size - 1
            for letter, size in zip(row.letters, dims, strict=True)
        ]
    return memory_desc(dims, DTYPES[bits], name)


@pytest.mark.parametrize(("name", "bits"), CASES)
def test_a_packing_is_its_published_formula_and_found_again_under_all_its_names(
    name: str, bits: int
) -> None:
    for desc in (described(name, bits, uneven=True), described(name, bits, uneven=False)):
        q = np.random.default_rng(0).integers(0, 2 ** min(bits or 8, 8), desc.dims, np.uint8)
        pack = FORMULAS[name.removesuffix(EXPERTS), bits]
        matrices = q if name.endswith(EXPERTS) else [q]
        found = np.zeros(desc.padded_nelems, q.dtype)
        found[desc.layout.offsets()] = q
        assert np.array_equal(found, np.concatenate([pack(each) for each in matrices]))
    names = {name, *(alias for alias, meant in ALIASES.items() if meant == name)}
    domains = {each.text: each.domain for each in desc.names() if each.text in names}
    assert domains == dict.fromkeys(names, PACKINGS[name].domain)
    for each in names:
        assert memory_desc(desc.dims, desc.dtype, each).letters == PACKINGS[name].letters


def test_dims_that_are_padded_need_not_be_whole_blocks() -> None:
    assert memory_desc((33, 5), "e8m0", "nvfp4_scales").padded_dims == (128, 8)
    assert memory_desc((33, 5), "e8m0", "aiter_scales").padded_dims == (256, 8)
    assert memory_desc((0, 5), "e8m0", "nvfp4_scales").nbytes == 0


def test_weights_of_xnnpack_are_the_strides_that_the_refusal_gives() -> None:
    n, k, nr = 12, 5, 4
    desc = memory_desc(
        (n, k), "f32", strides=((k + 1) * nr, nr), inner_blks=(nr,), inner_idxs=(0,), offset0=nr
    )
    w, bias = np.arange(n * k).reshape(n, k), -1 - np.arange(n)
    panels = [np.concatenate([bias[i : i + nr], w[i : i + nr].T.ravel()]) for i in range(0, n, nr)]
    found = np.concatenate(panels)
    assert np.array_equal(found[desc.layout.offsets()], w)


def test_weights_of_kleidiai_are_a_layout_whose_outermost_block_skips_the_sums() -> None:
    """Check rhs_pack_nxk_qsi4cxp_qs4cxs1s0 for panels of nr channels, kr = 16, sr = 2."""
    n, k, nr = 8, 64, 4
    panel = nr * k + 3 * 8 * nr  # 4-bit elements; sums, scales and biases of 32 bits
    blocks = (
        Block(0, nr, n // nr, panel),
        Block(0, 1, nr, 16),
        Block(1, 32, k // 32, 32 * nr),
        Block(1, 16, 2, 1),
        Block(1, 8, 2, 16 * nr),
        Block(1, 1, 8, 2),
    )
    layout = Layout((n, k), (Axis((0,), n), Axis((1,), k)), blocks)
    w = np.arange(n * k).reshape(n, k)
    found = np.full(n // nr * panel, -1)
    for byte in range(n * k // 2):
        at, place = divmod(byte, nr * k // 2)
        block, in_block = divmod(place, 8)
        run = block // nr * 8 + in_block
        first = run + run // 16 * 16
        row = at * nr + block % nr
        found[at * panel + 2 * place : at * panel + 2 * place + 2] = w[row, [first, first + 16]]
    assert np.array_equal(found[layout.offsets()], w)


def test_a_packing_is_drawn_with_the_letters_of_its_dims() -> None:
    shown = memory_desc((2, 8), "u4", "awq").show().text
    assert "logical: rows i, columns o" in shown
    assert "0,0 0,2 0,4 0,6 0,1 0,3 0,5 0,7" in shown
