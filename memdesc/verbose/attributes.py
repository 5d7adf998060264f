"""The attributes of a verbose line as values: scales, zero points, post-ops, and the rest."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["PostOp", "QuantizationParameter", "VerboseAttributes", "read_attributes"]

# oneDNN 3: mask, dtype, groups, and words such as host_scalar; oneDNN 2: mask, and the value of
# mask 0 or a star for one that is known later. OpenVINO's build prints more, and is not read.
_PARAMETER = re.compile(
    r"(?P<mask>[0-9]{1,9})"
    r"(?::(?P<dtype>[a-z][a-z0-9_]*)(?::(?P<groups>[0-9]{1,19}(?:x[0-9]{1,19})+))?(?::[a-z_]+)*"
    r"|:(?P<value>[-+.0-9e]*)\*?)?"
)
# between two items; a plus in a number, as in 1e+05, is followed by a digit
_NEXT = re.compile(r"\+(?=[a-z])")


class QuantizationParameter(NamedTuple):
    """A scale or a zero point: of which argument, along which dims, of which type.

    Its values are not in a log of oneDNN 3; oneDNN 2 printed the value of mask 0.

    Parameters
    ----------
    argument : str
        ``src``, ``wei``, ``dst``, ``src1``, ...; empty for the output scale of oneDNN 2.
    mask : int
        Bit d is set where the values differ along dim d.
    dtype : str
        Type of the values; empty where the line does not say it.
    groups : tuple of int
        How many neighbours along each of the last dims share a value; empty without groups.
    value : float or None
        The value, where the line has it.
    """

    argument: str
    mask: int
    dtype: str = ""
    groups: tuple[int, ...] = ()
    value: float | None = None


class PostOp(NamedTuple):
    """A post-op: its kind, such as ``sum`` or ``eltwise_relu``, and its numbers as printed."""

    kind: str
    parameters: tuple[str, ...] = ()


class VerboseAttributes(NamedTuple):
    """The attributes of a primitive.

    Parameters
    ----------
    scales, zero_points : tuple of QuantizationParameter
        One for each argument; output scales of oneDNN 2 are a scale without argument.
    post_ops : tuple of PostOp
        In their order.
    others : tuple of (str, str)
        Name without ``attr-`` and text of all others: ``("scratchpad", "user")``.
    """

    scales: tuple[QuantizationParameter, ...] = ()
    zero_points: tuple[QuantizationParameter, ...] = ()
    post_ops: tuple[PostOp, ...] = ()
    others: tuple[tuple[str, str], ...] = ()


def read_attributes(text: str) -> VerboseAttributes:
    """Read the attributes of a line; what has no known form is kept in `others`.

    Examples
    --------
    >>> found = read_attributes("attr-scales:src0:0:f32+wei:3:f16:1x32 attr-post-ops:sum:0.5")
    >>> found.scales[1]
    QuantizationParameter(argument='wei', mask=3, dtype='f16', groups=(1, 32), value=None)
    >>> found.post_ops
    (PostOp(kind='sum', parameters=('0.5',)),)
    """
    parts: dict[str, tuple[QuantizationParameter, ...]] = {}
    post_ops: tuple[PostOp, ...] = ()
    others = []
    for word in text.split():
        name, _, value = word.partition(":")
        name = name.removeprefix("attr-")
        items = _NEXT.split(value)
        parameters: list[QuantizationParameter | None] = []
        if name in {"scales", "zero-points"}:
            parameters = [_parameter(*item.partition(":")[::2]) for item in items]
        elif name == "oscale":
            parameters = [_parameter("", value)]
        known = tuple(each for each in parameters if each is not None)
        if name == "post-ops" and value:
            words = [item.split(":") for item in items]
            post_ops = tuple(PostOp(kind, tuple(numbers)) for kind, *numbers in words)
        elif known and len(known) == len(parameters):
            parts["zero_points" if name == "zero-points" else "scales"] = known
        else:
            others.append((name, value))
    return VerboseAttributes(**parts, post_ops=post_ops, others=tuple(others))


def _parameter(argument: str, text: str) -> QuantizationParameter | None:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        return None
    groups = tuple(map(int, match["groups"].split("x"))) if match["groups"] else ()
    try:
        value = float(match["value"]) if match["value"] else None
    except ValueError:
        return None
    return QuantizationParameter(argument, int(match["mask"]), match["dtype"] or "", groups, value)
