"""PERFORMS. Steps the core with what happened and does what it asks; the only home of asyncio below the roles."""
