"""Pure decisions about what becomes of a memory."""
