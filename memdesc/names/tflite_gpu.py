"""Layouts of the GPU delegate of TensorFlow Lite (ML Drift): storage types and weights.

Data is b, h, w, c in slices of four channels: `TensorStorageType::BUFFER`. Weights are o, h, w, i
with blocks of four outputs and four inputs, in groups of output slices; the name ends with the size
of a group: `kOSpatialIOGroupI4O4_2`. Source: TensorFlow, `lite/delegates/gpu/common/task`,
`tensor_desc.cc` and `weights_conversion.h`.
"""

from __future__ import annotations

from memdesc.names.vocabulary import ANY_WIDTH, Row, Vocabulary

_STORAGE = "TensorStorageType::"
# over b, h, w, c: slices, rows, columns, batch, four channels; an image's rows are h and slices
_SLICES, _ROWS_OF_SLICES = "Dbca4d", "bDca4d"
_STORAGES = {
    "BUFFER": _SLICES,
    "IMAGE_BUFFER": _SLICES,
    "TEXTURE_2D": _ROWS_OF_SLICES,
    "TEXTURE_3D": _SLICES,
    "TEXTURE_ARRAY": _SLICES,
}
_GROUPS = (1, 2, 4, 8)


def _weights(group: int) -> dict[str, str]:
    """Return the names and tags for groups of some output slices."""
    blocks = f"{group}a" if group > 1 else ""
    align = f"__a{4 * group}" if group > 1 else ""
    return {
        f"kOSpatialIOGroupI4O4_{group}": f"AbcD{blocks}4d4a",
        f"kOSpatialIOGroupO4I4_{group}": f"AbcD{4 * group}a4d",
        # four textures, one for each input channel of a slice
        f"k2DX4I4YIsSpatialIAndXIsOOGroupO4_{group}": f"4d/1bcDA4a{align}",
        # four textures, one for each output channel of a slice
        f"k2DX4O4YIsSpatialIAndXIsOOGroupI4_{group}": f"4a/1bcDA4d{align}",
    }


_ROWS = {
    **{
        f"{_STORAGE}{name}": Row("bhwc", "data", {ANY_WIDTH: tag})
        for name, tag in _STORAGES.items()
    },
    **{
        name: Row("ohwi", "weights", {ANY_WIDTH: tag})
        for group in _GROUPS
        for name, tag in _weights(group).items()
    },
}
_CUSTOM = "it takes the order of filter taps from data (spatial_remap); give the tag of yours"
_REFUSED = {"kOICustomSpatialI4O4": _CUSTOM, "kOICustomSpatialO4I4": _CUSTOM}

VOCABULARY = Vocabulary(
    "tflite_gpu",
    "layout of TFLite's GPU delegate",
    _ROWS,
    f"{_STORAGE}|kOSpatial|kOICustom|k2DX",
    refused=_REFUSED,
)
