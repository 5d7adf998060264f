"""TensorRT's names of tensor formats: `kCHW4`, `kHWC8`, `kDLA_LINEAR`; in Python `CHW4`, ...

A vector-major format (`kCHW32`) has blocks of channels innermost; a vector-minor one (`kHWC8`)
has the channels innermost and pads their number. Each exists only for some types. Source:
TensorRT 10, `NvInferRuntimeBase.h`, `TensorFormat`, and `tensorrt.TensorFormat` of its Python API,
whose names have no k; formats of the DLA are those of Orin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.errors import UnsupportedFormatError
from memdesc.names.vocabulary import ANY_WIDTH, Row, Vocabulary

if TYPE_CHECKING:
    from memdesc.tags import FormatTag

_NCHW, _NCDHW = "nchw", "ncdhw"
_ROWS = {
    "kLINEAR": Row(_NCHW, "data", {ANY_WIDTH: "abcd"}),
    "kCHW2": Row(_NCHW, "data", {16: "aBcd2b"}),
    "kHWC8": Row(_NCHW, "data", {16: "acdb__b8"}),
    "kCHW4": Row(_NCHW, "data", {8: "aBcd4b", 16: "aBcd4b"}),
    "kCHW16": Row(_NCHW, "data", {8: "aBcd16b", 16: "aBcd16b"}),
    "kCHW32": Row(_NCHW, "data", {ANY_WIDTH: "aBcd32b"}),
    "kDHWC8": Row(_NCDHW, "data", {16: "acdeb__b8"}),
    "kCDHW32": Row(_NCDHW, "data", {8: "aBcde32b", 16: "aBcde32b"}),
    "kHWC": Row(_NCHW, "data", {8: "acdb", 32: "acdb"}),
    "kDLA_LINEAR": Row(_NCHW, "data", {8: "abcd__d64", 16: "abcd__d32"}),
    "kDLA_HWC4": Row(_NCHW, "data", {8: "acdb__b4__d16", 16: "acdb__b4__d8"}),
    "kHWC16": Row(_NCHW, "data", {8: "acdb__b16", 16: "acdb__b16"}),
    "kDHWC": Row(_NCDHW, "data", {32: "acdeb"}),
}
# what stands before a name in C++, where it has its k, and in Python
_CPP = ("nvinfer1::TensorFormat::", "TensorFormat::")
_PYTHON = ("tensorrt.TensorFormat.", "trt.TensorFormat.", "TensorFormat.")
_SPELLINGS = {
    **{f"{scope}{name}": name for scope in _CPP for name in _ROWS},
    **{f"{scope}{name[1:]}": name for scope in _PYTHON for name in _ROWS},
    # letters alone, such as HWC, are a layout of TVM with these dims
    **{name[1:]: name for name in _ROWS if not name.isalpha()},
}
_START = r".*\bTensorFormat(::|\.)|k?(C?DHW|CHW|D?HWC)[0-9]|k(LINEAR|D?HWC|DLA)"
_COLOURS = (3, 4)


class _TensorRT(Vocabulary):
    def check_dims(self, name: str, dims: tuple[int, ...], tag: FormatTag) -> None:
        """Refuse DLA images with one channel, whose pixels have a single lane."""
        super().check_dims(name, dims, tag)
        if self.key(name) == "kDLA_HWC4" and len(dims) == tag.ndims and dims[1] not in _COLOURS:
            raise UnsupportedFormatError(
                f"{name!r} with C = {dims[1]}: only 3 or 4 channels have this layout; an image "
                "of one channel is 'acdb__d32' of 16 bits, 'acdb__d64' of 8 bits"
            )


VOCABULARY = _TensorRT("tensorrt", "format of TensorRT", _ROWS, _START, spellings=_SPELLINGS)
