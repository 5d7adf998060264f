"""What commands say on stderr, whether or not they had to compile kernels for long."""

from __future__ import annotations

from reorder.cli.progress import NOTICE

__all__ = ["without_notice"]


def without_notice(said: str) -> str:
    """Return what was said on stderr, but for the line that kernels are compiled."""
    return said.replace(NOTICE, "")
