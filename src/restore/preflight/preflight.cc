#include "restore/preflight/preflight.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "gpuckpt/wire.h"
#include "restore/files/file_sums.h"
#include "restore/files/stored_file.h"
#include "restore/ipc/sysv_ipc.h"
#include "restore/memory/huge_pages.h"
#include "restore/memory/memory_need.h"
#include "restore/memory/plan_builder.h"
#include "restore/preflight/checks.h"
#include "restore/preflight/process_ids.h"

namespace gpuckpt::restore {

using namespace process;
using store::Status;

namespace {

void add(std::vector<std::string>* to, std::vector<std::string> from) {
  for (std::string& text : from)
    if (std::find(to->begin(), to->end(), text) == to->end()) to->push_back(std::move(text));
}

std::string of_process(const Tree& tree, const Member& m) {
  return tree.several() ? "process " + std::to_string(m.image.head.pid) + ": " : "";
}

// Checks that the snapshot has everything that the description of the process names.
std::vector<std::string> check_contents(const Member& m) {
  std::vector<std::string> wrong;
  for (const StoredContents& c : m.image.contents) {
    uint64_t bytes = 0;
    for (const store::Extent& e : m.reader->extents(c.space)) bytes += e.length;
    if (bytes != c.bytes)
      wrong.push_back("of an unlinked file (space " + std::to_string(c.space) + ") " +
                      std::to_string(c.bytes) + " bytes were captured and " +
                      std::to_string(bytes) + " are there");
  }
  std::vector<uint8_t> blob;
  if (m.image.head.device_present && !m.reader->blob("device", &blob).ok())
    wrong.push_back("the description of the device is not there");
  return wrong;
}

// Checks that the launcher finds room beside the program's memory, and that each page has a
// mapping.
std::string check_address_space(const Member& m) {
  Memory memory;
  if (Status s = plan_fills(m.image, *m.reader, &memory); !s.ok()) return s.text();
  PlanFds fds;
  fds.files.assign(m.image.files.size(), -1);
  fds.shared.assign(m.image.shared.size(), -1);
  std::string error;
  build_plan(m.image, memory, fds, 0, &error);
  return error;
}

// Checks ids; a single process can be restored with new ones.
std::string check_ids(const Tree& tree, const Options& o) {
  if (!tree.several()) return "";
  std::string why = "namespaces are turned off";
  if (namespaces_allowed(o) && (why = why_no_ids_in_namespace()).empty()) return "";
  if (geteuid() != 0) return needs_ids(why);
  // The ids of the running program are free once it has ended.
  if (!o.running && !all_ids_free(tree)) return needs_ids(why + "; its ids are taken");
  const std::string here = why_no_ids_here();
  return here.empty() ? "" : needs_ids(why + "; " + here);
}

// Checks files. Those whose contents the snapshot has are restored in any case; others that the
// program wrote must not have been overwritten since. (Those of a running program have just been
// summed.)
std::vector<std::string> check_stored_and_summed(const Tree& tree, const Options& o,
                                                 Paths* stored) {
  std::vector<std::string> wrong;
  const nlohmann::json files = read_files_blob(*tree.root().reader);
  for (const StoredFile& f : stored_files(files)) stored->insert(f.path);
  if (o.running) return wrong;
  for (const SummedFile& f : summed_files(files))
    if (std::string text = changed_in_place(f); !text.empty()) wrong.push_back(f.path + " " + text);
  return wrong;
}

}  // namespace

std::string find_launcher(const Options& o) {
  if (!o.launcher.empty()) return o.launcher;
  char path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
  std::string self(path, n > 0 ? static_cast<size_t>(n) : 0);
  return self.substr(0, self.rfind('/') + 1) + "gpuckpt-launch";
}

bool namespaces_allowed(const Options& o) {
  const char* v = getenv("GPUCKPT_NAMESPACES");
  return o.namespaces && !(v && strcmp(v, "0") == 0);
}

std::string needs_ids(const std::string& why_not) {
  return "a job of several processes needs its old process ids: restore it as root, or where user "
         "namespaces are allowed (" +
         why_not + ")";
}

bool all_ids_free(const Tree& tree) {
  auto is_free = [](int id) { return kill(id, 0) != 0 && errno == ESRCH; };
  for (const auto& m : tree.members) {
    for (const auto& t : m->image.threads)
      if (!is_free(t.tid)) return false;
    for (const auto& z : m->image.zombies)
      if (!is_free(z.pid)) return false;
    if (m->birth == Birth::kHelper && !is_free(m->session)) return false;
  }
  return true;
}

Preflight preflight(const Tree& tree, const Options& o) {
  Preflight out;
  add(&out.here, check_machine(tree.root().image));
  const Paths restored = restored_files(tree), written = written_files(tree);
  Paths stored;
  if (!o.keep_files) add(&out.here, check_stored_and_summed(tree, o, &stored));
  for (const auto& m : tree.members) {
    add(&out.here, check_files(m->image, restored, written, stored, o));
    add(&out.here, check_descriptors(m->image, tree.several(), stored));
    add(&out.never, check_contents(*m));
    // (Of a running one the snapshot has told.)
    if (std::string text = o.running ? "" : check_filters(m->image); !text.empty())
      out.here.push_back(of_process(tree, *m) + text);
    if (std::string text = check_address_space(*m); !text.empty())
      out.never.push_back(of_process(tree, *m) + text);
  }
  if (!o.running) add(&out.here, check_sysv_ipc(tree));
  if (std::string text = check_descriptor_limit(tree, o); !text.empty()) out.here.push_back(text);
  add(&out.differs, check_unread_datagrams(tree));
  if (!tree.wrong.empty()) out.never.push_back(tree.wrong);
  // A running program has the memory that it needs.
  if (!o.running) {
    add(&out.here, check_huge_pages(tree));
    check_memory(tree, o, &out.here, &out.doubts);
  }
  if (!o.running && access(find_launcher(o).c_str(), X_OK) != 0)
    out.here.push_back(find_launcher(o) + " cannot be executed");
  if (std::string text = check_ids(tree, o); !text.empty()) out.here.push_back(text);
  return out;
}

Status preflight(const store::SnapshotReader& reader, const Options& o, Preflight* out) {
  Tree tree;
  if (Status s = read_tree(reader, &tree); !s.ok()) return s;
  if (!o.running && !o.lazy && common_pages_wanted()) tree.common = find_common_pages(tree);
  *out = preflight(tree, o);
  return Status::Ok();
}

}  // namespace gpuckpt::restore
