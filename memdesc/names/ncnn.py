"""ncnn's packings of a `Mat` of channels, rows and columns: `elempack1` to `elempack16`.

`elempack` channels are interleaved, and each plane of them starts at a multiple of 16 bytes
(`cstep`). ncnn only packs whole blocks of channels. Source: ncnn, `mat.cpp`, `Mat::create`.
"""

from __future__ import annotations

from memdesc.names.vocabulary import Row, Vocabulary

_PLANE_BITS = 128


def _row(pack: int) -> Row:
    tags = {}
    for bits in (8, 16, 32):
        # each plane starts at a multiple of this many pixels
        align = max(_PLANE_BITS // (bits * pack), 1)
        if align == 1:
            tags[bits] = f"Abc{pack}a"
        else:
            tags[bits] = f"{f'A(bc){pack}a' if pack > 1 else 'a(bc)'}__(bc){align}"
    return Row("chw", "data", tags)


_PACKS = (1, 4, 8, 16)
_ROWS = {f"elempack{n}": _row(n) for n in _PACKS}
VOCABULARY = Vocabulary("ncnn", "packing of ncnn", _ROWS, "elempack")
