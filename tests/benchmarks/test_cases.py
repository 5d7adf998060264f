"""Cases in benchdnn's spelling."""

from pathlib import Path

import numpy as np
import pytest

from memdesc import MemdescError, memory_desc
from reorder import Attr
from tests.benchmarks.cases import parse_cases, read_cases

_FOLDER = Path(__file__).parent


def test_options_stay_until_changed_and_lists_multiply() -> None:
    words = "--stag=abx --dtag=axb,aBx8b --sdt=f32,s8 2x3x4 --dtag abx 2x3x4x5"
    cases = list(parse_cases(words.split()))
    assert [case.name for case in cases] == [
        "f32 2x3x4 abx -> axb",
        "s8 2x3x4 abx -> axb",
        "f32 2x3x4 abx -> aBx8b",
        "s8 2x3x4 abx -> aBx8b",
        "f32 2x3x4x5 abx -> abx",
        "s8 2x3x4x5 abx -> abx",
    ]
    assert cases[2].dst == memory_desc((2, 3, 4), "f32", "aBc8b")
    assert cases[2].nbytes == 4 * (2 * 3 * 4 + 2 * 8 * 4)


def test_strides_make_views_of_either_side() -> None:
    (case,) = parse_cases(["--strides=8x1:1x6", "4x6"])
    assert case.src.strides == (8, 1)
    assert case.dst.strides == (1, 6)
    assert case.name == "f32 4x6 abx[8x1] -> abx[1x6]"


def test_layouts_are_those_of_every_command() -> None:
    for words, src, dst in (
        ("--stag=(8,4):(4,1) --dtag=ba 8x4", ("f32", "ab"), ("f32", "ba")),
        ("--stag=f16:bfyx:1x9x2x4 --dtag=NHWC 1x9x2x4", ("f16", "abcd"), ("f16", "acdb")),
        ("--stag=f32::blocked:acdb::f0 --ddt=s8 1x2x3x4", ("f32", "acdb"), ("s8", "abcd")),
        ("--stag=bf16[64,32]{1,0:T(8,128)(2,1)} 64x32", ("bf16", "AB4a128b2a"), ("bf16", "ab")),
        ("--stag=channels_last --dtag=20x60x5x1 3x2x4x5", ("f32", "acdb"), ("f32", "bacd")),
    ):
        (case,) = parse_cases(words.split())
        assert case.src == memory_desc(case.src.dims, *src)
        assert case.dst == memory_desc(case.src.dims, *dst)
    # commas in brackets do not split a list
    cases = parse_cases(["--dtag=(4,6):(6,1),affine_map<(d0,d1)->(d1,d0)>,ab", "4x6"])
    expected = [memory_desc((4, 6), "f32", tag) for tag in ("ab", "ba", "ab")]
    assert [case.dst for case in cases] == expected


def test_dims_may_have_a_name_and_files_comments(tmp_path: Path) -> None:
    file = tmp_path / "cases"
    file.write_text(
        '# first\n--stag=ab --dtag=ba\n4x6n"wide one"   # a comment\n--reset 8x8\n',
        encoding="utf-8",
    )
    assert [case.name for case in read_cases(str(file))] == ["wide one", "f32 8x8 abx -> abx"]
    assert [case.name for case in parse_cases([f"--batch={file}"])] == [
        "wide one",
        "f32 8x8 abx -> abx",
    ]


def test_what_is_wrong_is_reported(tmp_path: Path) -> None:
    for words, says in (
        ("--what=1 4x6", "no option --what"),
        ("--stag", "--stag has no value"),
        ("4x", "neither an option nor dims"),
        ("--strides=axb 4x6", "strides 'axb' are not integers"),
        ("--stag=aBx3q 4x6", "aB"),
        ("--beta=mask:2 4x6", "--beta 'mask:2' is not a number"),
        ("--scale=wide 2x5", "--scale 'wide' is neither a number nor mask:M"),
    ):
        with pytest.raises(MemdescError, match=says):
            list(parse_cases(words.split()))
    file = tmp_path / "cases"
    file.write_text("4x6\n\n--dtag=nonsense 4x6\n", encoding="utf-8")
    with pytest.raises(MemdescError, match="line 3: "):
        list(read_cases(str(file)))


def test_the_set_is_large_and_every_case_has_a_name_of_its_own() -> None:
    cases = [case for file in sorted(_FOLDER.glob("*.txt")) for case in read_cases(str(file))]
    names = [case.name for case in cases]
    assert len(names) >= 200
    assert len(set(names)) == len(names)
    assert min(case.src.nbytes for case in cases) == 64
    assert max(case.src.nbytes for case in cases) > 390e6
    assert {case.src.dtype.bits for case in cases} >= {8, 16, 32}
    assert {case.dst.ndims for case in cases} >= {2, 3, 4, 5, 6}


def test_scales_zero_points_and_sums_are_read_and_kept_until_reset() -> None:
    words = ["--sdt=f32", "--ddt=s8", "--scale=mask:2", "--zero-point=3", "2x5", "--reset", "2x5"]
    first, second = parse_cases(words)
    assert first.attr is not None
    scale, mask = first.attr.dst_scale, first.attr.dst_scale_mask
    assert (np.shape(scale), mask, first.attr.dst_zero_point) == ((5,), 2, 3)
    assert first.name == "f32->s8 2x5 abx -> abx scale mask:2 zero-point 3"
    assert second.attr is None
    (summed,) = parse_cases(["--beta=0.5", "--src-scale=2", "4x2"])
    assert summed.attr is not None
    assert (summed.attr.beta, summed.attr) == (0.5, Attr(beta=0.5, src_scale=2.0))
