#include "restore/tree.h"

#include <algorithm>

#include "store/member.h"

namespace gpuckpt::restore {

using store::Status;

namespace {

int find(const Tree& t, int pid) {
  for (size_t i = 0; i < t.members.size(); ++i)
    if (t.members[i]->image.head.pid == pid) return static_cast<int>(i);
  return -1;
}

bool is_member(const Tree& t, int pid) { return find(t, pid) >= 0; }

// Parents before children, the root first.
Status sort_by_generation(Tree* t) {
  std::vector<std::unique_ptr<Member>> rest = std::move(t->members);
  t->members.clear();
  t->members.push_back(std::move(rest.front()));
  rest.erase(rest.begin());
  while (!rest.empty()) {
    auto next = std::find_if(rest.begin(), rest.end(),
                             [&](const auto& m) { return is_member(*t, m->image.head.ppid); });
    if (next == rest.end())
      return Status::Corruption("process " + std::to_string(rest.front()->image.head.pid) +
                                " of the snapshot has no parent in it");
    (*next)->parent = find(*t, (*next)->image.head.ppid);
    t->members.push_back(std::move(*next));
    rest.erase(next);
  }
  return Status::Ok();
}

}  // namespace

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
    out->members.push_back(std::move(m));
  }
  return sort_by_generation(out);
}

Status load_tree(Tree* t, unsigned threads) {
  SharedFiles shared;
  for (auto& m : t->members)
    if (Status s = open_named(m->image, &shared); !s.ok()) return s;
  for (auto& m : t->members)
    if (Status s = load_memory(m->image, *m->reader, threads, &m->memory, &shared); !s.ok())
      return s;
  return Status::Ok();
}

std::string check_tree(const Tree& t) {
  for (const auto& m : t.members) {
    const process::Head& h = m->image.head;
    if (m->parent < 0 || h.sid == h.pid) continue;
    // A session is inherited: from the parent, or from what was the parent's before it made its
    // own.
    const process::Head& parent = t.members[static_cast<size_t>(m->parent)]->image.head;
    const int before =
        parent.sid != parent.pid ? parent.sid
        : t.members[static_cast<size_t>(m->parent)]->parent < 0
            ? t.root().image.head.sid
            : t.members[static_cast<size_t>(t.members[static_cast<size_t>(m->parent)]->parent)]
                  ->image.head.sid;
    if (h.sid != parent.sid && h.sid != before)
      return "process " + std::to_string(h.pid) + " is in a session (" + std::to_string(h.sid) +
             ") that its parent was never in; that cannot be put together again";
  }
  return "";
}

}  // namespace gpuckpt::restore
