// What a process is besides its bytes: built while parked, by the coordinator, into a scratch
// buffer.
//
// Owner: the attempt, whose memory it is in. Threads: as each function says, one at a time. Errors:
// its own failure.
#pragma once

#include <cstdint>

#include "base/heap.h"
#include "base/text/failure.h"
#include "gpuckpt/process_format.h"
#include "snapshot/io/embedded_files.h"
#include "snapshot/job/shared_state.h"
#include "snapshot/memory/host_pages.h"
#include "snapshot/process/sharing.h"

namespace gpuckpt {

// The blob "process" as it grows. What does not fit sets `full`, and the snapshot fails.
class Records {
 public:
  explicit Records(Region memory) : memory_(memory) {}
  void* begin(process::RecordType type, uint32_t count = 1);  // then add() its payload, then end()
  void add(const void* bytes, uint64_t n);
  void* reserve(uint64_t n);  // room that the caller fills; null: it does not fit
  void add_text(const char* s);
  void pad();  // to a multiple of 8, in the payload
  void end();
  void end(uint32_t count);  // the same, with another count than begin() was given
  void drop();               // as if begin() had not been called
  template <typename T>
  void put(process::RecordType type, const T& value) {
    begin(type);
    add(&value, sizeof(value));
    end();
  }
  const char* data() const { return memory_.data(); }
  uint64_t size() const { return used_; }
  void* at(uint64_t offset) { return memory_.data() + offset; }  // what was added there
  bool full = false;

 private:
  Region memory_;
  uint64_t used_ = 0, head_ = 0;
};

// A piece of memory that the copied child cannot see (shared with others): copied while parked.
struct EagerCopy {
  uint64_t space, address, length;
  char* bytes;  // whole pages; null: a hole, all zeros
};

// A piece of a space that was looked at: it is among the copies.
struct SpacePiece {
  uint64_t space, start, end;
};

// A part of shared memory that this process has no copy's memory ready for: another one of the job
// may have, and copies it (MappedObject::copy).
struct DeferredPart {
  MapsLine mapping;  // without its name
  process::Vma vma;
  uint64_t space, offset, end;
};

struct FdTable;

// Room for what single steps read from the kernel and what is too large for the stacks of our
// threads. One step at a time uses each of them; nothing is kept from one step to the next.
struct CaptureScratch {
  char lines[65536];  // of /proc/PID/maps
  char attribute_names[65536], attribute[65536];
  static constexpr uint32_t kTerminalBytes = 16384;
  char terminal_input[kTerminalBytes], terminal_output[kTerminalBytes];
  uint16_t seen_in_epoll[65536];  // by the number of a descriptor
  SharingTree sharing[SharedJobState::kMostRelatives + 1];
  alignas(64) char mapped_objects[5 << 20];   // (mappings.cc)
  alignas(64) char thread_statuses[4 << 20];  // (thread_status.h)
  struct {                                    // struct group_filter, a sockaddr_storage each
    uint32_t interface, pad;
    uint8_t group[128];
    uint32_t mode, count;
    uint8_t sources[512][128];
  } multicast;
};

// Its failure says what cannot be snapshotted.
struct Capture : Failure {
  Region record_memory;
  HostPages pages;
  EagerCopy* eager;  // [kEagerRoom]
  size_t eager_count = 0;
  EmbeddedFiles embedded;
  Range dont_fork[8192];  // made forkable for our clone, then restored
  size_t dont_fork_count = 0;
  Range wipe_on_fork[256];
  size_t wipe_on_fork_count = 0;
  Range keep_from_clone[1024];  // huge pages (huge_pages.h)
  size_t keep_from_clone_count = 0;
  size_t mappings = 0, threads = 0;
  uint64_t state_us = 0, maps_us = 0;  // what it took

  // Room for a copy of `bytes` bytes, which is then to be made. Null: there is none.
  EagerCopy* add_eager(uint64_t space, uint64_t address, uint64_t bytes);
  uint64_t eager_bytes() const;  // of these copies, holes not counted
  // While the program runs: lets memory be there for copies of the shared memory and the huge pages
  // that are known.
  void expect_eager();
  bool add_hole(uint64_t space, uint64_t address, uint64_t bytes);

  // Whether `at` is in a piece of the space that was looked at. *end becomes the address where the
  // answer changes, at most what it was.
  bool looked_at(uint64_t space, uint64_t at, uint64_t* end) const;
  bool note_looked_at(uint64_t space, uint64_t start, uint64_t end);
  // Calls copy(at, end) for each part of [start, end) that was not looked at yet, and notes it.
  // Returns false if there is no memory.
  template <typename Copy>
  bool look_at_rest(uint64_t space, uint64_t start, uint64_t end, Copy copy) {
    for (uint64_t at = start, next; at < end; at = next) {
      next = end;
      if (looked_at(space, at, &next)) continue;
      if (!copy(at, next) || !note_looked_at(space, at, next)) return false;
    }
    return true;
  }

  static constexpr size_t kEagerRoom = 1 << 20, kPieceRoom = 1 << 16, kDeferredRoom = 4096;
  Region fd_memory;
  FdTable* fds = nullptr;  // from list_descriptors() on
  Region scratch_memory;
  CaptureScratch* scratch;
  Region piece_memory;
  SpacePiece* piece;  // [kPieceRoom]
  size_t piece_count = 0;
  Region deferred_memory;
  DeferredPart* deferred;  // [kDeferredRoom]
  size_t deferred_count = 0;
  Region eager_memory, eager_chunk[32];
  uint64_t eager_left = ~0ull;  // of the memory that copies may take
  size_t eager_chunks = 0;
  uint64_t eager_used = 0;   // of the last chunk
  uint64_t eager_ready = 0;  // memory that is there for copies to come
};

// Allocates; before any thread is parked. `memory`: what copies may take; ~0: any.
bool capture_start(Capture*, bool self_contained, uint64_t memory);
// PARKED, on the I/O thread. Fills everything but descriptors. False: code and text say why.
bool capture_process(Capture*, Records*, bool device_present);
// PARKED, on the I/O thread, when the pages have been looked at: guard pages among them.
void put_guards(Capture*, Records*);
void put_mark(Records*, process::RecordType);
// About what the records of the program's sockets will take. While it runs: opens no descriptor.
uint64_t expected_socket_records();
// For the tables of list_descriptors(), while the program runs. False: there is no memory.
bool make_room_for_descriptors(Capture*);
// PARKED, on a thread that shares the application's descriptor table (the coordinator).
// In two steps: all processes of the job have taken the first one before any takes the second.
bool list_descriptors(Capture*, Records*);
bool capture_descriptors(Capture*, Records*);
// In a job the processes do that one after the other. Before all of them are parked, each announces
// its turn; a process that will not get so far releases it.
void announce_turn();
void skip_turn();
// PARKED, on the same thread, whatever came of it, when all processes of the job are captured.
void release_descriptors(Capture*);
// The memory of what was listed, when the program runs again: to give it back takes time.
void forget_descriptors(Capture*);
// IN THE CLONE. Whether all memory that is to be sent from the clone is in it. The text names what
// is not.
bool clone_is_whole(const Capture&, char* text, size_t room);
// PARKED. Around the clone: memory that fork would leave out or wipe, and what it must leave out.
// Returns false if the process must not be cloned.
bool capture_before_clone(Capture*);
void capture_after_clone(Capture*);
void capture_finish(Capture*);

}  // namespace gpuckpt
