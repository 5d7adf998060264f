"""Convert a checkpoint in children that are killed at random moments; resume until it is whole.

Arguments: a folder with `model`, how many kills, a seed. Prints how many children were killed, how
many conversions became whole, and how many files were kept.
"""

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import reorder
from tests.unit.reorder.checkpoints.convert.results import contents

_RULES = ("model.layers.*: awq -> gptq", "conv.weight: OIhw16i16o", "lm_head.weight: ba, f32")
# many tasks
_OPTIONS = reorder.checkpoints.ConvertOptions(
    max_bytes=8000, threads=2, resume=True, shard_bytes=30000
)


def convert(folder: Path, name: str) -> int:
    """Convert; return how many files an earlier process had finished."""
    found = reorder.convert(folder / "model", folder / name, map=_RULES, options=_OPTIONS)
    return int(found.resumed)


def forked(folder: Path) -> int:
    """Start a process that converts; return its id."""
    process = os.fork()
    if not process:
        try:
            resumed = convert(folder, "out")
            with (folder / "resumed").open("a") as file:
                file.write(f"{resumed}\n")
            os._exit(0)
        finally:
            os._exit(1)
    return process


def main(folder: Path, kills: int, seed: int) -> None:
    """Kill and resume."""
    chance = random.Random(seed)
    # here, so that the children find all that they need imported and compiled
    for name in ("first", "whole"):
        start = time.monotonic()
        convert(folder, name)
    seconds, wanted = time.monotonic() - start, contents(folder / "whole")
    killed = whole = 0
    while killed < kills or not whole:
        process = forked(folder)
        if killed < kills:
            time.sleep(chance.random() * seconds * 1.1)
            os.kill(process, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        killed += code == -signal.SIGKILL
        if code > 0:
            sys.exit("a conversion failed")
        if (folder / "out").exists():
            if contents(folder / "out") != wanted:
                sys.exit(f"kill {killed}: the output has other bytes")
            whole += 1
            shutil.rmtree(folder / "out")
    resumed = sum(map(int, (folder / "resumed").read_text().split()))
    sys.stdout.write(f"{killed} {whole} {resumed}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
