"""The command `memdesc`."""
