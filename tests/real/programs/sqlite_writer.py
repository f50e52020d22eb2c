"""sqlite_writer.py STEPS PACE_MS: transactions into two databases, one with a rollback journal and one with a write-ahead log."""
import hashlib
import sqlite3
import sys
import time

steps, pace = int(sys.argv[1]), float(sys.argv[2]) / 1000
databases = [sqlite3.connect(f"{mode}.db", isolation_level=None) for mode in ("delete", "wal")]
for mode, db in zip(("delete", "wal"), databases):
    db.execute(f"pragma journal_mode={mode}")
    db.execute("create table t (id integer primary key, step integer, text text)")
    db.execute("create index by_text on t (text)")
for step in range(1, steps + 1):
    for db in databases:
        db.execute("begin immediate")
        for i in range(40):
            db.execute("insert into t (step, text) values (?, ?)", (step, hashlib.md5(b"%d %d" % (step, i)).hexdigest()))
            if i == 20:
                time.sleep(pace / 2)
        db.execute("delete from t where id % 7 = ? and step < ?", (step % 7, step))
        db.execute("rollback" if step % 5 == 0 else "commit")
    sums = [db.execute("select count(*), sum(step), max(text) from t").fetchone() for db in databases]
    print(f"step {step} {sums}", flush=True)
    time.sleep(pace)
print([db.execute("pragma integrity_check").fetchone()[0] for db in databases], flush=True)
