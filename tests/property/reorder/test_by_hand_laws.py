"""Hand-made plans are refused, or do what their boxes say, inside their buffers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.by_hand import random_plan, run_plan


def check_plans(seed: int, count: int) -> tuple[int, int]:
    """Make plans and run those that are not refused; return how many were refused, and ran."""
    rng = np.random.default_rng(seed)
    ran = sum(run_plan(random_plan(rng), rng) for _ in range(count))
    return count - ran, ran


def test_plans_by_hand_stay_inside_their_buffers() -> None:
    refused, ran = check_plans(0, 1000)
    assert min(refused, ran) > 150  # both kinds are drawn


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(1, 11))
def test_a_hundred_thousand_plans_by_hand_stay_inside_their_buffers(part: int) -> None:
    refused, ran = check_plans(part, 100_000)
    assert min(refused, ran) > 15_000
    print(f"part {part}: {refused} plans were refused, {ran} ran")
