-- `run`: programs of this folder may be run by commands and lenses.
return {
  cmd = { "tessera-lsp" },
  filetypes = { "tessera" },
  root_markers = { "tessera.toml", ".git" },
  init_options = { run = vim.g.tessera_run == true },
}
