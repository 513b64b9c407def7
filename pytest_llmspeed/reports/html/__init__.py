"""The HTML report: one file that opens offline, without a script."""
