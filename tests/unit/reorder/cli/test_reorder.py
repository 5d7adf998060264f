"""`memdesc reorder`: arrays, raw dumps and images, into layouts and types and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from memdesc import image_desc, memory_desc
from reorder import load, reorder, save
from tests.notice import without_notice
from tests.programs import run_python

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell

_RNG = np.random.default_rng(0)
X = _RNG.random((2, 17, 5, 4), np.float32)
# a filter, and its image
W = _RNG.random((6, 5, 3, 2), np.float32)
IMAGE = image_desc(W.shape, "f32", "conv2d_filter")
FILTER = "--from conv2d_filter --dims 6x5x3x2"
DUMP = "--from b_fs_yx_fsv16 --dims 1x17x5x4 --dtype"


@pytest.fixture(autouse=True)
def files(shell: Shell) -> None:
    """Save an array, a filter, and a dump of a blocked tensor."""
    del shell  # it enters the folder
    np.save("x.npy", X)
    np.save("w.npy", W)
    reorder(X[:1].astype(np.float16), "b_fs_yx_fsv16").data.tofile("dump.bin")


# Arrays.


def test_the_way_back_restores_the_file(shell: Shell) -> None:
    wrote = shell.facts("reorder x.npy y.npz --from nchw --to nChw16c --threads 2")
    assert (wrote["wrote"], wrote["bytes"]) == ("y.npz", 5120)
    shell.facts("reorder y.npz back.npy --from nChw16c --to nchw")
    assert np.array_equal(np.load("back.npy"), X)


@pytest.mark.parametrize("dims", [(2, 17, 5, 4), (2, 1, 5, 4), (1, 17, 1, 1), (0, 17, 5, 4)])
@pytest.mark.parametrize("layout", ["nhwc", "hwio", "bacd", "dcba"])
def test_a_npy_of_permuted_dims_has_its_axes_in_memory_order_and_leads_back(
    shell: Shell, layout: str, dims: tuple[int, ...]
) -> None:
    x = _RNG.random(dims, np.float32)
    np.save("x.npy", x)
    for limit in ("1GiB", "4KiB"):
        found = shell.facts(f"reorder x.npy o.npy --to {layout} --max-bytes {limit}")
        m = reorder(x, layout)
        assert found["shape"] == [*m.blocks().shape]
        assert np.array_equal(np.load("o.npy"), m.blocks())
        shell.facts(f"reorder o.npy back.npy --from {layout} --dims {'x'.join(map(str, dims))}")
        assert np.array_equal(np.load("back.npy"), x)
    if layout == "nhwc":
        assert np.array_equal(np.load("o.npy"), x.transpose(0, 2, 3, 1))
        shell.facts("reorder o.npy back.npy --from nhwc")
        assert np.array_equal(np.load("back.npy"), x)


def test_values_are_quantised_and_back(shell: Shell) -> None:
    np.save("s.npy", np.linspace(0.004, 0.02, 17).astype(np.float32))
    given = "--to nChw16c --to-dtype u8 --scale s.npy:2 --zero-point 3"
    found = shell.facts(f"reorder x.npy q.npz {given}")
    assert (found["dtype"], found["bytes"]) == ("u8", 2 * 32 * 5 * 4)
    given = "--to nchw --to-dtype f32 --src-scale s.npy:2 --src-zero-point 3"
    shell.facts(f"reorder q.npz back.npy {given}")
    once = np.load("back.npy")
    assert (abs(once - X) <= np.load("s.npy")[:, None, None] * 0.501).all()
    shell.facts("reorder back.npy back.npy --to nchw --beta 1 --saturate")
    assert np.array_equal(np.load("back.npy"), 2 * once)
    for beta in ("", "--beta 1"):
        shell.facts(f"reorder x.npy old.npy --to nhwc {beta}")
    assert np.array_equal(np.load("old.npy"), 2 * X.transpose(0, 2, 3, 1))


def test_the_bytes_of_an_array_are_read_as_any_layout_with_sizes(shell: Shell) -> None:
    x = np.arange(32, dtype=np.int8)
    np.save("i.npy", x)
    for layout, wanted in (
        ("cute:(8,4):(1,8)", x.reshape(4, 8).T),
        ("memref<4x8xi8, strided<[8, 1]>>", x.reshape(4, 8)),
        ("S[(2, 4, 4):(4, 8, 1)]", x.reshape(4, 2, 4).transpose(1, 0, 2)),
    ):
        shell.facts(["reorder", "i.npy", "out.npy", "--from", layout])
        assert np.array_equal(np.load("out.npy"), wanted)


@pytest.mark.parametrize(
    ("layout", "axes"),
    [
        ("channels_last", (0, 2, 3, 1)),
        ("NHWC", (0, 2, 3, 1)),
        ("WHCN", (3, 2, 1, 0)),  # which numpy saves in Fortran order
        ("dcba", (3, 2, 1, 0)),
    ],
)
def test_axes_are_what_other_systems_call_it(
    shell: Shell, layout: str, axes: tuple[int, ...]
) -> None:
    np.save("i.npy", X.transpose(axes))
    shell.facts(f"reorder i.npy out.npy --from {layout}")
    assert np.array_equal(np.load("out.npy"), X)
    shell.facts("reorder out.npy blocks.bin --raw --to NCHW4c")
    np.save("blocks.npy", np.fromfile("blocks.bin", np.float32).reshape(2, 5, 5, 4, 4))
    shell.facts("reorder blocks.npy out.npy --from NCHW4c")
    assert np.array_equal(np.load("out.npy")[:, :17], X)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("x.npy o.npz --to nhwc --dtype s32", "holds f32, not s32"),
        ("x.npy o.npz --to nhwc --scale x", "--scale 'x' is neither a number nor FILE.npy:MASK"),
        ("x.npy o.npz --to nhwc --scale 0", "scales must be finite and not 0"),
        ("x.npy x.npy --to nhwc --beta 1", "but dst and dtype describe"),
        ("x.npy o.npz --to abc", "is for 3 dims"),
        ("x.npy o.npz --from 'f32[2,4]{1,0}'", "has 2720 bytes, but"),
        ("x.npy o.npz --from 's8[2,4]{1,0}'", "holds float32, not s8"),
        ("x.npy o.npz --dims 34x20", "has dims (2, 17, 5, 4), not (34, 20); leave --dims out"),
        ("x.npy o.npz --dims 17x21 --from ba", "has 2720 bytes, but"),
        ("x.npy o.npz --row-pitch 9", "--row-pitch is for raw pixels"),
        ("x.npy o.npz --row-pitch 9 --max-bytes 1KiB", "--row-pitch is for raw pixels"),
        ("x.npy o.npz --ignore-rest", "--ignore-rest is for raw bytes"),
        ("x.npy o.npz --ignore-rest --max-bytes 1KiB", "--ignore-rest is for raw bytes"),
        ("x.npy - --raw", "'-' is not a file: nothing is read from stdin"),
        ("x.npy o.npz --limit -1", "--limit: give how many, 0 or more, not '-1'"),
    ],
)
def test_mistakes_about_an_array_are_refused(shell: Shell, command: str, reason: str) -> None:
    assert reason in shell.refusal(f"reorder {command}")
    assert not Path("o.npz").exists()


def test_a_descriptor_is_not_contradicted(shell: Shell) -> None:
    save("b.safetensors", reorder(X, "aBcd16b"))
    shell.facts("reorder b.safetensors o.npz --to nhwc --from nChw16c")
    said = shell.refusal("reorder b.safetensors o.npz --to nhwc --from nhwc")
    assert said == (
        f"the descriptor of 'b.safetensors' says {memory_desc(X.shape, 'f32', 'aBcd16b')!r}, "
        "not 'nhwc'; leave --from out"
    )


# Raw bytes.


def test_a_header_is_skipped_and_dirty_padding_is_found(shell: Shell) -> None:
    raw = Path("dump.bin").read_bytes()
    Path("dump.bin").write_bytes(b"header!!" + raw[:-2] + b"\x00\x3ctail")
    command = f"reorder dump.bin out.npy {DUMP} f16 --offset 8"
    assert "has 1284 bytes from byte 8 on" in shell.refusal(command)
    shown = shell.facts(f"{command} --ignore-rest --to-dtype f32", 1)
    assert (shown["padding_zero"], shown["not_zero"]) == (False, 1)
    assert shown["places"] == [{"index": [0, 31, 4, 3], "byte": 1278, "bits": "0x3c00"}]
    assert np.array_equal(np.load("out.npy"), X[:1].astype(np.float16).astype(np.float32))


def test_types_that_npy_does_not_have_are_read(shell: Shell) -> None:
    x = np.arange(12).reshape(3, 4).astype(ml_dtypes.bfloat16)
    reorder(x, "ba").data.tofile("dump.bin")
    shell.facts("reorder dump.bin out.safetensors --from ba --dims 3x4 --dtype bf16")
    assert np.array_equal(load("out.safetensors").numpy(), x)
    y = np.arange(-6, 6).reshape(3, 4)
    reorder(y.astype(ml_dtypes.int4), "Ab4a").data.tofile("dump.bin")
    shell.facts("reorder dump.bin out.npy --from Ab4a --dims 3x4 --dtype s4 --to-dtype s8")
    assert np.array_equal(np.load("out.npy"), y)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            f"dump.bin o.npy {DUMP} f32",
            "but memory_desc((1, 17, 5, 4), 'f32', 'aBcd16b') takes 2560; it is truncated",
        ),
        (f"dump.bin o.npy {DUMP} f16 --offset 5000", "no tensor can start there"),
        (f"dump.bin o.npy {DUMP} f16 --offset -1", "no tensor can start there"),
        (f"dump.bin o.npy {DUMP} u8", "--ignore-rest"),
        (f"none.bin o.npy {DUMP} f16", "No such file"),
        (f". o.npy {DUMP} f16", "is a folder or a device"),
        (f"dump.bin o.npy {DUMP} f17", "unknown data type 'f17'"),
        (f"dump.bin none/o.npy {DUMP} f16", "cannot be written"),
        (DUMP.removesuffix(" --dtype") + " dump.bin o.npy", "contain the data type; give --dtype"),
        (f"dump.bin o.npy {DUMP} f16 --row-pitch 64", "--row-pitch is for the pixels"),
        ("dump.bin o.npy --to ab", "does not say which; give --from with a layout, --dims and"),
    ],
)
def test_dumps_that_are_something_else_are_refused(shell: Shell, command: str, reason: str) -> None:
    assert reason in shell.refusal(f"reorder {command}")
    assert {path.name for path in Path().iterdir()} == {"x.npy", "w.npy", "dump.bin"}


def test_the_command_runs_where_nothing_is_a_terminal() -> None:
    command = f"reorder dump.bin o.npy {DUMP} f16".split()
    ran = run_python("-m", "reorder", *command)
    assert without_notice(ran.stderr) == ""
    assert "padding zero      yes" in ran.stdout


# Images.


def test_an_image_holds_pixels_and_leads_back(shell: Shell) -> None:
    found = shell.facts("reorder w.npy i.safetensors --to conv2d_filter")
    assert (found["width"], found["height"], found["channels"]) == (5, 12, 4)
    assert load("i.safetensors").desc == IMAGE.desc
    assert load("i.safetensors").data.tobytes() == reorder(W, IMAGE).tobytes()
    (checked,) = shell.facts("check i.safetensors")["tensors"]
    assert checked["padding_elements"] == IMAGE.desc.padded_nelems - W.size
    assert shell.facts("reorder i.safetensors back.npy")["dims"] == list(W.shape)
    assert np.load("back.npy").tobytes() == W.tobytes()
    shell.facts("reorder w.npy i.bin --to conv2d_filter --raw")
    assert Path("i.bin").read_bytes() == reorder(W, IMAGE).tobytes()


def test_an_image_in_a_npy_is_an_array_of_pixels(shell: Shell) -> None:
    shell.facts("reorder w.npy i.npy --to conv2d_filter")
    pixels = np.load("i.npy")
    assert pixels.shape == (12, 5, 4)
    assert np.array_equal(pixels, reorder(W, IMAGE))
    np.save("larger.npy", np.pad(pixels, ((0, 3), (0, 1), (0, 0))))
    for source in ("i.npy", "larger.npy"):
        assert shell.facts(f"reorder {source} back.npy {FILTER}")["padding_zero"] is True
        assert np.array_equal(np.load("back.npy"), W)


@pytest.mark.parametrize(
    ("source", "options", "held", "dtype"),
    [
        ("w.npy", "--to-dtype f16", W, "f16"),
        ("blocked.safetensors", "--to-dtype f16", W, "f16"),
        ("nhwc.npy", "--from nhwc", W, "f32"),
        ("bf16.npy", "--dtype bf16", W.astype(ml_dtypes.bfloat16), "bf16"),
        ("bf16.npy", "--dtype bf16 --to-dtype f32", W.astype(ml_dtypes.bfloat16), "f32"),
    ],
)
def test_images_are_made_of_what_a_file_says_and_of_what_it_cannot_say(
    shell: Shell, source: str, options: str, held: np.ndarray, dtype: str
) -> None:
    save("blocked.safetensors", reorder(W, "aBcd8b"))
    np.save("nhwc.npy", np.ascontiguousarray(W.transpose(0, 2, 3, 1)))
    np.save("bf16.npy", W.astype(ml_dtypes.bfloat16))
    shell.facts(f"reorder {source} i.safetensors --to conv2d_filter {options}")
    image = image_desc(W.shape, dtype, "conv2d_filter")
    assert load("i.safetensors").data.tobytes() == reorder(held, image).tobytes()


def test_raw_pixels_may_have_a_row_pitch(shell: Shell) -> None:
    pixels = reorder(W, IMAGE)
    rows = np.zeros((12, 128), np.uint8)
    rows[:, :80] = pixels.reshape(12, -1).view(np.uint8)
    for end in (None, -48):  # with the gap after the last row, or without
        rows.reshape(-1)[:end].tofile("mapped.bin")
        shell.facts(f"reorder mapped.bin o.npy {FILTER} --dtype f32 --row-pitch 128")
        assert np.load("o.npy").tobytes() == W.tobytes()
    pixels.tofile("i.bin")
    shell.facts(f"reorder i.bin b.npz {FILTER} --dtype f32 --to aBcd8b")
    assert load("b.npz").desc == memory_desc(W.shape, "f32", "aBcd8b")
    assert load("b.npz").numpy().tobytes() == W.tobytes()


def test_lanes_that_belong_to_nothing_must_be_zero(shell: Shell) -> None:
    pixels = reorder(W, image_desc(W.shape, "f16", "conv2d_filter"))
    pixels[11, 0, 3] = 1
    pixels.tofile("i.bin")
    command = f"reorder i.bin o.npy {FILTER} --dtype f16"
    assert shell.facts(command, 1)["not_zero"] == 1
    assert np.load("o.npy").tobytes() == W.astype(np.float16).tobytes()
    assert "padding zero      no" in shell.lines(command, 1)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("w.npy --to winograd_filter", "which a reorder cannot make"),
        ("w.npy --to dw_conv2d_filter", "has m = 6: its image holds only m = 1"),
        ("w.npy --to conv2d_filter --to-dtype bf16", "has no place for"),
        (f"i.bin {FILTER} --dtype f32 --row-pitch 79", "is less than a row of image_desc"),
        (f"i.bin {FILTER} --dtype f32 --row-pitch 96", "rows of 80 bytes, 96 bytes apart"),
        (f"i.bin {FILTER}", "; give --dtype"),
        ("i.bin --from conv2d_filter", "the sizes and the data type; give --dims and --dtype"),
        # before the work, which would find no such device
        ("w.npy --to-dtype bf16 --device none", "has no place for"),
        ("w.npy --to conv2d_filter --to-dtype bf16 --device none", "has no place for"),
        ("w.npy --to aBcd4b --device none", "has no place for"),
        (f"i.bin {FILTER} --dtype f16", f"'f16', 'conv2d_filter') takes {12 * 5 * 8}; it is twice"),
        ("i.npy --from conv2d_filter", "does not contain the sizes; give --dims"),
        ("i.npy --from conv2d_filter --dims 6x5x2x2", "the other pixels are not zero"),
        (f"w.npy {FILTER}", "'w.npy' has shape (6, 5, 3, 2), but image_desc"),
        ("i.npz --dims 6x5x2x3", "has dims (6, 5, 3, 2), not (6, 5, 2, 3)"),
    ],
)
def test_what_makes_no_image_or_is_none_is_refused(shell: Shell, command: str, reason: str) -> None:
    pixels = reorder(W, IMAGE)
    np.save("i.npy", pixels)
    pixels.tofile("i.bin")
    save("i.npz", reorder(W, IMAGE.desc))
    source, _, options = command.partition(" ")
    assert reason in shell.refusal(f"reorder {source} o.npy {options}")
    assert not Path("o.npy").exists()


def test_other_dims_leave_data_in_the_padding(shell: Shell) -> None:
    image = image_desc((2, 20, 5, 4), "f32", "in_out_channel")
    pixels = reorder(_RNG.random(image.dims, np.float32), image)
    np.save("p.npy", pixels)
    pixels.tofile("p.bin")
    for source in ("p.npy", "p.bin --dtype f32"):
        command = f"reorder {source} o.npy --from in_out_channel --dims"
        assert shell.facts(f"{command} 2x20x5x4")["padding_zero"] is True
        found = shell.facts(f"{command} 2x17x5x4", 1)
        assert (found["padding_zero"], len(found["places"])) == (False, 10)


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_bench_names_the_command_that_makes_images(shell: Shell, option: str) -> None:
    said = shell.refusal(f"bench 6x5x3x2 {option} in_out_channel")
    assert "`memdesc reorder IN.npy OUT.safetensors --to in_out_channel` makes its pixels" in said
