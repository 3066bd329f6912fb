-- Decides what one principal wants to spend, at once and as a whole: the same rules as
-- actors/src/admission/log.rs, on Redis's own clock.
--
-- KEYS: for each class that is limited, the list of its last admissions (milliseconds since 1970,
--       ascending) and until when it is closed by a refusal.
-- ARGV: the time, or '' for now; a digit for each spend, bit by bit the classes it counts in; then
--       for each class its limit and its window in milliseconds.
-- Answer: for each spend 0, or the whole seconds of its refusal.

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local classes = {}
for i = 1, #KEYS / 2 do
  local class = {
    log = KEYS[2 * i - 1],
    mark = KEYS[2 * i],
    limit = tonumber(ARGV[1 + 2 * i]),
    window = tonumber(ARGV[2 + 2 * i]),
    spent = 0,
  }
  class.closed_until = tonumber(redis.call('GET', class.mark) or 0)
  class.length = redis.call('LLEN', class.log)
  classes[i] = class
end

local function wait(class)
  if class.closed_until > now then
    return class.closed_until - now
  end
  if class.length < class.limit then
    return 0
  end
  local oldest = tonumber(redis.call('LINDEX', class.log, -class.limit))
  return math.max(0, oldest + class.window - now)
end

local function refuse(class, milliseconds)
  local seconds = math.max(1, math.ceil(milliseconds / 1000))
  if class.closed_until <= now then
    class.closed_until = now + seconds * 1000
    redis.call('SET', class.mark, class.closed_until, 'PX', seconds * 1000)
  end
  return seconds
end

local verdicts = {}
for n = 1, #ARGV[2] do
  local counted = {}
  local bits = tonumber(ARGV[2]:sub(n, n))
  for i = 1, #classes do
    if bits % 2 == 1 then
      counted[#counted + 1] = classes[i]
    end
    bits = math.floor(bits / 2)
  end
  local seconds = 0
  for _, class in ipairs(counted) do
    local milliseconds = wait(class)
    if milliseconds > 0 then
      seconds = math.max(seconds, refuse(class, milliseconds))
    end
  end
  if seconds == 0 then
    for _, class in ipairs(counted) do
      redis.call('RPUSH', class.log, now)
      class.length = class.length + 1
      class.spent = class.spent + 1
    end
  end
  verdicts[n] = seconds
end

for _, class in ipairs(classes) do
  if class.spent > 0 then
    redis.call('LTRIM', class.log, -class.limit, -1)
    redis.call('PEXPIRE', class.log, class.window)
  end
end
return verdicts
