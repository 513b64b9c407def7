"""One run: settings, judging, updating, reporting."""
