"""The statistics that decide whether something became slower. Pure."""
