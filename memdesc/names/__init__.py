"""Names of layouts: vocabularies, and functions that search all of them.

`onednn`, `cldnn` and `weights` are files of a vocabulary each, `systems` has those of other
systems, and `images` the types of images. To add a vocabulary, write a table in `systems`, and add
it to `registry.vocabularies`.
"""

from typing import TYPE_CHECKING

from memdesc.lazy import lazy
from memdesc.names.images import is_image
from memdesc.names.registry import (
    Name,
    dim_letters,
    expand_meta_tag,
    known_images,
    known_names,
    refuse_record,
    resolve,
    resolve_image,
)

__all__ = [
    "Name",
    "did_you_mean",
    "dim_letters",
    "expand_meta_tag",
    "is_image",
    "known_images",
    "known_names",
    "refuse_record",
    "resolve",
    "resolve_image",
    "suggest",
    "with_other_ndims",
]

if TYPE_CHECKING:
    from memdesc.names.similar import did_you_mean, suggest, with_other_ndims
else:  # only wrong names need them
    _HOMES = dict.fromkeys(("did_you_mean", "suggest", "with_other_ndims"), "memdesc.names.similar")
    __getattr__ = lazy(__name__, _HOMES)
