"""What the bits of each data type mean: the table that all conversions use.

The reference uses it to decode and encode, and the kernels are generated from it. The rounding
rules are in `reorder/values/convert.py` and, for users, in `docs/dtypes.md`. Widths and numpy
dtypes are in `memdesc/dtypes.py`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memdesc.dtypes import DATA_TYPES
from memdesc.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FloatFormat(NamedTuple):
    """A binary floating-point format: a sign, `exponent` bits, `mantissa` bits.

    `largest`, `overflow` and `nan` are bits without the sign; bits above `largest` are infinities
    and NaNs. In the fnuz formats the bits of -0.0 are the only NaN, so `nan` is the sign bit.
    """

    exponent: int
    mantissa: int
    bias: int
    # the largest finite number, what larger numbers become, NaN
    largest: int
    overflow: int
    nan: int

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def bits(self) -> int:
        """How many bits an element has."""
        return 1 + self.exponent + self.mantissa

    @property
    def has_inf(self) -> bool:
        """Whether the format has infinities, and NaNs with a payload."""
        return self.overflow != self.nan and self.overflow > self.largest

    @property
    def has_nan(self) -> bool:
        """Whether the format has a NaN."""
        return self.nan > self.largest

    @property
    def has_negative_zero(self) -> bool:
        """Whether the format has -0.0; otherwise these bits are NaN."""
        return self.nan != self.sign

    @property
    def max(self) -> float:
        """The largest finite number."""
        significand = self.largest % (1 << self.mantissa) + (1 << self.mantissa)
        return float(
            significand * 2.0 ** ((self.largest >> self.mantissa) - self.bias - self.mantissa)
        )

    def holds(self, other: FloatFormat) -> bool:
        """Whether it can represent all finite numbers of another format."""
        steps = [form.bias + form.mantissa for form in (other, self)]  # least numbers
        return other.max <= self.max and other.mantissa <= self.mantissa and steps[0] <= steps[1]


class IntegerFormat(NamedTuple):
    """Two's complement if `low` is negative, otherwise unsigned."""

    low: int
    high: int

    @property
    def bits(self) -> int:
        """How many bits an element has."""
        return (self.high - self.low).bit_length()

    @property
    def is_signed(self) -> bool:
        """Whether there are negative numbers."""
        return self.low < 0


class ExponentFormat(NamedTuple):
    """A power of two, 2 ** (code - bias), or a NaN: no sign, no mantissa, no zero."""

    bias: int
    nan: int

    @property
    def max(self) -> float:
        """The largest number."""
        return float(2.0 ** (self.nan - 1 - self.bias))


class BooleanFormat(NamedTuple):
    """A byte: true is written as `true`, and every value but 0 is read as true."""

    true: int


Format = FloatFormat | IntegerFormat | ExponentFormat | BooleanFormat


def ieee(exponent: int, mantissa: int) -> FloatFormat:
    """Return the IEEE 754 format with the given numbers of exponent and mantissa bits."""
    infinity = ((1 << exponent) - 1) << mantissa
    return FloatFormat(
        exponent,
        mantissa,
        (1 << (exponent - 1)) - 1,
        infinity - 1,
        infinity,
        infinity | 1 << (mantissa - 1),
    )


def _signed(bits: int) -> IntegerFormat:
    return IntegerFormat(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _unsigned(bits: int) -> IntegerFormat:
    return IntegerFormat(0, (1 << bits) - 1)


# name, format, oneDNN's dnnl_data_type_t (3.13; 0 if it has no such type).
# * f8_e4m3 is float8_e4m3fn: no infinities, one NaN for each sign.
# * The fnuz formats have one NaN and no -0.0; overflow gives NaN.
# * f4_e2m1 has neither infinities nor NaN: larger numbers and NaN become 6, as in oneDNN 3.13.
_ROWS: tuple[tuple[str, Format, int], ...] = (
    ("f64", ieee(11, 52), 7),
    ("f32", ieee(8, 23), 3),
    ("f16", ieee(5, 10), 1),
    ("bf16", ieee(8, 7), 2),
    ("f8_e5m2", ieee(5, 2), 9),
    ("f8_e4m3", FloatFormat(4, 3, 7, 0x7E, 0x7F, 0x7F), 10),
    ("f8_e5m2fnuz", FloatFormat(5, 2, 16, 0x7F, 0x80, 0x80), 0),
    ("f8_e4m3fnuz", FloatFormat(4, 3, 8, 0x7F, 0x80, 0x80), 0),
    ("e8m0", ExponentFormat(127, 0xFF), 13),
    ("f4_e2m1", FloatFormat(2, 1, 1, 0x7, 0x7, 0x7), 14),
    ("s64", _signed(64), 16),
    ("s32", _signed(32), 4),
    ("s16", _signed(16), 0),
    ("s8", _signed(8), 5),
    ("s4", _signed(4), 11),
    ("u64", _unsigned(64), 0),
    ("u32", _unsigned(32), 0),
    ("u16", _unsigned(16), 0),
    ("u8", _unsigned(8), 6),
    ("u4", _unsigned(4), 12),
    ("boolean", BooleanFormat(1), 8),
)

_forms: dict[str, Format] = {}
_floats: dict[str, FloatFormat] = {}
_integers: dict[str, IntegerFormat] = {}
FORMATS = MappingProxyType(_forms)
FLOATS = MappingProxyType(_floats)
INTEGERS = MappingProxyType(_integers)


def add_form(name: str, form: Format) -> None:
    """Add the form of a data type to the tables."""
    _forms[name] = form
    if isinstance(form, FloatFormat):
        _floats[name] = form
    elif isinstance(form, IntegerFormat):
        _integers[name] = form


for _name, _form, _ in _ROWS:
    add_form(_name, _form)
# oneDNN's numbers, for the types that it has
ONEDNN_TYPES = MappingProxyType({name: number for name, _, number in _ROWS if number})

_F32, _S64 = FLOATS["f32"], INTEGERS["s64"]
# a boolean as an integer
_BIT = _unsigned(1)
_WIDE = frozenset(name for name, dtype in DATA_TYPES.items() if dtype.bits > _F32.bits)


def largest_number(name: str) -> float | None:
    """Return the largest finite number, which `saturate` clamps to; None for integers."""
    form = FORMATS.get(name)
    return form.max if isinstance(form, FloatFormat | ExponentFormat) else None


def difference_type(name: str, work: str, points: NDArray[Any] | None = None) -> str:
    """Return the type in which zero points are subtracted: the working type, or f64 for f32.

    Where integers have more bits than f32's mantissa, the exact difference is rounded to f32.
    """
    is_wide = name in INTEGERS and INTEGERS[name].bits > _F32.mantissa
    if points is not None:
        is_wide = is_wide or bool((abs(points) >= 1 << _F32.mantissa).any())
    return "f64" if is_wide and work == "f32" else work


def rounds_through_f16(name: str) -> bool:
    """Whether oneDNN rounds to a type through f16, as it does for its 8-bit floats."""
    return name in ONEDNN_TYPES and name in FLOATS and FLOATS[name].bits == 8  # noqa: PLR2004 - see above


def working_type(src: str, dst: str, *, arithmetic: bool) -> str:
    """Return the type that a conversion computes in: f64 if a side has 64 bits, otherwise f32.

    Without arithmetic, integers and booleans use s64, or u64 if src may exceed s64.
    """
    # types that callers made have no format: they can only be moved
    forms = FORMATS.get(src), FORMATS.get(dst)
    if not arithmetic and all(isinstance(form, IntegerFormat | BooleanFormat) for form in forms):
        return "u64" if src in INTEGERS and INTEGERS[src].high > _S64.high else "s64"
    return "f32" if _WIDE.isdisjoint((src, dst)) else "f64"


def narrow_working_type(src: str, dst: str, *, arithmetic: bool) -> str:
    """Return the working type; for integers, the narrowest type of whole bytes that holds both.

    Conversions through either type have the same result.

    >>> narrow_working_type("u8", "s8", arithmetic=False)
    's16'
    >>> narrow_working_type("s32", "s8", arithmetic=False)
    's32'
    """
    work = working_type(src, dst, arithmetic=arithmetic)
    if work not in INTEGERS:
        return work
    ranges = [INTEGERS.get(name, _BIT) for name in (src, dst)]
    low, high = min(form.low for form in ranges), max(form.high for form in ranges)
    holding = (
        name
        for name, form in INTEGERS.items()
        if form.low <= low and form.high >= high and not DATA_TYPES[name].is_packed
    )
    return min(holding, key=lambda name: INTEGERS[name].bits, default=work)
