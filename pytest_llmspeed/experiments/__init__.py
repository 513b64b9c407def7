"""Experiments: whole runs of pytest, made to answer one question; old against new, which commit."""
