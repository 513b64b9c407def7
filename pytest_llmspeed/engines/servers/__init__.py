"""Engines behind a URL, started here or elsewhere."""
