// What the snapshot engine needs of the device side, without knowing a CUDA symbol. src/device
// implements it.
//
// Owner: process-wide; sinks, sources and reports are the caller's. Threads: `active`, `freeze`,
// `stage`, `drain` and `restore` run on a short-lived pthread of ours (libc and driver calls
// allowed, application threads running); everything marked PARKED runs on the coordinator while
// application threads are parked: raw system calls only, no lock the application can hold. Errors:
// false, with code and text in the report.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/hash/chunk_hash.h"
#include "base/procfs/proc.h"
#include "base/text/failure.h"

namespace gpuckpt {

// Where captured bytes go (the ring). Thread safe. False: the snapshot failed (writer gone), stop.
struct CaptureSink {
  bool (*data)(CaptureSink*, uint64_t space, uint64_t address, const void* bytes, uint64_t length);
  bool (*zero)(CaptureSink*, uint64_t space, uint64_t address, uint64_t length);
  bool (*blob)(CaptureSink*, const char* name, const void* bytes, uint64_t length);  // appends

  // May be null; `data` then. Bytes with the names (16 bytes each, base/hash/chunk_hash.h, most
  // significant byte first) of their chunks, which are cut at multiples of 64 KiB: computed before
  // the bytes travelled, compared when they have arrived.
  bool (*sealed)(CaptureSink*, uint64_t space, uint64_t address, const void* bytes, uint64_t length,
                 const void* names) = nullptr;
  // May be null. The sink's own memory, where the device itself can put bytes, so that they are not
  // copied once more: room for `length` bytes (at most kBlockBytes) of one run, cut into `chunks`;
  // and how they are handed over, once they are there. Null: no room just now, use `sealed`. What
  // was acquired and is not committed is lost with the snapshot. All of it lies in [memory, memory
  // + memory_bytes), which outlives the snapshot's last call.
  struct Block {
    void* bytes;
    uint32_t token;
  };
  bool (*acquire)(CaptureSink*, uint64_t length, uint64_t chunks, Block*) = nullptr;
  bool (*commit_block)(CaptureSink*, const Block&, uint64_t space, uint64_t address,
                       uint64_t length, const void* names, uint64_t chunks) = nullptr;
  void* memory = nullptr;
  uint64_t memory_bytes = 0;
  static constexpr uint64_t kBlockBytes = 15 * (64 << 10);

  // May be null. Of [address, address + length) these are the names; their chunks were sent before,
  // in the space kSpacePrecopyBase + ordinal.
  bool (*named)(CaptureSink*, uint64_t space, uint64_t address, uint64_t length,
                const void* names) = nullptr;
  // May be null. Waits until all that was given has arrived at the other end.
  bool (*arrived)(CaptureSink*) = nullptr;

  // May be null. What `parent` has at these addresses, of which it captured all.
  bool (*same)(CaptureSink*, uint64_t space, uint64_t address, uint64_t length) = nullptr;
  // How names are computed; null: none can be, and `sealed`, `acquire` and `named` are not to be
  // used.
  const HashKey* name_key = nullptr;
  // Id of the snapshot that `same` refers to; null or empty: there is none.
  const char* parent = nullptr;
};

// Contents of device memory. bytes is null for zeros.
struct RestorePiece {
  uint64_t space, address, length;
  const void* bytes;
  uint32_t token;
};

// Where restored bytes come from: device spaces, as they are read, and blobs, mapped read-only into
// the process.
struct RestoreSource {
  enum Next { kPiece, kEnd, kBroken };
  // All that was captured, in no order; waits for it. At least eight pieces can be taken before the
  // first is returned by `done`.
  Next (*next)(RestoreSource*, RestorePiece*);
  void (*done)(RestoreSource*, const RestorePiece&);
  // Where the bytes of all pieces lie; null: anywhere.
  void* memory = nullptr;
  uint64_t memory_bytes = 0;
  const void* (*blob)(RestoreSource*, const char* name, uint64_t* length);  // null when absent
};

// Its failure names the API, stream or kernel that prevents it.
struct DeviceReport : Failure {
  bool active = false;        // `freeze` found a driver with state in this process
  uint64_t device_bytes = 0;  // in use
  uint64_t moved_bytes = 0;   // of them, copied to the host: changed since the parent, and not zero
  uint64_t staged_bytes = 0;  // of these, copied on the device first
  uint64_t allocations = 0;
  // Copied before the moment of the snapshot, and the longest of the stops for that.
  uint64_t precopy_bytes = 0, precopy_rounds = 0, precopy_stop_us = 0;
  uint64_t idle_us = 0, gate_us = 0, stage_us = 0, hash_us = 0;  // stage_us includes hash_us
  bool stays_suspended = false;  // `suspend` failed, and so did the way back
};

// What one process has to do with device memory of others.
struct DeviceShare {
  enum Kind : uint32_t {
    kOffers,  // memory of this process, offered under `number`
    kGave,    // process `pid` has some of it
    kTook,    // memory of `pid`, offered there under `number`, is mapped here
  } kind;
  int pid;          // kOffers: 0, or the ended process that had it before
  uint32_t number;  // with kHandle: of a shareable handle
  static constexpr uint32_t kHandle = 1u << 31;
};

struct DevicePlugin {
  // When the library starts: reads the settings of the device side.
  void (*configure)();

  // Is there a driver with state in this process? When false only `hold_first_call`, `freeze` and
  // the PARKED ones are called.
  bool (*active)();

  // Waits with the gate open for idle streams, then closes the gate and waits until no thread is
  // inside the driver and every stream is idle. Also where there is no driver yet: a thread that
  // makes the first call waits at the gate, too (report->active is false then, and nothing is to be
  // staged). Past `gate_ms` it reopens, backs off and retries, until `deadline_ms`
  // (CLOCK_MONOTONIC) -> kExitTimeout with the stream and kernel named. kExitRefused names what
  // could not be restored. On failure the gate is open again.
  bool (*freeze)(uint64_t gate_ms, uint64_t deadline_ms, DeviceReport*);

  // `freeze` for a process that has no driver yet, on the coordinator itself: a pthread would leave
  // a stack and a malloc arena among the program's mappings. False: the driver came to life
  // meanwhile, the gate is open and `freeze` is to be called; or it failed (report->code).
  bool (*hold_first_call)(uint64_t deadline_ms, DeviceReport*);

  // Gate open. What changed since the parent and is more than `stage` could keep in spare device
  // memory goes to the sink in rounds, each a stop of its own (`freeze`, with as much time as there
  // is until `deadline_ms` now), until the rest fits or changes too fast. Does nothing, and stops
  // no thread, where it all seems to fit. False, as for the others, when the first stop fails or
  // the sink does; later stops that fail end the rounds.
  bool (*precopy)(CaptureSink*, uint64_t gate_ms, uint64_t deadline_ms, DeviceReport*);

  // Gate closed. Stages or sends all device memory and the blob "device" (the registry). What fits
  // in spare device memory is only copied there; `drain` sends it after the application has
  // resumed.
  bool (*stage)(CaptureSink*, DeviceReport*);

  // PARKED. Opens the gate: threads waiting there go on (they run only after unparking).
  void (*resume)();

  // Sends what was staged and frees the stage: after `resume`, or with the gate still closed when
  // the application must not resume.
  bool (*drain)(CaptureSink*, DeviceReport*);

  // After an attempt that came as far as `precopy` or `stage`: it was published as `id`, or it
  // failed. What the next one may call unchanged depends on it.
  void (*commit_attempt)(const char* id);
  void (*abort_attempt)();

  // Freezes, then gives all device memory that calls can ask for back to the driver, its contents
  // kept in host memory; the gate stays closed. `release`: the contexts as well, by the driver's
  // own checkpoint; device_bytes: what was given back, but for what the driver does not tell (the
  // contexts, code). On failure nothing has changed and the gate is open, unless the report says
  // that the process stays suspended.
  bool (*suspend)(uint64_t gate_ms, uint64_t deadline_ms, bool release, DeviceReport*);
  // The way back; opens the gate. On failure the process stays suspended. `gpu_map`: where it
  // continues, as for `gpuckpt restore`; "": where it was.
  bool (*wake)(const char* gpu_map, DeviceReport*);

  // PARKED, before anything is captured. Not null: why not now (a thread of the driver holds a lock
  // of the realm, something changed since `freeze`); all threads are released for a moment and
  // parked again. The function may be null.
  const char* (*park_obstacle)();

  // Gate closed, on the pthread. Calls `range` for all host memory that the device can write
  // without the processor's page tables being asked (pinned and managed memory; bytes need not be
  // whole pages). False: `range` said stop. May be null: there is none.
  bool (*pinned)(void* context, bool (*range)(void* context, uint64_t start, uint64_t end));

  // PARKED. Does the memory at `address` belong to the driver's realm and die with the process
  // (kSkip), or is it ordinary memory (kKeep)? `until`, at most `end`: how far that goes. One
  // mapping of the kernel can be both: it merges neighbours.
  enum class Mapping { kKeep, kSkip };
  Mapping (*classify)(uint64_t address, uint64_t end, uint64_t* until);

  // PARKED. For every line of /proc/self/maps, in order. True: it is a driver's that the program
  // loaded past us, of whose state nothing can be captured.
  bool (*foreign)(const MapsLine& line);

  // PARKED. Threads of the driver are re-created only to leave: true and the trampoline to jump to
  // (on the thread's own stack, with its own TLS) when `tid` is one.
  bool (*driver_thread)(int tid, uint64_t* resume_pc, uint64_t* resume_sp);

  // PARKED. Is `fd` the driver's (not captured; dies with the process)?
  bool (*driver_fd)(int fd);
  // PARKED. Is this message, in a socket of the program's, one that the device side sends again in
  // a restored process? It carries a descriptor of the driver's.
  bool (*shareable)(const void* message, uint64_t bytes);

  // PARKED. Calls `one` for all memory that is shared with other processes; false: `one` said stop.
  // May be null: there is none.
  bool (*shares)(void* context, bool (*one)(void* context, const DeviceShare&));

  // In the restored process, on the coordinator, before any thread runs: rewinds the driver's
  // writable segments to their pristine copy, ++generation, and leaves the gate closed until
  // `restore` has succeeded, or open when none follows (the process had no driver). PARKED rules.
  void (*rewind)(bool restore_follows);
  // In the child of a fork: the parent may have been in the middle of a snapshot, its gate closed.
  void (*forked)();

  // In the restored process, after `rewind`, before any thread enters the driver: at most `limit`
  // calls that change something on a device pass the gate, then the program waits there
  // (`verify --replay`; ~0: all pass and are counted). `freeze` then waits until it does.
  void (*step)(uint64_t limit);

  // In the restored process, on a short-lived pthread: initialises the driver, replays the
  // registry, uploads memory, opens the gate. On failure says why (kExitIncompatible names the
  // symbol or device).
  bool (*restore)(RestoreSource*, DeviceReport*);
};

// Set by src/device; a null pointer means the library was built or loaded without a device side.
extern const DevicePlugin* device_plugin;

}  // namespace gpuckpt
