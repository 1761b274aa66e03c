"""Real models, exported and run with program-scoped arenas."""
