"""LangGraph stores that recall."""
