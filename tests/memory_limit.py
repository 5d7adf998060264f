"""A limit on the memory that a process may ask for, whatever the system would grant."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

# more addresses than the libraries and runtimes of all tests map
_NBYTES = 1 << 40


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let this process ask for no more than a tebibyte: some systems grant any number of bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    given = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([_NBYTES, *given]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
