"""Elements to values and back, in vectors: the rules of `reorder.values.convert` in LLVM.

A value is of a working type: f32, f64, s64 or u64. Codes are the bits of elements, as vectors of
integers of their width; here a 4-bit code is the low half of a byte. A type's row in
`reorder.values.formats` decides which instructions convert it: one pair of functions for each kind.
"""

from reorder.cpu.codecs.floats import (
    as_f32,
    canonicalises_in_branch,
    decode,
    encode_exponent,
    encode_float,
)
from reorder.cpu.codecs.integers import (
    decode_boolean,
    decode_integer,
    encode_boolean,
    encode_integer,
)
from reorder.cpu.codecs.x86 import truncated
from reorder.cpu.llvm.emit import Value, where
from reorder.cpu.llvm.vectors import Vectors, code_bits, is_number
from reorder.values.formats import (
    FLOATS,
    FORMATS,
    INTEGERS,
    BooleanFormat,
    ExponentFormat,
    FloatFormat,
    IntegerFormat,
)


class Codec(Vectors):
    """Vectors of `lanes` elements, and their conversion to values and back."""

    def decode(self, codes: Value, name: str, work: str) -> Value:
        """Return the values of codes of a type, in a working type."""
        if name == work:
            return codes.bitcast(self.values(work))
        match FORMATS[name]:
            case IntegerFormat() as form:
                return decode_integer(self, codes, form, work)
            case BooleanFormat():
                return decode_boolean(self, codes, work)
            case ExponentFormat() | FloatFormat() as form:
                values = decode(self, codes, form)
        vector_type = self.values(work)
        return values if values.type == vector_type else values.fpext(vector_type)

    def canonical(self, values: Value, work: str) -> Value:
        """Return floats in which every NaN is the positive quiet NaN without payload."""
        nan = self.splat(self.integers(code_bits(work)), FLOATS[work].nan)
        return where(is_number(values), values, nan.bitcast(values.type))

    def encode(
        self,
        values: Value,
        work: str,
        name: str,
        *,
        may_be_nan: bool = True,
        may_be_denormal: bool = True,
        canonical: bool = False,
    ) -> Value:
        """Return the codes, in the type `name`, of values of the working type `work`.

        Floats that cannot be NaN or denormal may be encoded faster. With `canonical=True` every
        NaN becomes the one that the method `canonical` returns.
        """
        has_nan = (
            canonical and name not in INTEGERS and not canonicalises_in_branch(FORMATS[name], work)
        )
        values = self.canonical(values, work) if has_nan else values
        if name == work:
            return values.bitcast(self.integers(code_bits(name)))
        match FORMATS[name]:
            case IntegerFormat() as form:
                return encode_integer(self, values, work, form, may_be_nan=may_be_nan)
            case BooleanFormat() as form:
                return encode_boolean(self, values, work, form)
            case ExponentFormat():
                codes = encode_exponent(self, as_f32(self, values))
            case FloatFormat() as form:
                numbers = as_f32(self, values, form)
                codes = encode_float(
                    self, numbers, form, may_be_denormal=may_be_denormal, canonical=canonical
                )
        return truncated(self, codes, code_bits(name))
