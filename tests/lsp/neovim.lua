-- Opens the file named by $TESSERA_FILE with the set-up of docs/editors.md, and writes what a
-- user would see to $TESSERA_OUT: before an edit, on damaged text, and after the mending edit.

local out = {}

local function wait(what, condition)
  if not vim.wait(15000, condition, 10) then
    error("waited too long for " .. what)
  end
end

local function diagnostics()
  local found = {}
  for _, d in ipairs(vim.diagnostic.get(0)) do
    table.insert(found, { d.code, d.lnum, d.col, d.user_data.lsp.data.message })
  end
  return found
end

local function request(method, extra)
  local client = vim.lsp.get_clients({ bufnr = 0 })[1]
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  local answer = client:request_sync(method, vim.tbl_extend("force", params, extra or {}), 10000, 0)
  return answer and answer.result
end

local function main()
  vim.cmd.edit(vim.env.TESSERA_FILE)
  wait("the server", function() return #vim.lsp.get_clients({ bufnr = 0 }) == 1 end)
  local client = vim.lsp.get_clients({ bufnr = 0 })[1]
  wait("diagnostics", function() return #vim.diagnostic.get(0) > 0 end)
  out.encoding = client.offset_encoding
  out.filetype = vim.bo.filetype
  out.diagnostics = diagnostics()

  vim.api.nvim_win_set_cursor(0, { 5, 17 })
  out.hover = request("textDocument/hover").contents.value
  out.definition = request("textDocument/definition").range.start
  out.completion = #request("textDocument/completion").items
  out.symbols = #request("textDocument/documentSymbol")
  out.tokens = #request("textDocument/semanticTokens/full").data

  local mended = vim.fn.readfile(vim.env.TESSERA_MENDED)
  vim.api.nvim_buf_set_lines(0, 0, -1, false, mended)
  wait("no diagnostics", function() return #vim.diagnostic.get(0) == 0 end)
  out.after = diagnostics()
end

local fine, fault = xpcall(main, debug.traceback)
out.fault = not fine and fault or nil
vim.fn.writefile({ vim.json.encode(out) }, vim.env.TESSERA_OUT)
vim.cmd("qall!")
