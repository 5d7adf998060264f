"""Write layouts in the notations of other systems, and read them.

There is a file for each system, listed in `table.SYSTEMS`. A system either writes a layout exactly
or refuses it with the reason, and it reads what it writes. To add a system, write a file with a
`SYSTEM` and add it to the table.
"""

from memdesc.exchange.system import System
from memdesc.exchange.table import SYSTEMS, parse_layout, written

__all__ = ["SYSTEMS", "System", "parse_layout", "written"]
