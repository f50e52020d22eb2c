// node.js STEPS PACE_MS: timers, promises, a worker thread, typed arrays, maps that grow and shrink.
const { Worker, isMainThread, parentPort } = require('worker_threads');
const crypto = require('crypto'), fs = require('fs');
if (!isMainThread) {
  let state = new Uint32Array(65536);
  parentPort.on('message', (step) => {
    for (let i = 0; i < state.length; ++i) state[i] = (Math.imul(state[i], 1664525) + step + i) >>> 0;
    parentPort.postMessage(crypto.createHash('sha256').update(Buffer.from(state.buffer)).digest('hex'));
  });
} else {
  const steps = +process.argv[2], pace = +process.argv[3];
  const worker = new Worker(__filename), map = new Map();
  const answer = () => new Promise((resolve) => worker.once('message', resolve));
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  (async () => {
    for (let step = 1; step <= steps; ++step) {
      worker.postMessage(step);
      const [hash] = await Promise.all([answer(), sleep(pace / 2), sleep(pace / 3)]);
      for (let i = 0; i < 200; ++i) map.set(`${step} ${i}`, { hash, i, list: [step, i] });
      for (const key of [...map.keys()].slice(0, step % 150)) map.delete(key);
      const text = JSON.stringify([...map.entries()].slice(-50));
      fs.writeSync(1, `step ${step} ${map.size} ${crypto.createHash('md5').update(text + hash).digest('hex')}\n`);
      await sleep(pace / 2);
    }
    fs.writeSync(1, 'done\n');
    process.exit(0);
  })();
}
