"""Laws of comparisons of values."""

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reorder import compare_values, reorder
from tests.strategies import dims, tag_descs


@given(st.data())
def test_nothing_differs_between_a_tensor_and_its_reorder(data: st.DataObject) -> None:
    sizes = data.draw(dims(max_nelems=64, zero=False))
    x = np.random.default_rng(0).standard_normal(sizes, np.float32)
    memory = reorder(x, data.draw(tag_descs(sizes, "f32", 256)))
    found = compare_values(memory, x)
    assert found.is_equal
    assert (found.padding, found.padding_differs) == ((0, 0), False)
    # one element that is changed is the only one that differs
    at = tuple(map(int, np.unravel_index(data.draw(st.integers(0, prod(sizes) - 1)), sizes)))
    x[at] += 1
    found = compare_values(memory, x)
    assert (found.differing, [each.at for each in found.first]) == (1, [at])
    assert found.worst is not None
    stored = memory.elements[found.worst.offset_a].view(np.float32)
    assert (float(stored), found.worst.byte_a) == (found.worst.a, 4 * found.worst.offset_a)
    assert all(counts.sum() == 1 for counts in found.by_dim)
