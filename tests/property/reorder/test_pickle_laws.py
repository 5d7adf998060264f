"""Damaged pickles raise an error or give a valid value: they never crash, then or later."""

from __future__ import annotations

import copy
import pickle

import pytest

from tests.pickles import PROTOCOLS, check_damaged, values

_KINDS = sorted(values())
_NOT_EQUAL = {"Memory", "Record", "Quantized", "prepared call"}  # compared by identity, or arrays


@pytest.mark.parametrize("kind", _KINDS)
def test_copies_and_pickles_are_equal(kind: str) -> None:
    value = values()[kind]
    copies = [copy.copy(value), copy.deepcopy(value)]
    copies += [pickle.loads(pickle.dumps(value, protocol)) for protocol in PROTOCOLS]
    for found in copies:
        assert type(found) is type(value)
        assert repr(found) == repr(value)
        assert kind in _NOT_EQUAL or (found == value and hash(found) == hash(value))


@pytest.mark.parametrize("kind", _KINDS)
def test_a_damaged_pickle_raises_or_gives_a_valid_value(kind: str) -> None:
    check_damaged(kind, 0, 60)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", _KINDS)
def test_twenty_thousand_damaged_pickles_raise_or_give_a_valid_value(kind: str) -> None:
    outcomes = check_damaged(kind, 1, 20_000)
    print(kind, dict(outcomes))
