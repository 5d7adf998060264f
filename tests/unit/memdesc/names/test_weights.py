import numpy as np
import pytest

from memdesc import MemoryDesc, memory_desc
from memdesc.names import resolve
from memdesc.names.weights import EXPERTS
from memdesc.names.weights import VOCABULARY as WEIGHTS
from tests.packings import FORMULAS

DTYPES = {4: "u4", 8: "u8", 16: "f16", 32: "f32", 0: "s8"}
# sizes of dims that are not blocks
SIZES = {"t": 2, "n": 2, "h": 3, "w": 5, "g": 3, "e": 3}
CASES = [(name, bits) for name, row in WEIGHTS.rows.items() for bits in row.tags]


def described(name: str, bits: int, *, uneven: bool) -> MemoryDesc:
    """Describe two or three blocks of each dim; with uneven sizes where they are padded."""
    row = WEIGHTS.rows[name]
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
    names = {name, *(alias for alias, meant in WEIGHTS.aliases.items() if meant == name)}
    domains = {each.text: each.domain for each in desc.names() if each.text in names}
    assert domains == dict.fromkeys(names, WEIGHTS.rows[name].domain)
    for each in names:
        assert memory_desc(desc.dims, desc.dtype, each).letters == WEIGHTS.rows[name].letters
