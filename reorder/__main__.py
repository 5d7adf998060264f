"""`python -m reorder` is the command `memdesc`."""

import sys

from reorder.cli.main import main

sys.exit(main())
