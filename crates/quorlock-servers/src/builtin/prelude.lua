-- Prepares an interpreter for the scripts of clients, and returns the function that runs one.
local sha1hex = ...
local call
redis = {
  pcall = function(...) return call(...) end,
  call = function(...)
    local reply = call(...)
    if type(reply) == 'table' and reply.err then error(reply, 0) end
    return reply
  end,
  sha1hex = sha1hex,
  error_reply = function(text) return {err = text} end,
  status_reply = function(text) return {ok = text} end,
}
local pcall, rawset, setmetatable, tostring, type = pcall, rawset, setmetatable, tostring, type
for _, name in ipairs({'collectgarbage', 'coroutine', 'dofile', 'getfenv', 'load', 'loadfile', 'loadstring', 'module',
  'newproxy', 'package', 'print', 'rawset', 'require', 'setfenv', 'setmetatable'}) do
  _G[name] = nil
end
-- The error of a command is a table; caught, it is its text.
local function caught(done, result, ...)
  if not done and type(result) == 'table' and result.err then return false, result.err end
  return done, result, ...
end
_G.pcall = function(...) return caught(pcall(...)) end
setmetatable(_G, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
  __newindex = function(_, name)
    error("Script attempted to create global variable '" .. tostring(name) .. "'", 2)
  end,
})
return function(script, caller, keys, arguments)
  call = caller
  rawset(_G, 'KEYS', keys)
  rawset(_G, 'ARGV', arguments)
  local done, result = pcall(script)
  if done or type(result) == 'table' then return result end
  return {err = 'ERR ' .. tostring(result)}
end
