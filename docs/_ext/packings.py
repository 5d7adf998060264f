"""The table and the pictures of packings of weights, made from the vocabulary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes
from pages import table
from sphinx.util.docutils import SphinxDirective

import memdesc
from memdesc.names import resolve, weights
from memdesc.names.weights import ALIASES, DIMS, EXPERTS, PACKINGS

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# a type of each width, for pictures
_TYPES = {4: "u4", 8: "u8", 16: "f16", 32: "f32", 0: "s8"}
# extents of dims without blocks in pictures
_SMALL = 2


def _families() -> dict[str, list[str]]:
    """Return the names but those of experts: those that differ in a size together."""
    found: dict[str, list[str]] = {}
    for name in PACKINGS:
        if not name.endswith(EXPERTS):
            sized = "<" in name or name.startswith(("mlas", "trtllm_s"))
            family = re.sub("[0-9]+>?(?=_|$)", "", name) if sized else name
            found.setdefault(family, []).append(name)
    return found


class Packings(SphinxDirective):
    """`{packings}`: a table of all packings but those of experts."""

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        rows = []
        for names in _families().values():
            row = PACKINGS[names[0]]
            aliases = [alias for alias, meant in ALIASES.items() if meant in names]
            dims = ", ".join(_dim(row, letter) for letter in row.letters)
            widths = " or ".join(f"{bits}" if bits else "any" for bits in row.tags)
            tags = [tag for name in names for tag in PACKINGS[name].tags.values()]
            holds = f"{row.domain} ({dims}), {widths} bits"
            rows.append(([*names, *aliases], holds, tags, _blocks(names)))
        return [table(("names", "holds", "layout", "blocks"), rows)]


def _dim(row: weights.Packing, letter: str) -> str:
    """Return what a dim is called: a letter, where there are spatial dims."""
    return letter if "h" in row.letters else DIMS[letter]


def _blocks(names: list[str]) -> str:
    """Return the block of each dim, for each width and name, and whether it is padded."""
    row = PACKINGS[names[0]]
    found: dict[str, list[str]] = {}
    for tag in (resolve(name, (), bits or 8) for name in names for bits in row.tags):
        for letter, block, align in zip(row.letters, tag.block_sizes, tag.align, strict=True):
            counts = found.setdefault(letter, [])
            if max(block, align) > 1 and str(max(block, align)) not in counts:
                counts.append(str(max(block, align)))
    return ", ".join(
        f"{_dim(row, letter)} {' or '.join(counts)}" + ("" if letter in row.whole else " (padded)")
        for letter, counts in found.items()
        if counts
    )


def _pictured() -> list[tuple[str, str]]:
    """Return the first name of each family, and the page with its picture."""
    names = [names[0] for names in _families().values()]
    return [(name, f"packings/{nodes.make_id(name)}.html") for name in names]


class PackingPictures(SphinxDirective):
    """`{packing-pictures}`: what uses each packing, with a link to a picture of one block."""

    def run(self) -> list[nodes.Node]:
        """List them; `_draw` writes the pages."""
        listed = nodes.bullet_list()
        for name, page in _pictured():
            link = nodes.reference("", "", nodes.literal("", name), refuri=page)
            line = nodes.paragraph("", "", link, nodes.Text(f": {PACKINGS[name].source}"))
            listed += nodes.list_item("", line)
        return [listed]


def _draw(app: Sphinx, failed: Exception | None) -> None:
    """Write a page for each picture: in one page, they would be 4 MB."""
    if failed or app.builder.format != "html":
        return
    for name, page in _pictured():
        row = PACKINGS[name]
        bits = next(iter(row.tags))
        sizes = resolve(name, (), bits or 8).block_sizes
        desc = memdesc.memory_desc([max(size, _SMALL) for size in sizes], _TYPES[bits], name)
        file = app.outdir / page
        file.parent.mkdir(exist_ok=True)
        desc.show(row.letters).save(file)


def setup(app: Sphinx) -> dict[str, object]:
    """Tell Sphinx."""
    app.add_directive("packings", Packings)
    app.add_directive("packing-pictures", PackingPictures)
    app.connect("build-finished", _draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
