"""Choices that are timed: the search is pure, and what is chosen runs right and is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from reorder.cpu.target import Machine
from reorder.cpu.tuning import Choice, find_choice, model_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_FIRST = Choice(threads=16, streams=False, prefetches=True)


def _clock(seconds_of: Callable[[Choice], float]) -> Callable[[Sequence[Choice]], list[float]]:
    return lambda choices: [seconds_of(choice) for choice in choices]


def test_the_model_is_what_the_thresholds_say() -> None:
    machine = Machine(8, 1 << 20, core_cache_nbytes=1 << 18)
    assert model_choice(machine, 16, 1 << 16) == (8, False, False)
    assert model_choice(machine, 1, 1 << 19) == (1, False, True)
    assert model_choice(machine, 4, 1 << 19) == (4, False, False)
    assert model_choice(machine, 1, 1 << 20) == (1, True, True)
    assert model_choice(machine, 4, 1 << 20) == (4, True, False)
    # a machine that is made from a choice leads to it, whatever the size
    for choice in (_FIRST, _FIRST._replace(streams=True, prefetches=False)):
        for nbytes in (1, 1 << 40):
            assert model_choice(choice.on(machine), 16, nbytes) == choice


def test_the_fastest_choice_is_found() -> None:
    wanted = Choice(threads=4, streams=True, prefetches=False)

    def seconds(choice: Choice) -> float:
        return 1.0 + abs(choice.threads - 4) + (choice[1:] != wanted[1:])

    assert find_choice(_FIRST, _clock(seconds)) == wanted


def test_a_small_gain_is_taken_for_noise() -> None:
    assert find_choice(_FIRST, _clock(lambda c: 1.0 if c == _FIRST else 0.97)) == _FIRST
    assert find_choice(_FIRST, _clock(lambda c: 1.0 if c == _FIRST else 0.9)) != _FIRST


@pytest.mark.parametrize("dims", [(300, 200), (0, 4)])
def test_a_tuned_reorder_moves_the_same_bits_and_its_choice_is_kept(
    dims: tuple[int, int], tmp_path: Path
) -> None:
    plan = reorder.plan_reorder(memory_desc(dims, "f32", "ab"), memory_desc(dims, "f32", "ba"))
    x = np.random.default_rng(0).random(dims, np.float32)
    file = tmp_path / "choices.json"
    for tune in (True, file, str(file)):
        y = np.zeros(dims[::-1], np.float32)
        reorder.prepare(plan, threads=2, tune=tune)(x, y)
        assert np.array_equal(y, x.T)
    (kept,) = json.loads(file.read_text()).values()
    # what is in the file is not timed again
    file.write_text(file.read_text().replace(f"{kept[0]},", "1,", 1))
    assert kept[0] in {1, 2}
    assert reorder.prepare(plan, threads=2, tune=file).threads == 1  # type: ignore[attr-defined] # of the callable


@pytest.mark.parametrize("text", ["{", "[]", '{"a": [0, true, true]}', '{"a": [1, 1, 2, 3]}'])
def test_a_file_with_something_else_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    desc = memory_desc((4, 4), "f32", "ab")
    plan = reorder.plan_reorder(desc, desc)
    with pytest.raises(MemdescError, match=r"other.json' does not hold choices"):
        reorder.prepare(plan, tune=file)
    assert file.read_text() == text


@pytest.mark.parametrize("tune", [None, 1, 2.5])
def test_what_is_neither_a_flag_nor_a_path_is_refused(tune: object) -> None:
    desc = memory_desc((4, 4), "f32", "ab")
    with pytest.raises(MemdescError, match="a path is a string"):
        reorder.prepare(reorder.plan_reorder(desc, desc), tune=tune)  # type: ignore[arg-type] # on purpose
