"""clDNN / OpenVINO GPU names: `b_fs_yx_fsv16`, `os_is_yx_isa8_osv8_isv4`.

A name is outer tokens, outermost first (`fs` is sliced, its block follows; `yxs`
slices the run y, x as one index), then blocks, outermost first (`sa` levels
before `sv` levels), then `__ai8` alignments. Sources: OpenVINO intel_gpu
`format.cpp` (2025), clDNN `tensor.hpp` (2019), and where the tables and the
kernels disagree (`fetch_weights.cl`, `fetch_data.cl`), the kernels.
"""

from __future__ import annotations

import re

from memdesc.errors import UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.tags import LETTERS, FormatTag, parse_tag

__all__ = ["VOCABULARY", "check_dims", "domain", "is_plain", "letters", "parse", "refuse"]

VOCABULARY = "cldnn"

_OUTER = r"(?P<dims>[bfgoixyzwuv]+)(?P<sliced>s?)(?P<align>[0-9]*)"
_INNER = r"(?P<dims>[bfgoixyzwuv]+)s[av](?P<extent>[0-9]+)"
_ALIGN = r"a(?P<dims>[bfgoixyzwuv])(?P<align>[0-9]+)"

_SPATIAL = ("", "yx", "zyx", "wzyx", "uwzyx", "vuwzyx")
_LETTERS = {
    **{frozenset("bf" + spatial): ("data", "bf" + spatial) for spatial in _SPATIAL},
    **{frozenset("oi" + spatial): ("weights", "oi" + spatial) for spatial in _SPATIAL[:3]},
    **{
        frozenset("goi" + spatial): ("grouped weights", "goi" + spatial)
        for spatial in _SPATIAL[1:3]
    },
    frozenset("bx"): ("data", "bx"),  # 2019: x is the flattened plane
}

# Names outside the grammar, or inside it with another meaning.
_RENAMED = {
    "bfyx_f16": "b_fs_yx_fsv16",
    "o_i_yx_i16_o16": "os_is_yx_isv16_osv16",
    "byxf_af32": "byxf__af32",
    "bs_f_bsv16": "bs_f_bsv16__af8",  # the kernels round f up to 8, the traits do not
    "bs_x_bsv16": "bs_x_bsv16__ax8",
}
_IRREGULAR = {
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
_FOUR_BIT = {
    "os_iyx_osv16": "ABcd16a2b",
    "os_iyx_osv32": "Abcd16a/1.2a/16",
    "os_iyx_osv64": "Abcd2a/32.16a/1.2a/16",
}

_WINOGRAD = "it holds transformed 3x3 filters, which no reorder can make; describe the plain filter, such as 'oiyx'"
_ONE_BIT = "it packs one-bit values, and there is no one-bit data type; the nearest layout of whole elements is"
_IMAGE = "it is an image, not a linear buffer; use memdesc.image_desc(dims, dtype, name)"
_REFUSED = {
    "winograd_2x3_s1_data": _WINOGRAD.replace("'oiyx'", "'bfyx'")
    .replace("3x3 filters", "input tiles")
    .replace("filter,", "tensor,"),
    "winograd_2x3_s1_weights": _WINOGRAD,
    "winograd_2x3_s1_fused_weights": _WINOGRAD,
    "winograd_6x3_s1_fused_weights": _WINOGRAD,
    "image_2d_weights_winograd_6x3_s1_fbxyb": _WINOGRAD,
    "image_2d_weights_winograd_6x3_s1_xfbyb": _WINOGRAD,
    "nv12": "it is a video surface whose planes differ in size, and reading it converts colours; convert it to 'byxf' first",
    "lstm_weights_dio": "its index is custom code over direction, input and 4*hidden; give strides instead",
    "b_fs_yx_32fp": f"{_ONE_BIT} 'b_fs_yx_fsv32'",
    "os_is_yx_osv32_isv32p": f"{_ONE_BIT} 'ABcd32a32b'",
    "custom": "it stands for any descriptor, built at run time; give its tag or strides",
    "image_2d_weights_c4_fyx_b": _IMAGE,
    "image_2d_weights_c1_b_fyx": _IMAGE,
    "image_2d_rgba": _IMAGE,
}


def is_plain(text: str) -> bool:
    """Return whether a text looks like one run of letters, such as `bfyx`."""
    return set("bfgoixyzwuv") >= set(text) and not {"x", "y"}.isdisjoint(text)


def domain(text: str) -> str:
    """Return what a name speaks of: `data`, `weights` or `grouped weights`."""
    if text == "bf_lyx_yx" or "weights" in text:
        return "weights"
    return _family(text)[0]


def letters(text: str) -> str:
    """Return the logical dims as a name calls them; nothing where it gives none."""
    return _family(text)[1]


def _family(text: str) -> tuple[str, str]:
    present = frozenset(
        re.sub(r"s[av][0-9]+p?|_swizzled_by_|__a|[^a-z]|s", "", _RENAMED.get(text, text))
    )
    return _LETTERS.get(present, ("data", ""))


def parse(text: str, *, packed: bool) -> FormatTag:
    """Read a name; three names lay `packed` elements, of 4 bits, out differently.

    Raises
    ------
    UnsupportedFormatError
        If the name is known, but no layout of elements; with the reason.
    UnknownFormatError
        If the text is no name by the grammar.
    """
    refuse(text)
    irregular = _FOUR_BIT.get(text) if packed else None
    canonical = irregular or _IRREGULAR.get(text) or _translate(_RENAMED.get(text, text))
    try:
        return parse_tag(canonical)
    except UnknownFormatError as error:
        raise _error(text, f"which reads as {error}") from None


def refuse(text: str) -> None:
    """Refuse the names that are no layout of elements.

    Raises
    ------
    UnsupportedFormatError
        With the reason.
    """
    if text in _REFUSED:
        msg = f"{text!r} cannot be described: {_REFUSED[text]}"
        raise UnsupportedFormatError(msg)


def check_dims(text: str, dims: tuple[int, ...]) -> None:
    """Refuse the sizes, as many as the name has dims, for which it is no layout of digits.

    Raises
    ------
    UnsupportedFormatError
        For an odd x under `iy_xs_os_xsv2_*`, and for y * x > 1 under
        `os_is_osv32_isv32_swizzled_by_4`.
    """
    if "iy_xs_os_xsv2_" in text and dims[-1] % 2:
        msg = (
            f"{text!r} with odd x = {dims[-1]}: the kernels store the unpaired last column in runs of their own, "
            "which no strides describe; pad x to an even size"
        )
        raise UnsupportedFormatError(msg)
    if text == "os_is_osv32_isv32_swizzled_by_4" and dims[2:] != (1, 1):
        msg = f"{text!r} with y, x = {dims[2:]}: the kernels address 1x1 filters only"
        raise UnsupportedFormatError(msg)


def _translate(text: str) -> str:
    """Rewrite a name in the canonical notation."""
    body, *aligned = text.split("__")
    outer: list[tuple[str, bool]] = []
    inner: list[tuple[str, str]] = []
    align: dict[str, str] = {}
    for token in body.split("_"):
        if match := re.fullmatch(_INNER, token):
            inner.append((match["dims"], match["extent"]))
        elif (match := re.fullmatch(_OUTER, token)) and not inner:
            outer.append((match["dims"], bool(match["sliced"])))
            if match["align"]:
                align[match["dims"][-1]] = match["align"]
        else:
            reason = f"{short_repr(token)} is neither an outer part such as 'fs' or 'yx' nor, behind those, a block such as 'fsv16'"
            raise _error(text, reason)
    for token in aligned:
        match = re.fullmatch(_ALIGN, token)
        if match is None:
            raise _error(text, f"{short_repr('__' + token)} is no alignment such as '__ai8'")
        if match["dims"] in align or not any(match["dims"] in dims for dims, _ in outer):
            raise _error(text, f"'__{token}' must align a dim that the name has, and only once")
        align[match["dims"]] = match["align"]
    present = frozenset("".join(dims for dims, _ in outer))
    if present not in _LETTERS:
        have = ", ".join(sorted(present))
        reason = f"no tensor has the dims {have}; data have b, f and [w] [z] y x, weights [g], o, i and [z] y x"
        raise _error(text, reason)
    order = _LETTERS[present][1]
    sliced = {dims for dims, is_sliced in outer if is_sliced}
    if sliced != {dims for dims, _ in inner}:
        odd = min(sliced ^ {dims for dims, _ in inner})
        reason = (
            f"{odd + 's'!r} is sliced, but no block of it follows"
            if odd in sliced
            else f"{odd!r} has a block, but is not sliced"
        )
        raise _error(text, reason)

    def name(dims: str) -> str:
        letters = "".join(sorted(LETTERS[order.index(dim)] for dim in dims))
        return f"({letters})" if len(letters) > 1 else letters

    canonical = ""
    for dims, is_sliced in outer:
        canonical += name(dims).upper() if is_sliced else "".join(name(dim) for dim in dims)
    canonical += "".join(f"{extent}{name(dims)}" for dims, extent in inner)
    return canonical + "".join(f"__{name(dims)}{count}" for dims, count in align.items())


def _error(text: str, reason: str) -> UnknownFormatError:
    return UnknownFormatError(f"{short_repr(text)}: {reason}")
