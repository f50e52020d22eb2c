// What the preloaded library, the writer process and the command line say to each other.
//
// Bump kWireVersion when any struct or meaning below changes: the three programs come from one
// build and refuse each other otherwise. Nothing here is stored on disk (docs/FORMAT.md is), so
// nothing here needs to stay compatible.
//
// All structs are plain bytes in native (little endian) order, usable without libc: the library
// fills them while application threads are parked.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/procfs/namespaces.h"

namespace gpuckpt::wire {

inline constexpr uint32_t kWireVersion = 18;
inline constexpr uint32_t kMagic = 0x6b637067;  // "gpck"

// ---------------------------------------------------------------------------------------------------------
// Spaces: every captured byte has an address in one of these. The store keeps a sparse map per
// space.
enum Space : uint64_t {
  kSpaceHost = 0,            // the process's address space, address = virtual address
  kSpaceSharedBase = 0x100,  // + index of a shared memory object (memfd, /dev/shm, shared
                             // anonymous), address = offset
  kSpaceFileBase =
      0x10000,  // + index of a file stored whole (unlinked, --self-contained), address = offset
  kSpaceStoredBase = 0x400000,  // + number of a file that the snapshot keeps (--files-in-snapshot),
                                // address = offset
  kSpaceDeviceBase = 0x1000000,   // + CUDA device ordinal, address = device virtual address
  kSpacePrecopyBase = 0x2000000,  // + CUDA device ordinal: chunks sent before the moment of the
                                  // snapshot and have no place in it yet. kRunSealed only; a sender
                                  // that sent them and saw all slots freed may call them kRunNamed.
};
// A snapshot of several processes (a job with members) has these spaces once for each of them: the
// member's number is in the upper half of the space, its blobs are called "NAME.NUMBER". Number 0
// is the first process; its spaces and names are those of a snapshot of one process. Library and
// member say the plain ones, the writer adds the number.
inline constexpr int kMemberShift = 32;
inline constexpr uint32_t kMaxMembers = 4096;
inline constexpr uint64_t kPlainSpace = (1ull << kMemberShift) - 1;

// ---------------------------------------------------------------------------------------------------------
// The ring: a memfd mapped by producers (application, its copy-on-write child) and the writer.
// Producer: claim a slot with acquire-CAS free->busy (wait on `freed` when none), fill it, send
// kMsgData on its own socket. Writer: consume, store kSlotFree, ++freed, futex wake (shared futex).
inline constexpr uint32_t kRingSlots = 32;
inline constexpr uint64_t kSlotHeaderBytes = 16 * 1024;
inline constexpr uint64_t kSlotPayloadBytes = 1024 * 1024;
inline constexpr uint64_t kSlotBytes = kSlotHeaderBytes + kSlotPayloadBytes;
inline constexpr uint64_t kRingHeaderBytes = 4096;
inline constexpr uint64_t kRingBytes = kRingHeaderBytes + kRingSlots * kSlotBytes;

enum SlotState : uint32_t { kSlotFree = 0, kSlotBusy = 1 };

struct RingHeader {
  uint32_t magic;
  uint32_t version;
  std::atomic<uint32_t> freed;        // futex word: bumped whenever the writer frees a slot
  std::atomic<uint32_t> writer_dead;  // set (and `freed` woken) when the writer gives up
  std::atomic<uint32_t> state[kRingSlots];
};

// Memory is cut at multiples of these addresses, and each piece, a chunk, goes by a name of so many
// bytes.
inline constexpr uint64_t kSmallChunk = 4 << 10;   // of host pages, shared memory and files
inline constexpr uint64_t kLargeChunk = 64 << 10;  // of device memory and blobs
inline constexpr uint64_t kChunkNameBytes = 16;

// A run is a piece of a space. Zero runs and same runs have no payload. The payloads of the others
// follow each other without gaps in the slot's payload area, in the order of the runs.
//
// kRunSame and kRunNamed are for what the other side knows to be in the store already; see "What
// did not change" below for when they may be used.
enum RunFlags : uint32_t {
  kRunData = 0,    // payload: the bytes
  kRunZero = 1,    // no payload: zeros
  kRunSame = 2,    // no payload: what was sent early of these addresses, and of the rest what the
                   // parent snapshot has at them in this space, zeros included. The parent must
                   // have captured all of the rest.
  kRunNamed = 3,   // payload: kChunkNameBytes per chunk, the names of its chunks
                   // (base/hash/chunk_hash.h, under the key of kMsgReady), which this snapshot has
                   // sent before (precopy).
  kRunSealed = 4,  // payload: the names of its chunks as above, padded to kNamesAlign, then the
                   // bytes. The names come from where the bytes were before they travelled (device
                   // memory, hashed there): the writer compares, and a difference fails the
                   // snapshot.
  kRunEarly = 5,   // payload: the bytes of whole small chunks of kSpaceHost as they were before the
                   // moment of the snapshot. They have no place in it: kRunSame at these addresses
                   // means them from now on, and what came last where they came more than once.
                   // All slots must have come free before an address is named again, by either.
};
// What travels from a device goes to an address that suits it: a copy by `rep movsb` to one 16
// bytes beyond a page takes 1.7 times as long as to the page (Zen 4), and a bus writes whole lines.
inline constexpr uint64_t kNamesAlign = 256;
constexpr uint64_t padded_names(uint64_t bytes) {
  return (bytes + kNamesAlign - 1) / kNamesAlign * kNamesAlign;
}
struct Run {
  uint64_t address;
  uint64_t length;  // bytes; multiple of 4096 in kSpaceHost
  uint32_t flags;
  uint32_t reserved;
};
inline constexpr uint32_t kMaxRuns = (kSlotHeaderBytes - 32) / sizeof(Run);
struct SlotHeader {
  uint64_t space;
  uint32_t runs;
  uint32_t reserved;
  uint64_t payload_bytes;
  uint64_t reserved2;
  Run run[kMaxRuns];
};
static_assert(sizeof(SlotHeader) <= kSlotHeaderBytes);

// ---------------------------------------------------------------------------------------------------------
// Messages on SOCK_SEQPACKET sockets between library and writer. One socket for the application
// (kSourceParent), one for the copy-on-write child (kSourceChild). The writer is exec'ed as
//   gpuckpt-writer --store DIR --ring FD --parent FD --child FD [--job ID] [--level N] [--for
//   PURPOSE] [--keep N]
//   [--budget BYTES]
//
// What did not change. The library remembers the id of the last durable snapshot (kMsgDurable; in a
// restored process: the one it was restored from) and names it in its hello, as "parent":"ID".
// kMsgReady answers with the parent in `text` when the writer found it in this store with every
// pack it needs: from then on they cannot go away (the writer's shared lock), and kRunSame may be
// sent. An empty `text` means: no parent here, send everything in full (it was pruned, is damaged,
// or lies in another store). Nothing needs to be compared by the library: "not written since the
// moment that snapshot was captured" is enough. A range that the parent does not have fails the
// snapshot, so new mappings are sent as data.
enum MsgType : uint32_t {
  kMsgHello = 1,  // library -> writer, first: text = JSON object with what is known of the process
  kMsgReady = 2,  // writer -> library: store opened, lock held; only now may the library disturb
                  // the application. text = the parent's id when kRunSame may be sent, else empty;
                  // keyed and name_key: how chunks are named
  kMsgData = 3,   // producer -> writer: `slot` is filled
  kMsgBlob = 4,   // producer -> writer: `slot`'s payload (SlotHeader.payload_bytes) is appended to
                  // blob `text`
  kMsgEnd = 5,  // producer -> writer: this source has sent everything. From the parent: text = JSON
                // statistics to be kept in the manifest (stall_us, park_us, threads, ...)
  kMsgAbort = 6,    // producer -> writer: drop the snapshot; text = why, slot = kFailedForNow when
                    // only what changed meanwhile prevented it
  kMsgDurable = 7,  // writer -> library: manifest published; text = snapshot id, counts below;
                    // code = kExitWarnings: behind it, on lines of their own, what the user must
                    // know of it
  kMsgFailed = 8,   // writer -> library: code = ExitCode, text = one clear sentence, slot =
                    // kFailedMember when it failed because a member ended or gave up,
                    // kFailedForNow as of the kMsgAbort that it answers
  kMsgMember = 10,  // the leader's library -> writer: a member joins. `slot` = its number; comes
                    // with three descriptors: its ring, its parent's and its child's socket. From
                    // then on the writer talks to it as to the first process (its hello comes next
                    // on its own socket), and publishes when all of all members have said kMsgEnd
  kMsgFiles = 12,  // the leader's library -> writer: all of the job are parked; take the files that
                   // are to be in the snapshot as they are now
  kMsgFilesTaken = 13,  // writer -> the leader's library: done; text = how much had to be copied
  kMsgGone = 11,  // the leader's library -> writer: member `slot` ended before it was captured
};
struct Msg {
  uint32_t magic;
  uint32_t version;
  uint32_t type;
  uint32_t slot;
  int32_t code;            // ExitCode of kMsgFailed
  uint32_t text_bytes;     // bytes of text in use
  uint64_t logical_bytes;  // kMsgDurable: bytes captured
  uint64_t new_bytes;      // kMsgDurable: bytes that were not in the store before (plain)
  uint64_t stored_bytes;   // kMsgDurable: bytes added to the store (compressed)
  uint64_t zero_bytes;     // kMsgDurable: bytes that were zero
  uint8_t name_key[16];    // kMsgReady, with keyed = 1: of the names of chunks
  uint32_t keyed;          // kMsgReady: 0: the store names chunks itself; no names may be sent
  uint32_t reserved;
  char text[4008];
};
// Msg.slot of kMsgFailed and kMsgAbort: another attempt may succeed.
constexpr uint32_t kFailedMember = 1;  // it is without the process that ended
constexpr uint32_t kFailedForNow = 2;  // it sees what changed during this one
inline bool another_attempt_helps(const Msg& failed) {
  return failed.slot == kFailedMember || failed.slot == kFailedForNow;
}

// ---------------------------------------------------------------------------------------------------------
// Command line -> library. There is no resident thread and no open descriptor in the application.
// The command line checks that /proc/PID/maps shows libgpuckpt and that /proc/PID/status catches
// kWakeSignal, then sends kWakeSignal by rt_sigqueueinfo with si_code SI_QUEUE and value
// kWakeCookie. The library's coordinator then listens on
//   <session dir>/<pid>-<start time in clock ticks>.sock   (SOCK_SEQPACKET, SO_PEERCRED must be
//   same uid or root)
// (or leaves a symbolic link there, ending in kNoteEnding instead of kSocketEnding, whose target
// says why it cannot)
// for five seconds; one CtlRequest comes in, CtlReply messages go out, the last one with final = 1.
// session dir: src/base/files/session_folder.h.
inline constexpr int kWakeSignal =
    32;  // glibc's SIGCANCEL: no program can block or use it through libc
inline constexpr uint64_t kWakeCookie = 0x67636b70'77616b65;
// The name of the process that supplies memory after `restore --lazy` (src/restore/pager/pager.h).
inline constexpr char kPagerName[] = "gpuckpt-pager";

inline constexpr char kSocketEnding[] = ".sock";
inline constexpr char kNoteEnding[] = ".note";

enum CtlVerb : uint32_t { kCtlCheckpoint = 1, kCtlStats = 2, kCtlSuspend = 3, kCtlResume = 4 };
enum CtlFlags : uint32_t {
  kCtlStop = 1,
  kCtlNoWait = 2,
  kCtlChildrenAll = 4,   // what to do with children (GPUCKPT_CHILDREN); none of the three: as the
  kCtlChildrenAble = 8,  // program was started
  kCtlChildrenIgnore = 16,
  kCtlSelfContained = 32,  // mapped files go into the snapshot as well
  kCtlRelease = 64,        // kCtlSuspend: contexts are given back, too
  kCtlLate = 128,          // kJobWelcome: the others are past kJobFrozen
  kCtlNoPrecopy = 256,     // kJobWelcome: no memory is sent before the stop, the others wait
};
struct CtlRequest {
  uint32_t magic;
  uint32_t version;
  uint32_t verb;
  uint32_t flags;
  uint64_t timeout_ms;  // 0 = default
  int32_t stop_status;  // kCtlStop: the program ends with this status
  uint32_t asker_user;  // effective user id of the process that asks, + 1; 0: not said
  Namespaces asker;     // of the same process; zeros: not said
  char tag[128];
  char store[1024];  // empty: the application's own GPUCKPT_STORE. kCtlResume: the --gpu-map
};
struct CtlReply {
  uint32_t magic;
  uint32_t version;
  uint32_t final;      // 1: the last reply
  int32_t code;        // ExitCode
  int32_t root;        // final, not 0: nothing was done; this process (a number of the asked one's
                       // pid namespace) takes the snapshots of the job that the asked one is in
  uint32_t processes;  // of the job, in this snapshot
  uint64_t stall_us;   // time application threads were parked
  uint64_t gate_us;    // time driver calls waited at the gate
  uint64_t logical_bytes, new_bytes, stored_bytes, zero_bytes;
  uint64_t total_us;  // trigger to durable
  char phase[32];     // "drain", "device", "park", "write", "durable"
  char id[64];        // snapshot id once durable
  char text[1024];    // message for people; JSON for kCtlStats
};

// ---------------------------------------------------------------------------------------------------------
// Between the processes of a job (src/snapshot/job/barrier.h). The leader wakes a member by
// kWakeSignal with value kJoinCookie | name, where `name` is what the kernel called the leader's
// abstract socket (five hexadecimal digits), and si_pid the leader's process. The member connects
// (SOCK_SEQPACKET); both sides check SO_PEERCRED. Then messages of one kind go both ways.
inline constexpr uint64_t kJoinCookie = 0x67636b7074'a00000;
inline constexpr uint64_t kJoinMask = ~0xfffffull;
// The same to a process that is stopped, for each of its threads
// (src/snapshot/park/stopped_process.h).
inline constexpr uint64_t kStoppedCookie = 0x67636b7068'600000;
// Another process of the job was asked for a snapshot: the root shall take it.
inline constexpr uint64_t kRelayCookie = 0x67636b70'72656c61;

enum JobStep : uint32_t {
  kJobJoin = 1,      // member: here I am; text = the last snapshot it was in, `number` = as which,
                     // tag = the name of its job (job_name.h)
  kJobWelcome = 2,   // leader: `number`; text = store; comes with the shared state
  kJobOpened = 3,    // member: comes with ring and sockets for the writer
  kJobSent = 4,      // member: its memory is sent as far as it is to be before the stop. leader:
                     // what was written since is copied
  kJobFrozen = 5,    // member: gate closed, devices idle. leader: look at their memory
  kJobStaged = 6,    // member: it is looked at. leader: park
  kJobParked = 7,    // member: all threads are parked. leader: capture
  kJobListed = 8,    // member: has listed its descriptors. leader: capture them
  kJobCaptured = 9,  // member: everything is out of the way. leader: go on
  kJobFailed = 10,   // either: it will not be; code, text
};
struct JobMsg {
  uint32_t magic;
  uint32_t version;
  uint32_t step;
  uint32_t number;
  int32_t code;  // ExitCode; kJobFailed
  int32_t pid;
  uint32_t flags;  // kJobWelcome: CtlFlags
  int32_t stop_status;
  uint64_t deadline_us;  // kJobWelcome: CLOCK_MONOTONIC
  char text[1024];
  char tag[128];
};

}  // namespace gpuckpt::wire
