"""The pytest plugin. Only this package imports pytest."""

pytest_plugins = ["pytest_llmspeed.plugin.hooks"]  # for `-p pytest_llmspeed.plugin`
