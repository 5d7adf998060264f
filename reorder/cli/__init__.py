"""The command `memdesc`; each of its commands is a module here."""

from reorder.cli.main import main

__all__ = ["main"]
