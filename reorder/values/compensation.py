"""The sums of int8 weights that a reorder stores after them: their layout and their factors."""

from functools import lru_cache
from math import prod
from types import MappingProxyType

from memdesc import Block, Layout
from memdesc.layout import single_axes, without_gaps

# What the sums of weights are multiplied by.
FACTORS = MappingProxyType({"s8s8": -128, "asymmetric": -1})


@lru_cache(maxsize=1024)
def compensation_layout(layout: Layout, mask: int) -> Layout:
    """Return the layout of the sums of a compensation: that of the weights, reduced to some dims.

    The blocks of these dims keep their order in memory and have no gaps: the sums of `Abcde16a`
    with mask 3 are stored as [A/16][b][16a]. Views that end inside a block have row-major sums.
    Source: libdnnl 3.13, reorders with compensation.

    The weights have no fused dims, and bit d of the mask stands for dim d. The result is over the
    padded dims of the mask, in elements of int32.
    """
    kept = [dim for dim in range(layout.ndims) if mask >> dim & 1]
    sizes = tuple(layout.padded_dims()[dim] for dim in kept)
    blocks = tuple(
        block._replace(axis=kept.index(block.axis)) for block in layout.blocks if block.axis in kept
    )
    if layout.has_partial_blocks:
        blocks = tuple(Block(k, 1, size, prod(sizes[k + 1 :])) for k, size in enumerate(sizes))
    return Layout.computed(sizes, single_axes(sizes), without_gaps(blocks))
