(* steps STEPS PACE_MS: strings in a table of OCaml, whose collector compacts. *)
let () =
  let steps = int_of_string Sys.argv.(1) and pace = float_of_string Sys.argv.(2) /. 1000. in
  let value = ref 1 and seen = Hashtbl.create 16 in
  for step = 0 to steps - 1 do
    for i = 0 to 200000 do
      value := ((!value * 31) + i) mod 1000003
    done;
    Hashtbl.replace seen (!value mod 500) (String.make (!value mod 5000) 'x');
    if step mod 9 = 0 then Gc.compact ();
    Printf.printf "%d %d %d\n%!" step !value (Hashtbl.length seen);
    Unix.sleepf pace
  done
