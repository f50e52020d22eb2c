// The application's open descriptors, captured while it is parked, by a thread that shares its
// table. descriptors.cc walks the table and asks one file per kind:
//
//   fd_anonymous.cc       eventfd, timerfd, signalfd, epoll, inotify, pidfd
//   fd_files.cc           regular files and their locks, folders, memfd and unlinked files, /proc
//   fd_pipes.cc           pipes and named pipes with their contents
//   fd_message_queues.cc  POSIX message queues
//   fd_sockets.cc         sockets of all families with their queues (sockets.h)
//   fd_terminals.cc       terminals, pseudo terminals inside the program
//
// Everything here runs with raw calls only. What cannot be put back is refused with the number of
// the descriptor, what it is, and what to do about it.
//
// Owner: the Capture. Threads: PARKED, the coordinator. Errors: the Capture's failure.
#pragma once

#include <sys/stat.h>

#include "base/hash/hash_index.h"
#include "base/procfs/proc.h"
#include "base/text/text.h"
#include "gpuckpt/process_format.h"
#include "snapshot/control/state.h"
#include "snapshot/descriptors/tcp_ends.h"
#include "snapshot/process/capture.h"

namespace gpuckpt {

// What the kernel says about one descriptor.
struct FdFacts {
  struct stat st;
  char path[4097];  // of the link in /proc, without " (deleted)"
  bool deleted;
  char info[8192];  // fdinfo, cut: the fields that every descriptor has are in it
};

// The lines of a descriptor's fdinfo, however many there are: locks, and what epoll and inotify
// watch.
struct InfoLines : LineReader {
  InfoLines(int fd, char* buffer, size_t room) : LineReader(name(fd), buffer, room) {}
  char path[64];
  const char* name(int fd) {
    format(path, sizeof(path), "/proc/thread-self/fdinfo/%d", fd);
    return path;
  }
};

// One attempt's, made and used on the coordinator.
struct FdTable {
  static constexpr uint32_t kMostDescriptors = 65536, kMostSockets = 16384, kMostTerminals = 4096,
                            kMostPipes = 1024;

  Capture* c = nullptr;
  Records* r = nullptr;
  process::Descriptor* all = nullptr;  // [kMostDescriptors]
  size_t count = 0;
  // Descriptions, as places in `all`: of each inode and kind a tree in the order that kcmp knows,
  // because all eventfds and timers have one inode, and a program may open a file a thousand times.
  HashIndex by_inode;  // the roots, by inode and device
  struct Branches {
    uint32_t less, greater;              // place + 1; 0: none
  }* branches = nullptr;                 // [kMostDescriptors]
  ProcFolder proc{"/proc/thread-self"};  // open while descriptors are listed
  struct {
    uint64_t device;
    uint32_t type;
  } file_system[8]{};  // those asked for last, by file_system_of()
  uint32_t file_systems = 0;
  bool kcmp_works = true;  // else: every description is compared
  bool in_turn = false;    // of the job's processes: what is listed is noted for the others
  OutsideConnections outside{};
  uint32_t moved_names = 0;                // of Unix sockets that were searched for
  bool drop_outside = false;               // connections to other processes come back closed
  ConnectionTable* connections = nullptr;  // of all processes of the snapshot
  enum class Known { kUnknown, kNo, kYes } upper_protocols{};  // has the kernel any of TCP's (TLS)?

  uint32_t pipes = 0, sockets = 0, epolls = 0, inotifies = 0, terminals = 0;
  struct PipeSeen {
    uint64_t ino;
    int reader, writer;  // descriptors, -1: none
    bool named;
  }* pipe = nullptr;  // [kMostPipes]
  struct SocketSeen {
    uint64_t ino, peer;  // peer's inode, 0: gone or not accepted yet; ~0: not known
    // Of the file that a Unix socket's name was bound to: its inode, 0: not known; its device as
    // the kernel has it; and where it lies by now, where it was moved. "": not moved, or not found.
    uint32_t name_ino, name_dev;
    char moved_to[108];
    int fd;
    bool asked;  // sock_diag has told of it
    // Of a listening Unix socket: how many connections it has not accepted whose other end is
    // closed (left_behind), or is open but not in this process (strangers).
    uint32_t left_behind, strangers;
    // Of a connection that is not accepted yet: the listening socket (its index + 1), and the
    // position in that socket's queue.
    uint32_t waits, place;
    uint8_t shut_down;
    bool elsewhere;       // another process of the job has it as well, and was first
    ConnectionState tcp;  // of a TCP socket
    void* unread_room;    // in the records, for its unread bytes; null: none, or they are there
    uint64_t unread;
    process::Socket s;
  }* socket = nullptr;        // [kMostSockets]
  HashIndex socket_by_inode;  // SocketSeen::ino
  HashIndex listener_by_name;
  ConnectionTable* own_connections = nullptr;  // where no job has a table of them
  Region options;                              // of all sockets, as the records have them
  struct TerminalSeen {
    int master, slave;
    uint32_t number;
  }* terminal = nullptr;  // [kMostTerminals]

  bool same_file(int a, int b);  // do two numbers share one open file description?
  // The same, for the same file only.
  bool same_description(const process::Descriptor& a, const process::Descriptor& b);
  // The description of `fd` in the tree of `root`; kNone: `place` is where it would have to be, if
  // kcmp works.
  uint32_t find_in_tree(uint32_t root, int fd, uint32_t** place);
  // The description that the new `d` has, too; kNone: it is another one, and is known from now on.
  uint32_t find_or_add(const process::Descriptor& d);
  // The table's entry that owns the description of `fd`, which may be a stray duplicate.
  const process::Descriptor* owner_of(int fd);
  // The socket of this inode; null: not one that is listed.
  SocketSeen* socket_of(uint64_t inode);
};

// Adds one descriptor and its record. `extra`: bits for fd_flags.
bool capture_fd(FdTable*, int fd, uint32_t extra = 0);

// Each decides about the kind and fills the rest. False: refused.
bool capture_anonymous(FdTable*, process::Descriptor*, const FdFacts&, const char* what);
bool capture_file(FdTable*, process::Descriptor*, FdFacts*);
// Of /proc, /sys and the like: opened again when the restored program is complete.
bool on_kernel_file_system(FdTable*, int fd, uint64_t device);
bool capture_kernel_file(FdTable*, process::Descriptor*, FdFacts*);
bool capture_pipe(FdTable*, process::Descriptor*, const FdFacts&);
bool capture_queue(FdTable*, process::Descriptor*, const FdFacts&);
bool capture_socket(FdTable*, process::Descriptor*);
// Is it an end of a Unix or TCP connection? (Of the standard three only such a socket can lead to
// another process of the job; others are the launcher's to give.)
bool is_connection(int fd);
bool capture_character_device(FdTable*, process::Descriptor*, const FdFacts&);

// When all are known: what needs the whole picture.
bool put_file_contents(FdTable*);
// What a file or folder without a name has beside its contents.
void put_attributes(Capture*, Records*, int fd, const struct stat&);
bool put_owner(FdTable*, const process::Descriptor&);
bool put_file_locks(FdTable*, const process::Descriptor&, const FdFacts&);
bool put_pipes(FdTable*);
bool put_queues(FdTable*);
// First of all, because what is on its way in Unix sockets adds descriptors.
bool list_sockets(FdTable*);
bool put_sockets(FdTable*);  // when all processes of the job have listed theirs
bool put_epolls(FdTable*);
bool put_inotify(FdTable*, const process::Descriptor&);
bool put_terminals(FdTable*);

// In a job: is the description known from another process already? Then it is noted as shared.
bool note_shared(FdTable*, const process::Descriptor&);
// In a job, of an epoll set that others may have as well: the first description of what is watched
// (`e.description` is known) puts it back, which the result says. None has it: the leader will see.
bool note_watch(FdTable*, const process::Descriptor& epoll, const process::EpollEntry& e,
                uint32_t nth);
// In a job: the other end of this pipe or socket (`peer`: its inode) is not in this process. True:
// the leader will see whether another one has it. `needed`: without it there is no snapshot.
bool note_end(FdTable*, int fd, uint32_t have, uint64_t ino, uint64_t peer, bool needed,
              bool inherited = false);

// inotify_paths.cc: the path by which the program asked to watch this; null when it is not known.
// `leads_there` says whether that name, or another one in its folder, still leads there.
const char* watched_path(int watch, uint64_t dev, uint64_t ino, bool* leads_there);

}  // namespace gpuckpt
