import ast

import pytest

from tests.mutation.mutants import mutants_of


@pytest.mark.parametrize(
    ("statement", "mutants"),
    [
        ("os.fsync(handle)", {"pass"}),
        ("raise error", {"pass"}),
        ("self.lock = None", {"pass"}),
        ("n += i", {"pass", "n -= i"}),
        ("return x", {"return None"}),
        ("y = a < b", {"y = (a <= b)"}),
        ("y = a * b", {"y = (a // b)"}),
        ("y = a and b", {"y = (a or b)", "y = (a)", "y = (b)"}),
        ("y = not a", {"y = (a)"}),
        ("y = abs(a)", {"y = (a)"}),
        ("y = max(a, b)", {"y = min(a, b)"}),
        ("y = 0, 2", {"y = 1, 2", "y = 0, 3", "y = 0, 1"}),
        ("y = True", {"y = False"}),
        ("y = a if b else c", {f"y = a if {to} else c" for to in ("True", "False", "(b > 1)")}),
        ("y = zip(a, b, strict=True)", set()),
        ('y: int = f"{a + b}"', set()),
        ("msg = a + b", set()),
        ("y = 20_000", set()),
    ],
)  # fmt: skip
def test_a_statement_has_these_mutants(statement: str, mutants: set[str]) -> None:
    found = mutants_of(f"def f(x):\n    {statement}\n")
    assert {mutant.key.after for mutant in found} == mutants
    assert {mutant.key[:2] for mutant in found} <= {("f", statement)}
    for mutant in found:
        assert mutant.text == f"def f(x):\n    {mutant.key.after}\n"
        assert mutant.line == 2
        ast.parse(mutant.text)


def test_what_is_guarded_may_be_unguarded_and_what_is_handled_may_be_raised() -> None:
    source = "with lock():\n    try:\n        f()\n    except OSError:\n        g()\n        h()\n"
    found = [mutant.text for mutant in mutants_of(source)]
    assert source.replace("lock()", "__import__('contextlib').nullcontext()") in found
    assert source.replace("        g()\n        h()\n", "        raise\n") in found


def test_equal_mutants_of_a_function_are_counted() -> None:
    found = mutants_of("class C:\n    def f(self):\n        g()\n        g()\n")
    assert [(mutant.key.function, mutant.key.nth) for mutant in found] == [("C.f", 1), ("C.f", 2)]
    assert [mutant.line for mutant in found] == [3, 4]
