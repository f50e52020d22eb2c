#include "snapshot/io/embedded_files.h"

#include <fcntl.h>

#include "base/address.h"
#include "base/files/file_time.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/wire.h"

namespace gpuckpt {
namespace {

constexpr size_t kPieces = 66000, kPathBytes = 16 << 20, kAtOnce = 16 * kPage;

}  // namespace

EmbeddedFiles::Piece* EmbeddedFiles::pieces() const {
  return reinterpret_cast<Piece*>(memory_.data() + kAtOnce);
}

bool EmbeddedFiles::start() {
  memory_ = scratch_map(kAtOnce + kPieces * sizeof(Piece));
  paths_ = scratch_map(kPathBytes);
  count_ = path_bytes_ = 0;
  return memory_ && paths_;
}

void EmbeddedFiles::finish() {
  scratch_unmap(&memory_);
  scratch_unmap(&paths_);
}

bool EmbeddedFiles::note(int index, const char* path, const struct stat& st, uint64_t offset,
                         uint64_t bytes) {
  const size_t room = length(path) + 1;
  if (count_ == kPieces || kPathBytes - path_bytes_ < room) return false;
  // Sorted by file and offset. (Mappings of one file mostly come one after the other.)
  size_t i = count_++;
  Piece* p = pieces();
  for (; i && (p[i - 1].index > index || (p[i - 1].index == index && p[i - 1].offset > offset));
       --i)
    p[i] = p[i - 1];
  p[i] = {index,     static_cast<uint32_t>(path_bytes_), offset,      page_up(offset + bytes),
          st.st_ino, static_cast<uint64_t>(st.st_size),  mtime_of(st)};
  if (i && p[i - 1].index == index) {
    p[i].path = p[i - 1].path;
  } else {
    copy(paths_.data() + path_bytes_, room, path);
    path_bytes_ += room;
  }
  return true;
}

bool EmbeddedFiles::send(Producer* out, const Piece& p, int fd) {
  char* buffer = memory_.data();
  const uint64_t end = p.end < page_up(p.size) ? p.end : page_up(p.size);
  for (uint64_t at = p.offset; at < end;) {
    uint64_t wanted = end - at < kAtOnce ? end - at : kAtOnce, got = 0;
    for (long n = 1; got < wanted && n > 0; got += n > 0 ? static_cast<uint64_t>(n) : 0)
      n = sys::pread(fd, buffer + got, wanted - got, at + got);
    if (at + got < p.size && got < wanted) return false;
    __builtin_memset(buffer + got, 0, wanted - got);
    if (!out->add(wire::kSpaceFileBase + static_cast<uint64_t>(p.index), at, buffer, wanted))
      return false;
    at += wanted;
  }
  return true;
}

bool EmbeddedFiles::send(Producer* out, char* text, size_t room) {
  uint64_t done = 0;  // of the file of the piece before
  for (size_t i = 0; i < count_; ++i) {
    Piece p = pieces()[i];
    if (i && pieces()[i - 1].index == p.index) {
      if (p.offset < done) p.offset = done;  // mapped more than once
    } else {
      done = 0;
    }
    if (p.end > done) done = p.end;
    if (p.offset >= p.end) continue;
    const char* path = paths_.data() + p.path;
    const int fd = sys::open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    auto same = [&] {
      return !sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st))) && st.st_ino == p.ino &&
             static_cast<uint64_t>(st.st_size) == p.size && mtime_of(st) == p.mtime_ns;
    };
    const bool ok = fd >= 0 && same() && send(out, p, fd) && same();
    if (fd >= 0) sys::close(fd);
    if (ok) continue;
    if (!out->failed)
      format(text, room, "%s, which is mapped by the program, changed or went while it was stored",
             path);
    return false;
  }
  return true;
}

}  // namespace gpuckpt
