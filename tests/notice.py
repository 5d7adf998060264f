"""What commands say on stderr, however long they took to run."""

import re


def without_notice(said: str) -> str:
    """Return what was said on stderr, but for lines about progress."""
    return re.sub(r"memdesc: [0-9]+% [^\n]*\n", "", said)
