"""Seeing why: traces as records and tables, their log, a monitor and an inspector."""
