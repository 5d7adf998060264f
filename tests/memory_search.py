"""An exhaustive search through what threads may do under the memory model of C11.

An access that no later one of another thread can conflict with comes at once: its order makes no
difference (a persistent set of one thread: Godefroid, "Partial-Order Methods for the Verification
of Concurrent Systems", 1996). Which threads access a location is learned by searching, again until
nothing new is found.
"""

from collections.abc import Callable, Mapping, Sequence

from tests.memory_accesses import Thread, Uses
from tests.memory_order import Program, Run


def search(
    threads: Sequence[Callable[[], Thread]], memory: Mapping[int, int], required: int
) -> int:
    """Run threads in every order and with every value that the model allows; return the states.

    The first `required` threads must end; the others may wait for ever. What threads assert holds
    in every execution.
    """
    program, uses = Program(threads, memory, required), Uses()
    while True:
        uses.is_new = False
        states = _search(program, uses)
        if not uses.is_new:
            return states


def _search(program: Program, uses: Uses) -> int:
    """Return the states; ends early if a thread uses a location that it was not known to use."""
    states: set[int] = set()
    left: list[list[tuple[int, int]]] = [[]]
    while left and not uses.is_new:
        path = left.pop()
        run = Run(program, uses)
        for choice in path:
            run.step(*choice)
        while True:
            choices = run.choices()
            if not choices:
                break
            if len(choices) > 1:
                state = run.state()
                if state in states:
                    break
                states.add(state)
                left += [[*path, choice] for choice in choices[1:]]
            path = [*path, choices[0]]
            run.step(*choices[0])
    return len(states)
