"""The C header that reads descriptors from JSON, made from the tables of this package."""

from __future__ import annotations

from pkgutil import get_data

from memdesc.dtypes import DATA_TYPES
from memdesc.tags import MAX_NDIMS
from memdesc.text import SCHEMA

__all__ = ["c_reader"]


def c_reader() -> str:
    """Return the text of `memdesc.h`: a C header that reads what `to_json` writes.

    It is C11 and C++17, needs the C library alone and allocates nothing. `memdesc_read` reads the
    JSON of a descriptor, also the file that `reorder.save` writes beside a .npy, and checks every
    number; `memdesc_offset` returns the offset of an index; `memdesc_npy_data` returns where in a
    .npy file the elements start. So a runtime can map a file and use it as it is.

    It does not check whether elements overlap, and reads no compensation, but says that there is
    some.

    *Law*: offsets and sizes are those of the descriptor.

    Examples
    --------
    >>> import memdesc
    >>> print(memdesc.c_reader()[:76])
    /* memdesc.h: read the JSON of a memory descriptor, schema 1, and compute of
    """
    template = (get_data(__name__, "reader.h.in") or b"").decode()
    types = ",\n".join(f'        {{"{name}", {dtype.bits}}}' for name, dtype in DATA_TYPES.items())
    for name, value in (("SCHEMA", SCHEMA), ("MAX_NDIMS", MAX_NDIMS), ("TYPES", types)):
        template = template.replace(f"@{name}@", str(value))
    return template
