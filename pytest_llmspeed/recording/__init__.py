"""What one test has measured so far."""
