"""What guarded buffers promise: touching a byte outside them ends the process."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.guarded import POISON, Guarded

_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import ctypes, sys
import numpy as np
from tests.guarded import Guarded
guarded = Guarded(10)
buffer = guarded.buffer(np.arange(10, dtype=np.uint8), at_end=sys.argv[1] == "end")
at = (ctypes.c_uint8 * 1).from_address(buffer.ctypes.data + int(sys.argv[2]))
if sys.argv[3] == "frozen":
    guarded.forbid_writes()
if sys.argv[3] == "read":
    at[0]
else:
    at[0] = 1
print("alive")
"""


@pytest.mark.parametrize(
    ("edge", "offset", "act", "is_free"),
    [
        ("end", 10, "read", False),
        ("end", 10, "write", False),
        ("start", -1, "read", False),
        ("start", -1, "write", False),
        ("end", 3, "frozen", False),
        ("end", 9, "write", True),
        ("start", 0, "write", True),
        ("end", 0, "read", True),
    ],
)
def test_a_byte_beyond_the_edge_ends_the_process_and_no_other(
    edge: str, offset: int, act: str, *, is_free: bool
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, edge, str(offset), act],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    ends = (0, "alive\n") if is_free else (-signal.SIGSEGV, "")
    assert (ran.returncode, ran.stdout) == ends


@pytest.mark.parametrize("at_end", [True, False])
def test_bytes_between_the_buffer_and_the_far_edge_are_watched(at_end: bool) -> None:
    guarded = Guarded(10)
    buffer = guarded.buffer(np.full(10, POISON, np.uint8), at_end=at_end)
    whole = buffer.base
    assert isinstance(whole, np.ndarray)
    assert guarded.is_intact()
    whole[-11 if at_end else 10] ^= 1
    assert not guarded.is_intact()
    guarded.buffer(np.zeros(10, np.uint8), at_end=at_end)
    assert guarded.is_intact()
