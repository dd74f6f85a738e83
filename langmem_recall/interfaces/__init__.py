"""Ways in for other hosts: LangChain retrievers, Claude's memory tool, MCP."""
