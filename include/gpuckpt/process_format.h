// The blob "process" of a snapshot: what a process is besides the bytes of its memory.
// docs/FORMAT.md describes it.
//
// A sequence of records, each
//     u32 type   u32 count   u64 bytes   payload[bytes]   padding to 8
// in native little endian order. Unknown types are an error (a reader that skipped one would
// restore something else). The first record is kRecHead; its version is bumped whenever a struct
// below changes. Old versions are refused. Strings are stored with their terminating zero.
#pragma once

#include <cstdint>

namespace gpuckpt::process {

inline constexpr uint64_t kFormatMagic = 0x31636f7270'6b6370ull;  // "pckproc1"; do not change
inline constexpr uint32_t kFormatVersion = 11;

enum RecordType : uint32_t {
  kRecHead = 1,              // Head
  kRecMm = 2,                // Mm
  kRecAuxv = 3,              // bytes of /proc/self/auxv
  kRecCpu = 4,               // Cpuid[count]
  kRecVdso = 5,              // Vdso, then its bytes
  kRecVma = 6,               // Vma, then the path
  kRecFile = 7,              // MappedFile, then the path
  kRecShared = 8,            // SharedObject, then the name
  kRecThread = 9,            // Thread
  kRecSigactions = 10,       // SignalAction[64], signal 1 first
  kRecPending = 11,          // siginfo (128 bytes) [count], process-wide, in order
  kRecFd = 12,               // Descriptor, then the path
  kRecPipe = 13,             // Pipe, lengths of its packets, bytes
  kRecEpoll = 14,            // Epoll, then EpollEntry[count]
  kRecCwd = 15,              // path
  kRecLimits = 16,           // Limit[16]
  kRecItimers = 17,          // Itimer[3]
  kRecTimer = 18,            // PosixTimer
  kRecExe = 19,              // path
  kRecCommand = 20,          // bytes of /proc/self/cmdline
  kRecGroups = 21,           // u32[count]
  kRecLocks = 22,            // LibcLocks: appended by the copied child once it has tried
  kRecSocket = 23,           // Socket, then [count] SocketOption with its bytes, padded to 8
  kRecEnd = 24,              // nothing; a blob without it is cut short
  kRecMessage = 25,          // Message, then i32 descriptions[], the sender's name, the name it was
                             // sent to, its bytes; in the order of arrival
  kRecThreadPending = 26,    // ThreadPending, then siginfo (128 bytes) [count], in order
  kRecFileLock = 27,         // FileLock
  kRecWatch = 28,            // InotifyWatch, then the path
  kRecTerminal = 29,         // Terminal, then unread input, then unread output
  kRecLeaderless = 30,       // nothing: the leader of the process's session has ended
  kRecThreadGroups = 32,     // ThreadGroups, then u32[count]
  kRecThreadFolder = 33,     // ThreadFolder, then the path
  kRecCwdGone = 35,          // FileId: kRecCwd was removed
  kRecFilter = 34,           // SocketFilter, then struct sock_filter[count]
  kRecOutsideTerminal = 36,  // OutsideTerminal
  kRecStoppedChild = 37,     // StoppedChild
  kRecQueue = 31,        // Queue, then [count] QueueMessage with its bytes: of one without a name
  kRecGuards = 40,       // Span[count]: pages with MADV_GUARD_INSTALL
  kRecPolicy = 41,       // MemoryPolicy
  kRecAttributes = 43,   // FileAttributes, then its extended attributes: for each,
                         // ExtendedAttribute, its name, its value
  kRecContents = 44,     // StoredContents: of a kFdMemory that is not empty or one hole
  kRecFutureLocks = 45,  // u32: MCL_* that hold for mappings to come (mlockall)
  kRecAutogroup = 46,    // i32: nice value of the session's autogroup, of a session leader
  kRecTimerIds = 47,     // nothing: timers to come may choose their numbers
                         // (PR_TIMER_CREATE_RESTORE_IDS)
  kRecAio = 42,          // Aio, then struct io_event[count]: what has completed and is unread
  kRecGroup = 38,        // GroupMembership, then u8 sources[count][16]
  // Only in a snapshot of several processes (members, each with a blob of its own):
  kRecSame = 50,           // SameDescription
  kRecPeer = 51,           // SocketPeer
  kRecZombieName = 48,     // ZombieName, of the kRecZombie before it
  kRecZombie = 52,         // Zombie: a child that has ended and was not waited for
  kRecOwner = 53,          // DescriptorOwner
  kRecSharesFolders = 54,  // nothing: has its working directory and umask in common with its parent
  kRecSharesDevice = 55,  // nothing: offers device memory to other processes, or has some of theirs
  kRecThreadChoices = 56,  // ThreadChoices: of a thread whose choices are not those of the Head
  kRecFutexHash = 57,      // u32: slots for the process's own futexes (PR_FUTEX_HASH), 0: none
  kRecSystemFilters = 58,  // u32: filters of seccomp; a restore may not have fewer
  kRecLinkTarget = 59,     // FileId, then the text: of a symbolic link without a name (kFdPath)
  kRecControlGroups = 60,  // lines of "controllers:path": not those in which the job began
  kRecSemaphores = 61,     // SemaphoreSet, then u16 values[count], then i16 undo[count]: what the
                           // kernel would add to them at the end of this process (SEM_UNDO)
  kRecMessageQueue = 62,   // MessageQueue, then [count] TypedMessage with its bytes, padded to 8
  kRecSocketPlace = 63,    // SocketPlace, then the path: of a Unix socket's file that was moved
};

struct RecordHead {
  uint32_t type;
  uint32_t count;
  uint64_t bytes;
};

struct Head {
  uint64_t magic;
  uint32_t version;
  uint32_t generation;  // 0 for a process that was never restored
  int32_t pid, pgid, sid, host_pid;
  uint64_t host_start_time;  // of host_pid, in clock ticks since the machine's start; 0: not known
  uint32_t uid[4], gid[4];   // real, effective, saved, file system
  uint32_t umask;
  uint32_t personality;
  uint32_t membarrier;  // MEMBARRIER_CMD_REGISTER_* that were made
  uint32_t seccomp;  // mode of /proc/self/status; a restore may not have less (kRecSystemFilters)
  uint64_t cap_effective;
  uint64_t monotonic_us, boottime_us, realtime_us;  // clocks at the moment of the stop
  char boot_id[40];
  char kernel[72];  // uname release
  char host[72];
  int64_t rseq_offset;  // from the thread pointer; rseq_size 0: not registered
  uint32_t rseq_size;
  int32_t dumpable;
  uint64_t restore_entry;   // image address of the library's restore entry
  uint64_t restore_stack;   // top of its stack
  uint64_t device_present;  // the blob "device" exists
  int32_t subreaper;
  int32_t ppid;  // in a snapshot of several processes; else 0
  int32_t oom_score_adj;
  int32_t thp_disable;                    // PR_GET_THP_DISABLE: 1, and flags
  uint32_t coredump_filter;               // /proc/PID/coredump_filter
  int32_t memory_failure;                 // PR_MCE_KILL_GET
  int32_t memory_merge;                   // PR_GET_MEMORY_MERGE
  int32_t deny_write_exec;                // PR_GET_MDWE
  int32_t store_bypass, indirect_branch;  // PR_GET_SPECULATION_CTRL
  // The pseudo terminal that controls the process: its number + 1; 0: none does. Of a session's
  // leader that has one: the group in the foreground.
  int32_t terminal, foreground;
};

// struct prctl_mm_map without the pointer to auxv.
struct Mm {
  uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack, arg_start,
      arg_end, env_start, env_end;
};

struct Cpuid {
  uint32_t leaf, subleaf, eax, ebx, ecx, edx;
};

struct Vdso {
  uint64_t vvar_start, vvar_end;  // all vvar mappings together; they lie directly below the vdso
  // Bytes of this range follow. Empty: the program has given its vdso up.
  uint64_t vdso_start, vdso_end;
  uint32_t prot;  // PROT_* of the vdso
  uint32_t reserved;
};

enum VmaKind : uint32_t {
  kVmaAnonymous = 1,
  kVmaFile = 2,         // private mapping of MappedFile `object`, changed pages are in kSpaceHost
  kVmaShared = 3,       // shared mapping of SharedObject `object`
  kVmaPlaceholder = 4,  // belonged to the driver: address space to keep free, no contents
  kVmaFileShared = 5,   // shared mapping of MappedFile `object`
};
enum VmaFlags : uint32_t {
  kVmaGrowsDown = 1,
  kVmaNoReserve = 2,
  kVmaDontFork = 4,
  kVmaWipeOnFork = 8,
  kVmaHugePage = 16,
  kVmaNoHugePage = 32,
  kVmaLocked = 64,
  kVmaDontDump = 128,
  kVmaMergeable = 256,
  kVmaDroppable = 512,
  kVmaSequential = 1024,
  kVmaRandom = 2048,
  kVmaHugetlb = 4096,      // of the huge page pool; the page size's logarithm from kVmaHugeShift on
  kVmaMayWrite = 8192,     // mprotect may make it writable
  kVmaNeverWrite = 16384,  // shared, and mprotect may not: its descriptor was open for reading only
  kVmaSealed = 32768,      // mseal
  kVmaLockedOnFault = 1 << 22,  // with kVmaLocked: MLOCK_ONFAULT
};
inline constexpr uint32_t kVmaAllFlags = 0xffff | kVmaLockedOnFault;
inline constexpr int kVmaHugeShift = 26;  // as in mmap's flags
struct Vma {
  uint64_t start, end, offset;
  uint32_t prot;  // PROT_*
  uint32_t kind, flags;
  int32_t object;  // index of MappedFile or SharedObject, -1: none
};

struct Span {
  uint64_t start, end;
};
// What set_mempolicy (of thread `tid`) or mbind (of [start, end), tid 0) said.
struct MemoryPolicy {
  uint64_t start, end;
  int32_t tid;
  uint32_t mode;  // MPOL_*, with its flags
  uint64_t nodes[16];
};

// A context of kernel AIO; its ring is a kVmaPlaceholder.
struct Aio {
  uint64_t start, end;
  uint32_t nr, head, unread;  // as in the ring
  uint32_t reserved;
};

struct MappedFile {
  uint64_t size, mtime_ns;
  uint32_t mode;
  int32_t stored_space;  // >= 0: stored whole as kSpaceFileBase + this (it had no name any more)
  uint64_t ino, dev;
};

enum SharedKind : uint32_t {
  kSharedAnonymous = 1,
  kSharedMemfd = 2,
  kSharedShm = 3,
  kSharedFile = 4,
  kSharedSegment = 5,  // System V; `ino` is its id
};
struct SharedObject {
  uint32_t index;  // bytes are in kSpaceSharedBase + index
  uint32_t kind;
  uint64_t size, ino, dev;
  uint32_t mode;          // of a segment with SHM_DEST (01000) when it was removed
  uint32_t huge_shift;    // in huge pages of 1 << this many bytes; 0: ordinary ones
  uint32_t owner, group;  // of what has a name or is a segment
};

struct Capabilities {
  uint64_t effective, permitted, inheritable, bounding, ambient;
};

enum ThreadFlags : uint32_t {
  kThreadMain = 1,
  kThreadDriver = 2,
  kThreadZombieLeader = 4,
  kThreadInVdso = 8,  // its code is the kernel's, of the kernel it ran under
  // It executes a system call again, which another signal with a handler ends: any, or one without
  // SA_RESTART.
  kThreadCallEnds = 16,
  kThreadCallEndsWithoutRestart = 32
};
struct Thread {
  int32_t tid;
  uint32_t flags;
  uint64_t ucontext;  // image address of the signal frame's ucontext
  uint64_t siginfo;
  uint64_t fs, gs;
  uint64_t robust_head, robust_bytes;
  uint64_t clear_tid;
  uint64_t rseq;  // 0: not registered
  uint32_t rseq_bytes, rseq_signature;
  uint64_t resume_pc, resume_sp;  // kThreadDriver: where it leaves
  uint64_t pending;               // signals pending for this thread alone (bit n-1)
  char name[16];
  int32_t policy, priority, nice;
  uint32_t affinity_bytes;
  uint64_t affinity[16];
  uint64_t timer_slack;
  uint64_t sched[7];  // struct sched_attr
  int32_t io_priority;
  int32_t death_signal;  // when the thread that made this process ends
  Capabilities capabilities;
  uint32_t uid[4], gid[4];  // as in Head; raw system calls change one thread's
  uint32_t securebits;      // PR_GET_SECUREBITS, SECBIT_KEEP_CAPS among them
  uint32_t no_new_privs;
};

// A thread that has supplementary groups of its own: u32[] follow.
struct ThreadGroups {
  int32_t tid;
  uint32_t reserved;
};
// A thread that has a working directory and a umask of its own (unshare); the path follows.
struct ThreadFolder {
  int32_t tid;
  uint32_t umask;
};

// What a thread has asked of the kernel for itself (prctl); threads to come begin with the same.
struct ThreadChoices {
  int32_t tid;
  int32_t memory_failure;                            // PR_MCE_KILL_GET
  int32_t store_bypass, indirect_branch, l1d_flush;  // PR_GET_SPECULATION_CTRL
  uint32_t io_flusher;                               // PR_GET_IO_FLUSHER
};

// Signals that wait for one thread alone.
struct ThreadPending {
  int32_t tid;
  uint32_t reserved;
};

struct SignalAction {
  uint64_t handler, flags, restorer, mask;
};

enum FdKind : uint32_t {
  kFdFile = 1,       // regular file: path, offset; value[0] = the program was started with it, open
                     // for appending: others write to it as well; value[5] = F_GET_RW_HINT
  kFdDirectory = 2,  // value[0] = it was removed
  kFdPipe = 3,       // `object` = index of kRecPipe
  kFdEventfd = 4,    // value[0] = counter, value[1] = semaphore
  kFdEpoll = 5,      // `object` = index of kRecEpoll
  kFdTimerfd = 6,    // value: clock, ticks, settime flags, it_value ns, it_interval ns
  kFdSignalfd = 7,   // value[0] = mask
  kFdDevice = 8,     // /dev/null and its like, opened again by path; value[0] = its device number
                     // (st_rdev), value[1] = its node was removed
  kFdInherit = 9,  // terminal, pipe or socket to the outside: value[0] = which of restore's own 0,
                   // 1, 2 takes its place
  kFdMemory = 10,  // memfd or unlinked file; descriptors of one file have the same dev and ino;
                   // value: seals, is a memfd, SharedObject::huge_shift; value[5] as kFdFile
  kFdSocket = 11,  // `object` = index of kRecSocket
  kFdFifo = 13,    // named pipe, opened again by path; `object` = index of kRecPipe; value[0] =
                   // its name was removed
  kFdPidfdSelf = 14,
  kFdTerminal = 15,   // a terminal that is not stdio: value[0] as kFdInherit, else path; value[1] =
                      // number of its pseudo terminal + 1; value[2] = it was opened as /dev/tty;
                      // value[3] = a pseudo terminal whose master has been closed
  kFdInotify = 16,    // `object` = index of its kRecWatch records
  kFdPtyMaster = 17,  // pseudo terminal with its master inside: `object` = index of kRecTerminal
  kFdPath = 19,       // O_PATH: the place is named, nothing is open; value[0] = a removed folder or
                      // symbolic link
  kFdKernelFile = 20,  // of /proc, /sys: opened again when the program is complete; value[0] = of
                       // this process, which has ended; value[1] = it was read to its end
  kFdPidfdGone = 21,   // of a process that has ended: value[0] = its status as wait reported it, 0
                       // where that is not known
  kFdPidfd = 22,       // of another process of the job: value[0] = its number
  kFdQueue = 23,       // POSIX message queue; value: most messages, their size, it lost its name,
                       // messages in it
};
// In fd_flags: no descriptor of the program but on its way in a message; the number means nothing.
inline constexpr uint32_t kFdInFlight = 1u << 31;
struct Descriptor {
  int32_t fd;
  uint32_t kind;
  uint32_t flags;       // O_*
  uint32_t fd_flags;    // FD_CLOEXEC, kFdInFlight
  int32_t description;  // descriptors with the same number share one open file description
  int32_t object;
  uint64_t offset, size, ino, dev, mtime_ns;
  uint32_t mode;
  uint32_t owner_signal;  // F_GETSIG
  uint64_t value[6];
};

// A file, as fstat identifies it.
struct FileId {
  uint64_t dev, ino;
};
// What a file or folder without a name had beside its contents.
struct FileAttributes {
  FileId file;
  uint32_t uid, gid, mode;
  uint32_t extended;  // how many extended attributes follow
  int64_t access_seconds, access_ns, change_seconds, change_ns;  // atime, mtime
};
struct ExtendedAttribute {
  uint32_t name_bytes, value_bytes;
};
// How many bytes of `space` a restore must find: holes are in no extent, and a file that has
// nothing else is not there at all.
struct StoredContents {
  uint64_t space, bytes;
};

enum PipeEnds : uint32_t { kPipeHasReader = 1, kPipeHasWriter = 2, kPipeOutside = 4 };
// In Pipe::ends of one that the program was started with as standard input (1), output (2) or error
// (3), and has under other numbers by now.
inline constexpr int kPipeStandardShift = 8;
struct Pipe {
  uint32_t index;
  uint32_t capacity;
  uint64_t ino;
  uint32_t ends;     // PipeEnds: what exists; kPipeOutside: one end is in another process
  uint32_t packets;  // number of packets (O_DIRECT): u32 lengths come before the bytes
  uint64_t bytes;    // all unread ones
};

enum SocketState : uint32_t {
  kSocketFresh = 0,
  kSocketBound = 1,
  kSocketListening = 2,
  kSocketPair = 3,       // a Unix socket, connected to `peer`, which is in this snapshot
  kSocketPeerGone = 4,   // connected once, the other end is closed; so is this one of a TCP
                         // connection without a peer name
  kSocketReset = 5,      // connected to another process by the network: comes back as reset
  kSocketConnected = 6,  // datagrams: a peer address is set
  kSocketWaiting = 7,  // connected to the listening socket `accepted` (TCP: to the one that has the
                       // address `peer_name`), which has not accepted yet
  kSocketConnection = 8,  // TCP: the other end, with both names exchanged, is in this snapshot
  kSocketConnecting = 9,  // TCP: connect() has not come to an end
  kSocketStandard = 10,   // standard input, output or error of a process outside, or, of a job, to
                          // one that the records of another member name: the launcher's own
};
enum SocketFlags : uint32_t {
  kSocketResetByPeer = 1,  // the other end closed with unread data in it: the next call fails with
                           // ECONNRESET
  kSocketTwoWay = 2,       // kSocketPair of datagrams: its peer is connected to it
  kSocketFarAddress = 4,   // the address that it is bound to is not the machine's, though its
                           // IP_FREEBIND or IPV6_FREEBIND is off
};
struct Socket {
  uint32_t index, state;
  int32_t domain, type, protocol, backlog;
  uint32_t peer;       // kSocketPair: its index; kSocketWaiting: how many wait before it
  int32_t accepted;    // kSocketPair: it came out of this listening socket, -1: none of ours
  uint32_t shut_down;  // 1 for receiving, 2 for sending
  // Of the socket's file; 0: its name leads to no file, or to another one, and none is known that
  // leads there (kRecSocketPlace).
  uint32_t mode;
  uint32_t owner, group;  // of the socket's file
  uint32_t flags;         // SocketFlags
  int32_t peer_pid;  // as SO_PEERCRED tells; of a listening socket: the process that called listen
  uint32_t peer_uid, peer_gid;
  uint64_t ino;
  uint32_t name_bytes, peer_name_bytes;
  uint8_t name[128], peer_name[128];  // addresses as the kernel knows them
};
// One of socket_options.h.
struct SocketOption {
  int32_t level, name;
  uint32_t bytes;
  uint32_t reserved;
};
// A multicast group, or the packets that a packet socket asked for.
struct GroupMembership {
  uint32_t socket;   // index
  uint32_t exclude;  // the sources are the unwanted ones; else the only wanted ones
  uint32_t interface;
  uint32_t kind, bytes;  // of a packet socket: PACKET_MR_*, bytes of the address
  uint8_t address[32];
  char interface_name[16];
};
struct SocketFilter {
  uint32_t socket;  // index
  uint32_t reserved;
};
struct SocketPlace {
  uint32_t socket;  // index; of a record before
  uint32_t reserved;
};
enum MessageFlags : uint32_t {
  kMessageUrgent = 1,          // a byte sent with MSG_OOB
  kMessageHasCredentials = 2,  // pid, uid and gid are the sender's (SCM_CREDENTIALS)
  kMessageMarked = 4,          // a byte sent with MSG_OOB was before it, and has been received
};
struct Message {
  uint32_t socket;  // index of the one that will receive it
  uint32_t bytes;
  uint32_t descriptions;  // passed descriptors: as Descriptor::description
  uint32_t name_bytes;    // of a datagram from a socket with a name
  uint32_t to_bytes;      // UDP: the address it was sent to
  uint32_t flags;         // MessageFlags
  int32_t pid;
  uint32_t uid, gid;
  uint32_t reserved;
};

// Which process or thread gets a descriptor's SIGIO (F_SETOWN_EX, F_SETSIG, O_ASYNC).
struct DescriptorOwner {
  int32_t fd;
  int32_t type, pid;  // struct f_owner_ex
  int32_t signal;     // 0: SIGIO
  uint32_t asynchronous;
  uint32_t reserved;
};

struct FileLock {
  int32_t fd;
  uint32_t kind;  // FileLockKind
  uint32_t type;  // F_RDLCK, F_WRLCK
  uint32_t reserved;
  uint64_t start, end;  // end ~0: to the end of the file
};
enum FileLockKind : uint32_t { kLockFlock = 1, kLockPosix = 2, kLockOfd = 3, kLockLease = 4 };

struct InotifyWatch {
  uint32_t index;
  int32_t watch;
  uint32_t mask, reserved;
  uint64_t ino, dev;
};

// Terminal::output_stopped.
enum OutputStopped : uint32_t {
  kOutputRuns = 0,
  kOutputStoppedByCall = 1,       // tcflow(TCOOFF)
  kOutputStoppedByCharacter = 2,  // the stop character (^S)
};
enum TerminalState : uint32_t {
  kTerminalPackets = 1,  // TIOCPKT
  kTerminalHungUp = 2,   // the last slave that was open has been closed
};

struct Terminal {
  uint32_t index, number;  // of /dev/pts
  uint32_t locked;
  uint32_t packets;  // TerminalState
  uint32_t settings_bytes;
  uint32_t exclusive;       // TIOCEXCL: only root may open it again
  uint8_t settings[60];     // struct termios2
  uint32_t complete_bytes;  // of the input: in complete lines, where zeros are ends of file
  uint16_t window[4];
  uint32_t input_bytes, output_bytes;
  uint32_t mode, uid, gid;  // of the slave's file
  uint32_t output_stopped;  // OutputStopped
};

// The settings of a terminal that is not of the program's making, through one of its descriptors 0
// to 2: the launcher's terminal gets them while the program runs.
struct OutsideTerminal {
  int32_t fd;
  uint32_t reserved;
  uint8_t settings[64];  // struct termios2
};

struct Queue {
  uint64_t dev, ino;
};
struct QueueMessage {
  uint32_t priority, bytes;
};

// Of System V: known by their numbers to all processes, and by a key (0: none).
struct SemaphoreSet {
  int32_t id, key;
  uint32_t uid, gid, mode, count;
};
struct MessageQueue {
  int32_t id, key;
  uint32_t uid, gid, mode;
  uint32_t reserved;
  uint64_t most_bytes;  // of all its messages
};
struct TypedMessage {
  int64_t type;
  uint32_t bytes;
  uint32_t reserved;
};

struct Epoll {
  uint32_t index;
  uint32_t reserved;
};
struct EpollEntry {
  int32_t fd;  // the number it was registered by
  uint32_t events;
  uint64_t data;
  int32_t description;  // what it watches, as Descriptor::description
  uint32_t reported;    // of an edge-triggered entry: as what it was ready when that had been
                        // reported; 0: it is not ready, will be reported, or that is not known
};
// The bits of epoll and poll that say as what something is ready.
inline constexpr uint32_t kEpollReadiness = 0x27df;

// An open file description that this process shares with a member that saw it first.
struct SameDescription {
  int32_t description;  // as Descriptor::description
  uint32_t member;      // the other one's number
  int32_t theirs;       // its Descriptor::description
  uint32_t reserved;
};
// The other end of a connected unix socket is in another member.
struct SocketPeer {
  uint32_t socket;  // index
  uint32_t reserved;
  uint64_t ino;  // Socket::ino of the other end
};
struct Zombie {
  int32_t pid, pgid, sid;
  int32_t code, status;  // si_code and si_status of waitid
  uint32_t reserved;
};

struct ZombieName {
  int32_t pid;
  char name[16];  // /proc/PID/comm, ended by a zero
  uint32_t reserved;
};

// A child that is stopped, and whose parent has not waited for that.
struct StoppedChild {
  int32_t pid;
  int32_t signal;  // that stopped it; 0: the parent has waited for the stop
};

struct Limit {
  uint64_t soft, hard;
};
struct Itimer {
  int64_t interval_sec, interval_us, value_sec, value_us;
};
struct PosixTimer {
  int32_t id, clock, notify, signal, tid, overrun;
  uint64_t value;  // sigval
  int64_t interval_sec, interval_ns, value_sec, value_ns;
};

struct LibcLocks {
  // malloc, stdio, loader and thread creation answered in a copy of the process; 0 also where this
  // was not tested (a process without a device)
  uint32_t free;
  uint32_t reserved;
};

}  // namespace gpuckpt::process
