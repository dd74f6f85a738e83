"""Measuring recall on one's own data, through the same code as production."""
