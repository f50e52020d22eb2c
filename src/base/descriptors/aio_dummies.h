// Kernel AIO (io_setup). Its ring of completions is memory that the program reads and writes; where
// the next completion goes to, and how many requests there is room for, the kernel keeps to itself.
// What cannot be asked for or set is found out, and brought about, by requests of our own that
// complete when we want. Facts: fs/aio.c of Linux.
//
// Owner: the caller, of the context's ring as well. Threads: one at a time. Errors: false, or fewer
// requests than were asked for.
#pragma once

#include <linux/aio_abi.h>

#include <atomic>
#include <cstdint>

namespace gpuckpt {

struct AioRing {
  static constexpr uint32_t kMagic = 0xa10a10a1;
  uint32_t id;  // the kernel finds the context by it
  uint32_t nr;  // events there is room for; one less can be waiting or on their way
  std::atomic<uint32_t> head, tail;
  uint32_t magic, compat, incompat, header_bytes;
  io_event event[];
  static constexpr uint64_t kHeader = 32;

  bool sane(uint64_t bytes) const {
    return magic == kMagic && nr && kHeader + nr * sizeof(io_event) <= bytes && head < nr &&
           tail < nr;
  }
  uint32_t next(uint32_t at) const { return at + 1 == nr ? 0 : at + 1; }
  uint32_t unread() const { return (tail + nr - head) % nr; }
};

// Requests of ours in one context. Raw system calls only; the calling thread must share the
// context's memory. Not for two threads at once.
class AioDummies {
 public:
  explicit AioDummies(AioRing* ring) : ring_(ring) {}
  ~AioDummies();
  bool open();

  // Submits up to `n` that complete at once. Returns how many there was room for.
  uint32_t complete(uint32_t n);
  // Submits as many as there is room for, which then wait until let_go().
  uint32_t hold_all();
  void let_go();
  bool is_ours(const io_event& e) const { return e.obj == reinterpret_cast<uint64_t>(&request_); }

 private:
  uint32_t submit(uint32_t n, uint16_t poll_for);
  uint32_t submit_anywhere(uint32_t n, uint16_t poll_for);
  AioRing* ring_;
  int fd_ = -1;
  iocb request_{};
};

}  // namespace gpuckpt
