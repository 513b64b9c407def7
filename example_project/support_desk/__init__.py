"""Summarises and sorts support tickets with a language model."""
