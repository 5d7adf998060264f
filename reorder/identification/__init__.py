"""What bytes are: which known layouts they may have, and which types they look like."""

from reorder.identification.identify import Candidate, Identification

__all__ = ["Candidate", "Identification"]
