"""Operations of lanes and warps in NVPTX."""
