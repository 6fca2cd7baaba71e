"""Operations on register tiles in NVPTX."""
