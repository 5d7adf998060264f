"""Written: descriptors that can be written as JSON, which makes an equal descriptor again."""

from __future__ import annotations

from typing import Any, Self

from memdesc.checked import Checked
from memdesc.errors import MemdescError, short_repr

# version of the JSON form; a different form gets a different number
SCHEMA = 1
# the form with XOR terms, which a reader of schema 1 would skip
SWIZZLED = 2


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

        >>> print(memdesc.memory_desc((2, 17), "f32", "aB8b").to_json())
        {"schema": 1, "dtype": "f32", "dims": [2, 17], "offset0": 0, \
"padded_offsets": [0, 0], "extra": null, \
"padded_dims": [2, 24], "strides": [24, 8], "inner_blks": [8], "inner_idxs": [1]}
        """
        import json  # slow to load

        return json.dumps(self._fields())

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
        import json  # slow to load

        try:
            return cls._of_fields(json.loads(text))
        except MemdescError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            reason = f"the key {error} is missing" if isinstance(error, KeyError) else error
            raise MemdescError(f"not a descriptor: {reason}; to_json() shows the form") from error

    def _fields(self) -> dict[str, Any]:
        """Return what `to_json` writes."""
        raise NotImplementedError

    @classmethod
    def _of_fields(cls, fields: Any) -> Self:
        """Make a value from what JSON has, which `check_schema` has not yet seen."""
        raise NotImplementedError


def check_schema(fields: Any) -> None:
    """Refuse what is not an object of a schema that is known here."""
    if not isinstance(fields, dict):
        raise MemdescError(
            f"a descriptor is a JSON object, not {short_repr(fields)}; to_json() shows the form"
        )
    schema = fields["schema"]
    if not isinstance(schema, int) or schema is True or schema not in {SCHEMA, SWIZZLED}:
        raise MemdescError(
            f"descriptor of schema {short_repr(schema)}; this version reads schema {SCHEMA} and "
            f"{SWIZZLED}"
        )
    if schema == SWIZZLED and "axes" not in fields:
        raise MemdescError(f"a descriptor of schema {SWIZZLED} has axes, blocks and xor")
