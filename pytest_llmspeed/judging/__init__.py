"""From a record and its baseline to verdicts. Pure."""
