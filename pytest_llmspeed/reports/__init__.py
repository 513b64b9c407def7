"""Reports for people: terminal, Markdown, JUnit, and files."""
