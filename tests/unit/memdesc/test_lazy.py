"""Children that are forked while another thread is making something for the first time."""

import os
import threading

import pytest

from memdesc.lazy import cached_property
from tests.programs import run_python


def test_a_cached_property_waits_for_no_other_thread() -> None:
    """In a child, the other thread would not exist."""
    inside, done = threading.Event(), threading.Event()

    class Value:
        def __init__(self, *, waits: bool) -> None:
            self.waits, self.calls = waits, 0

        @cached_property
        def made(self) -> int:
            self.calls += 1
            if self.waits:
                inside.set()
                done.wait()
            return 5

    one, other = Value(waits=True), Value(waits=False)
    thread = threading.Thread(target=lambda: one.made)
    thread.start()
    inside.wait()
    try:
        quick = threading.Thread(target=lambda: other.made)
        quick.start()
        quick.join(10)
        assert not quick.is_alive()
    finally:
        done.set()
    thread.join()
    assert (one.made, other.made, one.calls, other.calls) == (5, 5, 1, 1)


_PROGRAM = """
import os, signal, sys, threading, time
import memdesc

inside = threading.Event()

class Slow:
    def find_spec(self, name, *_):
        if name == {module!r} and not inside.is_set():
            inside.set()
            time.sleep(0.2)

def use():
    {use}

sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=use)
thread.start()
inside.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    use()
    os._exit(0)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("ml_dtypes", "memdesc.data_type('bf16').numpy"),
        ("memdesc.names.systems", "memdesc.memory_desc((1, 8, 2, 2), 's8', 'CHW4')"),
        ("memdesc.exchange", "memdesc.memory_desc((2, 3), 'f32', '3x1')"),
        ("memdesc.runtime_dims", "memdesc.runtime_desc"),
    ],
)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_a_child_can_import_what_another_thread_was_importing(module: str, use: str) -> None:
    run_python("-c", _PROGRAM.format(module=module, use=use))


_HELD = """
import importlib, threading
import memdesc
from memdesc.lazy import import_lock

for module in {modules!r}:
    thread = threading.Thread(target=importlib.import_module, args=[module])
    with import_lock:
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), module
"""


def test_modules_that_are_imported_late_need_no_lock_themselves() -> None:
    """A thread that holds it may wait for another one that imports the module itself."""
    late = ("exchange", "names.systems", "picture", "record", "runtime_dims", "source", "verbose")
    run_python("-c", _HELD.format(modules=[f"memdesc.{module}" for module in late]))
