"""The pictures of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pages import drawing
from sphinx.util.docutils import SphinxDirective

import memdesc

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx


class RecordPicture(SphinxDirective):
    """`{record} q4_0 1x64`: the picture of a record."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Draw it."""
        name, sizes = self.arguments
        return drawing(memdesc.record.record_desc(tuple(map(int, sizes.split("x"))), name).show())


def setup(app: Sphinx) -> dict[str, object]:
    """Tell Sphinx."""
    app.add_directive("record", RecordPicture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
