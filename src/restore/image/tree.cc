#include "restore/image/tree.h"

#include <algorithm>

#include "restore/files/removed_files.h"
#include "store/format/member.h"

namespace gpuckpt::restore {

using store::Status;

namespace {

int find(const Tree& t, int pid) {
  for (size_t i = 0; i < t.members.size(); ++i)
    if (t.members[i]->image.head.pid == pid) return static_cast<int>(i);
  return -1;
}

bool is_member(const Tree& t, int pid) { return find(t, pid) >= 0; }

// Orders parents before children, the root first. A process without a parent in the job is an
// orphan.
void sort_by_generation(Tree* t) {
  std::vector<std::unique_ptr<Member>> rest = std::move(t->members);
  auto take = [&](auto it) {
    t->members.push_back(std::move(*it));
    rest.erase(it);
  };
  auto child = [&](const std::unique_ptr<Member>& m) { return is_member(*t, m->image.head.ppid); };
  auto has_no_parent = [&](const std::unique_ptr<Member>& m) {
    return std::none_of(rest.begin(), rest.end(), [&](const auto& other) {
      return other->image.head.pid == m->image.head.ppid;
    });
  };
  t->members.clear();
  take(rest.begin());
  while (!rest.empty()) {
    auto next = std::find_if(rest.begin(), rest.end(), child);
    if (next == rest.end()) next = std::find_if(rest.begin(), rest.end(), has_no_parent);
    if (next == rest.end()) next = rest.begin();  // (a circle, which only damage can make)
    (*next)->parent = find(*t, (*next)->image.head.ppid);
    take(next);
  }
}

pid_t session_of(const process::Head& h) { return h.sid ? h.sid : kOutside; }

// Whether an ancestor of member i was in the session and has not led one of its own.
bool ancestor_in(const Tree& t, size_t i, pid_t session) {
  for (int p = t.members[i]->parent; p >= 0; p = t.members[static_cast<size_t>(p)]->parent)
    if (session_of(t.members[static_cast<size_t>(p)]->image.head) == session) return true;
  return false;
}

bool plan_root(Tree* t) {
  Member& root = t->root();
  // It is in the launcher's session, unless that is known to differ from its own.
  if (root.session > 0 && root.leaderless) root.birth = Birth::kHelper;
  return find(*t, root.session) < 0;
}

bool plan_orphan(Tree* t, Member* m) {
  if (!m->session) return true;
  m->maker = find(*t, m->session);
  m->birth = m->maker >= 0 ? Birth::kDisowned : m->leaderless ? Birth::kHelper : Birth::kDirect;
  return m->birth != Birth::kDirect || m->session == session_of(t->root().image.head) ||
         m->session == t->root().session;
}

// The member that becomes the parent of the children of an ended child of member i; -1: none of the
// job.
int reaper_above(const Tree& t, int i) {
  while (i >= 0 && !t.members[static_cast<size_t>(i)]->image.head.subreaper)
    i = t.members[static_cast<size_t>(i)]->parent;
  return i;
}

bool plan_child(Tree* t, Member* m) {
  const size_t up = static_cast<size_t>(m->parent);
  Member& parent = *t->members[up];
  const process::Head& p = parent.image.head;
  if (!m->session || m->session == session_of(p)) return true;
  const int leader = find(*t, m->session);
  if (leader >= 0 && t->members[static_cast<size_t>(leader)]->parent == m->parent) {
    m->birth = Birth::kSibling, m->maker = leader;
    return true;
  }
  if (leader >= 0 && reaper_above(*t, leader) == m->parent) {
    m->birth = Birth::kDisowned, m->maker = leader;
    return true;
  }
  if (m->leaderless && leader < 0 && !ancestor_in(*t, up, m->session)) {
    m->birth = Birth::kHelper;
    return true;
  }
  // Its parent was in that session before it made its own, so the process must be forked into it.
  m->birth = Birth::kEarly;
  if (p.sid != p.pid || (parent.session && parent.session != m->session)) return false;
  parent.session = m->session;
  parent.leaderless = m->leaderless;
  return true;
}

// Returns false if the process cannot be created with its parent and process group.
bool plan_birth(Tree* t, size_t i) {
  Member& m = *t->members[i];
  const process::Head& h = m.image.head;
  if (h.sid != h.pid) m.session = session_of(h), m.leaderless = m.image.leaderless;
  if (i == 0) return plan_root(t);
  return m.parent < 0 ? plan_orphan(t, &m) : plan_child(t, &m);
}

// The session of an ended leader can be made only once.
bool helpers_are_unique(const Tree& t, const Member& m) {
  return std::none_of(t.members.begin(), t.members.end(), [&](const auto& o) {
    return o->birth == Birth::kHelper && o->session == m.session && o->parent != m.parent;
  });
}

std::string describe_session(const Member& m) {
  return "process " + std::to_string(m.image.head.pid) + " is in a session (" +
         std::to_string(m.session) +
         ") that its parent was never in; that cannot be put together again";
}

}  // namespace

bool Tree::runs_first(size_t i) const {
  if (!members[i]->image.shares_device) return false;
  for (const auto& m : members)
    if (m->image.shares_device && !m->image.locks.free) return true;
  return false;
}

bool Tree::has_prelude() const {
  for (size_t i = 0; i < members.size(); ++i)
    if (is_orphan(i) || (i == 0 && members[i]->birth == Birth::kHelper)) return true;
  return false;
}

Status read_tree(const store::SnapshotReader& snapshot, Tree* out) {
  std::vector<uint32_t> numbers = store::members_of(snapshot);
  if (numbers.empty() || numbers.front() != 0)
    return Status::Corruption("the snapshot does not describe its process");
  for (uint32_t number : numbers) {
    auto m = std::make_unique<Member>();
    m->number = number;
    m->reader = store::read_member(snapshot, number);
    std::vector<uint8_t> blob;
    if (Status s = m->reader->blob("process", &blob); !s.ok()) return s;
    if (Status s = parse_image(std::move(blob), &m->image); !s.ok()) return s;
    if (numbers.size() == 1)
      take_standard_sockets(&m->image);  // no other process can have the other end
    out->members.push_back(std::move(m));
  }
  sort_by_generation(out);
  // Children first: what their parents must be forked into depends on them.
  for (size_t i = out->members.size(); i-- > 0;)
    if (!plan_birth(out, i)) out->wrong = describe_session(*out->members[i]);
  for (const auto& m : out->members)
    if (m->image.shares_folders && m->birth != Birth::kDirect && m->birth != Birth::kEarly)
      out->wrong = "process " + std::to_string(m->image.head.pid) +
                   " shares its working directory with its parent (CLONE_FS), which cannot have it "
                   "born into its session";
  for (const auto& m : out->members)
    if (m->birth == Birth::kHelper && !helpers_are_unique(*out, *m))
      out->wrong = describe_session(*m);
  return Status::Ok();
}

Status load_tree(Tree* t, unsigned threads) {
  SharedFiles shared;
  for (auto& m : t->members)
    if (Status s = open_named(m->image, &shared); !s.ok()) return s;
  auto folders = std::make_shared<Folders>();
  for (auto& m : t->members) {
    if (Status s = make_removed_folders(m->image, folders.get()); !s.ok()) return s;
    m->memory.folders = folders;
  }
  for (auto& m : t->members)
    if (Status s = load_memory(m->image, *m->reader, threads, &m->memory, &shared); !s.ok())
      return s;
  return Status::Ok();
}

}  // namespace gpuckpt::restore
