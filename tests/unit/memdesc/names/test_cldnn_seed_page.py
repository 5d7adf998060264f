"""The seed page of OpenVINO: its lists of indices."""

from __future__ import annotations

import re
from typing import Any

import pytest

from memdesc import memory_desc
from tests.tables import DATA

# The seed page of OpenVINO: the lists of b_fs_yx_fsv16 and bfyx for b2 f2 y2 x2.
LISTED: list[Any] = [
    (
        int(line[0]),
        *(
            dict(
                zip(
                    re.findall("([a-z]+)=", part),
                    map(int, re.findall("=([0-9]+)", part)),
                    strict=True,
                )
            )
            for part in line[1:]
        ),
    )
    for line in (
        re.split(" => | == ", text[4:])
        for text in (DATA / "seed_001_indices.txt").read_text(encoding="utf-8").splitlines()
    )
]
PLAIN = [(i, index) for i, index, *blocked in LISTED if not blocked]
BLOCKED = [(i, index, blocked[0]) for i, index, *blocked in LISTED if blocked]
MISPRINTS = (18, 34, 50, 82, 98, 114)


def test_the_seed_page_lists_16_plain_and_32_blocked_indices() -> None:
    assert (len(PLAIN), len(BLOCKED)) == (16, 32)


def test_every_index_of_the_seed_pages_bfyx_list_has_the_listed_offset() -> None:
    desc = memory_desc((2, 2, 2, 2), "f32", "bfyx")
    assert [desc.offset(index.values()) for _, index in PLAIN] == [i for i, _ in PLAIN]
    assert desc.padded_nelems == 16


@pytest.mark.parametrize(
    ("i", "index", "blocked"), [row for row in BLOCKED if row[0] not in MISPRINTS]
)
def test_every_index_of_the_seed_pages_fsv16_list_has_the_listed_offset(
    i: int, index: dict[str, int], blocked: dict[str, int]
) -> None:
    # f runs to 15 in the list: from 2 on it is padding, which a tensor of 16 features shows
    desc, filled = (
        memory_desc((2, 2, 2, 2), "f32", "b_fs_yx_fsv16"),
        memory_desc((2, 16, 2, 2), "f32", "b_fs_yx_fsv16"),
    )
    assert index["f"] == blocked["fs"] * 16 + blocked["fsv"]
    assert filled.offset(index.values()) == i
    assert desc.padded_nelems == 128
    if index["f"] < 2:
        assert desc.offset(index.values()) == i


@pytest.mark.parametrize(("i", "index", "blocked"), [row for row in BLOCKED if row[0] in MISPRINTS])
def test_the_six_misprints_of_the_seed_page_say_f_1_and_mean_f_2(
    i: int, index: dict[str, int], blocked: dict[str, int]
) -> None:
    desc = memory_desc((2, 16, 2, 2), "f32", "b_fs_yx_fsv16")
    assert (index["f"], blocked["fsv"]) == (1, 2)
    assert desc.offset(index.values()) == i - 1
    assert desc.offset((index | {"f": 2}).values()) == i
