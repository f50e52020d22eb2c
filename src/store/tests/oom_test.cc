// Out of memory anywhere: every allocation that writing, pruning and repairing make fails once,
// also those of libc and of the compressor. What was durable stays, and what failed says so.
//
// store_oom_test [STRIDE]: every STRIDEth allocation (1: each), beginning at another one each time.

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>

#include "store/io/memory.h"
#include "store/store.h"
#include "store/tests/must.h"

extern "C" void* __libc_malloc(size_t);
extern "C" void* __libc_calloc(size_t, size_t);
extern "C" void* __libc_realloc(void*, size_t);

namespace {

// Which allocation of this thread fails; negative: none.
thread_local long until_failure = -1;
thread_local bool failed = false;

bool fails() {
  if (until_failure < 0 || until_failure-- != 0) return false;
  failed = true;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" void* malloc(size_t n) { return fails() ? nullptr : __libc_malloc(n); }
extern "C" void* calloc(size_t n, size_t m) { return fails() ? nullptr : __libc_calloc(n, m); }
extern "C" void* realloc(void* p, size_t n) { return fails() ? nullptr : __libc_realloc(p, n); }

namespace {

using namespace gpuckpt;
using namespace gpuckpt::store;
namespace fs = std::filesystem;

constexpr uint64_t kPage = 4096, kPages = 40;

std::vector<uint8_t> page(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> out(kPage);
  for (uint8_t& b : out) b = static_cast<uint8_t>(random() & 0x3f);
  return out;
}

// Snapshot number n: the pages of the one before, but for a few.
uint64_t seed_of(uint64_t n, uint64_t i) { return i % 4 == n % 4 ? n * 1000 + i : i; }

Status write(Store& store, uint64_t n, std::string* id) {
  std::unique_ptr<SnapshotWriter> writer;
  if (Status s = store.begin({.job = "j"}, &writer); !s.ok()) return s;
  for (uint64_t i = 0; i < kPages; ++i) {
    if (Status s = writer->put(0, i * kPage, page(seed_of(n, i))); !s.ok()) return s;
  }
  std::vector<uint8_t> blob(100, 'b');
  if (Status s = writer->append_blob("process", blob); !s.ok()) return s;
  CommitResult result;
  Status s = writer->commit("{}", &result);
  if (s.ok()) *id = result.id;
  return s;
}

void check(const std::string& path, const std::string& id, uint64_t n, long at) {
  std::unique_ptr<Store> store;
  std::unique_ptr<SnapshotReader> reader;
  Status s = open_reference(path + "@" + id, {}, &store, &reader);
  MUST(s.ok(), "allocation %ld: %s", at, s.text().c_str());
  std::vector<uint8_t> got(kPage);
  for (uint64_t i = 0; i < kPages; ++i) {
    s = reader->read(0, i * kPage, got);
    MUST(s.ok() && got == page(seed_of(n, i)), "allocation %ld: page %lu: %s", at,
         static_cast<unsigned long>(i), s.text().c_str());
  }
  VerifyReport report;
  MUST_OK(store->verify({.full = true, .threads = 1}, &report));
  MUST(report.ok(), "allocation %ld: %s", at,
       report.damaged.empty() ? report.findings[0].c_str() : report.damaged[0].second.c_str());
}

struct Family {
  const char* name;
  std::function<void(const std::string&)> prepare;  // from a copy of the store
  std::function<Status(const std::string&)> work;
};

Status on_store(const std::string& path, const std::function<Status(Store&)>& work) {
  std::unique_ptr<Store> store;
  if (Status s = Store::open(path, {}, &store); !s.ok()) return s;
  return work(*store);
}

enum Outcome { kNothingFailed, kWentOn, kRefused, kEnded };

// In a process of its own: some libraries end the process instead of saying that memory is short,
// and that counts as being killed.
Outcome fail_at(const Family& family, const std::string& path, long n) {
  fflush(nullptr);
  const pid_t pid = fork();
  MUST(pid >= 0, "fork");
  if (pid == 0) {
    fclose(stderr);  // "terminate called ..." is expected now and then
    until_failure = n;
    Status s = guarded([&] { return family.work(path); });
    until_failure = -1;
    if (!failed) _exit(s.ok() ? kNothingFailed : 10);
    if (s.code() == kExitCorrupt) _exit(11);
    _exit(s.ok() ? kWentOn : s.text().size() > 20 ? kRefused : 12);
  }
  int status = 0;
  MUST(waitpid(pid, &status, 0) == pid, "waitpid");
  if (WIFSIGNALED(status)) {
    MUST(WTERMSIG(status) == SIGABRT || WTERMSIG(status) == SIGSEGV,
         "%s, allocation %ld: signal %d", family.name, n, WTERMSIG(status));
    return kEnded;
  }
  const int code = WEXITSTATUS(status);
  MUST(code != 10, "%s: nothing failed, yet it says so", family.name);
  MUST(code != 11, "%s, allocation %ld was taken for damage", family.name, n);
  MUST(code <= kRefused, "%s, allocation %ld: ended with %d", family.name, n, code);
  return static_cast<Outcome>(code);
}

// Every allocation, beginning with `first`, in steps of `stride`.
void each(const std::string& directory, const Family& family, const std::string& newest, long first,
          long stride) {
  const std::string path = directory + "/copy";
  long count[4] = {};
  for (long n = first;; n += stride) {
    fs::remove_all(path);
    fs::copy(directory + "/store", path, fs::copy_options::recursive);
    fs::permissions(path, fs::perms::owner_all);
    if (family.prepare) family.prepare(path);
    const Outcome outcome = fail_at(family, path, n);
    ++count[outcome];
    if (outcome == kNothingFailed) break;
    MUST(outcome == kEnded || fs::is_empty(path + "/locks"), "%s, allocation %ld left its lock",
         family.name, n);
    if (family.prepare) {  // what was to be repaired may still have to be
      RepairReport report;
      MUST_OK(Store::repair(path, {}, false, &report));
    }
    check(path, newest, 2, n);
  }
  const long failures = count[kWentOn] + count[kRefused] + count[kEnded];
  MUST(count[kRefused] > 50 / stride, "%s refuses only %ld times", family.name, count[kRefused]);
  printf(
      "%s: %ld allocations failed (%ld refusals, %ld without effect, %ld ended the process), "
      "0 snapshots lost\n",
      family.name, failures, count[kRefused], count[kWentOn], count[kEnded]);
}

// Its table is lost, its frames are not: repair makes it anew.
void spoil_table(const std::string& path) {
  for (const auto& pack : fs::directory_iterator(path + "/packs")) {
    fs::resize_file(pack.path(), fs::file_size(pack.path()) - 20);
    return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const long stride = argc > 1 ? atol(argv[1]) : 1;
  const char* base = getenv("TMPDIR");
  std::string directory = std::string(base                     ? base
                                      : fs::exists("/dev/shm") ? "/dev/shm"
                                                               : "/tmp") +
                          "/gpuckpt-oom.XXXXXX";
  MUST(mkdtemp(directory.data()), "no directory");
  std::unique_ptr<Store> store;
  std::string ids[3];
  MUST_OK(Store::open(directory + "/store", {.create = true}, &store));
  for (uint64_t n = 0; n < 3; ++n) MUST_OK(write(*store, n, &ids[n]));
  store.reset();
  auto prune = [](Store& s) {
    PruneReport report;
    return s.prune({.keep = 1}, &report);
  };
  auto verify = [](Store& s) {
    VerifyReport report;
    return s.verify({.full = true, .threads = 1}, &report);
  };
  const Family families[] = {
      {"write",
       {},
       [](const std::string& path) {
         std::string id;
         return on_store(path, [&](Store& s) { return write(s, 3, &id); });
       }},
      {"prune", {}, [&](const std::string& path) { return on_store(path, prune); }},
      {"verify", {}, [&](const std::string& path) { return on_store(path, verify); }},
      {"repair", spoil_table,
       [](const std::string& path) {
         RepairReport report;
         return Store::repair(path, {}, false, &report);
       }},
  };
  long start = 0;
  for (const Family& family : families) {
    each(directory, family, ids[2], start++ % stride, stride);
  }
  fs::remove_all(directory);
  puts("EXIT-SUCCESS");
  return 0;
}
