#!/usr/bin/env escript
%% processes.escript STEPS PACE_MS: a ring of two hundred processes hands a number round, each keeps a table of what it saw.
%% The lines depend on the steps alone.
main([Steps, Pace]) ->
    Self = self(),
    First = lists:foldl(fun(Number, Next) -> spawn_link(fun() -> member(Number, Next, ets:new(seen, [])) end) end,
                        Self, lists:seq(1, 200)),
    run(1, list_to_integer(Steps), list_to_integer(Pace), First, 1).

member(Number, Next, Table) ->
    receive
        Value ->
            New = erlang:phash2({Value, Number}, 1 bsl 32),
            ets:insert(Table, {New rem 100, Value}),
            Next ! New + ets:info(Table, size),
            member(Number, Next, Table)
    end.

run(Step, Steps, _, _, Value) when Step > Steps ->
    io:format("done ~p~n", [Value]);
run(Step, Steps, Pace, First, Value) ->
    First ! Value,
    receive
        New ->
            io:format("step ~p ~p~n", [Step, New]),
            timer:sleep(Pace),
            run(Step + 1, Steps, Pace, First, New)
    end.
