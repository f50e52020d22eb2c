#include "restore/image/image.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <type_traits>
#include <utility>

namespace gpuckpt::restore {

using namespace process;
using store::Status;

namespace {

// Reads a record's payload. A record that is too short for its struct is damaged.
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
  std::vector<uint8_t> padded_bytes(uint32_t n) {  // to a multiple of 8
    std::vector<uint8_t> out = bytes((uint64_t{n} + 7) & ~7ull);
    out.resize(ok ? n : 0);
    return out;
  }
  template <typename T>
  std::vector<T> list(uint32_t count) {
    std::vector<T> out;
    for (uint32_t i = 0; i < count && ok; ++i) out.push_back(take<T>());
    return out;
  }
};

// Whether the path has the form in which the kernel shows it: from the root, without "..".
bool plain_path(const std::string& path) {
  return path.starts_with("/") && (path + "/").find("/../") == std::string::npos &&
         (path + "/").find("/./") == std::string::npos;
}

FileKey key_of(const FileId& file) { return {file.dev, file.ino}; }

void read_vdso(const RecordHead&, Payload& p, Image* out) {
  out->vdso = p.take<Vdso>();
  out->vdso_bytes = p.rest();
  if (out->vdso_bytes.size() < out->vdso.vdso_end - out->vdso.vdso_start) p.ok = false;
}

void read_vma(const RecordHead&, Payload& p, Image* out) {
  auto v = p.take<Vma>();
  if (v.start >= v.end || v.end > 1ull << 47 || (v.start | v.end) & 4095) p.ok = false;
  out->vmas.emplace_back(v, p.text());
}

void read_fd(const RecordHead&, Payload& p, Image* out) {
  auto v = p.take<Descriptor>();
  if (v.fd < 0 || v.fd > 1 << 24) p.ok = false;
  out->fds.emplace_back(v, p.text());
}

void read_socket(const RecordHead& h, Payload& p, Image* out) {
  auto v = p.take<Socket>();
  if (v.index != out->sockets.size() || v.name_bytes > sizeof(v.name) ||
      v.peer_name_bytes > sizeof(v.peer_name))
    p.ok = false;
  Image::Socket& socket = out->sockets.emplace_back();
  socket.head = v;
  for (uint32_t i = 0; i < h.count && p.ok; ++i) {
    const auto o = p.take<SocketOption>();
    socket.options.push_back({o.level, o.name, p.padded_bytes(o.bytes)});
  }
}

void read_socket_place(const RecordHead&, Payload& p, Image* out) {
  const auto place = p.take<SocketPlace>();
  const std::string path = p.text();
  if (place.socket >= out->sockets.size() || path.size() >= sizeof(sockaddr_un::sun_path)) {
    p.ok = false;
    return;
  }
  out->sockets[place.socket].moved_to = path;
}

void read_group(const RecordHead& h, Payload& p, Image* out) {
  Image::GroupMembership g{p.take<GroupMembership>(), {}};
  for (uint32_t i = 0; i < h.count && p.ok; ++i) g.sources.push_back(p.bytes(16));
  if (g.head.socket >= out->sockets.size() || g.head.bytes > sizeof(g.head.address)) {
    p.ok = false;
    return;
  }
  out->sockets[g.head.socket].groups.push_back(std::move(g));
}

void read_filter(const RecordHead& h, Payload& p, Image* out) {
  auto v = p.take<SocketFilter>();
  out->filters.emplace_back(v, p.rest());
  if (p.left != h.count * 8ull) p.ok = false;
}

void read_message(const RecordHead&, Payload& p, Image* out) {
  auto v = p.take<Message>();
  Image::Message m{v.socket, p.list<int32_t>(v.descriptions), {}, {}, {}, v.flags, v.pid, v.uid,
                   v.gid};
  m.sender = p.bytes(v.name_bytes);
  m.to = p.bytes(v.to_bytes);
  m.bytes = p.rest();
  if (m.bytes.size() != v.bytes) p.ok = false;
  out->messages.push_back(std::move(m));
}

void read_queue(const RecordHead& h, Payload& p, Image* out) {
  auto& [queue, messages] = out->queues.emplace_back(p.take<Queue>(), 0);
  for (uint32_t i = 0; i < h.count && p.ok; ++i) {
    auto m = p.take<QueueMessage>();
    messages.push_back({m.priority, p.bytes(m.bytes)});
  }
}

void read_semaphores(const RecordHead&, Payload& p, Image* out) {
  const auto set = p.take<SemaphoreSet>();
  out->semaphores.emplace_back(set, p.list<uint16_t>(set.count));
  p.list<int16_t>(set.count);  // for the entry
}

void read_message_queue(const RecordHead& h, Payload& p, Image* out) {
  auto& [queue, messages] = out->message_queues.emplace_back(p.take<MessageQueue>(), 0);
  for (uint32_t i = 0; i < h.count && p.ok; ++i) {
    const auto m = p.take<TypedMessage>();
    messages.push_back({m.type, p.padded_bytes(m.bytes)});
  }
}

void read_terminal(const RecordHead&, Payload& p, Image* out) {
  Image::Terminal v{p.take<Terminal>(), {}, {}};
  std::vector<uint8_t> bytes = p.rest();
  if (bytes.size() != uint64_t{v.head.input_bytes} + v.head.output_bytes ||
      v.head.settings_bytes > sizeof(v.head.settings)) {
    p.ok = false;
    return;
  }
  v.input.assign(bytes.begin(), bytes.begin() + v.head.input_bytes);
  v.output.assign(bytes.begin() + v.head.input_bytes, bytes.end());
  out->terminals.push_back(std::move(v));
}

void read_thread_groups(const RecordHead& h, Payload& p, Image* out) {
  out->has_thread_groups = true;
  if (h.bytes != sizeof(ThreadGroups) + h.count * 4ull) p.ok = false;
}

void read_thread_folder(const RecordHead&, Payload& p, Image*) {
  p.take<ThreadFolder>();
  if (!plain_path(p.text()) || p.text().size() == p.left) p.ok = false;
}

void read_epoll(const RecordHead& h, Payload& p, Image* out) {
  auto v = p.take<Epoll>();
  out->epolls.emplace_back(v, p.list<EpollEntry>(h.count));
}

void read_cwd_gone(const RecordHead&, Payload& p, Image* out) {
  out->cwd_gone = true;
  out->cwd_folder = key_of(p.take<FileId>());
}

void read_attributes(const RecordHead&, Payload& p, Image* out) {
  Attributes a{p.take<FileAttributes>(), {}};
  for (uint32_t i = 0; i < a.head.extended && p.ok; ++i) {
    const auto e = p.take<ExtendedAttribute>();
    const std::vector<uint8_t> name = p.bytes(e.name_bytes);
    a.extended.emplace_back(std::string(name.begin(), name.end()), p.bytes(e.value_bytes));
  }
  out->attributes.emplace(key_of(a.head.file), std::move(a));
}

void read_aio(const RecordHead& h, Payload& p, Image*) {
  auto v = p.take<Aio>();
  if (v.unread != h.count || p.left != uint64_t{h.count} * 32 || v.nr < 4 || v.head >= v.nr ||
      v.unread >= v.nr || v.start >= v.end)
    p.ok = false;
}

template <auto kMember>
using TypeOf = std::remove_reference_t<decltype(std::declval<Image>().*kMember)>;

template <auto kMember>
void take_into(const RecordHead&, Payload& p, Image* out) {
  out->*kMember = p.take<TypeOf<kMember>>();
}
template <auto kMember>
void append(const RecordHead&, Payload& p, Image* out) {
  (out->*kMember).push_back(p.take<typename TypeOf<kMember>::value_type>());
}
// Reads a structure and the text or bytes behind it.
template <auto kMember>
void append_with_text(const RecordHead&, Payload& p, Image* out) {
  auto head = p.take<typename TypeOf<kMember>::value_type::first_type>();
  (out->*kMember).emplace_back(head, p.text());
}
template <auto kMember>
void append_with_bytes(const RecordHead&, Payload& p, Image* out) {
  auto head = p.take<typename TypeOf<kMember>::value_type::first_type>();
  (out->*kMember).emplace_back(head, p.rest());
}
template <auto kMember>
void take_text(const RecordHead&, Payload& p, Image* out) {
  out->*kMember = p.text();
}
template <auto kMember>
void note(const RecordHead&, Payload&, Image* out) {
  out->*kMember = true;
}

void read_auxv(const RecordHead&, Payload& p, Image* out) { out->auxv = p.rest(); }
void read_cpu(const RecordHead& h, Payload& p, Image* out) { out->cpu = p.list<Cpuid>(h.count); }
void read_groups(const RecordHead& h, Payload& p, Image* out) {
  out->groups = p.list<uint32_t>(h.count);
}
void read_owner(const RecordHead&, Payload& p, Image*) { p.take<DescriptorOwner>(); }
void read_control_groups(const RecordHead&, Payload& p, Image* out) {
  for (uint8_t c : p.rest()) out->control_groups += static_cast<char>(c);
}
void read_command(const RecordHead&, Payload& p, Image* out) {
  for (uint8_t c : p.rest()) out->command += c ? static_cast<char>(c) : ' ';
}

// How each record is read, except the first and the last one. A reader sets Payload::ok to false
// for contents that are wrong.
constexpr struct {
  uint32_t type;
  void (*read)(const RecordHead&, Payload&, Image*);
} kReaders[] = {
    {kRecMm, take_into<&Image::mm>},
    {kRecAuxv, read_auxv},
    {kRecCpu, read_cpu},
    {kRecVdso, read_vdso},
    {kRecVma, read_vma},
    {kRecFile, append_with_text<&Image::files>},
    {kRecShared, append_with_text<&Image::shared>},
    {kRecThread, append<&Image::threads>},
    {kRecFd, read_fd},
    {kRecPipe, append_with_bytes<&Image::pipes>},
    {kRecSocket, read_socket},
    {kRecSocketPlace, read_socket_place},
    {kRecGroup, read_group},
    {kRecFilter, read_filter},
    {kRecMessage, read_message},
    {kRecQueue, read_queue},
    {kRecSemaphores, read_semaphores},
    {kRecMessageQueue, read_message_queue},
    {kRecWatch, append_with_text<&Image::watches>},
    {kRecLinkTarget, append_with_text<&Image::link_targets>},
    {kRecTerminal, read_terminal},
    {kRecOutsideTerminal, append<&Image::outside_terminals>},
    {kRecStoppedChild, append<&Image::stopped_children>},
    {kRecLeaderless, note<&Image::leaderless>},
    {kRecSharesFolders, note<&Image::shares_folders>},
    {kRecSharesDevice, note<&Image::shares_device>},
    {kRecOwner, read_owner},
    {kRecFileLock, append<&Image::file_locks>},
    {kRecThreadGroups, read_thread_groups},
    {kRecThreadFolder, read_thread_folder},
    {kRecEpoll, read_epoll},
    {kRecCwd, take_text<&Image::cwd>},
    {kRecCwdGone, read_cwd_gone},
    {kRecAttributes, read_attributes},
    {kRecContents, append<&Image::contents>},
    {kRecExe, take_text<&Image::exe>},
    {kRecCommand, read_command},
    {kRecControlGroups, read_control_groups},
    {kRecGroups, read_groups},
    {kRecLocks, take_into<&Image::locks>},
    {kRecSame, append<&Image::same>},
    {kRecPeer, append<&Image::peers>},
    {kRecZombie, append<&Image::zombies>},
    {kRecZombieName, append<&Image::zombie_names>},
    {kRecAio, read_aio},
    {kRecSystemFilters, take_into<&Image::system_filters>},
};

// Records that only the entry reads have the right size: so many bytes, and so many for each of
// RecordHead::count items.
constexpr struct {
  uint32_t type;
  uint64_t bytes, each;
} kReadByTheEntry[] = {
    {kRecThreadPending, sizeof(ThreadPending), 128},
    {kRecSigactions, 64 * sizeof(SignalAction), 0},
    {kRecPending, 0, 128},
    {kRecLimits, 16 * sizeof(Limit), 0},
    {kRecItimers, 3 * sizeof(Itimer), 0},
    {kRecGuards, 0, sizeof(Span)},
    {kRecFutureLocks, sizeof(uint32_t), 0},
    {kRecAutogroup, sizeof(int32_t), 0},
    {kRecTimerIds, 0, 0},
    {kRecPolicy, sizeof(MemoryPolicy), 0},
    {kRecTimer, sizeof(PosixTimer), 0},
    {kRecThreadChoices, sizeof(ThreadChoices), 0},
    {kRecFutexHash, sizeof(uint32_t), 0},
};

Status read_head(Payload p, Image* out) {
  out->head = p.take<Head>();
  if (out->head.magic != kFormatMagic)
    return Status::Corruption("the description of a process has another magic number");
  if (out->head.version != kFormatVersion)
    return Status::Incompatible("the snapshot's process format is version " +
                                std::to_string(out->head.version) +
                                ", this gpuckpt reads version " + std::to_string(kFormatVersion));
  return p.ok ? Status::Ok() : Status::Corruption("the description of the process is cut short");
}

Status read_record(const RecordHead& h, Payload p, Image* out) {
  bool known = false;
  for (const auto& kind : kReadByTheEntry)
    if (kind.type == h.type) known = true, p.ok = h.bytes == kind.bytes + h.count * kind.each;
  for (const auto& reader : kReaders)
    if (reader.type == h.type) known = true, reader.read(h, p, out);
  if (!known)
    return Status::Incompatible(
        "the snapshot describes something this gpuckpt does not know (record type " +
        std::to_string(h.type) + ")");
  return p.ok ? Status::Ok()
              : Status::Corruption("record " + std::to_string(h.type) +
                                   " of the process is damaged");
}

bool names_one_of(int object, size_t count) {
  return object >= 0 && static_cast<size_t>(object) < count;
}

Status check_mappings(const Image& image) {
  for (const auto& [v, path] : image.vmas) {
    const bool file = v.kind == kVmaFile || v.kind == kVmaFileShared;
    if ((file && !names_one_of(v.object, image.files.size())) ||
        (v.kind == kVmaShared && !names_one_of(v.object, image.shared.size())))
      return Status::Corruption("a mapping of the process names no object");
  }
  for (const auto& [o, path] : image.shared)
    if ((o.kind == kSharedShm && !(path.starts_with("/dev/shm/") && plain_path(path))) ||
        (o.kind == kSharedFile && !plain_path(path)))
      return Status::Corruption("a shared object of the process has a path no process has: " +
                                path);
  return Status::Ok();
}

Status check_descriptors(const Image& image) {
  for (const auto& [d, path] : image.fds) {
    if ((d.kind == kFdFile || d.kind == kFdDirectory) && !plain_path(path))
      return Status::Corruption("a file of the process has a path no process has: " + path);
    if (d.kind == kFdSocket && !names_one_of(d.object, image.sockets.size()))
      return Status::Corruption("a descriptor of the process names no socket");
  }
  for (const auto& [p, bytes] : image.pipes)
    if (p.ends >> kPipeStandardShift > 3)
      return Status::Corruption("a pipe of the process is a standard stream that no process has");
  return Status::Ok();
}

// Whether the other end of each socket exists and names it as its other end; `elsewhere`: it is in
// another process of the job.
bool has_its_other_end(const Image& image, const Socket& s, const std::set<uint32_t>& elsewhere) {
  const auto& all = image.sockets;
  if (s.state == kSocketPair && !elsewhere.count(s.index)) {
    if (s.peer >= all.size()) return false;
    const Socket& peer = all[s.peer].head;
    if (s.flags & kSocketTwoWay && (peer.state != kSocketPair || peer.peer != s.index))
      return false;
  }
  if (s.accepted >= static_cast<int64_t>(all.size())) return false;
  return s.state != kSocketWaiting || s.domain != AF_UNIX ||
         (s.accepted >= 0 && all[static_cast<size_t>(s.accepted)].head.state == kSocketListening);
}

Status check_sockets(const Image& image) {
  std::set<uint32_t> elsewhere;
  for (const SocketPeer& peer : image.peers) {
    if (peer.socket >= image.sockets.size())
      return Status::Corruption("the other end of a socket belongs to none");
    elsewhere.insert(peer.socket);
  }
  for (const Image::Socket& s : image.sockets)
    if (!has_its_other_end(image, s.head, elsewhere))
      return Status::Corruption("a socket of the process names no other end");
  for (const auto& [f, program] : image.filters)
    if (f.socket >= image.sockets.size())
      return Status::Corruption("a packet filter of the process names no socket");
  for (const Image::Message& m : image.messages)
    if (m.socket >= image.sockets.size())
      return Status::Corruption("a message of the process names no socket");
  return Status::Ok();
}

}  // namespace

Status parse_image(std::vector<uint8_t> blob, Image* out) {
  bool ended = false;
  for (uint64_t at = 0; at + sizeof(RecordHead) <= blob.size() && !ended;) {
    RecordHead h;
    memcpy(&h, blob.data() + at, sizeof(h));
    const bool first = at == 0;
    at += sizeof(h);
    if (h.bytes > blob.size() - at)
      return Status::Corruption("the description of the process is cut short");
    const Payload payload{blob.data() + at, h.bytes};
    at += (h.bytes + 7) & ~7ull;
    if (first != (h.type == kRecHead))
      return Status::Corruption("the description of the process does not start with its head");
    ended = h.type == kRecEnd;
    if (ended) break;
    if (Status s = first ? read_head(payload, out) : read_record(h, payload, out); !s.ok())
      return s;
  }
  if (!ended) return Status::Corruption("the description of the process has no end");
  if (out->threads.empty()) return Status::Corruption("the snapshot has no threads");
  for (auto* check : {check_mappings, check_descriptors, check_sockets})
    if (Status s = check(*out); !s.ok()) return s;
  out->blob = std::move(blob);
  return Status::Ok();
}

void take_standard_sockets(Image* image) {
  for (Image::Socket& s : image->sockets) {
    if (s.head.state != kSocketStandard) continue;
    auto has_it = [&](const Descriptor& d) {
      return d.kind == kFdSocket && d.object == static_cast<int>(s.head.index);
    };
    int standard = 2;
    for (const auto& [d, path] : image->fds)
      if (has_it(d) && d.fd >= 0) standard = std::min(standard, d.fd);
    for (auto& [d, path] : image->fds) {
      if (!has_it(d)) continue;
      d.kind = kFdInherit;
      d.value[0] = static_cast<uint64_t>(standard);
      d.object = -1;
    }
    // A socket that no process receives.
    s.head.state = kSocketFresh;
    s.head.name_bytes = s.head.peer_name_bytes = s.head.shut_down = s.head.flags = 0;
    s.options.clear(), s.groups.clear();
    auto is_its = [&](uint32_t socket) { return socket == s.head.index; };
    std::erase_if(image->messages, [&](const Image::Message& m) { return is_its(m.socket); });
    std::erase_if(image->filters, [&](const auto& f) { return is_its(f.first.socket); });
  }
}

}  // namespace gpuckpt::restore
