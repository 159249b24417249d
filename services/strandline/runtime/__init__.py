"""PERFORMS: steps the core with events and carries out its effects; below the roles only this package uses asyncio."""
