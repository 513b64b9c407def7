"""Stored sessions: reading, selecting, updating."""
