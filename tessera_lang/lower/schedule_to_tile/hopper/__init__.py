"""Register tiles with roles: TMA, rings of buffers, wgmma."""
