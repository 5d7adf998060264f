from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import reorder
from memdesc import memory_desc
from memdesc.names import Name
from tests.named import NAMES, uneven_desc


@settings(max_examples=12)
@given(st.sampled_from(NAMES), st.randoms(use_true_random=False))
def test_the_layout_of_a_known_name_is_among_those_that_its_bytes_have(
    name: Name, random: Random
) -> None:
    desc = uneven_desc(name.text, random)
    if desc is None or desc.nelems > 10**5:
        return
    bits = np.random.default_rng(random.randrange(99)).bytes(desc.dtype.nbytes(desc.nelems))
    plain = reorder.Memory(memory_desc(desc.dims, desc.dtype), bits)
    found = reorder.identify(reorder.reorder(plain, desc), plain, dtype=desc.dtype)
    exact = [each for each in found.candidates if each.order == tuple(sorted(each.order))]
    assert name in {one for each in exact for one in each.names}
    assert all(each.agreement == 1 and each.is_padding_zero for each in exact)
