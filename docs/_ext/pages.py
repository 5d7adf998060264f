"""What the pages have made from the code: pictures, and the list of changes."""

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

if TYPE_CHECKING:
    from sphinx.application import Sphinx

    from memdesc.picture import Picture

CHANGES = Path(__file__).parents[1] / "changes"
_COLON = "\ue000"
# the rules of a picture for readers who prefer dark pages; the site's own button overrules them
_DARK_RULES = re.compile(r"@media \(prefers-color-scheme:dark\)(\{(?:[^{}]*\{[^{}]*\})*\})")
_DARK_BY_BUTTON = (
    r"body[data-theme=dark]\1@media (prefers-color-scheme:dark){body:not([data-theme=light])\1}"
)
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
        ("changes", Changes),
    ):
        app.add_directive(name, directive)
    app.connect("source-read", _strip_blocks)
    app.connect("autodoc-process-docstring", _hide_colons, priority=400)
    app.connect("autodoc-process-docstring", _show_colons, priority=600)  # napoleon's is 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
