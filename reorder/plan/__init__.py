"""Layouts to loop nests: pure functions and values."""

from typing import TYPE_CHECKING

from memdesc.lazy import lazy, public
from reorder.forks import importing

if TYPE_CHECKING:
    from reorder.plan.compare import Relation
    from reorder.plan.nodes import Box, IndirectLoop, Node
    from reorder.plan.plan import ReorderPlan
    from reorder.runtime_dims import RuntimePlan, plan_runtime

__all__ = [
    "Box",
    "IndirectLoop",
    "Node",
    "Relation",
    "ReorderPlan",
    "RuntimePlan",
    "plan_runtime",
]

__dir__ = public(globals())

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "Box": "reorder.plan.nodes",
            "IndirectLoop": "reorder.plan.nodes",
            "Node": "reorder.plan.nodes",
            "Relation": "reorder.plan.compare",
            "ReorderPlan": "reorder.plan.plan",
            "RuntimePlan": "reorder.runtime_dims",
            "plan_runtime": "reorder.runtime_dims",
        },
        importing=importing,
    )
