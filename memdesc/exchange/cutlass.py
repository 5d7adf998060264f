"""Names of swizzled tiles: CUTLASS's atoms, `K_SW128`, and TMA's modes, `SWIZZLE_128B`.

An atom is defined in bits, so its size in elements depends on the type. Dims are whole atoms, which
follow one another in memory, along the first dim first, as `tile_to_shape` puts them. A TMA mode is
a box: its rows are as far apart as the mode is wide. Sources: CUTLASS 4.7,
`mma_traits_sm90_gmma.hpp`, `mma_traits_sm100.hpp` and `copy_traits_sm90_tma_swizzle.hpp`.
"""

from __future__ import annotations

import re
from math import prod

from memdesc.desc import MemoryDesc, desc_of
from memdesc.dtypes import BYTE_BITS, DataType
from memdesc.exchange.system import Given, System, impossible, unclear
from memdesc.layout import Layout, layout_by_digits, layout_by_strides
from memdesc.swizzle import terms_of_bytes

# for each atom B, M and S in bytes, how wide it is in bytes, and how many of the other dim it has
_SIZES = {
    "INTER": ((0, 4, 3), 16, 8),
    "SW32": ((1, 4, 3), 32, 8),
    "SW64": ((2, 4, 3), 64, 8),
    "SW128": ((3, 4, 3), 128, 8),
}
_ATOMS = {f"{major}_{name}": size for major in ("K", "MN") for name, size in _SIZES.items()}
_ATOMS["MN_SW128_32B"] = (2, 5, 2), 128, 4
# and for each mode of TMA B, M and S in bytes, and how wide its boxes are in bytes
_MODES = {
    "SWIZZLE_32B": ((1, 4, 3), 32),
    "SWIZZLE_64B": ((2, 4, 3), 64),
    "SWIZZLE_128B": ((3, 4, 3), 128),
    "SWIZZLE_128B_ATOM_32B": ((2, 5, 2), 128),
}
_MAX_BOX_NDIMS = 5
_TYPES = {
    **dict.fromkeys(("half_t", "bfloat16_t", "int16_t", "uint16_t"), 16),
    **dict.fromkeys(("float", "tfloat32_t", "int32_t", "uint32_t", "int"), 32),
    **dict.fromkeys(("int8_t", "uint8_t", "float_e4m3_t", "float_e5m2_t"), 8),
    "double": 64,
}
_ATOM = r"(?:\w+::)*(?:Layout_)?((?:K|MN)_(?:INTER|SW\w+?))(?:_Atom(?:<([\w:]+)>)?)?"
_MODE = rf"(?:CU_TENSOR_MAP_)?({'|'.join(_MODES)})"


def _read(given: Given) -> MemoryDesc:
    text, dtype, dims = given.text, given.type(), given.sizes()
    bits = dtype.bits
    if mode := re.fullmatch(_MODE, text):
        swizzle, width = _MODES[mode[1]]
        length = width * BYTE_BITS // bits
        if dims[-1] > length or len(dims) > _MAX_BOX_NDIMS:
            impossible(f"a box has at most 5 dims, the last of at most {length} elements")
        outer = tuple(length * prod(dims[dim + 1 : -1]) for dim in range(len(dims) - 1))
        return _swizzled(dtype, layout_by_strides(dims, (*outer, 1)), swizzle)
    atom = re.fullmatch(_ATOM, text)
    if atom is None or atom[1] not in _ATOMS:
        unclear(f"its tiles are {', '.join([*_ATOMS, *_MODES])}")
    if atom[2] and _TYPES.get(atom[2].rpartition("::")[2], bits) != bits:
        impossible(f"its elements are {atom[2]}, not {bits} bits wide; give dtype")
    swizzle, width, count = _ATOMS[atom[1]]
    length = width * BYTE_BITS // bits
    is_k = atom[1].startswith("K")
    sizes = (count, length) if is_k else (length, count)
    if len(dims) != len(sizes) or any(size % own for size, own in zip(dims, sizes, strict=True)):
        impossible(f"dims {dims} are not whole atoms of {sizes}")
    inner = (length, 1) if is_k else (1, length)
    outer = (prod(sizes), dims[0] * sizes[1])
    digits = []
    for size, own, stride, dense in zip(dims, sizes, outer, inner, strict=True):
        is_one = size <= own or stride == dense * own
        digits.append([(size, dense)] if is_one else [(size // own, stride), (own, dense)])
    return _swizzled(dtype, layout_by_digits(dims, digits), swizzle)


def _swizzled(dtype: DataType, layout: Layout, swizzle: tuple[int, int, int]) -> MemoryDesc:
    """Describe a layout that is swizzled by B, M and S in bytes."""
    return desc_of(dtype, layout.with_xor(terms_of_bytes(*swizzle, dtype.bits)))


SYSTEM = System(
    "cutlass",
    "CUTLASS",
    lambda _, __: (*_ATOMS, *_MODES),
    _read,
    rf"\s*(?:{_ATOM}|{_MODE})\s*",
    writes_xor=True,
    refusal="no atom and no mode of TMA has these offsets",
)
