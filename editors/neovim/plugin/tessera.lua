-- Commands of the language server, and the server itself for .tessera files.

if vim.fn.has("nvim-0.11") == 0 then
  return
end
vim.lsp.enable("tessera")

local function client()
  local found = vim.lsp.get_clients({ bufnr = 0, name = "tessera" })[1]
  if not found then
    vim.notify("tessera-lsp does not run for this buffer", vim.log.levels.ERROR)
  end
  return found
end

-- Asks the server for a command of it; `with` gets what it gives.
local function command(name, argument, with)
  local server = client()
  if not server then
    return
  end
  argument.uri = argument.uri or vim.uri_from_bufnr(0)
  local params = { command = "tessera." .. name, arguments = { argument } }
  server:request("workspace/executeCommand", params, function(fault, found)
    if fault then
      vim.notify(fault.message, vim.log.levels.WARN)
    else
      with(found)
    end
  end, 0)
end

local function window(name, lines, filetype)
  vim.cmd("vertical new")
  local buffer = vim.api.nvim_get_current_buf()
  vim.bo[buffer].buftype, vim.bo[buffer].bufhidden = "nofile", "wipe"
  vim.api.nvim_buf_set_name(buffer, name .. "#" .. buffer)
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, lines)
  vim.bo[buffer].modifiable, vim.bo[buffer].filetype = false, filetype
  return buffer
end

local marks = vim.api.nvim_create_namespace("tessera")

local function mark(buffer, lines)
  vim.api.nvim_buf_clear_namespace(buffer, marks, 0, -1)
  for _, line in ipairs(lines) do
    pcall(vim.api.nvim_buf_set_extmark, buffer, marks, line, 0, { line_hl_group = "Visual" })
  end
end

-- The line of the cursor is marked on the other side, whichever of the two it is in.
local function follow(source, view, lines)
  vim.api.nvim_create_autocmd("CursorMoved", {
    buffer = source,
    callback = function()
      if not vim.api.nvim_buf_is_valid(view) then
        return true
      end
      local at, found = vim.fn.line(".") - 1, {}
      for i, line in ipairs(lines) do
        if line == at then
          table.insert(found, i - 1)
        end
      end
      mark(view, found)
    end,
  })
  vim.api.nvim_create_autocmd("CursorMoved", {
    buffer = view,
    callback = function()
      local line = lines[vim.fn.line(".")] or -1
      mark(source, line >= 0 and { line } or {})
    end,
  })
end

vim.api.nvim_create_user_command("TesseraIr", function(given)
  local source, place = vim.api.nvim_get_current_buf(), vim.api.nvim_win_get_cursor(0)
  local argument = {
    stage = given.args ~= "" and given.args or "tile",
    position = { line = place[1] - 1, character = 0 },
  }
  command("viewIr", argument, function(found)
    local name = found.kernel .. "." .. found.stage
    local view = window(name, vim.split(found.text, "\n"), found.stage == "ptx" and "asm" or "mlir")
    follow(source, view, found.lines)
  end)
end, {
  nargs = "?",
  complete = function() return { "tile", "schedule", "ptx", "sass" } end,
  desc = "The kernel under the cursor as the compiler has it",
})

vim.api.nvim_create_user_command("TesseraResources", function()
  command("resources", {}, function(found)
    local lines = {}
    for _, k in ipairs(found) do
      for _, l in ipairs(k.launches or {}) do
        local text = "%s, %s: %d registers, %d bytes spilled, %d bytes shared, %d groups at once"
        table.insert(lines, text:format(k.kernel, k.arch, l.registers, l.spills, l.shared, l.groups))
      end
      if k.error then
        table.insert(lines, ("%s, %s: %s"):format(k.kernel, k.arch, k.error))
      end
    end
    vim.notify(table.concat(lines, "\n"))
  end)
end, { desc = "What the kernels of this file take" })

for name, what in pairs({ Run = "run", Test = "test" }) do
  vim.api.nvim_create_user_command("Tessera" .. name, function()
    command(what, {}, function(found)
      window(what, vim.split(found.output .. "(exit code " .. found.code .. ")", "\n"), "")
    end)
  end, { desc = "tesserac " .. what .. " on this file" })
end

vim.api.nvim_create_user_command("TesseraRemarks", function()
  command("toggleRemarks", {}, function(on)
    vim.notify("remarks " .. (on and "on" or "off"))
  end)
end, { desc = "Remarks and kept guards, on or off" })
