#include "restore/descriptors/job_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <set>

#include "restore/descriptors/fds.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

using Key = std::pair<size_t, int>;  // a member and a description of it

size_t by_number(const Tree& tree, uint32_t number) {
  for (size_t i = 0; i < tree.members.size(); ++i)
    if (tree.members[i]->number == number) return i;
  return 0;
}

// The member that was first found to have member i's description.
Key owner_of(const Tree& tree, size_t i, int description) {
  for (const SameDescription& s : tree.members[i]->image.same)
    if (s.description == description) return {by_number(tree, s.member), s.theirs};
  return {i, description};
}

// All members' descriptions merged as if one process had them, with numbers of their own.
class Merge {
 public:
  explicit Merge(const Tree& tree) : tree_(tree) {}

  void run() {
    for (size_t i = 0; i < tree_.members.size(); ++i) number_descriptions(i);
    for (size_t i = 0; i < tree_.members.size(); ++i) choose(i);
    for (size_t i = 0; i < tree_.members.size(); ++i) {
      add_pipes(i);
      add_sockets(i);
      add_terminals(i);
      add_queues(i);
    }
    for (size_t i = 0; i < tree_.members.size(); ++i) {
      join_sockets(i);
      add_messages(i);
      add_descriptors(i);
    }
    for (auto& [p, payload] : image.pipes)
      if ((p.ends & 3) == 3) p.ends &= ~kPipeOutside;
  }

  // The merged description of member i's, -1: that member makes it itself.
  int chosen(size_t i, int description) const {
    int number = number_.at(owner(i, description));
    return chosen_.count(number) ? number : -1;
  }

  Image image;
  Memory memory;

 private:
  Key owner(size_t i, int description) const { return owner_of(tree_, i, description); }

  void number_descriptions(size_t i) {
    for (const auto& [d, path] : tree_.members[i]->image.fds)
      number_.emplace(owner(i, d.description), static_cast<int>(number_.size()));
  }

  bool is_made_anew(const Descriptor& d) const {
    for (const auto& member : tree_.members)
      for (const Image::Terminal& t : member->image.terminals)
        if (d.kind == kFdTerminal && d.value[1] == t.head.number + 1) return true;
    return false;
  }

  // Finds what several processes share.
  void choose(size_t i) {
    const Image& m = tree_.members[i]->image;
    for (const auto& [d, path] : m.fds)
      if (has_other_ends(d) || is_made_anew(d) || d.fd_flags & kFdInFlight)
        chosen_.insert(number_.at(owner(i, d.description)));
    for (const auto& [d, path] : m.fds)
      for (const SameDescription& s : m.same)
        if (s.description == d.description && d.kind != kFdPidfd)
          chosen_.insert(number_.at(owner(i, s.description)));
    for (const Image::Message& message : m.messages)
      for (int32_t d : message.descriptions) chosen_.insert(number_.at(owner(i, d)));
  }

  void add_pipes(size_t i) {
    for (const auto& [p, payload] : tree_.members[i]->image.pipes) {
      auto [at, fresh] = pipe_.emplace(p.ino, static_cast<int>(image.pipes.size()));
      if (fresh) {
        image.pipes.emplace_back(p, payload);
        image.pipes.back().first.index = static_cast<uint32_t>(at->second);
        continue;
      }
      // Only a process that can read it knows its contents.
      auto& [known, contents] = image.pipes[static_cast<size_t>(at->second)];
      known.ends |= p.ends;
      if (contents.empty() && !payload.empty()) {
        known.bytes = p.bytes, known.packets = p.packets;
        contents = payload;
      }
    }
  }

  void add_sockets(size_t i) {
    const Image& m = tree_.members[i]->image;
    for (const Image::Socket& entry : m.sockets) {
      auto [at, fresh] = socket_.emplace(entry.head.ino, image.sockets.size());
      // Standard input of one process can have another number in the next.
      if (!fresh && entry.head.state == kSocketStandard)
        image.sockets[at->second].head.state = kSocketStandard;
      if (!fresh) continue;
      Image::Socket& added = image.sockets.emplace_back(entry);
      added.folder = m.cwd;
      added.head.index = static_cast<uint32_t>(at->second);
      added.head.peer = ~0u;
      added.head.accepted = -1;
      for (const auto& [f, program] : m.filters)
        if (f.socket == entry.head.index)
          image.filters.emplace_back(SocketFilter{added.head.index, 0}, program);
    }
  }

  void join_sockets(size_t i) {
    const Image& m = tree_.members[i]->image;
    auto join = [&](uint64_t ino, uint64_t peer, uint32_t flags) {
      auto it = socket_.find(peer);
      if (it == socket_.end()) return;
      Socket& s = image.sockets[socket_.at(ino)].head;
      s.state = kSocketPair;
      s.flags |= flags;
      s.peer = static_cast<uint32_t>(it->second);
    };
    for (const auto& [s, options, groups, folder, moved_to] : m.sockets)
      if (s.state == kSocketPair && s.peer < m.sockets.size())
        join(s.ino, m.sockets[s.peer].head.ino, s.flags);
    for (const auto& [s, options, groups, folder, moved_to] : m.sockets)
      if (s.state == kSocketWaiting && s.domain == AF_UNIX) {
        Socket& waiting = image.sockets[socket_.at(s.ino)].head;
        waiting.peer = s.peer;
        waiting.accepted =
            static_cast<int>(socket_.at(m.sockets[static_cast<size_t>(s.accepted)].head.ino));
      }
    for (const SocketPeer& p : m.peers) join(m.sockets[p.socket].head.ino, p.ino, kSocketTwoWay);
  }

  // One of the processes that share it has recorded what is unread.
  void add_messages(size_t i) {
    const Image& m = tree_.members[i]->image;
    for (const Image::Message& message : m.messages) {
      Image::Message out = message;
      out.socket = static_cast<uint32_t>(socket_[m.sockets[message.socket].head.ino]);
      for (int32_t& d : out.descriptions) d = number_.at(owner(i, d));
      image.messages.push_back(std::move(out));
    }
  }

  void add_queues(size_t i) {
    const auto& queues = tree_.members[i]->image.queues;
    image.queues.insert(image.queues.end(), queues.begin(), queues.end());
  }

  void add_terminals(size_t i) {
    for (const Image::Terminal& t : tree_.members[i]->image.terminals) {
      auto [at, fresh] = terminal_.emplace(t.head.number, static_cast<int>(image.terminals.size()));
      terminal_index_[{i, static_cast<int>(t.head.index)}] = at->second;
      if (!fresh) continue;
      image.terminals.push_back(t);
      image.terminals.back().head.index = static_cast<uint32_t>(at->second);
    }
  }

  void add_descriptors(size_t i) {
    const Member& member = *tree_.members[i];
    for (const auto& [d, path] : member.image.fds) {
      const int number = chosen(i, d.description);
      if (number < 0) continue;
      Descriptor out = d;
      out.description = number;
      const size_t object = static_cast<size_t>(d.object);
      if (d.kind == kFdPipe || d.kind == kFdFifo) {
        for (const auto& [p, payload] : member.image.pipes)
          if (static_cast<int>(p.index) == d.object) out.object = pipe_.at(p.ino);
      } else if (d.kind == kFdSocket) {
        out.object = static_cast<int>(socket_.at(member.image.sockets[object].head.ino));
      } else if (d.kind == kFdPtyMaster) {
        out.object = terminal_index_[{i, d.object}];
      } else if (d.kind == kFdInotify) {
        out.object = static_cast<int>(i << 16) | d.object;
      }
      image.fds.emplace_back(out, path);
      if (!(d.fd_flags & kFdInFlight)) continue;
      image.fds.back().first.fd = -1 - number;  // numbers of several processes
      for (const FileLock& l : member.image.file_locks)
        if (l.fd == d.fd) image.file_locks.push_back(l), image.file_locks.back().fd = -1 - number;
    }
    for (const auto& [w, path] : member.image.watches) {
      image.watches.emplace_back(w, path);
      image.watches.back().first.index = static_cast<uint32_t>(i << 16) | w.index;
    }
    image.attributes.insert(member.image.attributes.begin(), member.image.attributes.end());
    image.link_targets.insert(image.link_targets.end(), member.image.link_targets.begin(),
                              member.image.link_targets.end());
    memory.folders = member.memory.folders;
    for (const auto& [description, file] : member.memory.unlinked)
      if (int number = chosen(i, description); number >= 0) {
        memory.unlinked.emplace_back(number, Fd(dup(file.get())));
        if (member.memory.original.count(description)) memory.original.insert(number);
      }
  }

  const Tree& tree_;
  std::map<Key, int> number_;
  std::set<int> chosen_;
  std::map<uint64_t, int> pipe_;
  std::map<uint64_t, size_t> socket_;
  std::map<uint32_t, int> terminal_;
  std::map<std::pair<size_t, int>, int> terminal_index_;
};

}  // namespace

std::string make_common_descriptors(const Tree& tree, int base, const Warn& warn, CommonFds* out) {
  Merge merge(tree);
  merge.run();
  merge.image.head = tree.root().image.head;
  take_standard_sockets(&merge.image);
  std::map<int, int> made;
  std::string error = make_only(merge.image, merge.memory, base, warn, &made);
  if (!error.empty()) return error;
  for (size_t i = 0; i < tree.members.size(); ++i)
    for (const auto& [d, path] : tree.members[i]->image.fds)
      if (int number = merge.chosen(i, d.description); number >= 0 && made.count(number))
        (*out)[{i, d.description}] = made[number];
  return "";
}

bool SharedPidfds::prepare(const Tree& tree) {
  std::map<Key, Shared> by_owner;
  for (size_t i = 0; i < tree.members.size(); ++i)
    for (const auto& [d, path] : tree.members[i]->image.fds) {
      if (d.kind != kFdPidfd || d.description != d.fd) continue;
      const Key owner = owner_of(tree, i, d.description);
      Shared& s = by_owner[owner];
      s.pid = static_cast<pid_t>(d.value[0]);
      s.flags = static_cast<int>(d.flags) & O_NONBLOCK;
      const Key own{i, d.description};
      s.holders.insert(own == owner ? s.holders.begin() : s.holders.end(), own);
    }
  for (auto& [owner, s] : by_owner) {
    if (s.holders.size() < 2) continue;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
    s.sender = ends[0], s.receiver = ends[1];
    all_.push_back(s);
  }
  return true;
}

bool SharedPidfds::exchange(size_t i, std::map<int, int>* made) const {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  char byte = 0;
  iovec part{&byte, 1};
  auto message = [&] {
    msghdr m{};
    m.msg_iov = &part, m.msg_iovlen = 1;
    m.msg_control = control, m.msg_controllen = sizeof(control);
    return m;
  };
  for (const Shared& s : all_) {
    if (s.holders.front().first != i) continue;
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, s.pid, s.flags));
    if (fd < 0) return false;
    (*made)[s.holders.front().second] = fd;
    msghdr m = message();
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    for (size_t n = 1; n < s.holders.size(); ++n)
      if (sendmsg(s.sender, &m, MSG_NOSIGNAL) != 1) return false;
  }
  for (const Shared& s : all_)
    for (const auto& [member, description] : s.holders) {
      if (member != i || &description == &s.holders.front().second) continue;
      msghdr m = message();
      if (recvmsg(s.receiver, &m, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&m)) return false;
      memcpy(&(*made)[description], CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
    }
  return true;
}

}  // namespace gpuckpt::restore
