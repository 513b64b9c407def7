"""The record of a run and of each test, and its JSON form. Pure."""
