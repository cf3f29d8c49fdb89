-- The queue of waiters for a lock, for the scripts that follow (ADR 3). Its keys have the mark as prefix: a
-- sorted set of IDs, by when each started to wait; for each ID a key that expires when its waiter has not
-- asked for some seconds, which that waiter has read (CLIENT TRACKING), and that holds when it last asked, in
-- milliseconds, and its entry: the terms on which it accepts an offer (ADR 3), or 1, and its context; and
-- when a waiter was last notified of its turn, and which, unless that has asked since.
--
-- They are accessed by commands that write, as the tombstone is in acquire.lua: otherwise the server would
-- track them for every waiter, and notify each of every change by the others.

-- Fails where the slot of a cluster is being moved: a key that is missing may be accessed there no longer, and so a
-- queue from which all waiters were taken could not be stored again.
local function require_storable(mark) redis.call('ZREM', mark .. ':none', '') end
-- Returns whether the lock is ours.
local function is_ours(token)
  local holder = redis.call('GET', KEYS[1])
  if not holder then untrack(KEYS[1]) end
  return holder == token
end
-- Returns the text at a key, without it being tracked if the server supports that (6.2).
local function read(key)
  local value = redis.pcall('GETEX', key)
  if type(value) == 'table' then value = redis.pcall('GET', key) end
  return type(value) == 'string' and value
end
-- Returns the entry of the waiter with this key, and when it last asked.
local function entry_at(key)
  local value = read(key)
  if not value then return false end
  local asked, entry = string.match(value, '^(%d+) (.*)$')
  return entry, tonumber(asked)
end
-- Returns the terms on which it accepts an offer, if it does.
local function terms_of(entry)
  return entry and string.sub(entry, 1, 2) ~= '1 ' and entry
end
-- Returns the message that a waiter is next, for the lease of this token or waiter; and whether another
-- program was seen.
local function next_message(lock, mark, to, name, terms)
  local seen = redis.pcall('SETRANGE', mark .. ':others', 0, '') == 1 and '1 ' or '0 '
  return 'n ' .. seen .. to .. ' ' .. name .. ' ' .. #lock .. ' ' .. lock .. ' ' .. terms
end
-- Returns the channel of an inbox. It begins with a key prefix of this length, as the lock does.
local function channel(lock, length, inbox)
  return string.sub(lock, 1, tonumber(length)) .. 'quorlock:inbox:' .. inbox
end
-- Returns the channel to which a waiter for the lock wants offers, how long each is stored, and the token of its
-- last request; nothing if it accepts none.
local function inbox_of(lock, terms)
  local inbox, length, life, token = string.match(terms or '', '^(%x+) (%d+) (%d+) %a (%x+)')
  if inbox then return channel(lock, length, inbox), life, token end
end
-- Sends a message to an inbox, with the proof that a script sent it (rule O-11), and returns how many clients
-- listen: other users may be able to publish there, and to listen, but not to read the secret.
local function tell(inbox, message)
  local secret = read(string.match(inbox, '^.*:') .. 'secret')
  if not secret then return 0 end
  local proof = redis.sha1hex(secret .. redis.sha1hex(secret .. message))
  local heard = redis.pcall('PUBLISH', inbox, proof .. ' ' .. message)
  return type(heard) == 'number' and heard or 0
end
-- Tells the waiter with this key to ask again, if its last request is so old that an offer, which counts from
-- it, would expire soon: it will be first soon.
local function warn(lock, key)
  local entry, asked = entry_at(key)
  local inbox, life, token = inbox_of(lock, entry)
  if not inbox then return end
  local time = redis.call('TIME')
  if time[1] * 1000 + time[2] / 1000 - asked >= life / 8 then
    tell(inbox, 's ' .. token)
  end
end
-- Returns the message with the first waiter in the queue, for the inbox of the lease of this token or waiter;
-- nothing if that waiter accepts no offer. Warns the second.
local function next_in_queue(lock, mark, to)
  local front = redis.pcall('ZPOPMIN', mark .. ':order', 2)
  if not front[1] then return false end
  if front[3] then
    redis.pcall('ZADD', mark .. ':order', front[2], front[1], front[4], front[3])
    warn(lock, mark .. ':' .. front[3])
  else
    redis.pcall('ZADD', mark .. ':order', front[2], front[1])
  end
  redis.pcall('PEXPIRE', mark .. ':order', 6000)
  local terms = terms_of(entry_at(mark .. ':' .. front[1]))
  return terms and next_message(lock, mark, to, front[1], terms)
end
-- Returns whether no client is subscribed to the inbox: that of a killed process. PUBLISH also counts clients
-- that are subscribed to a pattern. A user without the permission notices by the turn that is not taken.
local function has_no_listener(inbox)
  return redis.pcall('PUBSUB', 'NUMSUB', inbox)[2] == 0
end
-- Notifies the first live waiter, by deleting its key, and returns whether there are waiters. At most 32 dead
-- ones are dropped, so that no script takes long: then the live ones find out by asking. A refused command
-- costs a heartbeat.
local function notify_next(lock, mark)
  local name
  for _ = 1, 32 do
    name = redis.pcall('ZPOPMIN', mark .. ':order')[1]
    if not name then return false end
    local key = mark .. ':' .. name
    local terms = terms_of(entry_at(key))
    local inbox = inbox_of(lock, terms)
    if redis.pcall('DEL', key) == 1 and not (inbox and has_no_listener(inbox)) then
      -- It is about to hold the lock: tells it which waiter is next.
      local next = terms and next_in_queue(lock, mark, name)
      if next then tell(inbox, next) end
      break
    end
  end
  local time = redis.call('TIME')
  local now = string.format('%.0f ', time[1] * 1000 + math.floor(time[2] / 1000))
  redis.pcall('SET', mark .. ':told', now .. name, 'PX', 6000)
  redis.pcall('SET', mark, '1', 'PX', 6000)
  return true
end
-- Notifies the first waiter, if the mark was deleted together with the lock.
local function after_deleting(lock, mark, gone)
  if gone == 2 then
    if notify_next(lock, mark) then return 'told' end
    -- Without a waiter no turn is reserved: that of one that has released is over.
    redis.pcall('DEL', mark .. ':told')
    return 'wanted'
  end
  -- The lock is released, whether or not the mark may be accessed.
  if gone ~= 1 then redis.call('DEL', lock) end
  return 'granted'
end
-- Deletes the lock, and notifies the first waiter.
local function delete_and_notify(lock, mark)
  -- Both in one call, which saves a microsecond.
  return after_deleting(lock, mark, redis.pcall('DEL', lock, mark))
end
