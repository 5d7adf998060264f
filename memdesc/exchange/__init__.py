"""Layouts in the notations of other systems, written and read.

A file for each system, found by `table.SYSTEMS`. Each writes exactly or refuses with the reason,
and reads what it writes. To add a system, write a file with a `SYSTEM` and put it into the table.
"""

from memdesc.exchange.system import System
from memdesc.exchange.table import SYSTEMS, from_notation, to_notation, written

__all__ = ["SYSTEMS", "System", "from_notation", "to_notation", "written"]
