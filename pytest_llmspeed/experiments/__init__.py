"""Experiments: whole runs of pytest, made to answer one question; old against new, which commit."""

EXPERIMENT = "LLMSPEED_EXPERIMENT"
"""The environment variable of runs that an experiment starts: they begin none themselves."""
