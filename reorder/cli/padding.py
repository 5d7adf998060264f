"""What is wrong with the padding of a tensor, as facts of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc import MemdescError
from reorder.memory.padding import find_nonzero

if TYPE_CHECKING:
    import argparse

    from reorder.cli.facts import Facts
    from reorder.memory.memory import Memory

__all__ = ["add_limit", "padding_facts"]


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add the flag for how many places are listed."""
    parser.add_argument(
        "--limit",
        type=int,
        default=10,
        metavar="N",
        help="how many places in the padding that are not zero are listed (default 10)",
    )


def padding_facts(memory: Memory, limit: int, key: str) -> Facts:
    """Return how much padding there is, whether it is zero (as `key`), and where it is not."""
    if limit < 0:
        msg = f"--limit {limit}: give how many places to list, 0 or more"
        raise MemdescError(msg)
    desc = memory.desc
    count, places = find_nonzero(memory.data, desc, limit)
    facts: Facts = {"padding_elements": desc.padded_nelems - desc.nelems, key: not count}
    if count:
        facts |= {
            "not_zero": count,
            "places": [
                {"index": place.at, "byte": place.byte, "bits": f"{place.bits:#x}"}
                for place in places
            ],
        }
    return facts
