"""packages.py PACKAGE STEPS PACE_MS: a package of PyPI computes, and what each step prints depends on all steps before.

The packages have threads of their own (all but scipy's solver), three of them processes (joblib, multiprocessing, jupyter).
"""
import hashlib
import sys
import time


def digest(*arrays):
    import numpy as np
    h = hashlib.sha256()
    for array in arrays:
        h.update(np.ascontiguousarray(array).tobytes())
    return h.hexdigest()[:16]


def jax():
    """A network is trained; batches of three sizes, each compiled when it comes for the first time."""
    import jax as j
    import jax.numpy as jnp
    key = j.random.PRNGKey(0)
    weights = [j.random.normal(key, (64, 256)) * .1, j.random.normal(key, (256, 8)) * .1]

    def loss(w, x, y):
        return jnp.mean((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2)

    @j.jit
    def trained(w, x, y):
        value, gradients = j.value_and_grad(loss)(w, x, y)
        return [a - .05 * g for a, g in zip(w, gradients)], value

    step = 0
    while True:
        step += 1
        key, a, b = j.random.split(key, 3)
        rows = 128 + step % 3
        weights, value = trained(weights, j.random.normal(a, (rows, 64)), j.random.normal(b, (rows, 8)))
        yield f"{float(value)!r} {digest(*weights)}"


def tensorflow():
    import tensorflow as tf
    tf.keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
    model = tf.keras.Sequential([tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(4)])
    model.compile(optimizer="adam", loss="mse")
    while True:
        value = model.train_on_batch(tf.random.normal((64, 32)), tf.random.normal((64, 4)))
        yield f"{float(value)!r} {digest(*model.get_weights())}"


def onnxruntime():
    """Six layers, whose result is the next input."""
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
    random = np.random.default_rng(1)
    nodes, weights, last = [], [], "x"
    for i in range(6):
        weights.append(numpy_helper.from_array((random.standard_normal((256, 256)) * .06).astype(np.float32), f"w{i}"))
        nodes += [helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"]), helper.make_node("Tanh", [f"m{i}"], [f"t{i}"])]
        last = f"t{i}"
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 256])] for name in ("x", last)]
    model = helper.make_model(helper.make_graph(nodes, "layers", *ends, weights), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = random.standard_normal((64, 256)).astype(np.float32)
    while True:
        x = session.run(None, {"x": x})[0] * np.float32(1.1) + np.float32(.01)
        yield digest(x)


def xgboost():
    import numpy as np
    import xgboost as xgb
    x = np.random.default_rng(1).standard_normal((4000, 20))
    data = xgb.DMatrix(x, label=x[:, 0] * x[:, 1] + x[:, 2])
    trees, step = xgb.Booster({"nthread": 2, "max_depth": 5, "seed": 1}, [data]), 0
    while True:
        trees.update(data, step)
        step += 1
        yield f"{trees.eval(data)} {digest(trees.predict(data))}"


def lightgbm():
    import lightgbm as lgb
    import numpy as np
    x = np.random.default_rng(1).standard_normal((4000, 20))
    trees = lgb.Booster({"objective": "regression", "num_threads": 2, "verbose": -1, "deterministic": True, "force_row_wise": True, "seed": 1},
                        lgb.Dataset(x, label=x[:, 0] * x[:, 1]))
    while True:
        trees.update()
        yield digest(trees.predict(x))


def sklearn():
    import numpy as np
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import SGDRegressor
    x = np.random.default_rng(1).standard_normal((1000, 20))
    y = x[:, 0] * x[:, 1] + x[:, 2]
    line, step = SGDRegressor(random_state=1), 0
    while True:
        step += 1
        line.partial_fit(x, y)
        forest = RandomForestRegressor(8, n_jobs=2, random_state=step).fit(x, y)
        yield digest(line.coef_, forest.set_params(n_jobs=1).predict(x))  # by one thread: the order of its sums is fixed


def joblib():
    import joblib as j
    seed = 1
    with j.Parallel(n_jobs=2, backend="loky") as parallel:
        while True:
            seed = sum(parallel(j.delayed(pow)(seed + i, 12345, 1000003) for i in range(20))) % 1000003
            yield str(seed)


def multiprocessing():
    import multiprocessing as m
    seed = 1
    with m.get_context("forkserver").Pool(3) as pool:
        while True:
            seed = sum(pool.starmap(pow, [(seed + i, 1234567, 1000003) for i in range(30)])) % 1000003
            yield str(seed)


def polars():
    import polars as pl
    table, step = pl.DataFrame({"k": [i % 97 for i in range(100000)], "v": [i * 7919 % 10007 for i in range(100000)]}), 0
    while True:
        step += 1
        table = table.with_columns(v=(pl.col("v") * 31 + step) % 10007)
        groups = table.group_by("k").agg(pl.col("v").sum(), pl.col("v").max().alias("most")).sort("k")
        yield digest(groups["v"].to_numpy(), groups["most"].to_numpy())


def duckdb():
    import duckdb as db
    connection = db.connect()
    connection.execute("SET threads = 2; CREATE TABLE t AS SELECT range AS id, range * 7919 % 10007 AS v FROM range(200000)")
    while True:
        connection.execute("UPDATE t SET v = (v * 31 + 7) % 10007 WHERE id % 10 = 3")
        yield str(connection.execute("SELECT sum(v * id), count(DISTINCT v), max(v) FROM t").fetchall())


def pyarrow():
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    table, step = pa.table({"k": np.arange(200000) % 97, "v": np.arange(200000) * 7919 % 10007}), 0
    while True:
        step += 1
        table = table.set_column(1, "v", pc.bit_wise_xor(table["v"], pa.scalar(step)))
        groups = table.group_by("k").aggregate([("v", "sum"), ("v", "max")]).sort_by("k")
        yield digest(groups["v_sum"].to_numpy(), groups["v_max"].to_numpy())


def numba():
    import numba as nb
    import numpy as np

    @nb.njit(parallel=True)
    def mix(a, step):
        for i in nb.prange(a.size):
            a[i] = (a[i] * 31 + step + i) % 10007

    a, step = np.arange(500000), 0
    while True:
        step += 1
        mix(a, step)
        yield digest(a)


def scipy():
    import numpy as np
    from scipy import fft, sparse
    from scipy.sparse import linalg
    a = sparse.random(2000, 2000, .002, random_state=1, format="csr") + sparse.eye(2000) * 4
    x = np.random.default_rng(1).standard_normal(2000)
    while True:
        x, _ = linalg.cg(a @ a.T, x / np.linalg.norm(x), maxiter=20)
        yield digest(x, fft.fft(x, workers=2))


PACKAGES = {f.__name__: f for f in (jax, tensorflow, onnxruntime, xgboost, lightgbm, sklearn, joblib, multiprocessing, polars, duckdb, pyarrow, numba, scipy)}


def main():
    name, steps, pace = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1000
    for step, line in zip(range(steps), PACKAGES[name]()):
        print(step, line, flush=True)
        time.sleep(pace)


if __name__ == "__main__":
    main()
