"""Workers, their runs and claims, and the filters of their lists."""
