" A line behind one that ends in a colon goes in, one behind return, break, continue or pass out.
if exists("b:did_indent")
  finish
endif
let b:did_indent = 1
setlocal nolisp autoindent indentexpr=TesseraIndent() indentkeys=!^F,o,O,<:>,=elif,=else

if exists("*TesseraIndent")
  finish
endif

function TesseraIndent()
  let above = prevnonblank(v:lnum - 1)
  if above == 0
    return 0
  endif
  let text = substitute(getline(above), '\s*#.*$', '', '')
  let indent = indent(above)
  if text =~# '[([{]\s*$'
    return indent + shiftwidth()
  endif
  if getline(v:lnum) =~# '^\s*[])}]'
    return max([indent - shiftwidth(), 0])
  endif
  if text =~# ':\s*$'
    return indent + shiftwidth()
  endif
  if text =~# '^\s*\(return\|break\|continue\|pass\)\>'
    return max([indent - shiftwidth(), 0])
  endif
  if getline(v:lnum) =~# '^\s*\(elif\|else\)\>' && indent(v:lnum) >= indent
    return max([indent - shiftwidth(), 0])
  endif
  return indent
endfunction
