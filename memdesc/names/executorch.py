"""ExecuTorch's packings of int8 in buffers of its Vulkan backend; its textures are in `images`.

Dims are n, c, h, w for activations, o, h, w, i for weights of convolutions, and n, k of linear
layers. Source: ExecuTorch at cff6f4dd, `backends/vulkan/runtime`, `StorageUtils.h` and
`pack_q8_conv2d_weights.glsl`, `pack_q8_linear_weight.glsl`.
"""

from __future__ import annotations

from memdesc.names.images import REFUSED
from memdesc.names.vocabulary import Row, Vocabulary

_BYTE = 8


def _data(tag: str) -> Row:
    return Row("nchw", "data", {_BYTE: tag})


_ROWS = {
    "PACKED_INT8_4W4C": _data("acDB4d4b"),
    "PACKED_INT8_4H4W": _data("abCD4c4d"),
    "PACKED_INT8_4W": _data("abcd__d4"),
    "PACKED_INT8_4C": _data("acdb__b4"),
    "PACKED_INT8_4C1W": _data("acBd4b"),
    "executorch_q8_conv2d_weight": Row("ohwi", "weights", {_BYTE: "bDAc4a4d"}),
    "executorch_q8_linear_weight": Row("nk", "weights", {_BYTE: "BA4a4b"}),
}
_REFUSED = {name: why for name, why in REFUSED.items() if name.startswith(("PACKED", "TENSOR"))}

VOCABULARY = Vocabulary(
    "executorch",
    "packing of ExecuTorch",
    _ROWS,
    "PACKED_INT8|TENSOR_|executorch_q8",
    refused=_REFUSED,
)
