"""Truth: the only package that speaks SQL."""
