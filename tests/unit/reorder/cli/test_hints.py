"""Every hint of the commands works: a command that fails, its message, commands that follow."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from shutil import copy
from typing import TYPE_CHECKING

import numpy as np
import pytest

from reorder import reorder, save
from reorder.cli import main
from tests import hints
from tests.hints import ROOT

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell

DUMP = "conv__f32__1_4_3_2__bfyx.bin"

# after the command that fails, those that follow the hint; none where these need a device or stdin
ROWS = hints.rows("""
    give dims, such as 8x256x56x56
        bench
        bench 2x3 --seconds 0.001
    give at most 2 sizes above 0
        bench 4x6 --scale=mask:3:1x1x2
        bench 4x6 --scale=mask:3:1x2 --seconds 0.001
    give megabytes above 0, such as 16
        bench --device cl --size 0
    so leave out DIMS
        bench --device cl 2x3
    the cores of this process
        bench 2x3 --threads 99
        bench 2x3 --threads 1 --seconds 0.001
    give a time above 0, such as 0.1
        bench 2x3 --seconds 0
        bench 2x3 --seconds 0.1
    give how many, 0 or more
        compare x.npy x.npy --limit -1
        compare x.npy x.npy --limit 1
    give the types of their tensors
        compare two.npz two.npz --dtype f32
        compare two.npz two.npz
    add that, or leave --beside out
        explain nchw 1x4x3x2 --to nhwc --beside
        explain nchw 1x4x3x2 --to nhwc --beside --svg a.svg
        explain nchw 1x4x3x2 --to nhwc
    see memdesc explain --help
        explain nchw 1x4x3x2
        explain --help
    name one as FILE:NAME, or leave them out
        identify two.npz --like two.npz --dims 2x3
        identify two.npz:a --dims 2x3
        identify two.npz --like two.npz
    give --like, a tensor of the same values, or --dims
        identify x.bin
        identify x.bin --like x.npy
        identify x.bin --dims 1x4x3x2 --dtype f32
    use - and stdin
        log pipe
    run the program with ONEDNN_VERBOSE=1
        log cases.txt
        log torch.log
    ; see memdesc --help
        shw
        --help
    did you mean 'show'
        shw
        show nchw 1x4x3x2
    did you mean '--dtype'
        show nchw 1x4x3x2 --dtp f16
        show nchw 1x4x3x2 --dtype f16
    leave it out
        names nhwc 1x2x3x4 --ndims 4
        names nhwc 1x2x3x4
    leave out --threads or --device
        reorder x.npy out.npy --to nhwc --device cl --threads 1
        reorder x.npy out.npy --to nhwc --threads 1
    leave --dtype out
        show q4_0 2x32 --dtype f32
        show q4_0 2x32
    give dims
        show q4_0
        show q4_0 2x32
    add --to, or leave --to-dtype out
        source nchw 1x4x3x2 --to-dtype f16
        source nchw 1x4x3x2 --to nchw --to-dtype f16
        source nchw 1x4x3x2
    give --from with a layout, --dims and --dtype
        reorder x.bin out.npy --to nhwc
        reorder x.bin out.npy --to nhwc --from nchw --dtype f32 --dims 1x4x3x2
        reorder conv__f32__1_4_3_2__bfyx.bin out.npy --to nhwc
    pass --offset 48
        reorder x.bin out.npy --to nhwc --from nchw --dtype f32 --dims 1x4x3x1
        reorder x.bin out.npy --to nhwc --from nchw --dtype f32 --dims 1x4x3x1 --offset 48
        reorder x.bin out.npy --to nhwc --from nchw --dtype f32 --dims 1x4x3x1 --ignore-rest
    leave that out, or rename the file
        reorder conv__f32__1_4_3_2__bfyx.bin out.npy --to nhwc --dtype f16
        reorder conv__f32__1_4_3_2__bfyx.bin out.npy --to nhwc
        reorder conv__f16__1_4_3_4__bfyx.bin out.npy --to nhwc --dtype f16
    leave that out
        reorder conv__f32__1_4_3_2__bfyx.bin out.npy --to nchw --from nhwc
            --dims 1x4x3x2 --dtype f32
        reorder conv__f32__1_4_3_2__bfyx.bin out.npy --to nchw --dims 1x4x3x2 --dtype f32
    leave --from out
        reorder blocked.npz out.npy --from nhwc --to plain
        reorder blocked.npz out.npy --to plain
    leave --dims out
        reorder blocked.npz out.npy --dims 1x2x3x4 --to plain
        reorder blocked.npz out.npy --to plain
    use --byte
        show nchw 1x4x3x2 --pixel 0,0
        show nchw 1x4x3x2 --byte 0
""")
# what help and tables say, and a note, which `names` gives below
_REASONS = (
    "code that copies row by row",
    "as in 2x17x5x4, to see strides and bytes",
    "of the copy",
    "copy of pages",
    "instead of --from, or of both",
    "how many threads to use",
    "workers of a Dask cluster",
    "before their first use",
    "Explain how two layouts differ",
    "draw both memories side by side",
    "passed over",
    "these strides leave gaps",
    "print the reorder from LAYOUT",
    "to see strides and bytes",
    "so they share few sets of a cache",
    "; give ",
)
MODULES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("bench", "cli")
    for path in sorted((ROOT / "reorder" / folder).glob("*.py"))
]


@pytest.fixture(autouse=True)
def files(shell: Shell) -> None:
    del shell  # it enters the folder
    x = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)
    np.save("x.npy", x)
    for name in ("x.bin", DUMP):
        x.tofile(name)
    np.zeros(48, np.float16).tofile("conv__f16__1_4_3_4__bfyx.bin")
    np.savez("two.npz", a=np.ones((2, 3), np.float32), b=np.ones(2, np.float32))
    save("blocked.npz", reorder(x, "nChw4c"))
    Path("cases.txt").write_text("2x3\n", "utf-8")
    copy(ROOT / "tests/data/verbose/torch-2.13.log", "torch.log")
    os.mkfifo("pipe")


def _code(command: str) -> int:
    """Return the exit code of a command: 2 if it was refused, 1 if the answer is no."""
    try:
        return main(shlex.split(command))
    except SystemExit as end:  # of --help
        return int(end.code or 0)


def test_every_hint_is_given_and_works(shell: Shell) -> None:
    messages = []
    for row in ROWS:
        messages.append(shell.refusal(row.fails))
        assert row.hint in messages[-1], row.fails
        for command in row.works:
            assert _code(command) < 2, command
    assert hints.without_row(MODULES, messages, _REASONS) == []


def test_the_layout_of_a_tag_is_seen_with_sizes(shell: Shell) -> None:
    assert "give their sizes" in shell.lines("names ABcd7b3a", 1)[0]
    assert "give 4 sizes, as in 2x17x5x4, to see strides" in shell.lines("show ABcd7b3a")[-1]
    assert "inner blks        7 3" in (shell.lines("show ABcd7b3a 1x4x3x2"))
