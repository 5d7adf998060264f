"""What the pages have made from the code: pictures, tables of names, the list of changes."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

import memdesc
import reorder
from memdesc import MemdescError, UnsupportedFormatError
from memdesc.exchange import written
from memdesc.names import dim_letters, images, known_names, resolve
from memdesc.tags import LETTERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sphinx.application import Sphinx

    from memdesc.picture import Picture

CHANGES = Path(__file__).parents[1] / "changes"
_COLON = "\ue000"
# the rules of a picture for readers who prefer dark pages; the site's own button overrules them
_DARK_RULES = re.compile(r"@media \(prefers-color-scheme:dark\)(\{(?:[^{}]*\{[^{}]*\})*\})")
_DARK_BY_BUTTON = (
    r"body[data-theme=dark]\1@media (prefers-color-scheme:dark){body:not([data-theme=light])\1}"
)
_VOCABULARIES = {"onednn": "oneDNN", "cldnn": "OpenVINO", "mace": "MACE", "weights": "packings"}
_OTHERS = {
    "tensorrt": "TensorRT",
    "acl": "Compute Library",
    "ascend": "Ascend",
    "ncnn": "ncnn",
    "mnn": "MNN",
    "tflite_gpu": "TFLite GPU",
    "kvcache": "KV caches",
}
_KINDS = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed"}


def drawing(picture: Picture) -> list[nodes.Node]:
    """Return a picture as part of a page, in the colour scheme of that page."""
    fragment = _DARK_RULES.sub(_DARK_BY_BUTTON, picture.fragment)
    text = f'<div class="memdesc-picture">{fragment}</div>'
    return [nodes.raw("", text, format="html")]


class LayoutPicture(SphinxDirective):
    """`{layout} nChw4c 1x5x2x3 f32`: the picture of a layout or an image, in any notation."""

    required_arguments = 3
    option_spec: ClassVar = {"letters": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Draw it."""
        name, sizes, dtype = self.arguments
        desc = memdesc.parse_layout(name, map(int, sizes.split("x")), dtype)
        return drawing(desc.show(self.options.get("letters")))


class PlanPicture(SphinxDirective):
    """`{plan} nchw nChw4c 1x5x2x3 f32`: the picture of a reorder."""

    required_arguments = 4

    def run(self) -> list[nodes.Node]:
        """Draw it."""
        *names, sizes, dtype = self.arguments
        dims = tuple(map(int, sizes.split("x")))
        src, dst = (memdesc.memory_desc(dims, dtype, name) for name in names)
        return drawing(reorder.plan_reorder(src, dst).show())


class Lesson(SphinxDirective):
    """`{lesson} nChw4c 1x5x2x3`: a form that draws a tag, which `_static/lesson.js` fills."""

    required_arguments = 2
    final_argument_whitespace = False
    option_spec: ClassVar = {
        "bits": directives.unchanged,
        "mark": directives.unchanged,
        "along": directives.unchanged,
        "group": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        """Write what the script reads."""
        tag, dims = self.arguments
        fields = {"bits": "32", "mark": "0", **self.options}
        fields |= {"tag": tag.replace("_strides_", "strides ").replace(",", " "), "dims": dims}
        data = " ".join(f'data-{key}="{html.escape(fields[key])}"' for key in sorted(fields))
        layout = tag.removeprefix("_strides_").replace(",", "x")
        command = f"<code>memdesc show --draw {html.escape(layout)} {dims}</code>"
        without = f"This form needs JavaScript. {command}"
        text = f'<div class="memdesc-lesson" {data}><p>{without} prints the same.</p></div>'
        return [nodes.raw("", text, format="html")]


class Vocabulary(SphinxDirective):
    """`{vocabulary}`: every layout that two systems or more have a name for."""

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        rows: dict[str, dict[str, list[str]]] = {}
        for name in known_names():
            try:
                tag = str(resolve(name.text, (), 32))
            except MemdescError:
                continue  # refused, with the reason
            rows.setdefault(tag, {}).setdefault(name.vocabulary, []).append(name.text)
        shown = []
        for tag, found in rows.items():
            names = {
                vocabulary: [text for text in texts if text != tag]
                for vocabulary, texts in found.items()
            }
            if sum(map(bool, names.values())) > 1:
                shown.append(
                    (
                        [tag],
                        *(names.get(vocabulary, []) for vocabulary in _VOCABULARIES),
                        [text for vocabulary in _OTHERS for text in names.get(vocabulary, [])],
                    )
                )
        return [table(("memdesc", *_VOCABULARIES.values(), "others"), shown)]


class SystemNames(SphinxDirective):
    """`{systems}`: the names of systems that have a table of them, with the tag for each width."""

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        shown: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
        for name in known_names():
            if name.vocabulary in _OTHERS:
                found: dict[str, list[str]] = {}
                for bits in (8, 16, 32):
                    try:
                        found.setdefault(str(resolve(name.text, (), bits)), []).append(str(bits))
                    except MemdescError:
                        continue
                tags = tuple(
                    tag if len(widths) == 3 else f"{tag} ({', '.join(widths)} bits)"  # noqa: PLR2004 - all
                    for tag, widths in found.items()
                )
                key = _OTHERS[name.vocabulary], tags, dim_letters(name.text) or ""
                shown.setdefault(key, []).append(name.text)
        rows = [
            (system, names, [", ".join(letters)], list(tags))
            for (system, tags, letters), names in shown.items()
            if tags
        ]
        return [table(("system", "names", "dims", "memdesc"), rows)]


class Images(SphinxDirective):
    """`{images}`: the image types, as rows, columns and lanes."""

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        rows = []
        for name, (letters, text) in images.IMAGES.items():
            own = str.maketrans(
                LETTERS[: len(letters)] + LETTERS[: len(letters)].upper(), letters + letters.upper()
            )
            cells = [part.translate(own) or "1" for part in text.split("|")]
            rows.append(([name], [", ".join(letters)], *([cell] for cell in cells), [text]))
        return [table(("image type", "dims", "row y", "column x", "lane", "memdesc"), rows)]


# layouts that the tables of notations show: a name, sizes, a data type
_SHOWN = (
    ("nchw", (2, 17, 5, 4), "f32"),
    ("nhwc", (2, 17, 5, 4), "f32"),
    ("hwio", (32, 17, 3, 3), "f32"),
    ("nChw16c", (2, 17, 5, 4), "f32"),
    ("OIhw16i16o", (32, 17, 3, 3), "f32"),
    ("OIhw4i16o4i", (32, 17, 3, 3), "s8"),
    ("AB8a128b", (20, 200), "f32"),
    ("ABcd4a/1.8b8a/4.4b", (64, 64, 1, 1), "s8"),
    ("aB(CD)8b16(cd)", (1, 12, 5, 5), "f16"),
)


class Notations(SphinxDirective):
    """`{notations} cute`: layouts in the notation of a system, and why others have none there."""

    required_arguments = 1
    optional_arguments = 5

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        rows = []
        for name, dims, dtype in _SHOWN:
            desc = memdesc.memory_desc(dims, dtype, name)
            cells: list[object] = [[name], f"{dtype}, {'x'.join(map(str, dims))}"]
            for system in self.arguments:
                try:
                    cells.append(list(written(desc, system)[:1]))
                except UnsupportedFormatError as refused:
                    cells.append(f"no: {str(refused).partition(': ')[2]}")
            rows.append(tuple(cells))
        return [table(("memdesc", "of", *self.arguments), rows)]


class Changes(SphinxDirective):
    """`{changes}`: the fragments, version by version."""

    def run(self) -> list[nodes.Node]:
        """Gather them."""
        parts: list[nodes.Node] = []
        versions = sorted(
            (folder for folder in CHANGES.iterdir() if folder.is_dir()),
            key=lambda f: f.name,
            reverse=True,
        )
        for folder in versions:
            section = nodes.section(ids=[nodes.make_id(folder.name)])
            section += nodes.title("", folder.name.capitalize())
            for kind, heading in _KINDS.items():
                files = sorted(folder.glob(f"*.{kind}.md"))
                if not files:
                    continue
                section += nodes.rubric("", heading)
                text = "\n".join(_item(file.read_text(encoding="utf-8")) for file in files)
                holder = nodes.Element()
                self.state.nested_parse(
                    StringList(text.splitlines(), source=str(folder)), 0, holder
                )
                section += holder.children
            parts.append(section)
        return parts


def _item(text: str) -> str:
    """Return a fragment as an item of a list: a paragraph, and a table if it has one."""
    prose, bar, rows = text.strip().partition("\n|")
    item = f"* {' '.join(prose.split())}"
    return item + "".join(f"\n  {line}" for line in ("", *f"{bar}{rows}".splitlines()[1:])) + "\n"


def table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> nodes.table:
    """Return a table; lists become literals below each other."""
    table = nodes.table()
    group = nodes.tgroup(cols=len(head))
    table += group
    group += [nodes.colspec(colwidth=1) for _ in head]
    top = nodes.thead()
    top += _row(head)
    body = nodes.tbody()
    body += [_row(row) for row in rows]
    group += [top, body]
    return table


def _row(cells: Iterable[object]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        entry = nodes.entry()
        texts = cell if isinstance(cell, list) else [cell]
        for text in texts:
            paragraph = nodes.paragraph()
            paragraph += (
                nodes.literal("", str(text)) if isinstance(cell, list) else nodes.Text(str(text))
            )
            entry += paragraph
        row += entry
    return row


def _hide_colons(
    _app: Sphinx, what: str, _name: str, _obj: object, _options: object, lines: list[str]
) -> None:
    """Keep napoleon from reading `words: more words` of a property as its type."""
    if what == "property":
        lines[:] = [line.replace(":", _COLON) for line in lines]


def _show_colons(
    _app: Sphinx, _what: str, _name: str, _obj: object, _options: object, lines: list[str]
) -> None:
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def _strip_blocks(_app: Sphinx, _name: str, source: list[str]) -> None:
    """Leave out the empty line that ends what doctest reads as output."""
    source[0] = source[0].replace("\n\n```\n", "\n```\n")


def setup(app: Sphinx) -> dict[str, object]:
    """Tell Sphinx."""
    for name, directive in (
        ("layout", LayoutPicture),
        ("plan", PlanPicture),
        ("lesson", Lesson),
        ("vocabulary", Vocabulary),
        ("systems", SystemNames),
        ("images", Images),
        ("notations", Notations),
        ("changes", Changes),
    ):
        app.add_directive(name, directive)
    app.connect("source-read", _strip_blocks)
    app.connect("autodoc-process-docstring", _hide_colons, priority=400)
    app.connect("autodoc-process-docstring", _show_colons, priority=600)  # napoleon's is 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
