// Which run has a job: one of many, in turn, and what the others publish.
#include <sys/stat.h>
#include <sys/wait.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/io/lease.h"
#include "store/io/process_identity.h"
#include "testing.h"

using namespace gpuckpt;
using namespace gpuckpt::store;

namespace {

// A process that lives until it is told to end.
class Process {
 public:
  Process() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Process() { end(); }
  void end() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// As if its holder were on another machine, last renewed so long ago.
void make_foreign(const TemporaryDirectory& dir, int64_t seconds_ago) {
  for (const auto& entry : std::filesystem::directory_iterator(dir.store() + "/jobs")) {
    std::ifstream in(entry.path());
    auto j = nlohmann::json::parse(in);
    j["boot"] = "another";
    std::ofstream(entry.path()) << j;
    std::filesystem::last_write_time(entry.path(), std::filesystem::file_time_type::clock::now() -
                                                       std::chrono::seconds(seconds_ago));
  }
}

struct Published {
  std::string id, warning;
};
Published publish(Store& store, const std::string& job, const std::string& run, pid_t pid,
                  const std::string& parent = "") {
  static uint64_t seed;
  CommitResult result;
  const Model model = {{0, {{0x1000, some_bytes(++seed, 4096)}}}};
  const std::string meta = parent.empty() ? "{}" : fmt::format("{{\"parent\":\"{}\"}}", parent);
  REQUIRE_OK(write_model(store, model, meta, &result, {.job = job, .run = run, .run_pid = pid}));
  return {result.id, result.warning};
}

std::vector<std::string> branches(Store& store) {
  std::vector<SnapshotInfo> list;
  REQUIRE_OK(store.list(&list));
  std::vector<std::string> out;
  for (const SnapshotInfo& info : list)
    if (info.branch) out.push_back(info.id);
  return out;
}

std::string latest(Store& store) {
  std::string id;
  REQUIRE_OK(store.resolve("latest", &id));
  return id;
}

}  // namespace

TEST_CASE("one run has a job, until it ends") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  Process first, second;
  Lease a, b;
  REQUIRE_OK(store->take_job({"J", "aa", first.pid()}, &a));
  CHECK(a.fence == 1);
  Status refused = store->take_job({"J", "bb", second.pid()}, &b);
  CHECK(refused.code() == kExitLocked);
  CHECK(refused.text().find("run aa") != std::string::npos);
  // Another job is another lease, whatever characters its name has.
  REQUIRE_OK(store->take_job({"../K \n", "bb", second.pid()}, &b));
  SECTION("killed") {
    first.end();
    Lease now;
    REQUIRE_OK(store->job_lease("J", &now));
    CHECK(now.life == Lease::Life::kGone);
  }
  SECTION("given back") { REQUIRE_OK(store->leave_job(a, Lease::Life::kEnded)); }
  REQUIRE_OK(store->take_job({"J", "bb", second.pid()}, &b));
  CHECK(b.fence == 2);
  CHECK(store->renew_job(a).code() == kExitLocked);
  CHECK(store->leave_job(a, Lease::Life::kEnded).code() == kExitLocked);
  // A run that has lost a job does not get it again.
  second.end();
  CHECK(store->take_job({"J", "aa", getpid()}, &a).code() == kExitLocked);
}

TEST_CASE("of many hands one wins") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  constexpr int kHands = 8;
  int go[2], won[2];
  REQUIRE(pipe(go) == 0);
  REQUIRE(pipe(won) == 0);
  std::vector<pid_t> hands;
  for (int i = 0; i < kHands; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      char c;
      close(go[1]);
      if (read(go[0], &c, 1) != 0) _exit(1);
      Lease lease;
      c = store->take_job({"J", fmt::format("{:x}", i + 1), getpid()}, &lease).ok() ? 'y' : 'n';
      if (write(won[1], &c, 1) != 1) _exit(1);
      for (;;) pause();
    }
    hands.push_back(pid);
  }
  close(go[0]);
  close(go[1]);
  int winners = 0;
  for (int i = 0; i < kHands; ++i) {
    char c = 0;
    REQUIRE(read(won[0], &c, 1) == 1);
    winners += c == 'y';
  }
  CHECK(winners == 1);
  for (pid_t pid : hands) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
}

TEST_CASE("a lease on another machine expires when it is not renewed") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  Lease a, b;
  REQUIRE_OK(store->take_job({"J", "aa", getpid(), 30'000}, &a));
  make_foreign(dir, 25);
  CHECK(store->take_job({"J", "bb", getpid()}, &b).code() == kExitLocked);
  REQUIRE_OK(store->renew_job(a));
  REQUIRE_OK(store->job_lease("J", &b));
  CHECK(b.age_ms < 5'000);
  make_foreign(dir, 35);
  REQUIRE_OK(store->job_lease("J", &b));
  CHECK(b.life == Lease::Life::kExpired);
  REQUIRE_OK(store->take_job({"J", "bb", getpid()}, &b));
  SECTION("sooner after its last snapshot") {
    REQUIRE_OK(store->leave_job(b, Lease::Life::kLeaving));
    make_foreign(dir, 2);
    CHECK(store->take_job({"J", "cc", getpid()}, &a).code() == kExitLocked);
    make_foreign(dir, 4);
    REQUIRE_OK(store->take_job({"J", "cc", getpid()}, &a));
  }
}

TEST_CASE("a torn lease is respected as long as a new one") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  Lease a;
  REQUIRE_OK(store->take_job({"J", "aa", getpid()}, &a));
  for (const auto& entry : std::filesystem::directory_iterator(dir.store() + "/jobs"))
    std::ofstream(entry.path()) << "{\"run\":";
  CHECK(store->take_job({"J", "bb", getpid()}, &a).code() == kExitLocked);
  for (const auto& entry : std::filesystem::directory_iterator(dir.store() + "/jobs"))
    std::filesystem::last_write_time(
        entry.path(), std::filesystem::file_time_type::clock::now() - std::chrono::seconds(90));
  REQUIRE_OK(store->take_job({"J", "bb", getpid()}, &a));
  CHECK(a.fence == 2);
}

TEST_CASE("what a run publishes after it lost its job is a branch") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  Process old, fresh_one;
  Lease a, b;
  REQUIRE_OK(store->take_job({"J", "aa", old.pid()}, &a));
  const Published first = publish(*store, "J", "aa", old.pid());
  CHECK(first.warning == "");
  make_foreign(dir, 1000);
  REQUIRE_OK(store->take_job({"J", "bb", fresh_one.pid()}, &b));
  CHECK(b.base == first.id);
  const Published late = publish(*store, "J", "aa", old.pid(), first.id);
  CHECK(late.warning.find("run bb") != std::string::npos);
  CHECK(branches(*store) == std::vector<std::string>{late.id});
  CHECK(latest(*store) == first.id);
  const Published second = publish(*store, "J", "bb", fresh_one.pid(), first.id);
  const Published later = publish(*store, "J", "aa", old.pid(), late.id);
  CHECK(branches(*store) == std::vector<std::string>{late.id, later.id});
  CHECK(latest(*store) == second.id);
  // Also when the new run has ended meanwhile, and no run has the job.
  REQUIRE_OK(store->leave_job(b, Lease::Life::kEnded));
  CHECK(publish(*store, "J", "aa", old.pid(), later.id).warning != "");
  // The rules of prune count the line.
  PruneReport report;
  REQUIRE_OK(store->prune({.keep = 1}, &report));
  CHECK(std::find(report.kept.begin(), report.kept.end(), second.id) != report.kept.end());
  CHECK(std::find(report.removed.begin(), report.removed.end(), late.id) != report.removed.end());
  CHECK(latest(*store) == second.id);
  // Another job does not care.
  CHECK(publish(*store, "K", "aa", old.pid()).warning == "");
}

// The late run looked before the job was taken, and published after it: nothing in the snapshot
// says so.
TEST_CASE("a branch is known by what the run after it had seen") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  Lease a, b;
  REQUIRE_OK(store->take_job({"J", "aa", getpid()}, &a));
  const Published first = publish(*store, "J", "aa", getpid());
  make_foreign(dir, 1000);
  REQUIRE_OK(store->take_job({"J", "bb", getpid()}, &b));
  CommitResult late;
  const Model model = {{0, {{0x1000, some_bytes(77, 4096)}}}};
  REQUIRE_OK(write_model(*store, model, "{\"run\":\"aa\",\"fence\":1,\"base\":\"\"}", &late,
                         {.job = "J"}));
  CHECK(branches(*store) == std::vector<std::string>{late.id});
  const Published second = publish(*store, "J", "bb", getpid(), first.id);
  // A mirror has no leases.
  std::filesystem::remove_all(dir.store() + "/jobs");
  CHECK(branches(*store) == std::vector<std::string>{late.id});
  CHECK(latest(*store) == second.id);
}

TEST_CASE("a run that was started without a lease takes the job at its first snapshot") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  Process one, other;
  Lease lease;
  const Published first = publish(*store, "J", "aa", one.pid());
  REQUIRE_OK(store->job_lease("J", &lease));
  CHECK(lease.run == "aa");
  CHECK(publish(*store, "J", "bb", other.pid()).warning.find("run aa") != std::string::npos);
  one.end();
  // It does not follow the newest of the line.
  CHECK(publish(*store, "J", "bb", other.pid(), "20200101-000000000-aaaa").warning != "");
  CHECK(publish(*store, "J", "bb", other.pid(), first.id).warning == "");
  // Programs without a job's name have nothing in common.
  CHECK(publish(*store, "", "aa", getpid()).warning == "");
  CHECK(publish(*store, "", "bb", getpid()).warning == "");
}
