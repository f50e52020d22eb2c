#include "restore/preflight/image.h"

#include <set>

#include <cstring>

namespace gpuckpt::restore {

using namespace process;
using store::Status;

namespace {

// Reads a record's payload; a record that is too short for its struct is damage.
struct Payload {
  const uint8_t* at;
  uint64_t left;
  bool ok = true;
  template <typename T>
  T take() {
    T value{};
    if (left < sizeof(T)) {
      ok = false;
      return value;
    }
    memcpy(&value, at, sizeof(T));
    at += sizeof(T), left -= sizeof(T);
    return value;
  }
  std::string text() {
    const char* s = reinterpret_cast<const char*>(at);
    return {s, strnlen(s, left)};
  }
  std::vector<uint8_t> rest() { return {at, at + left}; }
  std::vector<uint8_t> bytes(uint64_t n) {
    if (left < n) ok = false, n = 0;
    at += n, left -= n;
    return {at - n, at};
  }
  template <typename T>
  std::vector<T> list(uint32_t count) {
    std::vector<T> out;
    for (uint32_t i = 0; i < count && ok; ++i) out.push_back(take<T>());
    return out;
  }
};

// As the kernel shows the paths of a process: from the root, nothing to climb out by.
bool plain_path(const std::string& path) {
  return path.starts_with("/") && (path + "/").find("/../") == std::string::npos &&
         (path + "/").find("/./") == std::string::npos;
}

FileKey key_of(const FileId& file) { return {file.dev, file.ino}; }

}  // namespace

Status parse_image(std::vector<uint8_t> blob, Image* out) {
  uint64_t at = 0;
  bool ended = false, first = true;
  while (at + sizeof(RecordHead) <= blob.size() && !ended) {
    RecordHead h;
    memcpy(&h, blob.data() + at, sizeof(h));
    at += sizeof(h);
    if (h.bytes > blob.size() - at)
      return Status::Corruption("the description of the process is cut short");
    Payload p{blob.data() + at, h.bytes};
    at += (h.bytes + 7) & ~7ull;
    if (first && h.type != kRecHead)
      return Status::Corruption("the description of the process does not start with its head");
    first = false;
    switch (h.type) {
      case kRecHead:
        out->head = p.take<Head>();
        if (out->head.magic != kFormatMagic)
          return Status::Corruption("the description of a process has another magic number");
        if (out->head.version != kFormatVersion)
          return Status::Incompatible(
              "the snapshot's process format is version " + std::to_string(out->head.version) +
              ", this gpuckpt reads version " + std::to_string(kFormatVersion));
        break;
      case kRecMm:
        out->mm = p.take<Mm>();
        break;
      case kRecAuxv:
        out->auxv = p.rest();
        break;
      case kRecCpu:
        out->cpu = p.list<Cpuid>(h.count);
        break;
      case kRecVdso:
        out->vdso = p.take<Vdso>();
        out->vdso_bytes = p.rest();
        if (out->vdso_bytes.size() < out->vdso.vdso_end - out->vdso.vdso_start) p.ok = false;
        break;
      case kRecVma: {
        auto v = p.take<Vma>();
        if (v.start >= v.end || v.end > 1ull << 47 || (v.start | v.end) & 4095) p.ok = false;
        out->vmas.emplace_back(v, p.text());
        break;
      }
      case kRecFile: {
        auto v = p.take<MappedFile>();
        out->files.emplace_back(v, p.text());
        break;
      }
      case kRecShared: {
        auto v = p.take<SharedObject>();
        out->shared.emplace_back(v, p.text());
        break;
      }
      case kRecThread:
        out->threads.push_back(p.take<Thread>());
        break;
      case kRecFd: {
        auto v = p.take<Descriptor>();
        if (v.fd < 0 || v.fd > 1 << 24) p.ok = false;
        out->fds.emplace_back(v, p.text());
        break;
      }
      case kRecPipe: {
        auto v = p.take<Pipe>();
        out->pipes.emplace_back(v, p.rest());
        break;
      }
      case kRecSocket: {
        auto v = p.take<Socket>();
        if (v.index != out->sockets.size() || v.name_bytes > sizeof(v.name) ||
            v.peer_name_bytes > sizeof(v.peer_name))
          p.ok = false;
        Image::Socket& socket = out->sockets.emplace_back();
        socket.head = v;
        for (uint32_t i = 0; i < h.count && p.ok; ++i) {
          const auto o = p.take<SocketOption>();
          std::vector<uint8_t> value = p.bytes((uint64_t{o.bytes} + 7) & ~7ull);
          value.resize(p.ok ? o.bytes : 0);
          socket.options.push_back({o.level, o.name, std::move(value)});
        }
        break;
      }
      case kRecGroup: {
        Image::GroupMembership g{p.take<GroupMembership>(), {}};
        for (uint32_t i = 0; i < h.count && p.ok; ++i) g.sources.push_back(p.bytes(16));
        if (g.head.socket >= out->sockets.size() || g.head.bytes > sizeof(g.head.address)) {
          p.ok = false;
          break;
        }
        out->sockets[g.head.socket].groups.push_back(std::move(g));
        break;
      }
      case kRecFilter: {
        auto v = p.take<SocketFilter>();
        out->filters.emplace_back(v, p.rest());
        if (p.left != h.count * 8ull) p.ok = false;
        break;
      }
      case kRecMessage: {
        auto v = p.take<Message>();
        Image::Message m{
            v.socket, p.list<int32_t>(v.descriptions), {}, {}, {}, v.flags, v.pid, v.uid, v.gid};
        m.sender = p.bytes(v.name_bytes);
        m.to = p.bytes(v.to_bytes);
        m.bytes = p.rest();
        if (m.bytes.size() != v.bytes) p.ok = false;
        out->messages.push_back(std::move(m));
        break;
      }
      case kRecQueue: {
        auto& [queue, messages] = out->queues.emplace_back(p.take<Queue>(), 0);
        for (uint32_t i = 0; i < h.count && p.ok; ++i) {
          auto m = p.take<QueueMessage>();
          messages.push_back({m.priority, p.bytes(m.bytes)});
        }
        break;
      }
      case kRecWatch: {
        auto v = p.take<InotifyWatch>();
        out->watches.emplace_back(v, p.text());
        break;
      }
      case kRecTerminal: {
        Image::Terminal v{p.take<Terminal>(), {}, {}};
        std::vector<uint8_t> bytes = p.rest();
        if (bytes.size() != uint64_t{v.head.input_bytes} + v.head.output_bytes ||
            v.head.settings_bytes > sizeof(v.head.settings)) {
          p.ok = false;
          break;
        }
        v.input.assign(bytes.begin(), bytes.begin() + v.head.input_bytes);
        v.output.assign(bytes.begin() + v.head.input_bytes, bytes.end());
        out->terminals.push_back(std::move(v));
        break;
      }
      case kRecOutsideTerminal:
        out->outside_terminals.push_back(p.take<OutsideTerminal>());
        break;
      case kRecStoppedChild:
        out->stopped_children.push_back(p.take<StoppedChild>());
        break;
      case kRecLeaderless:
        out->leaderless = true;
        break;
      case kRecSharesPlace:
        out->shares_place = true;
        break;
      case kRecOwner:
        p.take<DescriptorOwner>();
        break;
      case kRecFileLock:
        out->file_locks.push_back(p.take<FileLock>());
        break;
      case kRecThreadGroups:
        out->has_thread_groups = true;
        if (h.bytes != sizeof(ThreadGroups) + h.count * 4ull) p.ok = false;
        break;
      case kRecThreadPlace:
        p.take<ThreadPlace>();
        if (!plain_path(p.text()) || p.text().size() == p.left) p.ok = false;
        break;
      case kRecThreadPending:
        if (h.bytes != sizeof(ThreadPending) + h.count * 128ull) p.ok = false;
        break;
      case kRecEpoll: {
        auto v = p.take<Epoll>();
        out->epolls.emplace_back(v, p.list<EpollEntry>(h.count));
        break;
      }
      case kRecCwd:
        out->cwd = p.text();
        break;
      case kRecCwdGone:
        out->cwd_gone = true;
        out->cwd_folder = key_of(p.take<FileId>());
        break;
      case kRecAttributes: {
        Attributes a{p.take<FileAttributes>(), {}};
        for (uint32_t i = 0; i < a.head.extended && p.ok; ++i) {
          const auto e = p.take<ExtendedAttribute>();
          const std::vector<uint8_t> name = p.bytes(e.name_bytes);
          a.extended.emplace_back(std::string(name.begin(), name.end()), p.bytes(e.value_bytes));
        }
        out->attributes.emplace(key_of(a.head.file), std::move(a));
        break;
      }
      case kRecContents:
        out->contents.push_back(p.take<StoredContents>());
        break;
      case kRecExe:
        out->exe = p.text();
        break;
      case kRecCommand:
        for (uint8_t c : p.rest()) out->command += c ? static_cast<char>(c) : ' ';
        break;
      case kRecGroups:
        out->groups = p.list<uint32_t>(h.count);
        break;
      case kRecLocks:
        out->locks = p.take<LibcLocks>();
        break;
      case kRecSame:
        out->same.push_back(p.take<SameDescription>());
        break;
      case kRecPeer:
        out->peers.push_back(p.take<SocketPeer>());
        break;
      case kRecZombie:
        out->zombies.push_back(p.take<Zombie>());
        break;
      case kRecSigactions:
        if (h.bytes != 64 * sizeof(SignalAction)) p.ok = false;
        break;
      case kRecPending:
        if (h.bytes != h.count * 128ull) p.ok = false;
        break;
      case kRecLimits:
        if (h.bytes != 16 * sizeof(Limit)) p.ok = false;
        break;
      case kRecItimers:
        if (h.bytes != 3 * sizeof(Itimer)) p.ok = false;
        break;
      case kRecGuards:
        if (h.bytes != h.count * sizeof(Span)) p.ok = false;
        break;
      case kRecPolicy:
        if (h.bytes != sizeof(MemoryPolicy)) p.ok = false;
        break;
      case kRecAio: {
        auto v = p.take<Aio>();
        if (v.unread != h.count || p.left != uint64_t{h.count} * 32 || v.nr < 4 || v.head >= v.nr ||
            v.unread >= v.nr || v.start >= v.end)
          p.ok = false;
        break;
      }
      case kRecTimer:
        if (h.bytes != sizeof(PosixTimer)) p.ok = false;
        break;
      case kRecEnd:
        ended = true;
        break;
      default:
        return Status::Incompatible(
            "the snapshot describes something this gpuckpt does not know (record type " +
            std::to_string(h.type) + ")");
    }
    if (!p.ok)
      return Status::Corruption("record " + std::to_string(h.type) + " of the process is damaged");
  }
  if (!ended) return Status::Corruption("the description of the process has no end");
  if (out->threads.empty()) return Status::Corruption("the snapshot has no threads");
  for (const auto& [v, path] : out->vmas) {
    bool file = v.kind == kVmaFile || v.kind == kVmaFileShared;
    if ((file && (v.object < 0 || static_cast<size_t>(v.object) >= out->files.size())) ||
        (v.kind == kVmaShared &&
         (v.object < 0 || static_cast<size_t>(v.object) >= out->shared.size())))
      return Status::Corruption("a mapping of the process names no object");
  }
  for (const auto& [o, path] : out->shared)
    if ((o.kind == kSharedShm && !(path.starts_with("/dev/shm/") && plain_path(path))) ||
        (o.kind == kSharedFile && !plain_path(path)))
      return Status::Corruption("a shared object of the process has a path no process has: " +
                                path);
  for (const auto& [d, path] : out->fds)
    if ((d.kind == kFdFile || d.kind == kFdDirectory) && !plain_path(path))
      return Status::Corruption("a file of the process has a path no process has: " + path);
  for (const auto& [d, path] : out->fds)
    if (d.kind == kFdSocket &&
        (d.object < 0 || static_cast<size_t>(d.object) >= out->sockets.size()))
      return Status::Corruption("a descriptor of the process names no socket");
  std::set<uint32_t> elsewhere;  // the other end is in another process of the job
  for (const SocketPeer& peer : out->peers) {
    if (peer.socket >= out->sockets.size())
      return Status::Corruption("the other end of a socket belongs to none");
    elsewhere.insert(peer.socket);
  }
  for (const Image::Socket& entry : out->sockets) {
    const Socket& s = entry.head;
    const bool two_way = s.flags & kSocketTwoWay;
    if ((s.state == kSocketPair && !elsewhere.count(s.index) &&
         (s.peer >= out->sockets.size() ||
          (two_way && (out->sockets[s.peer].head.state != kSocketPair ||
                       out->sockets[s.peer].head.peer != s.index)))) ||
        s.accepted >= static_cast<int64_t>(out->sockets.size()) ||
        (s.state == kSocketWaiting &&
         (s.accepted < 0 ||
          out->sockets[static_cast<size_t>(s.accepted)].head.state != kSocketListening)))
      return Status::Corruption("a socket of the process names no other end");
  }
  for (const auto& [f, program] : out->filters)
    if (f.socket >= out->sockets.size())
      return Status::Corruption("a packet filter of the process names no socket");
  for (const Image::Message& m : out->messages)
    if (m.socket >= out->sockets.size())
      return Status::Corruption("a message of the process names no socket");
  out->blob = std::move(blob);
  return Status::Ok();
}

}  // namespace gpuckpt::restore
