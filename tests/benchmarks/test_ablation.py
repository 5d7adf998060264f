"""Each mechanism names what the engine has: a variant of it can be made, and runs."""

from importlib import import_module
from operator import attrgetter

import numpy as np
import pytest

import reorder.cpu.runtime.jit
from memdesc import memory_desc
from reorder import Attr, plan_reorder
from tests.benchmarks.ablation import MECHANISMS, Variant


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_a_mechanism_replaces_exists(name: str) -> None:
    """Law: each place is a name in a module."""
    for place in MECHANISMS[name].replaced:
        module, _, path = place.partition(":")
        assert attrgetter(path)(import_module(f"reorder.cpu.{module}")) is not None


def test_a_variant_leaves_the_code_of_others_alone() -> None:
    """Law: only a variant is compiled under its name, and no import finds its modules."""
    jit = import_module("reorder.cpu.runtime.jit")
    compiles = jit.compiled_interpreter
    Variant("prefetch of rows")
    assert jit.compiled_interpreter is compiles
    assert reorder.cpu.runtime.jit is jit


# each variant compiles its own kernels
@pytest.mark.campaign
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_reorder_without_a_mechanism_is_the_same(name: str) -> None:
    """Law: every variant writes what the definition says."""
    src = memory_desc((1, 3, 16, 16), "u8", "nhwc")
    dst = memory_desc((1, 3, 16, 16), "f32", "nchw")
    scale = np.array([0.5, 2, 4], np.float32)
    plan = plan_reorder(src, dst, Attr(src_scale=scale, src_scale_mask=2))
    variant = Variant(name)
    run, schedule = variant.prepare(plan, 1)
    variant.compile(run)
    x = np.arange(3 * 256, dtype=np.uint8)
    y = np.empty(3 * 256, np.float32)
    run(x, y)
    expected = x.reshape(256, 3).T * scale[:, None]
    assert schedule
    np.testing.assert_array_equal(y.reshape(3, 256), expected)
