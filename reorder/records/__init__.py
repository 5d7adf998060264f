"""Records with their bytes: decoded, repacked, checked."""
