"""The table and the pictures of records, made from their formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pages import drawing, table
from sphinx.util.docutils import SphinxDirective

import memdesc
from memdesc.record.names import unjudged_by

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx


class RecordPicture(SphinxDirective):
    """`{record} q4_0 1x64`: the picture of a record."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Draw it."""
        name, sizes = self.arguments
        return drawing(memdesc.record_desc(tuple(map(int, sizes.split("x"))), name).show())


class Records(SphinxDirective):
    """`{records}`: every format of records, with its tensors and its rule."""

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        rows = []
        for name in memdesc.known_records():
            desc = memdesc.record_desc((256, 256), name)
            fields = [f"{part.name}: {part.kind}" for part in desc.fields]
            bits = f"{desc.bits_per_element:.4g}"
            tensors = ", ".join(desc.tensors)
            rows.append(([name], fields, [str(desc.rule)], bits, [tensors], unjudged_by(name)))
        head = ("record", "fields", "rule", "bits each", "tensors", "not compared with")
        return [table(head, rows)]


def setup(app: Sphinx) -> dict[str, object]:
    """Tell Sphinx."""
    app.add_directive("record", RecordPicture)
    app.add_directive("records", Records)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
