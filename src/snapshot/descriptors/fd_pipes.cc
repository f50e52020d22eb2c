// Pipes and named pipes with their contents, which tee(2) copies without consuming them.

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/control/inherited.h"
#include "snapshot/descriptors/descriptors.h"
#include "snapshot/job/barrier.h"

namespace gpuckpt {

using namespace process;

namespace {

constexpr uint64_t kMostContents = 4 << 20;
constexpr uint32_t kMostPackets = 4096;

// Copies the unread bytes of a pipe, and the lengths of its packets to `lengths`, which is null for
// a pipe without packets. Returns false if the snapshot is refused.
bool copy_contents(FdTable* t, int reader, uint32_t* lengths, Pipe* out, char* contents) {
  int queued = 0;
  sys::call(SYS_ioctl, reader, FIONREAD, sys::ptr(&queued));
  if (queued <= 0) return true;
  if (queued > static_cast<int>(kMostContents))
    return t->c->refuse("the pipe behind descriptor %d holds %d bytes, more than can be kept",
                        reader, queued);
  int pair[2];
  if (sys::failed(sys::call(SYS_pipe2, sys::ptr(pair), O_CLOEXEC | O_NONBLOCK)))
    return t->c->refuse("no descriptor left to save a pipe's contents");
  sys::call(SYS_fcntl, pair[1], 1031 /* F_SETPIPE_SZ */, out->capacity);
  long copied = sys::call(SYS_tee, reader, pair[1], queued, 2 /* SPLICE_F_NONBLOCK */);
  // Without the same capacity the copy may have room for a part only.
  while (out->bytes < static_cast<uint64_t>(queued) && out->packets < kMostPackets && copied > 0) {
    long n = sys::read(pair[0], contents + out->bytes, static_cast<size_t>(queued) - out->bytes);
    if (n <= 0) break;
    out->bytes += static_cast<uint64_t>(n);
    if (lengths) lengths[out->packets++] = static_cast<uint32_t>(n);
  }
  sys::close(pair[0]);
  sys::close(pair[1]);
  return out->bytes == static_cast<uint64_t>(queued) ||
         t->c->refuse("the contents of the pipe behind descriptor %d cannot be read", reader);
}

// Does any process have the other end open?
bool other_end(int fd) {
  pollfd p{fd, 0, 0};
  sys::Timespec none{0, 0};
  long r = sys::call(SYS_ppoll, sys::ptr(&p), 1, sys::ptr(&none), 0, 8);
  return r == 0 || !(p.revents & (POLLHUP | POLLERR));
}

// The standard three are the launcher's to give, also through other numbers.
bool is_stdio(FdTable* t, uint64_t ino) {
  for (size_t i = 0; i < t->count; ++i)
    if (t->all[i].fd <= 2 && t->all[i].kind == kFdPipe && t->all[i].ino == ino) return true;
  return false;
}

bool put_pipe(FdTable* t, uint32_t i, char* contents) {
  auto& p = t->pipe[i];
  int any = p.reader >= 0 ? p.reader : p.writer;
  Pipe out;
  __builtin_memset(&out, 0, sizeof(out));
  out.index = i;
  out.ino = p.ino;
  long capacity = sys::call(SYS_fcntl, any, 1032 /* F_GETPIPE_SZ */);
  out.capacity = capacity > 0 ? static_cast<uint32_t>(capacity) : 65536;
  out.ends = (p.reader >= 0 ? kPipeHasReader : 0u) | (p.writer >= 0 ? kPipeHasWriter : 0u);
  const bool outside = (p.reader < 0 || p.writer < 0) && other_end(any);
  const int standard = inherited_standard(p.ino);
  const bool stdio = outside && (is_stdio(t, p.ino) || standard >= 0);
  if (stdio) out.ends |= kPipeOutside | static_cast<uint32_t>(standard + 1) << kPipeStandardShift;
  const bool closes = outside && !p.named && !stdio && !t->drop_outside;
  const bool refused = closes && !inherited(p.ino), warned = closes && !refused;
  if (warned && !job_barrier.active()) warn_of_inherited(any, "pipe", sys::getpid(), 0);
  if (!note_end(t, any, out.ends & 3, p.ino, 0, refused, warned) && refused)
    return t->c->code == 0 &&
           t->c->refuse(
               "descriptor %d is a pipe to another process, which is not part of the snapshot; "
               "close it, let that process end first, or set GPUCKPT_SOCKETS=drop: then a restore "
               "finds it closed at the other end",
               any);
  // Whose other end is another process of the job must come back with what is in it.
  if (stdio && !job_barrier.active()) {
    t->r->put(kRecPipe, out);
    return true;
  }
  bool packets = false;
  for (size_t k = 0; k < t->count; ++k)
    packets |= t->all[k].kind == kFdPipe && t->all[k].object == static_cast<int>(i) &&
               (t->all[k].flags & O_DIRECT);
  uint32_t lengths[kMostPackets];
  if (p.reader >= 0 && !copy_contents(t, p.reader, packets ? lengths : nullptr, &out, contents))
    return false;
  t->r->begin(kRecPipe);
  t->r->add(&out, sizeof(out));
  t->r->add(lengths, out.packets * sizeof(lengths[0]));
  t->r->add(contents, out.bytes);
  t->r->end();
  return true;
}

}  // namespace

bool capture_pipe(FdTable* t, Descriptor* d, const FdFacts& f) {
  bool named = !starts_with(f.path, "pipe:");
  d->kind = named ? kFdFifo : kFdPipe;
  d->value[0] = named && f.deleted;
  size_t i = 0;
  while (i < t->pipes && (t->pipe[i].ino != d->ino || t->pipe[i].named != named)) ++i;
  if (i == t->pipes) {
    if (i == FdTable::kMostPipes) return t->c->refuse("more than %lu pipes are open", i);
    t->pipe[t->pipes++] = {d->ino, -1, -1, named};
  }
  d->object = static_cast<int>(i);
  uint32_t mode = d->flags & O_ACCMODE;
  if (mode != O_WRONLY) t->pipe[i].reader = d->fd;
  if (mode != O_RDONLY) t->pipe[i].writer = d->fd;
  return true;
}

bool put_pipes(FdTable* t) {
  if (!t->pipes) return true;
  Region room = scratch_map(kMostContents);
  if (!room) return t->c->refuse("no memory for the contents of pipes");
  bool ok = true;
  for (uint32_t i = 0; ok && i < t->pipes; ++i) ok = put_pipe(t, i, room.data());
  scratch_unmap(&room);
  return ok;
}

}  // namespace gpuckpt
