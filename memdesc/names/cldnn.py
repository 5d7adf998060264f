"""clDNN / OpenVINO GPU names: `b_fs_yx_fsv16`, `os_is_yx_isa8_osv8_isv4`.

A name has outer tokens, outermost first (`fs` is sliced, and its block follows; `yxs` slices y, x
as one index), then blocks, outermost first (`sa` levels before `sv` levels), then alignments such
as `__ai8`. Sources: OpenVINO intel_gpu `format.cpp` (2025), clDNN `tensor.hpp` (2019); where the
tables and the kernels (`fetch_weights.cl`, `fetch_data.cl`) disagree, the kernels.
"""

from __future__ import annotations

import re

from memdesc.errors import UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.names.vocabulary import Vocabulary, read_names
from memdesc.tags import LETTERS, FormatTag, parse_tag

# Letters of dims: batch, feature, group, output and input feature, and the spatial dims x to u.
_DIMS = "bfgoixyzwuv"
_OUTER = rf"(?P<dims>[{_DIMS}]+)(?P<sliced>s?)(?P<align>[0-9]*)"
_INNER = rf"(?P<dims>[{_DIMS}]+)s[av](?P<extent>[0-9]+)"
_ALIGN = rf"a(?P<dims>[{_DIMS}])(?P<align>[0-9]+)"
# Names of this system have a token separator (fs_yx), or an alignment with an `a` (ab__ai8; the
# canonical notation is ab__b8).
_SPELLING = r"[^_]_[^_]|__a[a-z]"

_SPATIAL = ("", "yx", "zyx", "wzyx", "uwzyx", "vuwzyx")
# the letters present -> (domain, letters in logical order)
_LETTERS = {
    **{frozenset("bf" + spatial): ("data", "bf" + spatial) for spatial in _SPATIAL},
    **{frozenset("oi" + spatial): ("weights", "oi" + spatial) for spatial in _SPATIAL[:3]},
    **{
        frozenset("goi" + spatial): ("grouped weights", "goi" + spatial)
        for spatial in _SPATIAL[1:3]
    },
    frozenset("bx"): ("data", "bx"),  # 2019: x is the flattened plane
}

# Names outside the grammar, or with another meaning than by the grammar -> canonical notation.
_IRREGULAR = {
    "bfyx_f16": "aBcd16b",
    "o_i_yx_i16_o16": "ABcd16b16a",
    "byxf_af32": "acdb__b32",
    "bs_f_bsv16": "Ab16a__b8",  # the kernels round f up to 8, unlike the traits
    "bs_x_bsv16": "Ab16a__b8",
    "bf8_xy16": "aB(CD)8b16(cd)",
    "bf_lyx_yx": "abcdef",
    "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4": "ABcd4a/1.8b8a/4.4b",
    "os_is_zyx_osa4_isa8_osv8_isv4_swizzled_by_4": "ABcde4a/1.8b8a/4.4b",
    "os_is_yx_osv32_isv4_swizzled_by_2": "ABcd2a/1.16a/2.4b",
    "is_o32_yx_isv32_swizzled_by_4": "BA4a/1.8a/4cd32b",
    "os_is_y_x8_osv8_isv4_swizzled_by_4": "A4a/1Bcd8a/4.4b__d8",
    "os_is_yx_isa8_osv8_isv4_swizzled_by_4": "A4a/1Bcd8b8a/4.4b",
    "os_is_osv32_isv32_swizzled_by_4": "ABcd4a/1.8b8a/4.4b",
}
# Names with a different layout for 4-bit elements -> its canonical notation.
_PACKED = 4
_FOUR_BIT = {
    "os_iyx_osv16": "ABcd16a2b",
    "os_iyx_osv32": "Abcd16a/1.2a/16",
    "os_iyx_osv64": "Abcd2a/32.16a/1.2a/16",
}

_NO_REORDER = "which a reorder cannot make; describe the plain"
_WINOGRAD = f"it holds transformed 3x3 filters, {_NO_REORDER} filter, such as 'oiyx'"
_ONE_BIT = (
    "it packs one-bit values, and there is no one-bit data type; "
    "the nearest layout of whole elements is"
)
_IMAGE = "it is an image, not a linear buffer; use memdesc.image_desc(dims, dtype, name)"
# Names that are not layouts of elements -> the reason.
_REFUSED = {
    "winograd_2x3_s1_data": (
        f"it holds transformed input tiles, {_NO_REORDER} tensor, such as 'bfyx'"
    ),
    "winograd_2x3_s1_weights": _WINOGRAD,
    "winograd_2x3_s1_fused_weights": _WINOGRAD,
    "winograd_6x3_s1_fused_weights": _WINOGRAD,
    "image_2d_weights_winograd_6x3_s1_fbxyb": _WINOGRAD,
    "image_2d_weights_winograd_6x3_s1_xfbyb": _WINOGRAD,
    "nv12": (
        "it is a video surface whose planes have different sizes, and reading it converts "
        "colours; convert it to 'byxf' first"
    ),
    "lstm_weights_dio": (
        "its index is custom code over direction, input and 4*hidden; give strides instead"
    ),
    "b_fs_yx_32fp": f"{_ONE_BIT} 'b_fs_yx_fsv32'",
    "os_is_yx_osv32_isv32p": f"{_ONE_BIT} 'ABcd32a32b'",
    "custom": "it stands for any descriptor that is built at run time; give its tag or strides",
    "image_2d_weights_c4_fyx_b": _IMAGE,
    "image_2d_weights_c1_b_fyx": _IMAGE,
    "image_2d_rgba": _IMAGE,
}


def _translate(name: str) -> str:
    """Rewrite a name in the canonical notation; refuse a token that is not part of any name."""
    body, *aligned = name.split("__")
    # dims of each outer token, outermost first, and whether they are sliced
    outer: list[tuple[str, bool]] = []
    # dims and extent of each block, outermost first
    inner: list[tuple[str, str]] = []
    # for a dim, the multiple to which its extent is rounded up
    align: dict[str, str] = {}
    for token in body.split("_"):
        if match := re.fullmatch(_INNER, token):
            inner.append((match["dims"], match["extent"]))
        elif (match := re.fullmatch(_OUTER, token)) and not inner:
            outer.append((match["dims"], bool(match["sliced"])))
            if match["align"]:
                align[match["dims"][-1]] = match["align"]
        else:
            reason = (
                f"{short_repr(token)} is neither an outer part such as 'fs' or 'yx' "
                "nor, after those, a block such as 'fsv16'"
            )
            raise _error(name, reason)
    for token in aligned:
        match = re.fullmatch(_ALIGN, token)
        if match is None:
            raise _error(name, f"{short_repr('__' + token)} is not an alignment such as '__ai8'")
        if match["dims"] in align or not any(match["dims"] in dims for dims, _ in outer):
            raise _error(name, f"'__{token}' must align a dim of the name, and only once")
        align[match["dims"]] = match["align"]
    order = _logical_order(name, "".join(dims for dims, _ in outer))
    sliced = {dims for dims, is_sliced in outer if is_sliced}
    if wrong := min(sliced ^ {dims for dims, _ in inner}, default=""):
        reason = f"{wrong!r} has a block, but is not sliced"
        if wrong in sliced:
            reason = f"{wrong + 's'!r} is sliced, but no block of it follows"
        raise _error(name, reason)

    def axis(dims: str) -> str:
        letters = "".join(sorted(LETTERS[order.index(dim)] for dim in dims))
        return f"({letters})" if len(letters) > 1 else letters

    parts = [axis(dims).upper() if is_one else "".join(map(axis, dims)) for dims, is_one in outer]
    parts += [f"{extent}{axis(dims)}" for dims, extent in inner]
    return "".join(parts + [f"__{axis(dim)}{count}" for dim, count in align.items()])


def _logical_order(name: str, dims: str) -> str:
    """Return the letters of the dims in logical order; refuse dims that no tensor has."""
    if (present := frozenset(dims)) in _LETTERS:
        return _LETTERS[present][1]
    reason = (
        f"no tensor has the dims {', '.join(sorted(present))}; "
        "data has b, f and [w] [z] y x, weights have [g], o, i and [z] y x"
    )
    raise _error(name, reason)


def _error(name: str, reason: str) -> UnknownFormatError:
    return UnknownFormatError(f"{short_repr(name)}: {reason}")


class _ClDNN(Vocabulary):
    def known(self) -> tuple[str, ...]:
        """Return the names of the tables."""
        return read_names("cldnn.json")

    def family(self, name: str) -> tuple[str, str]:
        """Return `data`, `weights` or `grouped weights`, and the logical letters if they are known.

        The letters are those of dims, without blocks (sv16), alignments, and the s of sliced dims.
        """
        bare = re.sub(r"s[av][0-9]+p?|_swizzled_by_|_+a|[^a-z]|s", "", name)
        domain, letters = _LETTERS.get(frozenset(bare), ("data", ""))
        return "weights" if name == "bf_lyx_yx" or "weights" in name else domain, letters

    def parse(self, name: str, bits: int) -> FormatTag:
        """Read a name."""
        irregular = _IRREGULAR | _FOUR_BIT if bits == _PACKED else _IRREGULAR
        canonical = irregular.get(name) or _translate(name)
        try:
            return parse_tag(canonical)
        except UnknownFormatError as error:
            raise _error(name, f"which reads as {error}") from None

    def check_dims(self, name: str, dims: tuple[int, ...], _tag: FormatTag) -> None:
        """Refuse sizes, one for each dim, for which a name is not a layout of digits."""
        if "iy_xs_os_xsv2_" in name and dims[-1] % 2:
            raise UnsupportedFormatError(
                f"{name!r} with odd x = {dims[-1]}: the kernels store the unpaired last column "
                "apart, which strides cannot describe; pad x to an even size"
            )
        if name == "os_is_osv32_isv32_swizzled_by_4" and dims[2:] != (1, 1):
            raise UnsupportedFormatError(
                f"{name!r} with y, x = {dims[2:]}: the kernels address 1x1 filters only"
            )

    def is_spelled_like(self, name: str) -> bool:
        """Whether a name has tokens, or consists of letters of dims only, such as `bfyxx`."""
        is_plain = set(_DIMS) >= set(name) and not {"x", "y"}.isdisjoint(name)
        return is_plain or re.search(_SPELLING, name) is not None


VOCABULARY = _ClDNN(
    "cldnn", "format of OpenVINO", refused=_REFUSED, scopes=("format::", "cldnn::format::")
)
