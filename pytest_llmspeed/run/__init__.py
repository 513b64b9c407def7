"""One invocation of pytest, or one worker of it: its engines, its results, and what is written."""
