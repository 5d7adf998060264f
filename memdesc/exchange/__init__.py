"""Layouts in the notations of other systems, written and read.

A file for each system, found by `table.SYSTEMS`. Each writes exactly or refuses with the reason,
and reads what it writes. To add a system, write a file with a `SYSTEM` and put it into the table.
"""

from typing import TYPE_CHECKING

from memdesc.lazy import lazy_attributes

if TYPE_CHECKING:
    from memdesc.exchange.system import System
    from memdesc.exchange.table import SYSTEMS, from_notation, to_notation, written
else:
    # some modules are used alone
    __getattr__ = lazy_attributes(
        globals(),
        {
            "SYSTEMS": "memdesc.exchange.table",
            "System": "memdesc.exchange.system",
            "from_notation": "memdesc.exchange.table",
            "to_notation": "memdesc.exchange.table",
            "written": "memdesc.exchange.table",
        },
    )

__all__ = ["SYSTEMS", "System", "from_notation", "to_notation", "written"]
