"""Sphinx: python -m sphinx -W -n docs OUT builds the pages, and draws their pictures."""

import sys
from pathlib import Path

import memdesc

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "memdesc"
author = "the memdesc developers"
copyright = author  # noqa: A001 - Sphinx's name for it
release = version = memdesc.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "pages",
    "commands",
    "packings",
    "records",
]
exclude_patterns = ["changes"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# numpydoc's sections; its types are words for readers, not names to link
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = ["Law"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
nitpicky = True
default_role = "code"

html_theme = "furo"
# options in tables of commands keep their two hyphens
smartquotes_action = "qe"
html_title = "memdesc"
html_show_copyright = False
html_copy_source = False
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["memdesc.css"]
# the forms of the chapter that teaches; on other pages they find nothing to do
html_js_files = [("layout.js", {"defer": "defer"}), ("lesson.js", {"defer": "defer"})]
