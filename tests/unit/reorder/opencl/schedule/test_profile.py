from __future__ import annotations

import json
import re

import pytest

from memdesc import MemdescError, memory_desc
from reorder.opencl.schedule.banks import spread
from reorder.opencl.schedule.profile import BUFFER, CPU, GPU, Profile, Share
from reorder.opencl.schedule.profile_json import profile_from_json, profile_to_json
from reorder.opencl.schedule.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import launches

GROUPS = json.loads(profile_to_json(GPU))["unpack"]


@pytest.mark.parametrize("profile", [GPU, CPU])
def test_a_profile_is_the_same_after_json(profile: Profile) -> None:
    assert profile_from_json(profile_to_json(profile)) == profile


@pytest.mark.parametrize("profile", [GPU, CPU])
def test_a_profile_kept_before_images_were_mapped_maps_them_on_processors(profile: Profile) -> None:
    kept = json.loads(profile_to_json(profile))
    del kept["maps_images"]
    assert profile_from_json(json.dumps(kept)) == profile


def test_a_profile_kept_before_there_were_fields_has_the_default_ones() -> None:
    kept = json.loads(profile_to_json(GPU))
    for name in ("pack_pixels", "unpack_pixels", "skewed", "rows"):
        del kept[name]
    assert profile_from_json(json.dumps(kept)) == GPU


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tiles": []}, "tiles is []: give 4 values"),
        ({"tiles": [[128, 128, 16384, 1]] * 4}, "give 5 values"),
        ({"tiles": [[128, 128, 16384, -1, 1]] * 4}, "tiles[0].work_items is -1: give an integer"),
        ({"tiles": [[128, 128, 0, 64, 1]] * 4}, "tiles[0].nbytes is 0: give an integer from 1 to"),
        ({"tiles": [[128, 128, 1 << 20, 64, 1]] * 4}, "an integer from 1 to 65536"),
        ({"copies": [[256, 1.5]] * 5}, "copies[0].steps is 1.5: give an integer from 1 to 64"),
        ({"copies": [[256, 0]] * 5}, "copies[0].steps is 0"),
        ({"copies": [[256, 1000]] * 5}, "copies[0].steps is 1000"),
        (
            {"skewed": [[96, 40, 256, 32]] * 3},
            "height is 40: give an integer from 16 to 1048576, in",
        ),
        ({"skewed": [[96, 32, 256, 256]] * 3}, "align is 256: give an integer from 16 to 240"),
        (
            {"skewed": [[96, 96, 1, 16]] * 3},
            "skewed[0] has 96 x 96 elements for 1 work items: give 128 for each at most",
        ),
        (
            {"unpack": GROUPS | {"columns": [["column", 0, 64], ["row", 0, 64]]}},
            "unpack.columns gives a work item 4096 steps: give 64 at most",
        ),
        ({"rows": [128, None]}, "rows.steps is None"),
        ({"min_tiled": True}, "min_tiled is True: give an integer from 0 to 1048576"),
        ({"maps_images": 2}, "maps_images is 2: give an integer from 0 to 1"),
        ({"pack": {}}, "pack is {}: give columns, rows"),
        ({"pack": None}, "pack is None: give columns, rows"),
        ({"unpack": GROUPS | {"columns": [["column", 99, 1]]}}, "unpack.columns[0].shift is 99"),
        ({"unpack": GROUPS | {"columns": [["column", 1]]}}, "unpack.columns[0] is ['column', 1]"),
        ({"unpack": GROUPS | {"columns": [[[], 1, 1]]}}, "has role []: give column, row or buffer"),
        ({"unpack": GROUPS | {"columns": 3}}, "unpack.columns is 3: give a list of shares"),
        ({"pack_pixels": [128, 4, 4, 8192]}, "pack_pixels is [128, 4, 4, 8192]: give 5 values"),
        ({"unpack_pixels": [128, 0, 4, 8192, 128]}, "unpack_pixels.columns is 0"),
    ],
)
def test_a_damaged_profile_is_refused(change: dict[str, object], said: str) -> None:
    text = json.dumps(json.loads(profile_to_json(GPU)) | change)
    with pytest.raises(MemdescError, match=re.escape(said)):
        profile_from_json(text)


@pytest.mark.parametrize("name", ["tiles", "copies", "pack", "min_tiled"])
def test_a_profile_without_a_field_is_refused(name: str) -> None:
    kept = json.loads(profile_to_json(GPU))
    del kept[name]
    with pytest.raises(MemdescError, match=f"it has no {name}"):
        profile_from_json(json.dumps(kept))


def test_what_is_no_json_is_no_profile() -> None:
    text = profile_to_json(GPU)
    for end in range(0, len(text), 97):
        with pytest.raises(MemdescError, match="it is no JSON"):
            profile_from_json(text[:end])
    with pytest.raises(MemdescError, match=re.escape("it is [1]: a profile has fields by name")):
        profile_from_json("[1]")
    role = text.replace(f'"{BUFFER}"', '"diagonal"')
    assert role != text
    with pytest.raises(MemdescError, match="has role 'diagonal'"):
        profile_from_json(role)
    assert Share(BUFFER, 1).steps == 1


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32"])
def test_work_items_of_a_subgroup_store_and_load_different_banks(dtype: str) -> None:
    src, dst = (
        OperandSpec(memory_desc((4096, 4096), dtype, tag), None, dtype) for tag in ("ab", "ba")
    )
    (launch,) = launches(src, dst)
    tile = launch.pattern.tile
    assert tile is not None
    assert spread(tile, launch.pattern.work_items) == tile
    moved = [word ^ sum(((word >> s) & m) for s, m in tile.swizzle) for word in range(1024)]
    # a swizzle moves words within a row of banks, and no two to one place
    assert sorted(moved) == list(range(1024))
