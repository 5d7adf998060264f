"""Weight formats of the Arm Compute Library: `OHWIo4`, `OHWIo8i4`.

`OHWIo<A>i<B>` has blocks of A output channels around blocks of B input channels. Names that end
with `_bf16` are for bf16 elements. Source: Compute Library, `arm_gemm.hpp`, `WeightFormat`.
"""

from __future__ import annotations

from memdesc.names.vocabulary import ANY_WIDTH, Row, Vocabulary

_BF16_BITS = 16
# block size of input channels -> block sizes of output channels
_BLOCKS = {
    1: (2, 4, 8, 16, 32, 64, 128),
    2: (4, 8, 16, 32, 64),
    4: (4, 8, 16, 32, 64),
    8: (2, 4, 8, 16, 32, 64),
}
_WITH_BF16 = (2, 4)


def _rows() -> dict[str, Row]:
    rows = {"OHWI": Row("oihw", "weights", {ANY_WIDTH: "acdb"})}
    for i, blocks in _BLOCKS.items():
        for o in blocks:
            name = f"OHWIo{o}" if i == 1 else f"OHWIo{o}i{i}"
            tag = f"Acdb{o}a" if i == 1 else f"AcdB{o}a{i}b"
            rows[name] = Row("oihw", "weights", {ANY_WIDTH: tag})
            if i in _WITH_BF16:
                rows[f"{name}_bf16"] = Row("oihw", "weights", {_BF16_BITS: tag})
    return rows


VOCABULARY = Vocabulary("acl", "weight format of the Arm Compute Library", _rows(), "OHWI")
