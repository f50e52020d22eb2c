#include "store/io/direct_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace gpuckpt::store {
namespace {

// Offsets, lengths and addresses of writes are multiples of this, which is aligned for any disk.
constexpr size_t kBufferBytes = 1 << 20;
// One buffer is filled while the others are written.
constexpr uint64_t kBuffers = 4;

class DirectFile : public File {
 public:
  DirectFile(std::unique_ptr<File> file, int fd, uint8_t* memory, uint64_t cached)
      : file_(std::move(file)), fd_(fd), memory_(memory), cached_(cached / kBufferBytes) {}
  ~DirectFile() override {
    {
      std::lock_guard guard(mutex_);
      end_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    ::munmap(memory_, kBuffers * kBufferBytes);
  }

  int append(std::span<const std::span<const uint8_t>> parts) override {
    for (std::span<const uint8_t> part : parts)
      while (!part.empty()) {
        const size_t n = std::min(part.size(), kBufferBytes - used_);
        memcpy(buffer(filled_) + used_, part.data(), n);
        part = part.subspan(n);
        used_ += n;
        if (used_ < kBufferBytes) continue;
        if (int e = submit()) return e;
      }
    return 0;
  }

  int pread(uint64_t offset, std::span<uint8_t> out) override {
    if (int e = write_tail()) return e;
    return file_->pread(offset, out);
  }

  int size(uint64_t* out) override {
    *out = filled_ * kBufferBytes + used_;
    return 0;
  }

  int sync() override {
    if (int e = write_tail()) return e;
    return file_->sync();
  }

  void start_writeback(uint64_t offset, uint64_t length) override {
    if (offset < cached_ * kBufferBytes) file_->start_writeback(offset, length);
  }
  void drop_cache(uint64_t from) override { file_->drop_cache(from); }

 private:
  uint8_t* buffer(uint64_t number) { return memory_ + number % kBuffers * kBufferBytes; }

  // Submits the full buffer, and waits until the next one is free.
  int submit() {
    used_ = 0;
    std::unique_lock lock(mutex_);
    start_thread(lock);
    ++filled_;
    if (alone_) {
      for (; written_ < filled_; ++written_)
        if (!error_) error_ = write(written_, kBufferBytes);
      return error_;
    }
    changed_.notify_all();
    changed_.wait(lock, [this] { return filled_ - written_ < kBuffers; });
    return error_;
  }

  // A thread has the priority (nice) of the one that starts it. The one that writes for a caller of
  // a higher priority is replaced, or the caller would wait for the low one.
  void start_thread(std::unique_lock<std::mutex>& lock) {
    if (alone_) return;
    const int nice = getpriority(PRIO_PROCESS, 0);
    if (thread_.joinable()) {
      if (nice >= nice_) return;
      leave_ = true;
      changed_.notify_all();
      lock.unlock();
      thread_.join();
      lock.lock();
      leave_ = false;
    }
    nice_ = nice;
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      alone_ = true;
    }
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return end_ || leave_ || written_ < filled_; });
      if (written_ == filled_ || end_ || leave_) return;
      if (!error_) {
        const uint64_t number = written_;
        lock.unlock();
        const int e = write(number, kBufferBytes);
        lock.lock();
        error_ = e;
      }
      ++written_;
      changed_.notify_all();
    }
  }

  int write(uint64_t number, size_t length) {
    const uint8_t* from = buffer(number);
    if (number >= cached_ && !past_) {
      past_ = true;
      (void)set_direct(true);
    }
    for (size_t done = 0; done < length;) {
      const ssize_t n = ::pwrite(fd_, from + done, length - done,
                                 static_cast<off_t>(number * kBufferBytes + done));
      if (n > 0) done += static_cast<size_t>(n);
      if (n == 0) return ENOSPC;
      if (n > 0 || errno == EINTR) continue;
      // The disk needs a larger alignment, or the rest of a short write is not aligned.
      if (errno != EINVAL || !set_direct(false)) return errno;
    }
    return 0;
  }

  // Returns false if the flag is set so already or cannot be set.
  bool set_direct(bool on) {
    const int flags = ::fcntl(fd_, F_GETFL);
    return flags >= 0 && !(flags & O_DIRECT) == on &&
           ::fcntl(fd_, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
  }

  // Writes what is left. The last bytes fill no page, and go through the page cache.
  int write_tail() {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return written_ == filled_; });
      if (error_) return error_;
    }
    if (!used_) return 0;
    past_ = true;
    (void)set_direct(false);
    return write(filled_, used_);
  }

  const std::unique_ptr<File> file_;  // the same file, through the page cache
  const int fd_;                      // its descriptor
  uint8_t* const memory_;
  const uint64_t cached_;  // buffers
  bool past_ = false;      // beyond them
  size_t used_ = 0;        // of the buffer that is being filled
  bool alone_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t filled_ = 0, written_ = 0;  // buffers
  int error_ = 0;
  bool end_ = false, leave_ = false;
  int nice_ = 0;  // the thread's
  std::thread thread_;
};

}  // namespace

std::unique_ptr<File> write_past_cache(std::unique_ptr<File> file, int fd, uint64_t cached) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_DIRECT) != 0 || ::fcntl(fd, F_SETFL, flags) != 0)
    return file;
  void* memory = ::mmap(nullptr, kBuffers * kBufferBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return file;
  return std::make_unique<DirectFile>(std::move(file), fd, static_cast<uint8_t*>(memory), cached);
}

}  // namespace gpuckpt::store
