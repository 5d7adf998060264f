"""Written: descriptors that can be written as JSON, which makes an equal descriptor again."""

from __future__ import annotations

from typing import Self

from memdesc.checked import Checked


class Written(Checked):
    """Mixin for the descriptors of memory and of images."""

    __slots__ = ()

    def to_json(self) -> str:
        """Write it as JSON that other programs can read.

        The keys are oneDNN's fields. A layout that these cannot describe has ``axes`` and
        ``blocks`` instead of ``padded_dims``, ``strides`` and the inner blocks, and ``xor`` if it
        is swizzled. An image has the descriptor of its pixels, its sides, its kind and its name.
        ``schema`` is 1, or 2 with ``xor``: readers skip unknown keys, and a form that older readers
        would misread gets a new number. `docs/descriptor.schema.json` is its JSON Schema.

        Examples
        --------
        >>> print(memdesc.memory_desc((2, 17), "f32", "aB8b").to_json())
        {"schema": 1, "dtype": "f32", "dims": [2, 17], "offset0": 0, \
"padded_offsets": [0, 0], "extra": null, \
"padded_dims": [2, 24], "strides": [24, 8], "inner_blks": [8], "inner_idxs": [1]}
        """
        from memdesc.descriptor_json import written  # only descriptors that are written need it

        return written(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        *Law*: `type(d).from_json(d.to_json()) == d`.

        Raises
        ------
        MemdescError
            If it is not a JSON object of this schema, or what it describes is not legal.

        Examples
        --------
        >>> text = memdesc.image_desc((1, 6, 5, 4), "f16", "tvm_texture").to_json()
        >>> memdesc.ImageDesc.from_json(text)
        image_desc((1, 6, 5, 4), 'f16', 'tvm_texture')
        """
        from memdesc.descriptor_json import read  # only descriptors that are read need it

        return read(text, cls)
