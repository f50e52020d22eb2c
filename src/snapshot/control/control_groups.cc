#include "snapshot/control/control_groups.h"

#include "base/procfs/proc.h"
#include "base/text/text.h"
#include "snapshot/job/barrier.h"

namespace gpuckpt {
namespace {

char first[kControlGroupsText];

// One line of /proc/PID/cgroup, "4:memory:/a/b": a hierarchy goes by its controllers, as its number
// is another one on another machine. In a record the number is left out.
struct Membership {
  const char *controllers, *path, *end;  // up to ":", up to the end of the line
  size_t controllers_length() const { return static_cast<size_t>(path - 1 - controllers); }
  size_t path_length() const { return static_cast<size_t>(end - path); }
};

bool same(const char* a, size_t a_length, const char* b, size_t b_length) {
  return a_length == b_length && __builtin_memcmp(a, b, a_length) == 0;
}

// Calls each(membership) for every line. `numbered`: with the hierarchy's number.
template <typename Each>
void each_membership(const char* text, bool numbered, Each each) {
  while (*text) {
    const char* end = text;
    while (*end && *end != '\n') ++end;
    auto after_colon = [&](const char* s) {
      while (s < end && *s != ':') ++s;
      return s < end ? s + 1 : nullptr;
    };
    const char* controllers = numbered ? after_colon(text) : text;
    const char* path = controllers ? after_colon(controllers) : nullptr;
    if (path) each(Membership{controllers, path, end});
    text = *end ? end + 1 : end;
  }
}

const Membership* find(const char* text, bool numbered, const Membership& like, Membership* room) {
  const Membership* found = nullptr;
  each_membership(text, numbered, [&](const Membership& m) {
    if (found ||
        !same(m.controllers, m.controllers_length(), like.controllers, like.controllers_length()))
      return;
    *room = m;
    found = room;
  });
  return found;
}

// False: it is longer than there is room for.
bool read_memberships(char (&text)[kControlGroupsText]) {
  const long n = read_file("/proc/thread-self/cgroup", text, sizeof(text));
  if (n > 0 && static_cast<size_t>(n) < sizeof(text) - 1) return true;
  text[0] = 0;
  return false;
}

}  // namespace

void note_control_groups() { read_memberships(first); }

// Where the restore has moved the process, it began elsewhere.
void note_restored_control_groups(const char* moved) {
  static char now[kControlGroupsText], mixed[kControlGroupsText];
  read_memberships(now);
  size_t used = 0;
  each_membership(now, true, [&](const Membership& m) {
    Membership room;
    const bool was_moved = find(moved, false, m, &room);
    const Membership* from = was_moved ? find(first, true, m, &room) : &m;
    const size_t length = m.controllers_length() + 2 + (from ? from->path_length() : 0) + 1;
    if (used + length + 1 >= sizeof(mixed)) return;
    mixed[used++] = ':';
    __builtin_memcpy(mixed + used, m.controllers, m.controllers_length());
    used += m.controllers_length();
    mixed[used++] = ':';
    if (from) __builtin_memcpy(mixed + used, from->path, from->path_length());
    used += from ? from->path_length() : 0;
    mixed[used++] = '\n';
  });
  mixed[used] = 0;
  copy(first, sizeof(first), mixed);
}

void copy_first_control_groups(char* to, size_t room) { copy(to, room, first); }

void put_control_groups(Records* r) {
  char now[kControlGroupsText];
  const bool member = job_barrier.active() && job_barrier.role() == JobBarrier::Role::kMember;
  const char* begin = member ? job_barrier.shared_state()->leaders_control_groups : first;
  if (!*begin || !read_memberships(now)) return;
  bool moved = false;
  each_membership(now, true, [&](const Membership& m) {
    Membership room;
    const Membership* before = find(begin, true, m, &room);
    if (before && same(before->path, before->path_length(), m.path, m.path_length())) return;
    if (!moved) r->begin(process::kRecControlGroups);
    moved = true;
    r->add(m.controllers, static_cast<uint64_t>(m.end - m.controllers));
    r->add("\n", 1);
  });
  if (moved) r->end();
}

}  // namespace gpuckpt
