"""oneDNN's names: canonical tags (`aBcd16b`) and aliases (`nChw16c`, `OIhw16i16o`).

An alias names its dims with the letters of its family; the letters present, in the family's logical
order, are dims a, b, c, ... Source: oneDNN 3.13 `dnnl_format_tag_t`, with 873 canonical names, all
regular, and 798 aliases, of which the six in `_IRREGULAR` are not.
"""

from __future__ import annotations

import itertools

from memdesc.errors import UnknownFormatError
from memdesc.names.vocabulary import Vocabulary, read_names
from memdesc.tags import LETTERS, FormatTag, parse_tag

CANONICAL = "any"

# domain -> the sets of letters that its names use, each in logical order
_SPATIAL = ("", "w", "hw", "dhw")
_FAMILIES = {
    "data": tuple("nc" + spatial for spatial in _SPATIAL),
    "weights": tuple("oi" + spatial for spatial in _SPATIAL),
    "grouped weights": tuple("goi" + spatial for spatial in _SPATIAL[1:]),
    "sequence": ("tn", "tnc"),
    "rnn states": ("ldnc",),
    "rnn weights": ("ldigo", "ldio"),
    "rnn bias": ("ldgo",),
    "vector": ("x",),
}
# the letters present -> (domain, letters in logical order)
_LETTERS = {
    frozenset(letters): (domain, letters) for domain, sets in _FAMILIES.items() for letters in sets
}

# The enum defines these six as other tags than their letters say.
_IRREGULAR = {
    "OhwI24o": "Acdb24a",
    "OhwI32o": "Acdb32a",
    "gOhwI24o": "aBdec24b",
    "gOhwI32o": "aBdec32b",
    "gIOhw2i8o16i2o": "aBCde2c8b16c2b",
    "gIOdhw2i8o16i2o": "aBCdef2c8b16c2b",
}

# dnnl_types.h, 3.13: format kinds, and tags that are not layouts of elements -> the reason
_PACKED = "only oneDNN knows its layout, like that of packed weights for RNN or Winograd primitives"
_REFUSED = {
    "any": "the primitive that gets it chooses the layout; take the one that it chose",
    "undef": "it is the empty descriptor, without a tensor",
    "sparse": "it is a sparse tensor, with one buffer for values and others for indices",
    **dict.fromkeys(("opaque", "wino", "rnn_packed", "ldigo_p", "ldgoi_p"), _PACKED),
}


def _outer(name: str) -> frozenset[str]:
    """Return the letters before the first block, in lower case."""
    return frozenset(itertools.takewhile(str.isalpha, name.lower()))


class _OneDNN(Vocabulary):
    def known(self) -> tuple[str, ...]:
        """Return the names of the enum."""
        return read_names("onednn.json")

    def family(self, name: str) -> tuple[str, str]:
        """Return the domain and the logical letters of an alias; `any` for canonical tags."""
        return _LETTERS.get(_outer(name), (CANONICAL, ""))

    def parse(self, name: str, _bits: int) -> FormatTag:
        """Read a canonical tag or an alias."""
        notation = _IRREGULAR.get(name, name)
        outer = _outer(notation)
        _, letters = self.family(notation)
        if not letters and LETTERS[0] not in outer and not outer <= {*LETTERS}:
            raise UnknownFormatError(
                f"{name!r}: no tensor has the dims {', '.join(sorted(outer))}; data has n, c and "
                "[d] [h] w, weights have [g], o, i and [d] [h] w, other tags have a, b, c, ..."
            )
        return parse_tag(notation, letters or LETTERS)


# any unknown name without another spelling gets the reason of oneDNN's notation
VOCABULARY = _OneDNN(
    "onednn",
    "tag of oneDNN",
    refused=_REFUSED,
    scopes=("dnnl_", "format_tag::", "memory::format_tag::", "dnnl::memory::format_tag::"),
)
