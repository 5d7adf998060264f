"""`memdesc bench`: how fast reorders are, compared with memcpy and with installed peers."""
