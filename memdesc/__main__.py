"""`python -m memdesc` is the command `memdesc`, which moves data: this package never imports it."""

from __future__ import annotations

import sys
from importlib import import_module

if __name__ == "__main__":
    sys.exit(import_module("reorder.cli").main())
