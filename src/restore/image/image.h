// The blob "process" as C++ objects: parsed and checked for consistency.
//
// Owner: the Member, or the caller of parse_image(). Threads: one. Errors: a Status that names the
// record.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpuckpt/process_format.h"
#include "store/status.h"

namespace gpuckpt::restore {

// A file as fstat identified it where the program ran: device and inode.
using FileKey = std::pair<uint64_t, uint64_t>;

// The properties of a file or folder without a name, beside its contents.
struct Attributes {
  process::FileAttributes head;
  std::vector<std::pair<std::string, std::vector<uint8_t>>> extended;
};

struct Image {
  process::Head head{};
  process::Mm mm{};
  std::vector<uint8_t> auxv;
  std::vector<process::Cpuid> cpu;
  process::Vdso vdso{};
  std::vector<uint8_t> vdso_bytes;
  std::vector<std::pair<process::Vma, std::string>> vmas;
  std::vector<std::pair<process::MappedFile, std::string>> files;
  std::vector<std::pair<process::SharedObject, std::string>> shared;
  std::vector<process::Thread> threads;
  std::vector<std::pair<process::Descriptor, std::string>> fds;
  std::vector<std::pair<process::Pipe, std::vector<uint8_t>>> pipes;
  struct SocketOption {
    int level, name;
    std::vector<uint8_t> value;
  };
  struct GroupMembership {
    process::GroupMembership head;
    std::vector<std::vector<uint8_t>> sources;
  };
  struct Socket {
    process::Socket head;
    std::vector<SocketOption> options;
    std::vector<GroupMembership> groups;
    std::string folder;  // the folder that a relative name belongs to; empty: the working directory
    std::string moved_to;  // where its file was moved to; empty: it lies where the name says
  };
  std::vector<Socket> sockets;  // by index
  std::vector<std::pair<process::SocketFilter, std::vector<uint8_t>>> filters;
  struct Message {
    uint32_t socket;
    std::vector<int32_t> descriptions;  // the descriptions that were sent with the message
    std::vector<uint8_t> sender, to, bytes;
    uint32_t flags;  // MessageFlags
    int32_t pid;
    uint32_t uid, gid;
  };
  std::vector<Message> messages;
  struct QueueMessage {
    uint32_t priority;
    std::vector<uint8_t> bytes;
  };
  std::vector<std::pair<process::Queue, std::vector<QueueMessage>>> queues;
  std::vector<std::pair<process::SemaphoreSet, std::vector<uint16_t>>> semaphores;
  struct TypedMessage {
    int64_t type;
    std::vector<uint8_t> bytes;
    bool operator==(const TypedMessage&) const = default;
  };
  std::vector<std::pair<process::MessageQueue, std::vector<TypedMessage>>> message_queues;
  std::vector<std::pair<process::InotifyWatch, std::string>> watches;
  std::vector<std::pair<process::FileId, std::string>> link_targets;  // of links without a name
  struct Terminal {
    process::Terminal head;
    std::vector<uint8_t> input, output;
  };
  std::vector<Terminal> terminals;
  std::vector<process::OutsideTerminal> outside_terminals;
  std::vector<process::StoppedChild> stopped_children;
  std::string control_groups;  // a line for each
  std::vector<process::FileLock> file_locks;
  std::vector<std::pair<process::Epoll, std::vector<process::EpollEntry>>> epolls;
  std::string cwd, exe, command;
  std::vector<uint32_t> groups;
  uint32_t system_filters = 0;     // of seccomp
  bool has_thread_groups = false;  // some thread has other supplementary groups
  process::LibcLocks locks{};
  bool shares_device = false;  // it shares device memory with other processes
  bool cwd_gone = false;       // the folder was removed, and is this one:
  FileKey cwd_folder;
  std::map<FileKey, Attributes> attributes;
  std::vector<process::StoredContents> contents;
  bool leaderless = false;  // the leader of its session has ended
  // The following concern a process that belongs to a job (tree.h).
  bool shares_folders = false;  // shares working directory and umask with its parent
  std::vector<process::SameDescription> same;
  std::vector<process::SocketPeer> peers;
  std::vector<process::Zombie> zombies;
  std::vector<process::ZombieName> zombie_names;
  std::vector<uint8_t> blob;  // the bytes themselves, for the entry
};

store::Status parse_image(std::vector<uint8_t> blob, Image* out);

// Whether other processes may have the other ends, or the readers, of such a descriptor: the first
// process of a job makes all of these for all.
inline bool has_other_ends(const process::Descriptor& d) {
  return d.kind == process::kFdPipe || d.kind == process::kFdFifo || d.kind == process::kFdSocket ||
         d.kind == process::kFdPtyMaster || d.kind == process::kFdQueue;
}

// Replaces sockets that were standard streams and whose other end is not part of the snapshot by
// the standard streams of the restore.
void take_standard_sockets(Image*);

}  // namespace gpuckpt::restore
