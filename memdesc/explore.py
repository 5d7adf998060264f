"""A form for notebooks: the picture of a layout, with fields for its name, dims and data type."""

from __future__ import annotations

import re
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from memdesc.create import memory_desc
from memdesc.errors import MemdescError
from memdesc.image import image_desc
from memdesc.int64 import checked_ints
from memdesc.names import is_image

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memdesc.picture import Picture


def explore(dims: Iterable[int], dtype: object, tag: str) -> Any:
    """Draw a layout in a notebook with fields to edit; each change redraws it.

    This needs the package `ipywidgets`. The picture is the page of `Picture.html`; a wrong entry
    shows the error message in its place.

    Parameters
    ----------
    dims, dtype, tag
        As for `memory_desc`, or for `image_desc` if the tag is an image type.

    Returns
    -------
    ipywidgets.VBox
        The fields and the picture.

    Raises
    ------
    MemdescError
        If ipywidgets is not installed, or the layout cannot be described.

    Examples
    --------
    >>> import memdesc
    >>> memdesc.explore((2, 17, 5, 4), "f32", "nChw8c")  # doctest: +SKIP
    """
    try:
        widgets = import_module("ipywidgets")
    except ImportError:
        msg = (
            "the form needs ipywidgets, which is not installed: pip install ipywidgets, "
            "or memdesc[notebook]; show() works without it"
        )
        raise MemdescError(msg) from None
    sizes = checked_ints("dims", dims)
    first = _page(_drawn(sizes, dtype, tag))
    fields = [
        widgets.Text(value=value, description=name, continuous_update=False)
        for name, value in (
            ("tag", tag),
            ("dims", "x".join(map(str, sizes))),
            ("dtype", str(dtype)),
        )
    ]
    page = widgets.HTML(value=first)

    def draw_again(_: object) -> None:
        tag, dims, dtype = (field.value.strip() for field in fields)
        try:
            sizes = tuple(map(int, re.split(r"[x,\s]+", dims.strip("(), "))))
            page.value = _page(_drawn(sizes, dtype, tag))
        except ValueError as error:  # of int, or a MemdescError, which is one
            page.value = f"<pre style='white-space:pre-wrap'>{escape(str(error))}</pre>"

    for field in fields:
        field.observe(draw_again, names="value")
    return widgets.VBox([widgets.HBox(fields), page])


def _drawn(dims: tuple[int, ...], dtype: object, tag: str) -> Picture:
    make = image_desc if isinstance(tag, str) and is_image(tag) else memory_desc
    return make(dims, dtype, tag).show()


def _page(picture: Picture) -> str:
    """Return the page of a picture in a frame, in which its script runs."""
    look = "width:100%;height:70vh;min-height:24em;resize:vertical;border:1px solid #9aa0a6"
    return f'<iframe style="{look}" title="layout" srcdoc="{escape(picture.html())}"></iframe>'
