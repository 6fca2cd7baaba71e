"""Operations of sm_90a in NVPTX: TMA, wgmma, transaction barriers, roles."""
