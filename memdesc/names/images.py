"""Types of OpenCL images as `rows|columns|lane`, and of 3-D ones as `depth|rows|columns|lane`.

`Acd|b|4a` has a row for each (a / 4, c, d), a column for each b, and four values of a in
a pixel; each part is a piece of the canonical notation. Sources: MACE at 0fc55a54,
`buffer_to_image.cl` and `CalImage2DShape`, and where its layout pages and the kernels differ
(height- and width-major activations), the kernels; `format.hpp` of OpenVINO 2025; ExecuTorch at
cff6f4dd, `backends/vulkan`, `Tensor.cpp` and `nchw_to_image.glsl`; TensorFlow's GPU delegate,
`tensor_desc.cc`; MNN at 4d40bdbd, `buffer_to_image.cl`; Paddle-Lite at 3d329c95,
`cl_image_converter.cc`; TVM at 5d4dc872, `texture.h`; ncnn before June 2025, `allocator.cpp`.
"""

from __future__ import annotations

from types import MappingProxyType

from memdesc.errors import MemdescError, UnknownFormatError, short_repr
from memdesc.names.vocabulary import refuse
from memdesc.tags import FormatTag, count_digits, parse_tag
from memdesc.tuples import NamedTuple


class ImageType(NamedTuple):
    """What an image type of a system holds.

    `letters` are the logical dims; `parts` is [depth|]rows|columns|lane over dims a, b, c, ...
    Dims in `ones` must have size 1, and dims in `whole` whole blocks. With a depth, it is an array
    of 2-D images if `is_array`, and a 3-D image otherwise.
    """

    letters: str
    parts: str
    system: str
    ones: str = ""
    whole: str = ""
    is_array: bool = False


# what the parts before the lane are, by their number
_SIDES = {2: ("rows", "columns"), 3: ("depth", "rows", "columns")}

IMAGES = MappingProxyType(
    {
        "in_out_channel": ImageType("nchw", "ac|Bd|4b", "mace"),
        "in_out_height": ImageType("nchw", "aC|bd|4c", "mace"),
        "in_out_width": ImageType("nchw", "ac|bD|4d", "mace"),
        "conv2d_filter": ImageType("oihw", "Acd|b|4a", "mace"),
        "dw_conv2d_filter": ImageType("mihw", "B|acd|4b", "mace", ones="m"),
        "weight_height": ImageType("oihw", "A|cdb|4a", "mace"),
        "weight_width": ImageType("oihw", "a|cdB|4b", "mace"),
        "argument": ImageType("a", "|A|4a", "mace"),
        "image_2d_weights_c4_fyx_b": ImageType("oiyx", "a|(BCD)|4(bcd)", "cldnn"),
        "image_2d_weights_c1_b_fyx": ImageType("oiyx", "bcd|a|", "cldnn"),
        "image_2d_rgba": ImageType("bfyx", "Bac|d|4b", "cldnn", ones="b"),
        "executorch_channels_packed": ImageType("nchw", "aB|c|d|4b", "executorch"),
        "executorch_height_packed": ImageType("nchw", "ab|C|d|4c", "executorch"),
        "executorch_width_packed": ImageType("nchw", "ab|c|D|4d", "executorch"),
        "executorch_conv2d_weight": ImageType("oihw", "Ac|Bd4b|4a", "executorch"),
        "executorch_dw_conv2d_weight": ImageType("oihw", "A|bcd|4a", "executorch", ones="i"),
        "tflite_gpu_texture_2d": ImageType("bhwc", "bD|ca|4d", "tflite_gpu"),
        "tflite_gpu_texture_3d": ImageType("bhwc", "D|b|ca|4d", "tflite_gpu"),
        "tflite_gpu_texture_array": ImageType("bhwc", "D|b|ca|4d", "tflite_gpu", is_array=True),
        "tflite_gpu_image_buffer": ImageType("bhwc", "|Dbca|4d", "tflite_gpu"),
        "tflite_gpu_single_texture_2d": ImageType("bhwc", "b|ca|d", "tflite_gpu"),
        "mnn_image": ImageType("nchw", "ac|Bd|4b", "mnn"),
        "mnn_conv2d_filter": ImageType("oihw", "Acd|b|4a", "mnn"),
        "mnn_conv2d_1x1_filter": ImageType("oihw", "acd|B|4b", "mnn", ones="hw"),
        "mnn_dw_conv2d_filter": ImageType("mihw", "B|acd|4b", "mnn", ones="m"),
        "paddle_image_default": ImageType("nchw", "ac|Bd|4b", "paddle"),
        "paddle_image_folder": ImageType("hw", "a|B|4b", "paddle"),
        "paddle_image_nw": ImageType("nchw", "bc|Ad|4a", "paddle"),
        "paddle_conv2d_filter": ImageType("oihw", "Acd|b|4a__b4", "paddle"),
        "paddle_conv2d_filter_n2": ImageType("oihw", "Acd|B2a4b|4a", "paddle"),
        "paddle_dw_conv2d_filter": ImageType("oihw", "A|bcd|4a", "paddle", ones="i"),
        "tvm_texture": ImageType("nchw", "aB|c|d|4b", "tvm", is_array=True),
        "tvm_texture_nhwc": ImageType("nchw", "a|c|dB|4b", "tvm", is_array=True),
        "tvm_texture_weight": ImageType("oihw", "A|bcd|4a", "tvm"),
        "ncnn_image_elempack1": ImageType("chw", "a|b|c|", "ncnn"),
        "ncnn_image_elempack4": ImageType("chw", "A|b|c|4a", "ncnn", whole="c"),
        "ncnn_image_elempack8": ImageType("chw", "A|b|c2a/4|4a/1", "ncnn", whole="c"),
    }
)


# names that are not images of elements, or that several images have -> the reason
REFUSED = MappingProxyType(
    {
        "winograd_filter": "it holds G g G^T of each 3x3 filter, which a reorder cannot make",
        "WinoTransWeight": "it holds transformed filters, which a reorder cannot make",
        "PACKED_INT8_CONV2D": (
            "it is the packing that ExecuTorch's device picks as it loads the model; name that one"
        ),
        **{
            f"TENSOR_{axis}_PACKED": (
                f"it is a texture or a buffer in ExecuTorch: 'executorch_{axis.lower()}_packed' "
                f"names the texture, and {buffer!r} the buffer"
            )
            for axis, buffer in (("WIDTH", "abcd"), ("HEIGHT", "abdc"), ("CHANNELS", "acdb"))
        },
    }
)


class ParsedImage(NamedTuple):
    """The digits of depth, rows, columns and lane in this order, and how many the first three have.

    `kind` is ``2d``, or with a depth ``3d`` or ``array``.
    """

    tag: FormatTag
    counts: tuple[int, ...]
    kind: str


def is_image(name: str) -> bool:
    """Whether a name is that of an image type, not of a linear buffer."""
    return name in IMAGES or "|" in name


def parse_image(name: str) -> ParsedImage:
    """Read an image type, `rows|columns|lane` or `depth|rows|columns|lane`."""
    refuse(name, REFUSED)
    known = IMAGES.get(name)
    *parts, lane = (known.parts if known else name).split("|")
    if len(parts) not in _SIDES:
        mace = ", ".join(text for text, row in IMAGES.items() if row.system == "mace")
        raise UnknownFormatError(
            f"{short_repr(name)} is not an image type; they are {mace} and those of other systems, "
            "or rows|columns|lane such as 'ac|Bd|4b', or depth|rows|columns|lane"
        )
    counts = []
    for side, part in zip(_SIDES[len(parts)], parts, strict=True):
        count = count_digits(part)
        if count is None:
            raise UnknownFormatError(
                f"{short_repr(name)}: {side} {short_repr(part)} must be letters and blocks; "
                "alignments go at the end"
            )
        counts.append(count)
    # `.` separates the step at the end of a part from the number that starts the next part
    joined = "".join(part + "." if part[-1:].isdigit() else part for part in parts) + lane
    try:
        tag = parse_tag(joined)
    except UnknownFormatError as error:
        raise UnknownFormatError(f"{short_repr(name)}, which reads as {error}") from None
    lanes = tag.digits[sum(counts) :]
    if len(lanes) > 1 or any(digit.extent not in (0, 4) for digit in lanes):
        raise UnknownFormatError(
            f"{short_repr(name)}: the lane part {short_repr(lane)} must be empty (one channel), "
            "one block of 4, such as '4b' (RGBA), or a dim of 1, 2 or 4"
        )
    kind = "2d" if len(parts) == len(_SIDES[2]) else "array" if known and known.is_array else "3d"
    return ParsedImage(tag, (0, *counts)[-3:], kind)


def check_image_dims(name: str, dims: tuple[int, ...]) -> None:
    """Refuse sizes that an image type does not support."""
    known = IMAGES.get(name)
    if known is None:
        return
    for letter, size in zip(known.letters, dims, strict=True):
        if letter in known.ones and size != 1:
            raise MemdescError(f"{name} has {letter} = {size}: its image holds only {letter} = 1")
    for letter in known.whole:
        size = dims[known.letters.index(letter)]
        block = parse_image(name).tag.block_sizes[known.letters.index(letter)]
        if size % block:
            raise MemdescError(
                f"{name} has {letter} = {size}: its images hold multiples of {block}"
            )
    if name == "image_2d_rgba" and dims[1] not in (3, 4):
        raise MemdescError(f"image_2d_rgba has f = {dims[1]}: its image holds only 3 or 4 features")
