"""Damaged pickles raise an error or give a valid value: they never crash, then or later."""

import copy
import pickle

import pytest

from tests.pickles import PROTOCOLS, check_damaged, values

_NOT_EQUAL = {"Memory", "Record", "Quantized", "prepared call"}  # compared by identity, or arrays


def test_copies_and_pickles_are_equal() -> None:
    for kind, value in values().items():
        copies = [copy.copy(value), copy.deepcopy(value)]
        copies += [pickle.loads(pickle.dumps(value, protocol)) for protocol in PROTOCOLS]
        for found in copies:
            assert type(found) is type(value)
            assert repr(found) == repr(value)
            assert kind in _NOT_EQUAL or (found == value and hash(found) == hash(value))


def test_a_damaged_pickle_raises_or_gives_a_valid_value() -> None:
    for kind in values():
        check_damaged(kind, 0, 60)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(12))
def test_twenty_thousand_damaged_pickles_raise_or_give_a_valid_value(part: int) -> None:
    for kind in sorted(values())[part::12]:
        print(kind, dict(check_damaged(kind, 1, 20_000)))
