"""Resolve a name to a tag, for given sizes and a given width of elements."""

from __future__ import annotations

import re

from memdesc.errors import MemdescError, UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.names import cldnn
from memdesc.names.images import IMAGES, ParsedImage, check_image_dims, parse_image
from memdesc.names.registry import dim_letters, parse_name
from memdesc.names.suggest import did_you_mean, meanings, nearest, suggest
from memdesc.names.vocabulary import refuse
from memdesc.tags import LETTERS, FormatTag

# Names for any number of dims. Other systems have several for a row-major layout.
_PLAIN = ("plain", "channels_first", "contiguous_format", "contiguous", "row_major")
# What Keras and torch call a layout whose innermost dim is 1, by the number of dims.
_CHANNELS_LAST = {
    "channels_last": {3: "nwc", 4: "nhwc", 5: "ndhwc"},
    "channels_last_3d": {5: "ndhwc"},
}
# formats of quantised tensors, which `memdesc.record` describes
_RECORDS = """
q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k tq1_0 tq2_0 iq1_s iq1_m iq2_xxs iq2_xs iq2_s
iq3_xxs iq3_s iq4_nl iq4_xs gguf_mxfp4 gguf_nvfp4 gptq awq torch_int4_cpu torch_int4_cpu_avx2
torch_int4_cpu_default ocp_mxfp4 ocp_mxfp8 modelopt_nvfp4 compressed_nvfp4 modelopt_mxfp4
compressed_mxfp4 gpt_oss_mxfp4 mxfp8 mlx_mxfp4 mlx_mxfp8 mlx_nvfp4 fp8_tensor fp8_channel fp8_block
deepseek_fp8 deepseek_fp4 mlx pack_quantized int_quantized hqq ggml_soa adreno_noshuffle
adreno_trans4_ns bnb_nf4 bnb_fp4
"""
RECORDS = frozenset(_RECORDS.split())
# stands for all dims that the tag does not name
_REST = "x"


def expand_meta_tag(name: str, ndims: int) -> str:
    """Return the name that one for any number of dims stands for; return other names unchanged.

    `plain` is row-major. A meta-tag of benchdnn names the first dims, and `x` stands for the
    others; as there, dims that a tensor does not have are left out.

    >>> expand_meta_tag("abx", 4), expand_meta_tag("axb", 5), expand_meta_tag("aBx16b", 3)
    ('abcd', 'acdeb', 'aBc16b')
    >>> expand_meta_tag("abx", 1), expand_meta_tag("aBx16b", 1)
    ('a', 'a')
    >>> expand_meta_tag("channels_last", 4), expand_meta_tag("channels_last", 3)
    ('nhwc', 'nwc')
    >>> expand_meta_tag("plain", 2), expand_meta_tag("x", 1), expand_meta_tag("bfyx", 4)
    ('ab', 'x', 'bfyx')
    """
    if name in _PLAIN:
        return LETTERS[:ndims]
    if name in _CHANNELS_LAST:
        return _CHANNELS_LAST[name].get(ndims, name)
    # after a number it would be the letter of a block
    if name.count(_REST) != 1 or not re.fullmatch(f"([A-La-l{_REST}]|[0-9]+[A-La-l])+", name):
        return name
    named = "".join(sorted({*name.lower()} - {*"0123456789", _REST}))
    if not named or not LETTERS.startswith(named):
        return name
    tag = name.replace(_REST, LETTERS[len(named) : ndims])
    absent = LETTERS[max(ndims, 1) :]
    return re.sub(f"[0-9]*[{absent}]", "", tag, flags=re.IGNORECASE) if absent else tag


def resolve(name: str, dims: tuple[int, ...], bits: int) -> FormatTag:
    """Find the tag of a name in any vocabulary; suggest similar names for an unknown one.

    A few names exist only for some sizes; dims of `()` skip this check. Packings of weights exist
    only for elements of some widths in bits, and a few names mean another layout for 4-bit ones.
    """
    if not isinstance(name, str):
        raise MemdescError(f"a tag is a name or a FormatTag, not {short_repr(name)}")
    try:
        tag, vocabulary = parse_name(name, bits)
    except UnknownFormatError as error:
        if meant := meanings(name, len(dims) or None) or meanings(name):
            raise UnknownFormatError(f"unknown format {name!r}: {_spelled(meant)}") from None
        raise UnknownFormatError(
            f"{error}{did_you_mean(suggest(name, len(dims) or None))}"
        ) from None
    vocabulary.check_dims(name, dims, tag)
    return tag


def refuse_record(name: str) -> None:
    """Refuse the name of a record, which is not a layout."""
    if name.lower() in RECORDS:
        raise UnsupportedFormatError(
            f"{name!r} is a record, blocks with their own scales, and has no layout of elements; "
            f"record_desc(dims, {name!r}) describes it, and `memdesc show {name} DIMS` shows it"
        )


def _spelled(names: tuple[str, ...]) -> str:
    """Return what a layout is called here, with the order of its logical dims."""
    named = {name: dim_letters(name) for name in names}
    return "it is " + " or ".join(
        f"{name!r} here" + (f", for logical dims {', '.join(letters)}" if letters else "")
        for name, letters in named.items()
    )


def resolve_image(name: str, dims: tuple[int, ...]) -> ParsedImage:
    """Find the tag of an image type, and how many of its digits belong to rows and columns."""
    try:
        image = parse_image(name)
    except UnknownFormatError as error:
        refuse(name, cldnn.REFUSED)  # it has the reason for images that cannot be described
        raise UnknownFormatError(
            f"{error}{did_you_mean(nearest(name, IMAGES, len(dims)))}"
        ) from None
    if len(dims) == image.tag.ndims:
        check_image_dims(name, dims)
    return image
