// steps STEPS PACE_MS: a thread that is given work by a channel, and four new ones in every step.
use std::io::Write;
use std::sync::mpsc;
use std::{env, thread, time::Duration};

fn mix(value: u64, count: u64) -> u64 {
    (0..count).fold(value, |a, i| (a * 31 + i) % 1000003)
}

fn main() {
    let given: Vec<u64> = env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (jobs, work) = mpsc::channel::<u64>();
    let (done, results) = mpsc::channel::<u64>();
    thread::spawn(move || {
        for job in work {
            done.send(mix(job, 100000)).unwrap()
        }
    });
    let mut value = 1;
    for step in 0..given[0] {
        value = mix(value, 200000);
        jobs.send(value).unwrap();
        let other = results.recv().unwrap();
        let parts: Vec<u64> = thread::scope(|s| {
            let all: Vec<_> = (0..4).map(|k| s.spawn(move || mix(other + k, 20000))).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        println!("{step} {value} {other} {parts:?}");
        std::io::stdout().flush().unwrap();
        thread::sleep(Duration::from_millis(given[1]));
    }
}
