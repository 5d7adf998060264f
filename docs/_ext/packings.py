"""The pictures of packings of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from tables import packing_families

import memdesc
from memdesc.names import resolve
from memdesc.names.weights import VOCABULARY as WEIGHTS

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# a type of each width, for pictures
_TYPES = {4: "u4", 8: "u8", 16: "f16", 32: "f32", 0: "s8"}
# extents of dims without blocks in pictures
_SMALL = 2


def _pictured() -> list[tuple[str, str]]:
    """Return the first name of each family, and the page with its picture."""
    names = [names[0] for names in packing_families().values()]
    return [(name, f"packings/{nodes.make_id(name)}.html") for name in names]


class PackingPictures(SphinxDirective):
    """`{packing-pictures}`: links to a picture of one block of each packing."""

    def run(self) -> list[nodes.Node]:
        """List them; `_draw` writes the pages."""
        listed = nodes.bullet_list()
        for name, page in _pictured():
            link = nodes.reference("", "", nodes.literal("", name), refuri=page)
            line = nodes.paragraph("", "", link, nodes.Text(f": {WEIGHTS.rows[name].source}"))
            listed += nodes.list_item("", line)
        return [listed]


def _draw(app: Sphinx, failed: Exception | None) -> None:
    """Write a page for each picture: in one page, they would be 4 MB."""
    if failed or app.builder.format != "html":
        return
    for name, page in _pictured():
        row = WEIGHTS.rows[name]
        bits = next(iter(row.tags))
        sizes = resolve(name, (), bits or 8).block_sizes
        desc = memdesc.memory_desc([max(size, _SMALL) for size in sizes], _TYPES[bits], name)
        file = app.outdir / page
        file.parent.mkdir(exist_ok=True)
        desc.show(row.letters).save(file)


def setup(app: Sphinx) -> dict[str, object]:
    """Tell Sphinx."""
    app.add_directive("packing-pictures", PackingPictures)
    app.connect("build-finished", _draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
