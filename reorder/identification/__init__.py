"""What bytes are: which known layouts they may have, and which types they look like."""

from typing import TYPE_CHECKING

from memdesc.lazy import lazy, public
from reorder.forks import importing

if TYPE_CHECKING:
    from reorder.identification.identify import Candidate, Identification
    from reorder.identification.readings import TypeReading

__all__ = [
    "Candidate",
    "Identification",
    "TypeReading",
]

__dir__ = public(globals())

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "Candidate": "reorder.identification.identify",
            "Identification": "reorder.identification.identify",
            "TypeReading": "reorder.identification.readings",
        },
        importing=importing,
    )
