"""Recall inside LangGraph and LangChain agents."""
