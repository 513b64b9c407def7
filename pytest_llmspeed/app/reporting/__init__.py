"""What people and machines read of a run: text from records, nothing decided here."""
