"""The blocking shells, which scripts/shells makes from those for asyncio."""
