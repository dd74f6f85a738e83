"""Between a stored value and a memory, and decisions about one memory."""
