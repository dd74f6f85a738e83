"""Pure arithmetic over arrays: evidence, signals and scores."""
