"""The `llmspeed` command."""
