"""What commands say on stderr, however long they took to compile and to run."""

import re

from reorder.cli.progress import NOTICE


def without_notice(said: str) -> str:
    """Return what was said on stderr, but for lines about compilation and progress."""
    return re.sub(r"memdesc: [0-9]+% [^\n]*\n", "", said.replace(NOTICE, ""))
