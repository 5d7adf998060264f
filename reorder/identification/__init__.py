"""What bytes are: which known layouts they may have, and which types they look like."""
