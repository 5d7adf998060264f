"""A plan as source code.

`nests` writes its boxes as loops, `arithmetic` the formula of its attributes, `codecs` what the
bits of its types mean.
"""

from reorder.plan.source.nests import plan_source

__all__ = ["plan_source"]
