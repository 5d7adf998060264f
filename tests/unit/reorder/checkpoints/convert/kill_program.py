"""Convert a checkpoint in children that are killed at random moments; resume until it is whole.

Arguments: a folder with `model`, how many kills, a seed. Prints how many children were killed, how
many conversions became whole, and the files that were kept.
"""

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import reorder

_RULES = ("model.layers.*: awq -> gptq", "conv.weight: OIhw16i16o", "lm_head.weight: ba, f32")


def once(folder: Path, target: str) -> int:
    """Convert, with many tasks; return how many files an earlier process had finished."""
    settings = reorder.checkpoints.ConvertOptions(
        max_bytes=8000, threads=2, resume=True, shard_bytes=30000
    )
    found = reorder.convert(folder / "model", folder / target, map=_RULES, options=settings)
    return int(found.resumed)


def forked(folder: Path, target: str) -> int:
    """Start a process that converts; return its id."""
    process = os.fork()
    if process:
        return process
    try:
        resumed = once(folder, target)
        with (folder / "resumed").open("a") as file:
            file.write(f"{resumed}\n")
        os._exit(0)
    finally:
        os._exit(1)


def wait(process: int) -> None:
    """Wait for a process that nobody kills."""
    if os.waitpid(process, 0)[1]:
        sys.exit("a conversion that nobody killed failed")


def is_same(folder: Path) -> bool:
    """Whether the output equals the one that nobody interrupted."""
    names = sorted(path.name for path in (folder / "whole").iterdir())
    found = sorted(path.name for path in (folder / "out").iterdir())
    return names == found and all(
        (folder / "whole" / name).read_bytes() == (folder / "out" / name).read_bytes()
        for name in names
    )


def main(folder: Path, kills: int, seed: int) -> None:
    """Kill and resume."""
    chance = random.Random(seed)
    # here, so that the children find all that they need imported and compiled
    once(folder, "first")
    start = time.monotonic()
    wait(forked(folder, "whole"))
    seconds = time.monotonic() - start
    killed = whole = 0
    while killed < kills or not whole:
        process = forked(folder, "out")
        if killed < kills:
            time.sleep(chance.random() * seconds * 1.1)
            os.kill(process, signal.SIGKILL)
            killed += os.WIFSIGNALED(os.waitpid(process, 0)[1])
        else:
            wait(process)
        if (folder / "out").exists():
            if not is_same(folder):
                sys.exit(f"kill {killed}: the output has other bytes")
            whole += 1
            shutil.rmtree(folder / "out")
    resumed = sum(map(int, (folder / "resumed").read_text().split()))
    sys.stdout.write(f"{killed} {whole} {resumed}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
