"""What the parts name exists; running them needs an emulator."""

from pathlib import Path

from tests.arm.__main__ import PARTS

_ROOT = Path(__file__).parents[2]


def test_every_part_names_tests_that_exist() -> None:
    for name in {test for tests in PARTS.values() for test in tests}:
        file, _, test = name.partition("::")
        assert (_ROOT / file).exists(), name
        assert not test or f"def {test.partition('[')[0]}(" in (_ROOT / file).read_text(), name
