"""The recall layer for LangGraph agents."""

__version__ = "0.1.0"
