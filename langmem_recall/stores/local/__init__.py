"""LocalStore: one SQLite file."""
