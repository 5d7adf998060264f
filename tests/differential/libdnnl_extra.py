"""Descriptors of oneDNN with compensation after the elements, made from their blobs.

No public function sets `memory_extra_desc_t`. A blob is a copy of the descriptor's C struct, and
libdnnl makes a descriptor from one, so the fields are written into the blob. Where they lie is
searched for, and verified by the sizes that libdnnl answers.
"""

import ctypes
import struct
from ctypes import byref, c_size_t
from functools import cache
from typing import Final

from memdesc import Extra

from .libdnnl import Desc
from .libdnnl_reorder import Executor

# memory_extra_desc_t begins with: flags, compensation_mask, scale_adjust, asymm_compensation_mask
_FORM: Final = "<Qifi"
# bits of the flags
_S8S8, _ADJUST, _ASYMMETRIC = 1, 2, 8
# the union of layouts lies before the extra fields, and takes no other numbers: ndims, the data
# type and the format kind of 8 bytes each, four lists of 12 numbers of 8 bytes, an offset
_LAYOUT_START: Final = 4 * 8 + 3 * 12 * 8
# dims of the probe, its padded dims by ABc8a16b, and bytes after its elements by flags and masks
_PROBE_DIMS: Final = (3, 5, 7)
_PROBE_SIZES: Final = {
    (_S8S8, 1, 0): 4 * 8,
    (_S8S8, 2, 0): 4 * 16,
    (_S8S8, 3, 0): 4 * 8 * 16,
    (_ASYMMETRIC, 0, 3): 4 * 8 * 16,
    (_S8S8 | _ASYMMETRIC, 1, 3): 4 * (8 + 8 * 16),
    (0, 3, 3): 0,
}


def with_extra(library: Executor, desc: Desc, extra: Extra) -> Desc:
    """Return a descriptor with compensation after its elements; libdnnl 3.13."""
    flags = 0 if extra.s8s8_mask is None else _S8S8
    flags |= 0 if extra.asymmetric_mask is None else _ASYMMETRIC
    flags |= 0 if extra.scale_adjust == 1 else _ADJUST
    values = (flags, extra.s8s8_mask or 0, extra.scale_adjust, extra.asymmetric_mask or 0)
    return _changed(library, _blob(library, desc), _extra_offset(library), values)


def _blob(library: Executor, desc: Desc) -> bytes:
    nbytes = c_size_t()
    library.call("memory_desc_get_blob", None, byref(nbytes), desc.handle)
    blob = ctypes.create_string_buffer(nbytes.value)
    library.call("memory_desc_get_blob", blob, byref(nbytes), desc.handle)
    return blob.raw


def _changed(library: Executor, blob: bytes, at: int, values: tuple[float, ...]) -> Desc:
    function = library.c.dnnl_memory_desc_create_with_blob
    changed = bytearray(blob)
    struct.pack_into(_FORM, changed, at, *values)
    made = library.make(function, bytes(changed))
    assert isinstance(made, Desc)
    return made


@cache
def _extra_offset(library: Executor) -> int:
    """Return the offset of the extra fields, searched from the end of the struct."""
    plain = library.by_string_tag(_PROBE_DIMS, "s8", "ABc8a16b")
    assert isinstance(plain, Desc)
    blob, nbytes = _blob(library, plain), plain.fields().size
    for at in range(len(blob) - struct.calcsize(_FORM), _LAYOUT_START, -4):
        sizes = {
            key: _changed(library, blob, at, (key[0], key[1], 1.0, key[2])).fields().size - nbytes
            for key in _PROBE_SIZES
        }
        if sizes == _PROBE_SIZES:
            return at
    message = "no field of the descriptor makes room for compensation"
    raise AssertionError(message)
