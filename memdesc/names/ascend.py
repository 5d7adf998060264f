"""Formats of Ascend NPUs: `NC1HWC0`, `FRACTAL_Z`, `FRACTAL_NZ`.

C0 is 32 for 8-bit elements, and 16 for wider ones. Source: graphengine of Ascend
910, `formats/format_transfers`, and `GetCubeSizeByDataType`.
"""

from __future__ import annotations

from memdesc.names.vocabulary import Row, Vocabulary

# bits of an element -> C0
_C0 = {8: 32, 16: 16, 32: 16, 64: 16}


def _row(letters: str, domain: str, tag: str) -> Row:
    """Return a row with a tag for each width; `{c0}` stands for C0."""
    return Row(letters, domain, {bits: tag.format(c0=c0) for bits, c0 in _C0.items()})


_ROWS = {
    "NC1HWC0": _row("nchw", "data", "aBcd{c0}b"),
    "NDC1HWC0": _row("ncdhw", "data", "acBde{c0}b"),
    "FRACTAL_Z": _row("oihw", "weights", "BcdA16a{c0}b"),
    "FRACTAL_Z_3D": _row("oidhw", "weights", "cBdeA16a{c0}b"),
    "FRACTAL_NZ": _row("mn", "matrix", "BA16a{c0}b"),
    "FRACTAL_ZZ": _row("mn", "matrix", "AB{c0}a{c0}b"),
}
_REFUSED = {
    "C1HWNCoC0": (
        "it puts each channel on the diagonal of a block of Co by C0, which is mostly zeros; "
        "describe the plain weights"
    )
}

VOCABULARY = Vocabulary(
    "ascend", "format of Ascend", _ROWS, "NC1|NDC1|C1|FRACTAL_", refused=_REFUSED
)
