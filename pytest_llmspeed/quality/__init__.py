"""Prompt sets, checks on answers, and comparisons with stored answers."""
