"""Counts of what a test compared, left out or excused by name, and found."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from .cases import SEED
from .known import Answer

_Answer = TypeVar("_Answer", bound=Answer)

REPORT: Final[list[str]] = []
"""One line for each test that ran; the end of the run shows them."""

_SHOWN: Final = 10


class Tally:
    """What one test compared.

    Parameters
    ----------
    what : str
        What is counted, for the line of the report.
    version : tuple of int
        Of the library that it is compared with.
    """

    def __init__(self, what: str, version: tuple[int, int, int]) -> None:
        self.what = f"{what}, libdnnl {'.'.join(map(str, version))}"
        self.compared = 0
        # cases that are not asked, and answers that are excused: those depend on the library's code
        # for the processor
        self.left_out: Counter[str] = Counter()
        self.excused: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.differences: list[str] = []

    def judge(
        self, answer: _Answer, known: Sequence[Callable[[_Answer], bool]], text: object
    ) -> bool:
        """Count an answer, and return whether the two sides agree."""
        if answer.agrees():
            self.compared += 1
            return True
        for defect in known:
            if defect(answer):
                self.left_out[defect.__name__] += 1
                return False
        self.compared += 1
        self.differ(f"{text}: {answer}")
        return False

    def differ(self, text: str) -> None:
        """Note a difference that has no name."""
        self.differences.append(text)

    def leave_out(self, defect: Callable[..., bool]) -> None:
        """Count a case that was not run."""
        self.left_out[defect.__name__] += 1

    def excuse(self, defect: Callable[..., object]) -> None:
        """Count a case that ran, and whose difference has a name."""
        self.excused[defect.__name__] += 1

    def check(self, most_left_out: float = 0.0) -> None:
        """Report, then fail if anything differs or more than this share was left out."""
        REPORT.append(
            f"{self.what}: {self.compared} compared, {len(self.differences)} differ; "
            f"left out: {_listed(self.left_out)}; excused: {_listed(self.excused)}"
        )
        shown = "\n".join(self.differences[:_SHOWN])
        assert not self.differences, (
            f"MEMDESC_SEED={SEED}: {len(self.differences)} differ, such as\n{shown}"
        )
        assert sum(self.left_out.values()) <= most_left_out * self.compared, self.left_out
        assert self.compared


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"
