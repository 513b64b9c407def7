"""What else happened on the machine while a request was measured."""
