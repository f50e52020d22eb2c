-- steps.lua STEPS PACE_MS: a coroutine, a table that grows, and a program that sleeps in every step.
local steps, pace = tonumber(arg[1]), tonumber(arg[2])
local value, seen = 1, {}
local other = coroutine.wrap(function()
  local x = 0
  while true do
    x = (x * 17 + value) % 10007
    coroutine.yield(x)
  end
end)
for step = 0, steps - 1 do
  for i = 0, 49999 do value = (value * 31 + i) % 1000003 end
  seen["k" .. value % 500] = string.rep("x", value % 50)
  io.write(step, " ", value, " ", other(), "\n")
  io.flush()
  os.execute("sleep " .. pace / 1000)
end
