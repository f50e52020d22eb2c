// The realm: loading the driver so that all its user-space state is known, and rewinding it.
//
// The driver is loaded at the first call through any door. Right after dlopen its GOT slots of libc
// imports are rewritten to hooks of ours, so that its heap is a private region and its mappings,
// descriptors, threads, keys and exit handlers are known; then its writable segments are copied
// (pristine). realm_rewind() puts them back in a restored process, after which cuInit starts as in
// a new one.
//
// Owner: the realm lives as long as the process. Threads: any; rewinding: the restore's alone.
// Errors: false or null, with a reason in the log.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

// Where private heaps lie: every generation starts beyond the high-water mark of the one before.
inline constexpr uint64_t kRealmHeapBase = 0x200000000000;

// Finds the driver: GPUCKPT_DRIVER, LD_LIBRARY_PATH, ld.so.cache, usual folders; never a stub,
// never ourselves.
bool realm_find_driver(char* path, size_t bytes);

// Loads it once (any thread, blocks others meanwhile). False: there is none; real() then answers
// CUDA_ERROR_NO_DEVICE everywhere.
bool realm_load();
bool realm_loaded();
bool realm_load_began();               // also while it is being loaded, and when there is none
bool realm_has_object(uint64_t base);  // PARKED. Was the object at `base` loaded for the realm?
const char* realm_driver_path();       // "" when not loaded

// PARKED, restored process, before any application thread: pristine segments back, dead generation
// forgotten, private heap of the new generation opened, placeholders over recorded reservations,
// gate_new_generation() and translate_forget_all(). The driver's old heap stays as ordinary memory.
void realm_rewind();
// During the replay: of the recorded reservations of one length, the one that holds `address` is
// the next that is given.
void realm_expect_at(uint64_t address);
// After the replay: nothing more has to land at a recorded address; what no request took is given
// back.
// Returns false if the driver keeps addresses reserved where the program has memory.
bool realm_release_placeholders();

// PARKED. Does [address, address+length) belong to the driver and die with the process: its
// mappings? (Segments of the driver's files and its private heap are ordinary memory and kept.)
bool realm_owns(uint64_t address, uint64_t length);
// PARKED. The same of the first byte; `until`, at most `end`: how far that answer goes.
bool realm_owns_first(uint64_t address, uint64_t end, uint64_t* until);
bool realm_owns_fd(int fd);
// A descriptor of ours that stands for something of the driver's, and dies with it.
void realm_adopt_fd(int fd);
// A descriptor that the driver opened and has given away.
void realm_disown_fd(int fd);
// A thread the driver started, and the address at which it must continue in a restored process in
// order to exit at once.
bool realm_driver_thread(int tid, uint64_t* resume_pc, uint64_t* resume_sp);
// PARKED, before the snapshot's memory is taken: may it be taken now? False while a thread is
// inside one of our hooks.
bool realm_is_consistent();

// What the driver reads as CUDA_VISIBLE_DEVICES: the program's own (null: not set), or what was
// shown since, which the next generations read, too.
const char* realm_visible_devices();
void realm_show_devices(const char* list);

// The ioctls of the driver that a thread outside the gate made while the gate was closed: it
// reached the driver by a private table, and what it changed there may be missing in the snapshot,
// which is given up.
struct StrayIoctls {
  uint64_t count;
  int thread;  // of the latest, and what it asked for
  uint32_t request;
};
StrayIoctls realm_stray_ioctls();

// Imports of the driver outside the reviewed list, comma separated; "" when there are none.
const char* realm_unknown_imports();

// Which blocks of its heap the driver took in one call, in order. Plain data, part of whatever
// object the call made; the blocks' addresses are kept by the heap.
struct RealmPlaces {
  uint32_t first = 0, last = 0;
  uint32_t from = 0, generation = 0;  // what the heap's `generation` has not taken yet starts there
};
// For the life of the object, what the calling thread takes from the driver's heap is noted in
// `places`. In a later generation the same call, with the same places, gets the same addresses for
// requests of the same sizes, as far as it makes them: a caller that depends on one compares it.
// Blocks of the call that were freed in between are not brought back. Blocks that the driver takes
// in threads we know while no call of ours is in progress (private tables) are kept as a last
// resort.
class RealmRecording {
 public:
  explicit RealmRecording(RealmPlaces* places);
  ~RealmRecording();
  RealmRecording(const RealmRecording&) = delete;

 private:
  RealmPlaces* before_;
};

// Blocks of the private heap, for tests and statistics.
uint64_t realm_heap_bytes();       // in use
uint64_t realm_heap_high_water();  // bytes beyond kRealmHeapBase ever used
bool realm_heap_contains(const void*);

}  // namespace gpuckpt
