"""Every sentence that a verdict leads to. Pure.

Importing this package registers the wording of each `Reason`.
"""

from pytest_llmspeed.messages import budgets, busy, comparisons, confirming, load, quality, speed, store

__all__ = ["budgets", "busy", "comparisons", "confirming", "load", "quality", "speed", "store"]
