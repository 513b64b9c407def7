"""Engines: what answers requests, in process or behind a URL."""
