"""Operations: long work in the background."""
