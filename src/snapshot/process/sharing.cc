#include "snapshot/process/sharing.h"

#include "base/syscall.h"
#include "snapshot/control/state.h"
#include "snapshot/job/barrier.h"
#include "snapshot/process/capture.h"

namespace gpuckpt {
namespace {

enum Kind : long { kFiles = 2, kFolders = 3 };  // KCMP_*
constexpr long kEqual = 0, kLess = 1, kGreater = 2;

long compare(int a, int b, Kind kind) { return sys::call(SYS_kcmp, a, b, kind, 0, 0); }
bool share(int a, int b, Kind kind) { return compare(a, b, kind) == kEqual; }

bool refuse_files(Capture* c, int a, int b) {
  return c->refuse(
      "processes %d and %d of the job have their table of descriptors in common "
      "(clone(CLONE_FILES)), which a restore cannot give them",
      a, b);
}

bool refuse_folders(Capture* c, int a, int b) {
  return c->refuse(
      "processes %d and %d of the job have their working directory in common "
      "(clone(CLONE_FS)), and neither has it from its parent",
      a, b);
}

// The leader, at place 0, and behind it the other processes that live.
class Everyone {
 public:
  Everyone(SharedJobState* b, SharingTree* tree) : b_(b), tree_(tree) {}

  // Sorts all by one kind; whether any two have it in common: *a and *b are the first such.
  bool any_share(Kind kind, int* a, int* b) {
    __builtin_memset(tree_, 0, (b_->relative_count + 1) * sizeof(*tree_));
    bool any = false;
    for (uint32_t i = 0; i <= b_->relative_count; ++i) {
      if (ended(i) || add(i, kind)) continue;
      if (!any) *a = pid(i), *b = pid(tree_[i].first - 1);
      any = true;
    }
    return any;
  }

  // After any_share(): whether two that share have it from no parent.
  bool two_roots(int* a, int* b) {
    for (uint32_t i = 0; i <= b_->relative_count; ++i) {
      const uint32_t first = tree_[i].first;
      if (!first || has_it_from_parent(i)) continue;
      uint32_t& root = tree_[first - 1].root;
      if (root) {
        *a = pid(i), *b = pid(root - 1);
        return true;
      }
      root = i + 1;
    }
    return false;
  }

 private:
  int pid(uint32_t i) const { return i ? b_->relative[i - 1].pid : library.pid; }
  bool ended(uint32_t i) const { return i && b_->relative[i - 1].ended; }
  void cannot_look_at(uint32_t i) {
    if (i) b_->relative[i - 1].uncompared = true;
  }

  // False: it shares with one that was there before.
  bool add(uint32_t i, Kind kind) {
    if (compare(pid(i), pid(i), kind) != kEqual) {
      cannot_look_at(i);
      return true;
    }
    tree_[i].first = i + 1;
    if (i == 0) return true;
    for (uint32_t at = 0;;) {
      const long r = compare(pid(at), pid(i), kind);
      if (r == kEqual) {
        tree_[i].first = at + 1;
        return false;
      }
      if (r != kLess && r != kGreater) {
        cannot_look_at(i);
        return true;
      }
      uint32_t* const next = r == kLess ? &tree_[at].greater : &tree_[at].less;
      if (!*next) {
        *next = i + 1;
        return true;
      }
      at = *next - 1;
    }
  }

  bool has_it_from_parent(uint32_t i) const {
    if (!i) return false;
    const int parent = b_->relative[i - 1].ppid;
    for (uint32_t k = 0; k <= b_->relative_count; ++k)
      if (pid(k) == parent) return tree_[k].first == tree_[i].first;
    return false;
  }

  SharedJobState* b_;
  SharingTree* tree_;
};

}  // namespace

bool shares_folders(int parent, int pid) {
  return parent && job_barrier.has_process(parent) && share(parent, pid, kFolders);
}

bool check_sharing(Capture* c) {
  if (job_barrier.role() != JobBarrier::Role::kLeader) return true;
  SharedJobState* b = job_barrier.shared_state();
  Everyone all(b, c->scratch->sharing);
  int one, other;
  if (all.any_share(kFiles, &one, &other)) return refuse_files(c, one, other);
  if (all.any_share(kFolders, &one, &other) && all.two_roots(&one, &other))
    return refuse_folders(c, one, other);
  return true;
}

bool check_own_sharing(Capture* c) {
  if (job_barrier.role() != JobBarrier::Role::kMember) return true;
  const SharedJobState* b = job_barrier.shared_state();
  const SharedJobState::OtherProcess* own = nullptr;
  for (uint32_t i = 0; i < b->relative_count && !own; ++i)
    if (b->relative[i].pid == library.pid) own = &b->relative[i];
  if (!own || !own->uncompared) return true;
  const bool from_parent = shares_folders(own->ppid, own->pid);
  for (uint32_t i = 0; i <= b->relative_count; ++i) {
    const bool leader = i == b->relative_count;
    const int pid = leader ? library.leader : b->relative[i].pid;
    if (pid == own->pid || (!leader && b->relative[i].ended)) continue;
    if (share(pid, own->pid, kFiles)) return refuse_files(c, own->pid, pid);
    if (!from_parent && share(pid, own->pid, kFolders) &&
        (leader || !share(b->relative[i].ppid, pid, kFolders)))
      return refuse_folders(c, own->pid, pid);
  }
  return true;
}

}  // namespace gpuckpt
