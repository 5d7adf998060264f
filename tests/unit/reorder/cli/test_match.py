"""`memdesc match` and `memdesc names`: every name of a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def test_match_finds_all_names(capsys: CaptureFixture[str]) -> None:
    found = facts(
        capsys, "match", "--dims", "2x17x5x4", "--strides", "480x160x32x8", "--inner", "8b"
    )
    assert [name["text"] for name in found["names"]] == [
        "aBcd8b",
        "gOiw8o",
        "nChw8c",
        "b_fs_yx_fsv8",
        "mlas_nchwc8",
    ]
    assert (
        found["names"]
        == facts(
            capsys,
            "match",
            *[
                "--dims",
                "2x17x5x4",
                "--strides",
                "480,160,32,8",
                "--inner",
                "8b",
                "--padded",
                "2x24x5x4",
            ],
        )["names"]
    )
    assert {"nchw", "nhwc"} <= {
        name["text"]
        for name in facts(capsys, "match", "--dims", "8x1x5x4", "--strides", "20x20x4x1")["names"]
    }


@pytest.mark.parametrize(
    ("vocabulary", "name", "arguments"),
    [
        ("tensorrt", "kCHW32", "2x64x5x4 1280x640x128x32 32b s8"),
        ("acl", "OHWIo4", "8x3x5x4 240x4x48x12 4a f32"),
        ("ascend", "NC1HWC0", "2x32x5x4 640x320x64x16 16b f16"),
        ("ncnn", "elempack4", "8x5x4 80x16x4 4a f32"),
        ("mnn", "NC4HW4", "2x8x5x4 160x80x16x4 4b f32"),
        ("tflite_gpu", "TensorStorageType::BUFFER", "1x5x4x8 160x16x4x80 4d f32"),
    ],
)
def test_names_of_other_systems_are_listed_and_matched(
    vocabulary: str, name: str, arguments: str, capsys: CaptureFixture[str]
) -> None:
    listed = facts(capsys, "names", name)["names"]
    assert (vocabulary, name) in [(row["vocabulary"], row["text"]) for row in listed]
    dims, strides, inner, dtype = arguments.split()
    options = ["--dims", dims, "--strides", strides, "--inner", inner, "--dtype", dtype]
    matched = facts(capsys, "match", *options)["names"]
    assert (vocabulary, name) in [(row["vocabulary"], row["text"]) for row in matched]


def test_match_without_a_name_says_why_and_ends_with_1(capsys: CaptureFixture[str]) -> None:
    assert (
        "leave gaps" in facts(capsys, "match", "--dims", "3x4", "--strides", "6x1", code=1)["why"]
    )
    assert (
        "does not start at element 0"
        in facts(capsys, "match", "--dims", "3x4", "--strides", "4x1", "--offset0", "2", code=1)[
            "why"
        ]
    )
    assert (
        facts(capsys, "match", "--dims", "3x4", "--strides=-4x1", "--offset0", "8", code=1)["names"]
        == []
    )


def test_match_refuses_what_is_no_layout(capsys: CaptureFixture[str]) -> None:
    assert "not integers joined by x" in refusal(
        capsys, "match", "--dims", "3x4", "--strides", "4xa"
    )
    assert "must be 2 numbers" in refusal(capsys, "match", "--dims", "3x4", "--strides", "4")
    assert "such as 8b or 4b16a4b" in refusal(
        capsys, "match", "--dims", "3x4", "--strides", "4x1", "--inner", "b8"
    )
    assert "required: --strides; see memdesc match --help" in refusal(
        capsys, "match", "--dims", "3x4"
    )
