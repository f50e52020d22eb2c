// What the supervisor passes to the launcher, and the launcher to the entry inside the restored
// library: one block of memory, position independent (offsets from its start). Never stored; all
// three come from one build. Bump kPlanVersion when anything here changes meaning.
//
// Owner: the supervisor builds it in a memfd; after that it is read only, but for chosen_gap.
// Threads: one process at a time. Errors: a plan of another version is refused.
#pragma once

#include <cstdint>

#include "base/procfs/namespaces.h"
#include "gpuckpt/process_format.h"

namespace gpuckpt::restore {

inline constexpr uint64_t kPlanMagic = 0x6e616c706b637067ull;
inline constexpr uint32_t kPlanVersion = 12;
inline constexpr uint64_t kZeros = ~0ull;
inline constexpr int kGaps = 32;
// At the start of the gap: the launcher's code, its stack, the staging area of the vdso; the plan
// follows.
inline constexpr uint64_t kGapCode = 256 * 1024;
inline constexpr uint64_t kGapStack = 64 * 1024;
inline constexpr uint64_t kGapVdso = 256 * 1024;
inline constexpr uint64_t kGapText = 1024 * 1024;  // for /proc/self/maps

struct PlanMap {
  uint64_t start, end, offset;
  uint32_t prot, flags;  // PROT_*, MAP_*
  int32_t fd;            // -1: anonymous
  uint32_t advice;       // process::VmaFlags to apply with madvise
  uint32_t filled;       // has PlanFills: must be writable until they are done
  uint32_t segment;      // System V: its id + 1; 0: none (kVmaNeverWrite: attach it for reading)
  // Where the launcher finds it, mapped readable and writable; 0: it is not inherited.
  uint64_t inherited;
};
struct PlanFill {
  uint64_t address, length, offset;  // in the pages memfd, or kZeros
};
// Zeros of a device space; all other bytes come through the ring (device_ring.h)
struct PlanExtent {
  uint64_t space, address, length;
};
struct PlanBlob {
  uint64_t offset, bytes;
  char name[48];
};
struct PlanFd {
  int32_t fd;
  uint32_t fd_flags;
  uint32_t seals;  // to be added when all is mapped
  uint32_t reserved;
};

enum PlanFlags : uint32_t {
  kSameIds = 1,           // threads get their old ids by set_tid
  kKeepPages = 4,         // the pages may be needed for another attempt
  kFillBySupervisor = 8,  // memory is filled from outside: see kReportMapped
  kLazy = 16,             // some of the memory is filled while the program runs
  kStep = 32,             // Plan::steps
  kSeveral = 64,          // one of several processes: see kReportThreads
  kRunsFirst =
      1024,          // the program runs before its device is back, as where it holds a lock of libc
  kNoVvar = 128,     // the program has given up the pages that its vdso reads
  kPatchVdso = 256,  // of this very kernel, but the program has written to it: `jumps` is how
  kOwnTerminal = 512,  // Head::terminal is one that was made anew
  kSetIds = 2,         // a privileged restore of another user's program: ids and groups too
};

struct Plan {
  uint64_t magic;
  uint32_t version;
  uint32_t flags;
  uint64_t bytes;
  uint64_t gap[kGaps];  // candidates: free in the image; the launcher takes the first that is free
                        // for itself too
  uint64_t gap_bytes;
  uint64_t chosen_gap;  // set by the launcher
  uint64_t maps, map_count, fills, fill_count, extents, extent_count, blobs, blob_count, fds,
      fd_count;
  uint64_t process, process_bytes;  // the blob "process"
  uint64_t kept, kept_count;        // process::Span: where the inherited maps are, by address
  uint64_t foreign, foreign_count;  // process::Span: pages in them that are not the program's
  uint64_t auxv, auxv_bytes;
  process::Mm mm;
  process::Vdso vdso;
  uint64_t vdso_at;  // where this kernel's goes; vdso.vdso_start if it is the same; 0: nowhere
  uint64_t jumps, jumps_bytes;  // the bytes that replace the old vdso, where the vdso differs
  uint64_t entry, entry_stack;
  int32_t pages_fd, device_fd, exe_fd, report_fd;
  int32_t plan_fd, highest_fd;  // all descriptors of the restore are in [report_fd .. highest_fd]
  uint32_t generation;
  uint32_t reserved;
  Namespaces restorer;   // where the restore was started
  uint64_t standard[3];  // inodes of the restore's own 0, 1, 2 that are pipes; else 0
  uint64_t steps;        // kStep: how many calls pass the gate (DevicePlugin::step)
};

// Messages on the report socket (SOCK_SEQPACKET).
enum ReportType : uint32_t {
  kReportFailed = 1,  // to the supervisor; the process ends
  kReportReady =
      2,  // to the supervisor: everything is in place, the program runs when kReportGo comes
  kReportGo = 3,  // from the supervisor
  kReportMapped =
      4,  // to the supervisor (kFillBySupervisor): everything is mapped, fill it and say so. With
          // it goes a userfaultfd of the process, unless code says why not (errno)
  kReportFilled = 5,   // from the supervisor: code 0 = it is; else it is in the pages memfd instead
  kReportThreads = 6,  // to the supervisor (kSeveral): all threads are there
  kReportDriver = 7,   // from the supervisor: those of all processes are there. New ones, the
                       // driver's, may now take what ids are left
  kReportStep = 8,  // to the supervisor: the process begins something; text = its name, code = the
                    // seconds that it may take, 0: as many as its data need. After that it hangs
  kReportWarning = 9,  // to the supervisor: text = what does not come back as it was
};
struct Report {
  uint32_t type;
  int32_t code;        // ExitCode
  int32_t host_pid;    // kReportGo
  uint32_t user_only;  // kReportMapped: the userfaultfd does not serve the kernel's own accesses
  uint64_t host_start_time;
  // kReportReady: mapping, threads, device. kReportGo: of the job's name, and the number of the
  // process that leads the job, 0 if it is alone (rename_job in job_name.h).
  uint64_t us[4];
  char text[512];  // kReportGo: id of the snapshot
};

}  // namespace gpuckpt::restore
