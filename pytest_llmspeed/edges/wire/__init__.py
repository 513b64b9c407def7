"""The OpenAI protocol over our own socket: bytes → stamped events → Exchange."""
