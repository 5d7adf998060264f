"""A plan as source code.

`nests` writes its boxes as loops, `arithmetic` the function that converts an element.
"""

from reorder.plan.source.nests import plan_source

__all__ = ["plan_source"]
