"""Everything that sends requests on purpose."""
