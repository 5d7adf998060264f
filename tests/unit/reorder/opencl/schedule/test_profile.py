from __future__ import annotations

import json

import pytest

from memdesc import memory_desc
from reorder.opencl.schedule.banks import spread
from reorder.opencl.schedule.profile import BUFFER, CPU, GPU, Profile, Share
from reorder.opencl.schedule.profile_json import profile_from_json, profile_to_json
from reorder.opencl.schedule.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import launches


@pytest.mark.parametrize("profile", [GPU, CPU])
def test_a_profile_is_the_same_after_json(profile: Profile) -> None:
    assert profile_from_json(profile_to_json(profile)) == profile


@pytest.mark.parametrize("profile", [GPU, CPU])
def test_a_profile_kept_before_images_were_mapped_maps_them_on_processors(profile: Profile) -> None:
    kept = json.loads(profile_to_json(profile))
    del kept["maps_images"]
    assert profile_from_json(json.dumps(kept)) == profile


def test_a_profile_kept_before_there_were_tiles_of_pixels_has_the_default_ones() -> None:
    kept = json.loads(profile_to_json(GPU))
    del kept["pack_pixels"], kept["unpack_pixels"]
    assert profile_from_json(json.dumps(kept)) == GPU


@pytest.mark.parametrize(
    "change",
    [
        {"tiles": []},
        {"tiles": [[128, 128, 16384, -1]] * 4},
        {"tiles": [[128, 128, 0, 64]] * 4},
        {"copies": [[256, 1.5]] * 5},
        {"copies": [[256, 0]] * 5},
        {"copies": [[256, 1000]] * 5},
        {"min_tiled": True},
        {"pack": {}},
        {"pack": None},
        {"unpack": {"columns": [["column", 99, 1]]}},
        {"pack_pixels": [128, 4, 4, 8192]},
        {"unpack_pixels": [128, 0, 4, 8192, 128]},
    ],
)
def test_a_damaged_profile_is_none(change: dict[str, object]) -> None:
    assert profile_from_json(json.dumps(json.loads(profile_to_json(GPU)) | change)) is None


def test_what_is_no_json_is_no_profile() -> None:
    text = profile_to_json(GPU)
    assert all(profile_from_json(text[:end]) is None for end in range(0, len(text), 97))
    role = text.replace(f'"{BUFFER}"', '"diagonal"')
    assert role != text
    assert profile_from_json(role) is None
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
