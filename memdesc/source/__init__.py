"""Source code from layouts: offsets, their inverse, constants and loop nests, in five languages.

`statements` are what functions are made of, `terms` their expressions, `languages` write both as
text, and `layouts` makes the functions of a layout. Plans (`reorder.plan.source`) use the same.
"""

from memdesc.source.languages import LANGUAGES, Language, language_of
from memdesc.source.layouts import layout_source

__all__ = ["LANGUAGES", "Language", "language_of", "layout_source"]
