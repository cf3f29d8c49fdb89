-- Notes how long ago the history of this process has begun, by its clock and by the client's, and returns the note.
-- It began no earlier than another client has noted.
-- KEYS: start. ARGV: process, milliseconds since then, the client's time then, words that follow.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local began, theirs, words = now - ARGV[2], ARGV[3], ARGV[4]
local who, noted, seen, marks = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%d+) (%d+)(.*)$')
if who == ARGV[1] then
  noted = tonumber(noted)
  -- A time in the future was noted before the clock was set back.
  if noted > began and noted <= now then began, theirs = noted, seen end
  for word in string.gmatch(marks, '%S+') do
    if not string.find(words, word, 1, true) then words = words .. ' ' .. word end
  end
end
local note = string.format('%s %.0f %s%s', ARGV[1], began, theirs, words)
redis.call('SET', KEYS[1], note)
return note
