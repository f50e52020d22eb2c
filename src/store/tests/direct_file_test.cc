// Files that are written past the page cache: what is read back is what was written, whatever the
// sizes, and a disk that refuses in the middle is heard of.
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <initializer_list>
#include <thread>

#include "store/io/env.h"
#include "testing.h"

using namespace gpuckpt;
using namespace gpuckpt::store;

namespace {

constexpr size_t kMiB = 1 << 20;

// On a disk: a file system in memory has nothing to go past.
struct Directory {
  std::string path = "/tmp/gpuckpt-direct-test.XXXXXX";
  Directory() {
    if (!mkdtemp(path.data())) abort();
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string file() const { return path + "/file"; }
};

std::vector<uint8_t> contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int write_in_pieces(File& file, std::span<const uint8_t> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < bytes.size();) {
    std::span<const uint8_t> parts[3];
    for (auto& part : parts) {
      part = bytes.subspan(at, std::min(bytes.size() - at, random() % (kMiB / 2)));
      at += part.size();
    }
    if (int e = file.append(parts)) return e;
  }
  return 0;
}

bool has_direct_io(const std::string& path) {
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
  if (fd >= 0) close(fd);
  unlink(path.c_str());
  return fd >= 0;
}

// Pages of the file that are in memory.
size_t resident(const std::string& path, size_t bytes) {
  int fd = open(path.c_str(), O_RDONLY);
  REQUIRE(fd >= 0);
  void* at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  REQUIRE(at != MAP_FAILED);
  std::vector<unsigned char> there((bytes + 4095) / 4096);
  CHECK(mincore(at, bytes, there.data()) == 0);
  munmap(at, bytes);
  size_t count = 0;
  for (unsigned char page : there) count += page & 1;
  return count;
}

}  // namespace

TEST_CASE("files of every size hold what was written past the cache") {
  Directory disk;
  TemporaryDirectory memory;
  for (const std::string& path : {disk.file(), memory.path() + "/file"})
    for (uint64_t cached : {uint64_t{0}, uint64_t{3 * kMiB / 2}})
      for (size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, kMiB - 1, kMiB, kMiB + 1, 4 * kMiB,
                           9 * kMiB + 12345}) {
        const std::vector<uint8_t> expected = some_bytes(bytes, bytes);
        std::unique_ptr<File> file;
        REQUIRE(posix_env()->create_uncached(path, cached, &file) == 0);
        REQUIRE(write_in_pieces(*file, expected, bytes) == 0);
        uint64_t size;
        CHECK(file->size(&size) == 0);
        CHECK(size == bytes);
        REQUIRE(file->sync() == 0);
        file->drop_cache(cached);
        file.reset();
        CHECK(contents(path) == expected);
        struct stat st;
        REQUIRE(stat(path.c_str(), &st) == 0);
        CHECK((st.st_mode & 0777) == 0600);
        std::unique_ptr<File> again;
        CHECK(posix_env()->create_uncached(path, cached, &again) == EEXIST);
        REQUIRE(unlink(path.c_str()) == 0);
      }
}

TEST_CASE("a file can be read and synced before it is at its end") {
  Directory disk;
  const std::vector<uint8_t> all = some_bytes(5, 7 * kMiB + 77);
  std::unique_ptr<File> file;
  REQUIRE(posix_env()->create_uncached(disk.file(), 0, &file) == 0);
  std::vector<uint8_t> some(3000);
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.size(), at + 2 * kMiB + 1001);
    REQUIRE(write_in_pieces(*file, std::span(all).subspan(at, end - at), at) == 0);
    REQUIRE(file->pread(end - some.size(), some) == 0);
    CHECK(std::equal(some.begin(), some.end(), all.begin() + static_cast<long>(end - some.size())));
    CHECK(file->pread(end - 10, some) == ENODATA);
    REQUIRE(file->sync() == 0);
    at = end;
  }
  file.reset();
  CHECK(contents(disk.file()) == all);
}

TEST_CASE("what goes past the page cache is not in it") {
  Directory disk;
  if (!has_direct_io(disk.file())) return;
  const size_t bytes = 16 * kMiB;
  std::unique_ptr<File> file;
  REQUIRE(posix_env()->create_uncached(disk.file(), 4 * kMiB, &file) == 0);
  REQUIRE(write_in_pieces(*file, some_bytes(1, bytes), 1) == 0);
  REQUIRE(file->sync() == 0);
  const size_t there = resident(disk.file(), bytes);
  file->drop_cache(0);
  if (resident(disk.file(), bytes) != 0) return;  // a file system in memory
  CHECK(there <= 4 * kMiB / 4096);
}

TEST_CASE("a write that fails behind one's back is told") {
  // A limit of the file's size, in a process of its own; without a thread as well.
  for (bool thread : {true, false}) {
    const pid_t pid = fork();
    if (pid == 0) {
      signal(SIGXFSZ, SIG_IGN);
      Directory disk;
      std::unique_ptr<File> file;
      int e = posix_env()->create_uncached(disk.file(), 0, &file);
      const rlimit most{3 * kMiB, 3 * kMiB}, none{1, 1};
      setrlimit(RLIMIT_FSIZE, &most);
      if (!thread) setrlimit(RLIMIT_NPROC, &none);
      const std::vector<uint8_t> bytes(10 * kMiB, 7);
      if (!e) e = write_in_pieces(*file, bytes, 1);
      const int at_sync = e ? EFBIG : file->sync();
      file.reset();
      _exit((e == 0 || e == EFBIG) && at_sync == EFBIG ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
  }
}

namespace {

std::vector<int> priorities_of_threads() {
  std::vector<int> out;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    out.push_back(getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoi(task.path().filename()))));
  return out;
}

}  // namespace

TEST_CASE("a caller does not wait for a thread of a lower priority than its own") {
  Directory disk;
  if (!has_direct_io(disk.file())) return;
  constexpr int kLow = 7;
  std::unique_ptr<File> file;
  REQUIRE(posix_env()->create_uncached(disk.file(), 0, &file) == 0);
  const std::vector<uint8_t> bytes = some_bytes(5, 9 * kMiB);
  const auto all = std::span<const uint8_t>(bytes);
  std::thread([&] {
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kLow);
    CHECK(write_in_pieces(*file, all.first(3 * kMiB + 5), 1) == 0);
  }).join();
  const int own = getpriority(PRIO_PROCESS, 0);
  const auto is_low = [&](int nice) { return nice > own; };
  auto seen = priorities_of_threads();
  CHECK(std::count_if(seen.begin(), seen.end(), is_low) == 1);
  CHECK(write_in_pieces(*file, all.subspan(3 * kMiB + 5), 2) == 0);
  seen = priorities_of_threads();
  CHECK(std::none_of(seen.begin(), seen.end(), is_low));
  REQUIRE(file->sync() == 0);
  file.reset();
  CHECK(contents(disk.file()) == bytes);
}
