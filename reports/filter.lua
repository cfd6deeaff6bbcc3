-- The part of Quarto's language that Pandoc doesn't know: labelled figures and tables, callouts, cross-references.

local names = {fig = 'Figure', tbl = 'Table', sec = 'Section'}
local counts = {fig = 0, tbl = 0, sec = 0}
local labels = {}

local function kind(identifier)
  local prefix = identifier and identifier:match('^(%a+)%-')
  return names[prefix] and prefix
end

-- The next number of its kind, kept for the references to it.
local function label(identifier)
  local prefix = kind(identifier)
  counts[prefix] = counts[prefix] + 1
  labels[identifier] = names[prefix] .. '\u{a0}' .. counts[prefix]
  return labels[identifier]
end

local function captioned(identifier, inlines)
  local caption = pandoc.List{pandoc.Strong{pandoc.Str(label(identifier) .. '.')}, pandoc.Space()}
  caption:extend(inlines)
  return caption
end

-- ::: {#fig-x} content, then a last paragraph that is the caption :::
-- Both scroll where the window is narrow, and so must be reached by keys.
local function figure(div)
  local last = div.content:remove(#div.content)
  if not last or last.t ~= 'Para' then error('figure ' .. div.identifier .. ' has no caption paragraph at its end') end
  local caption = {long = {pandoc.Plain(captioned(div.identifier, last.content))}}
  -- a narrow screen scrolls in it, so keys must reach it
  return pandoc.Figure(div.content, caption, pandoc.Attr(div.identifier, div.classes, {tabindex = '0'}))
end

-- ::: {#tbl-x} a table, then a last paragraph that is the caption :::
local function tabled(div)
  local last = div.content:remove(#div.content)
  if not last or last.t ~= 'Para' then error('table ' .. div.identifier .. ' has no caption paragraph at its end') end
  local caption = captioned(div.identifier, last.content)
  div.attributes.tabindex = '0' -- as for figures
  for _, block in ipairs(div.content) do
    if block.t == 'Table' then
      block.caption.long = {pandoc.Plain(caption)}
      return div
    end
  end
  div.content:insert(1, pandoc.Para(caption))
  return div
end

local function callout(div, sort)
  local title = pandoc.List{pandoc.Str(sort:sub(1, 1):upper() .. sort:sub(2))}
  if div.attributes.title then
    title = pandoc.utils.blocks_to_inlines(pandoc.read(div.attributes.title, 'markdown').blocks)
    div.attributes.title = nil
  elseif div.content[1] and div.content[1].t == 'Header' then
    title = div.content:remove(1).content
  end
  div.content:insert(1, pandoc.Div({pandoc.Plain(title)}, {class = 'callout-title'}))
  div.classes:insert('callout')
  return div
end

local collect = {
  traverse = 'topdown',
  Header = function(header)
    if kind(header.identifier) == 'sec' then
      labels[header.identifier] = pandoc.utils.stringify(header.content)
    end
  end,
  Div = function(div)
    local prefix = kind(div.identifier)
    if prefix == 'fig' then return figure(div) end
    if prefix == 'tbl' then return tabled(div) end
    for _, class in ipairs(div.classes) do
      local sort = class:match('^callout%-(%a+)$')
      if sort and sort ~= 'title' then return callout(div, sort) end
    end
  end,
}

local resolve = {
  Cite = function(cite)
    local links = pandoc.List{}
    for _, citation in ipairs(cite.citations) do
      if not kind(citation.id) then return nil end
      local text = labels[citation.id]
      if not text then error('the reference @' .. citation.id .. ' leads nowhere') end
      if #links > 0 then links:insert(pandoc.Str(', ')) end
      links:insert(pandoc.Link(text, '#' .. citation.id))
    end
    return links
  end,
}

function Pandoc(document)
  return document:walk(collect):walk(resolve)
end
