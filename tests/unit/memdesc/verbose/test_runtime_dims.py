"""Verbose descriptors whose dims are known at run time, as libdnnl 3.13 prints them."""

import numpy as np
import pytest

from memdesc import RUNTIME, RuntimeDesc, runtime_desc
from memdesc.verbose import from_verbose, to_verbose

_R = RUNTIME


@pytest.mark.parametrize(
    ("dims", "tag", "text"),
    [
        ((_R, 20, 4), "abc", "f32::blocked:abc::f0"),
        ((_R, 20, 4), "aBc8b", "f32:p:blocked:aBc8b::f0"),
        ((_R, 20, 4), "Abc8a", "f32::blocked:Abc8a::f0"),
        ((2, 3, 4), "abc", "f32::blocked:abc::f0"),
        ((2, _R, 4), "abc", "f32::blocked:*::f0"),
        ((_R, 3, 4), "cba", "f32::blocked:*::f0"),
        ((2, _R, 4), "aBc8b", "f32::blocked:*::f0"),
        ((2, 20, _R), "aBc8b", "f32:p:blocked:*::f0"),
    ],
)
def test_runtime_dims_print_as_onednn_prints_them(
    dims: tuple[int, ...], tag: str, text: str
) -> None:
    desc = runtime_desc(dims, "f32", tag)
    assert to_verbose(desc) == text
    # the string says nothing of the order where it has a *
    known = "*" if "*" in text else tag
    wanted = runtime_desc(dims, "f32", known) if "*" in text or _R in dims else desc.resolve(dims)
    shown = "x".join("*" if size == _R else str(size) for size in dims)
    assert from_verbose(text, dims) == from_verbose(f"src:{text}", shown) == wanted
    assert from_verbose(text, np.array(dims)) == wanted


def test_a_tag_of_runtime_dims_has_the_runtime_dim_outermost() -> None:
    # dims of one block have the stride of the runtime dim, and are printed in front of it
    desc = runtime_desc((1, 2, _R), "f32", "cab")
    assert to_verbose(desc) == "f32::blocked:acb::f0"
    assert from_verbose(to_verbose(desc), desc.dims) == desc
    # oneDNN prints no such string, as the stride of a is not known
    desc = runtime_desc((3, 2, _R), "f32", "acb")
    assert to_verbose(desc) == "f32::blocked:*::f0"
    assert from_verbose("f32::blocked:acb::f0", desc.dims) == desc


def test_an_order_that_is_known_only_at_execution_is_a_star() -> None:
    desc = from_verbose("f32::blocked:*::f0", "2x*x4")
    assert isinstance(desc, RuntimeDesc)
    assert (desc.tag, desc.dims, desc.ndims, desc.nbytes) == (None, (2, _R, 4), 3, None)
    assert desc.strides == desc.padded_dims == (_R, _R, _R)
    assert repr(desc) == "runtime_desc((2, memdesc.RUNTIME, 4), 'f32', '*')"
    assert desc == runtime_desc((2, _R, 4), "f32", "*")
    assert to_verbose(desc) == "f32::blocked:*::f0"
