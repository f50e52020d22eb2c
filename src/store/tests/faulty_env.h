// An Env over the real one that counts calls and fails them as told.
//
// Owner: the test. Threads: any, once it is set up. Errors: those that the test asked for, or the
// real ones.
#pragma once

#include <errno.h>

#include <atomic>
#include <functional>

#include "store/io/env.h"

namespace gpuckpt::store {

enum class Call {
  kOpen,
  kCreate,
  kAppend,
  kRead,
  kSize,
  kSync,
  kMkdir,
  kRename,
  kRemove,
  kList,
  kInfo,
  kSyncDirectory,
  kOther
};

class FaultyEnv : public Env {
 public:
  // Called before every call; a non-zero answer is its errno.
  std::function<int(Call, const std::string& path)> before = [](Call, const std::string&) {
    return 0;
  };
  // The next append writes this share of its bytes before it fails (torn write).
  double torn = 0.5;
  int64_t clock_ns = 0;   // 0: the real clock
  uint64_t free = ~0ull;  // what free_bytes says
  int dropped = 0;        // files that need not stay in the page cache

  class FaultyFile : public File {
   public:
    FaultyFile(FaultyEnv* env, std::string path, std::unique_ptr<File> file)
        : env_(env), path_(std::move(path)), file_(std::move(file)) {}
    int append(std::span<const std::span<const uint8_t>> parts) override {
      int error = env_->before(Call::kAppend, path_);
      if (!error) return file_->append(parts);
      for (const auto& part : parts) {
        std::span<const uint8_t> some[] = {
            part.first(static_cast<size_t>(static_cast<double>(part.size()) * env_->torn))};
        (void)file_->append(some);
      }
      return error;
    }
    int pread(uint64_t offset, std::span<uint8_t> out) override {
      if (int e = env_->before(Call::kRead, path_)) return e;
      return file_->pread(offset, out);
    }
    int size(uint64_t* out) override {
      if (int e = env_->before(Call::kSize, path_)) return e;
      return file_->size(out);
    }
    int sync() override {
      if (int e = env_->before(Call::kSync, path_)) return e;
      return file_->sync();
    }
    void start_writeback(uint64_t, uint64_t) override {}
    void drop_cache(uint64_t) override { ++env_->dropped; }

   private:
    FaultyEnv* env_;
    std::string path_;
    std::unique_ptr<File> file_;
  };

  int open_read(const std::string& path, std::unique_ptr<File>* out) override {
    if (int e = before(Call::kOpen, path)) return e;
    return wrap(path, real_->open_read(path, out), out);
  }
  int create(const std::string& path, std::unique_ptr<File>* out) override {
    if (int e = before(Call::kCreate, path)) return e;
    return wrap(path, real_->create(path, out), out);
  }
  int mkdir(const std::string& path) override {
    if (int e = before(Call::kMkdir, path)) return e;
    return real_->mkdir(path);
  }
  int rename(const std::string& from, const std::string& to) override {
    if (int e = before(Call::kRename, from)) return e;
    return real_->rename(from, to);
  }
  int remove(const std::string& path) override {
    if (int e = before(Call::kRemove, path)) return e;
    return real_->remove(path);
  }
  int list(const std::string& directory, std::vector<std::string>* names) override {
    if (int e = before(Call::kList, directory)) return e;
    return real_->list(directory, names);
  }
  int info(const std::string& path, FileInfo* out) override {
    if (int e = before(Call::kInfo, path)) return e;
    return real_->info(path, out);
  }
  int info_followed(const std::string& path, FileInfo* out) override {
    if (int e = before(Call::kInfo, path)) return e;
    return real_->info_followed(path, out);
  }
  int sync_directory(const std::string& directory) override {
    if (int e = before(Call::kSyncDirectory, directory)) return e;
    return real_->sync_directory(directory);
  }
  int touch(const std::string& path) override { return real_->touch(path); }
  int free_bytes(const std::string& path, uint64_t* out) override {
    *out = free;
    return free == ~0ull ? real_->free_bytes(path, out) : 0;
  }
  int64_t now_ns() override { return clock_ns ? clock_ns : real_->now_ns(); }

  void random(void* out, size_t length) override { real_->random(out, length); }

 private:
  int wrap(const std::string& path, int error, std::unique_ptr<File>* file) {
    if (!error) *file = std::make_unique<FaultyFile>(this, path, std::move(*file));
    return error;
  }
  Env* real_ = posix_env();
};

}  // namespace gpuckpt::store
