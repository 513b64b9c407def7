"""The `openai` SDK clients whose every call is measured."""
