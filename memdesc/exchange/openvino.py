"""OpenVINO's layouts: data type, format and dims in one string, or in the name of a dumped file.

Source: OpenVINO 2025, intel_gpu `layout.cpp` (`to_short_string`) and `debug_helper.cpp`.
"""

from __future__ import annotations

import re

from memdesc.desc import MemoryDesc, memory_desc
from memdesc.dtypes import data_type
from memdesc.errors import MemdescError
from memdesc.exchange.system import OPENVINO_TYPES, Given, System, impossible, unclear
from memdesc.names import dim_letters

_STRING = re.compile(
    r"(?P<dtype>\w+):(?P<format>\w+):(?P<dims>[0-9]{1,19}(?:x[0-9]{1,19})*)"
    r"(?::(?P<pad>nopad|pad|dyn_pad_dims))?"
)
# layer__f16__1_17_5_4__b_fs_yx_fsv16.bin
_FILE = re.compile(
    r".*?__(?P<dtype>[a-z0-9]+)__(?P<dims>[0-9]{1,19}(?:_[0-9]{1,19})*)__(?P<format>\w+)\.bin",
    re.DOTALL,
)
# A layout of three or two dims has a format of four: b, f, y and x, the missing ones 1.
_MIN_NDIMS = 4
_DYNAMIC = re.compile(r"\w+:\w+:.*(\?|\.\.|-1).*")


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    sizes = "x".join(map(str, desc.dims))
    names = [name.text for name in desc.names() if name.vocabulary == "cldnn"]
    # today's names for blocked layouts come before those of 2019 (o_i_yx_i16_o16)
    names.sort(key=lambda name: "sv" not in name)
    if not names:
        impossible("its GPU plugin has no format for this layout")
    type_name = OPENVINO_TYPES.name_of(desc.dtype)
    return tuple(f"{type_name}:{name}:{sizes}:nopad" for name in names)


def _read(given: Given) -> MemoryDesc:
    match = _STRING.fullmatch(given.text) or _FILE.fullmatch(re.split(r"[/\\]", given.text)[-1])
    if match is None:
        if _DYNAMIC.fullmatch(given.text):
            impossible("it has dynamic dims; give the sizes of one run")
        unclear("it is type, format and dims, such as 'f16:b_fs_yx_fsv16:1x17x5x4:nopad'")
    if match.groupdict().get("pad") not in {None, "nopad"}:
        impossible(
            "dims are padded, it does not say by how much; give strides with the padded sizes"
        )
    sizes = tuple(int(size) for size in re.split("[x_]", match["dims"]))
    letters = dim_letters(match["format"])
    # formats have at least four dims; shapes may have fewer
    if letters is not None and len(sizes) < len(letters) == _MIN_NDIMS:
        sizes += (1,) * (_MIN_NDIMS - len(sizes))
    try:
        stated = data_type(match["dtype"])
    except MemdescError as error:
        unclear(error)
    dtype = given.type(stated)
    return memory_desc(given.sizes(sizes), dtype, match["format"])


_SPELLING = r"\w+:\w+:.*|.*__[a-z0-9]+__[0-9_]+__\w+\.bin"

SYSTEM = System("openvino", "OpenVINO", _write, _read, _SPELLING)
