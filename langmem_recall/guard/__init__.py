"""The guard: what a text is judged by before it is stored or read."""
