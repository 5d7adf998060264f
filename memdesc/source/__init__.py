"""Source code for layouts in five languages: offsets, their inverse, constants and loop nests.

`languages` has the lines that functions are made of and spells them, and `layouts` builds the
functions of a layout. Plans (`reorder.plan.source`) use the same parts.
"""

from memdesc.source.languages import LANGUAGES, Language, language_of
from memdesc.source.layouts import image_source, layout_source

__all__ = ["LANGUAGES", "Language", "image_source", "language_of", "layout_source"]
