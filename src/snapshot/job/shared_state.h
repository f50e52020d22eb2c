// What the processes of a job tell each other, nearly all of it while they are parked: one piece of
// shared memory, made by the leader for one attempt. Zero at first; nothing in it is ever removed.
//
// Owner: the leader's attempt. Threads: PARKED, of all processes of the job; `lock` and the
// counters order them. Errors: lists that are full refuse the snapshot.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/procfs/namespaces.h"
#include "snapshot/descriptors/tcp_ends.h"
#include "snapshot/job/comparison.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {

struct SharedJobState {
  static constexpr size_t kMostRelatives = 8192, kMostDescriptions = 65536, kMostEnds = 131072,
                          kMostDeviceMemory = 65536, kMostWatches = 16384, kMostStopped = 4096;

  // A process that examines descriptors holds it, because some can only be told apart by changing
  // them for a moment, and others may share them. 1: held.
  std::atomic<uint32_t> lock;
  // The kernel compares descriptors (kcmp) only for a process with the rights of both: those that
  // may compare with every other process look last. How many may not, how many turns these have
  // had, and how many may.
  std::atomic<uint32_t> weak, weak_done, strong;
  Comparison comparison;

  // Written by the leader before any process joins: what it sees of itself, which the kernel does
  // not show to members with fewer rights.
  Namespaces leaders_namespaces;
  char leaders_control_groups[4096];  // in which it began (control_groups.h)

  // Written by the leader before it lets capture begin: all but the leader itself.
  struct OtherProcess {
    int pid, ppid, pgid, sid;
    bool ended;       // a zombie; otherwise it is parked and a member
    bool uncompared;  // the leader may not look at what it has in common with others (sharing.h)
  };
  Warnings warnings;  // by the members

  // Bytes that the processes have sent before the stop, in all: as long as it grows, none of them
  // is late.
  std::atomic<uint64_t> precopied;

  uint32_t relative_count;
  OtherProcess relative[kMostRelatives];

  // Stopped processes (stopped_process.h). The leader lists them before it lets any process park,
  // and wakes them when all others are parked; their parents say by which signal, when the parent
  // has not waited for that (0: it has), and how often they had been switched to (0: not known, or
  // not stopped): one that has run since may have been stopped once more.
  struct Stopped {
    int pid, ppid, signal;
    uint64_t switches;
    std::atomic<uint32_t> woken;
  };
  std::atomic<uint32_t> stopped_count;
  Stopped stopped[kMostStopped];

  // Under the lock: every open file description that was seen, by the process that saw it first.
  struct Description {
    uint64_t ino, dev, offset;
    uint32_t kind, flags;
    uint32_t member;
    int pid, fd;
    uint64_t mark;  // of what has no inode of its own: what fdinfo tells of it
  };
  uint32_t description_count;
  Description description[kMostDescriptions];
  static constexpr uint32_t kDescriptionSlots = 2 * kMostDescriptions;
  uint32_t description_slot[kDescriptionSlots];  // HashIndex by inode and device

  // Under the lock: pipes and sockets with an end that is not in the process that lists them.
  enum EndKind : uint32_t { kReader = 1, kWriter = 2, kSocket = 4 };
  struct End {
    uint64_t ino, peer;  // peer: of a socket
    uint32_t have;       // EndKind
    bool needed;         // without the other end in the job there is no snapshot
    bool inherited;      // else: without it, it comes back closed, and that is told
    int pid, fd;
  };
  uint32_t end_count;
  End end[kMostEnds];

  // Under the lock.
  ConnectionTable connections;

  // Under a lock of their own: parts of shared memory that a process copies (copied_parts.h).
  static constexpr uint32_t kMostCopied = 16384, kCopiedSlots = 2 * kMostCopied;
  std::atomic<uint32_t> copied_lock;
  uint32_t copied_count;
  struct CopiedPart {
    uint64_t dev, ino, start, end;
  } copied[kMostCopied];
  uint32_t copied_slot[kCopiedSlots];

  // Under the lock: device memory that a process hands out (its own number for it), or has from
  // another one.
  struct DeviceMemory {
    int pid, owner;  // owner: the process that has it, or had it and has ended
    uint32_t number;
    bool offered;
  };
  uint32_t device_memory_count;
  DeviceMemory device_memory[kMostDeviceMemory];

  // Under the lock: what is watched by epoll sets that several processes have. One may have
  // something in the set that the other does not have.
  struct Watch {
    uint32_t set;  // which description
    int fd;        // as it was registered
    uint32_t nth;  // of those with this number
    bool found;    // a process has what is watched
    int pid, epoll;
  };
  uint32_t watch_count;
  Watch watch[kMostWatches];
  static constexpr uint32_t kWatchSlots = 2 * kMostWatches;
  uint32_t watch_slot[kWatchSlots];  // HashIndex by set, number and nth
};

}  // namespace gpuckpt
