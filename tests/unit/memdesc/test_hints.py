"""Every hint of memdesc works: the call that fails, its message, the call that follows."""

from pathlib import Path
from typing import Any

import numpy as np

import memdesc
from memdesc.exchange import written as _written
from tests import hints
from tests.hints import ROOT

# not typed: most rows are mistakes that a type checker would find
md: Any = memdesc
written: Any = _written
desc = md.memory_desc

D = desc((2, 3), "f32", "ab")
COMPENSATED = desc((4, 4), "s8", "ab").with_extra(md.Extra(s8s8_mask=1))
FUSED = desc((2, 4), "f32", "(ab)")
SWIZZLED = desc((8, 64), "f16", "Sw<3,3,3> o 0 o (8,64):(64,1)").layout
Q3 = md.record.record_desc((2, 256), "q3_k")
ODD = np.zeros(5, np.dtype([("a", "u1"), ("b", "<f4")]))["b"]
WINDOWS = np.lib.stride_tricks.sliding_window_view(np.zeros(9, np.float32), 3)
IMAGE = md.image_desc((1, 4, 3, 2), "f32", "in_out_channel")

# not hints
_REASONS = (
    "strides E<k> or 1@0",
    "these strides leave gaps",
    "padded to {} make",
    "G g G^T",
    "transformed filters",
    "give a step and some do not",
    "the blocks inside make",
    "several indices would write",
    "{}pass",
)


MODULES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "memdesc").rglob("*.py"))]


def test_every_hint_is_given_and_works() -> None:
    hints.check(Path(__file__).with_name("hints.txt"), globals(), MODULES, _REASONS)
