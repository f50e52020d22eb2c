// The blob "process" as ordinary C++: parsed and checked for consistency.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gpuckpt/process_format.h"
#include "store/status.h"

namespace gpuckpt::restore {

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
  std::vector<std::pair<process::Socket, std::vector<process::SocketOption>>> sockets;  // by index
  std::vector<std::pair<process::SocketFilter, std::vector<uint8_t>>> filters;
  struct Message {
    uint32_t socket;
    std::vector<int32_t> descriptions;  // passed with it
    std::vector<uint8_t> sender, bytes;
  };
  std::vector<Message> messages;
  struct QueueMessage {
    uint32_t priority;
    std::vector<uint8_t> bytes;
  };
  std::vector<std::pair<process::Queue, std::vector<QueueMessage>>> queues;
  std::vector<std::pair<process::InotifyWatch, std::string>> watches;
  struct Terminal {
    process::Terminal head;
    std::vector<uint8_t> input, output;
  };
  std::vector<Terminal> terminals;
  std::vector<process::FileLock> file_locks;
  std::vector<std::pair<process::Epoll, std::vector<process::EpollEntry>>> epolls;
  std::string cwd, exe, command;
  std::vector<uint32_t> groups;
  process::LibcLocks locks{};
  bool cwd_gone = false;    // and to be removed again
  bool leaderless = false;  // the leader of its session has ended
  // Of a process that belongs to a job (tree.h).
  bool shares_place = false;  // working directory and umask, with its parent
  std::vector<process::SameDescription> same;
  std::vector<process::SocketPeer> peers;
  std::vector<process::Zombie> zombies;
  std::vector<uint8_t> blob;  // the bytes themselves, for the entry
};

store::Status parse_image(std::vector<uint8_t> blob, Image* out);

}  // namespace gpuckpt::restore
