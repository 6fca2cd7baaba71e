-- The folder editors/neovim as a plugin: colours, indentation and commands, written to $TESSERA_OUT.

local out = {}

local function wait(what, condition)
  if not vim.wait(30000, condition, 10) then
    error("waited too long for " .. what)
  end
end

local function group(line, column)
  return vim.fn.synIDattr(vim.fn.synID(line, column, 1), "name")
end

local function main()
  vim.cmd.edit(vim.env.TESSERA_FILE)
  out.filetype = vim.bo.filetype
  vim.cmd("syntax on")
  out.groups = {
    group(1, 1), group(1, 9), group(2, 1), group(2, 5), group(2, 14), group(2, 40), group(3, 9),
    group(4, 5), group(5, 25), group(5, 34),
  }
  local before = vim.api.nvim_buf_get_lines(0, 0, -1, false)
  vim.api.nvim_buf_set_lines(0, 0, -1, false, vim.tbl_map(vim.trim, before))
  vim.cmd("normal! gg=G")
  local indented = vim.api.nvim_buf_get_lines(0, 0, -1, false)
  out.indents = vim.tbl_map(function(l) return #l:match("^ *") end, indented)
  vim.api.nvim_buf_set_lines(0, 0, -1, false, before)
  wait("the server", function() return #vim.lsp.get_clients({ bufnr = 0 }) == 1 end)
  local source = vim.api.nvim_get_current_buf()
  vim.api.nvim_win_set_cursor(0, { 5, 9 })
  vim.cmd("TesseraIr tile")
  wait("the IR", function() return vim.api.nvim_get_current_buf() ~= source end)
  local view = vim.api.nvim_get_current_buf()
  out.ir = table.concat(vim.api.nvim_buf_get_lines(view, 0, -1, false), "\n")
  vim.cmd.wincmd("p")
  vim.api.nvim_exec_autocmds("CursorMoved", { buffer = source })
  local marks = vim.api.nvim_buf_get_extmarks(view, -1, 0, -1, {})
  out.marked = vim.tbl_map(function(m)
    return vim.api.nvim_buf_get_lines(view, m[2], m[2] + 1, false)[1]
  end, marks)
end

local fine, fault = xpcall(main, debug.traceback)
out.fault = not fine and fault or nil
vim.fn.writefile({ vim.json.encode(out) }, vim.env.TESSERA_OUT)
vim.cmd("qall!")
