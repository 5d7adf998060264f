"""Tags: how dims are divided into blocks and ordered, without sizes; and their notation.

The notation is oneDNN's: in `aBcd16b` letter k is logical dim k, in upper case if the dim is
blocked; the inner blocks `<extent><letter>` follow, outermost first. Four additions describe
layouts that oneDNN's notation cannot:

* `(cd)` is one axis made of several dims, indexed row-major over them;
* `4a/1` gives the step of a digit, (index / step) % extent, if the steps of an axis's digits
  are not in descending order (`.` separates the step from a number that follows);
* an inner digit may come before an outer letter;
* `__b8` at the end rounds the extent of an axis up to a multiple of 8.

`str(tag)` writes this notation, `parse_tag` reads it.
"""

from memdesc.tags.notation import count_digits, parse_tag
from memdesc.tags.tag import LETTERS, MAX_NDIMS, Digit, FormatTag, axis_name, check_letters

__all__ = [
    "LETTERS",
    "MAX_NDIMS",
    "Digit",
    "FormatTag",
    "axis_name",
    "check_letters",
    "count_digits",
    "parse_tag",
]
