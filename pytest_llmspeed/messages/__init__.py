"""Every sentence that a verdict leads to. Pure."""
