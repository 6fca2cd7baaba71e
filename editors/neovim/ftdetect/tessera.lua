vim.filetype.add({ extension = { tessera = "tessera" } })
