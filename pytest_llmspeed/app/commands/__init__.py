"""The commands of `llmspeed`: files in, a result out; the command line prints it."""
