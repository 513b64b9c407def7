"""The baseline store: a folder of run files, append-only."""
