// gpuckpt list: the snapshots of a store, oldest first.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "image/members.h"
#include "store/format/sizes.h"
#include "store/io/json_text.h"
#include "store/store.h"
#include "stores/mirror_status.h"
#include "stores/snapshot_tree.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

// A description is text of other programs: values of a wrong type are ignored.
std::string text(const nlohmann::json& j, const char* key) {
  auto it = j.find(key);
  if (it == j.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (it->is_number()) return it->dump();
  if (!it->is_array()) return "";
  std::string out;
  for (const auto& part : *it)
    out += (out.empty() ? "" : " ") +
           (part.is_string() ? part.get<std::string>()
                             : part.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  return out;
}

uint64_t number(const nlohmann::json& j, const char* key) {
  auto it = j.find(key);
  return it != j.end() && it->is_number_unsigned() ? it->get<uint64_t>() : 0;
}

// Prints the other processes of a job, one a line below the first one's.
void show_members(const nlohmann::json& meta) {
  for (const auto* m : members_in(meta))
    print("{:<45} {:>7} {:>9} {:>9}  {:<12} {:<12} {}\n", "", text(*m, "pid"),
          store::show_size(number(*m, "logical_bytes")), "", "", "",
          printable(text(*m, "command"), 60));
}

Status list(const std::string& path, const std::string& job, bool tree, Context* context) {
  std::unique_ptr<store::Store> store;
  if (Status status = store::Store::open(path, {.any_owner = any_owner()}, &store); !status.ok())
    return status;
  std::vector<store::SnapshotInfo> snapshots;
  if (Status status = store->list(&snapshots); !status.ok()) return status;
  if (tree && !context->json) {
    for (const std::string& line : snapshot_tree(snapshots, job)) print("{}\n", line);
    return Status::Ok();
  }
  const std::unique_ptr<MirrorStatus> mirror = mirror_status(*store, snapshots);
  nlohmann::json all = nlohmann::json::array();
  size_t damaged = 0, shown = 0;
  if (!context->json && !snapshots.empty()) {
    print("{:<24} {:<20} {:>7} {:>9} {:>9}  {:<12} {:<12} {}\n", "ID", "TIME (UTC)", "PID", "SIZE",
          "STORED", "JOB", "TAG", "COMMAND");
  }
  for (const store::SnapshotInfo& info : snapshots) {
    auto meta = store::parse_json(info.meta);
    if (!meta.is_object()) meta = nlohmann::json::object();
    if (!job.empty() && text(meta, "job") != job) continue;
    ++shown;
    if (!info.status.ok()) {
      ++damaged;
      complain(info.status.text());
    }
    if (context->json) {
      meta["id"] = info.id;
      meta["manifest_bytes"] = info.manifest_bytes;
      meta["readable"] = info.status.ok();
      meta["branch"] = info.branch;
      if (mirror) meta["mirrored"] = mirror->state.has(info.id);
      all.push_back(std::move(meta));
      continue;
    }
    auto sizes = meta.contains("sizes") && meta["sizes"].is_object() ? meta["sizes"]
                                                                     : nlohmann::json::object();
    print("{:<24} {:<20} {:>7} {:>9} {:>9}  {:<12} {:<12} {}\n", info.id,
          info.status.ok() ? printable(text(meta, "time"), 20) : "damaged", text(meta, "pid"),
          store::show_size(number(sizes, "logical_bytes")),
          store::show_size(number(sizes, "stored_bytes")),
          printable(text(meta, "job"), 12) + (info.branch ? " (branch)" : ""),
          printable(text(meta, "tag"), 12), printable(text(meta, "command"), 60));
    show_members(meta);
  }
  if (context->json) {
    print_json(all);
  } else {
    uint64_t bytes = 0;
    (void)store->disk_bytes(&bytes);
    print(stderr, "{} snapshot{} in {}, {} on disk\n", shown, shown == 1 ? "" : "s", path,
          store::show_size(bytes));
    if (mirror) print(stderr, "mirror {}\n", describe(*mirror));
  }
  if (damaged) context->exit_code = kExitCorrupt;
  return Status::Ok();
}

}  // namespace

void define_list(CommandLine& line, Context* context) {
  auto path = std::make_shared<std::string>();
  auto job = std::make_shared<std::string>();
  Verb verb = line.verb("list", "List the snapshots of a store");
  add_store(verb, path.get());
  verb.option("--job", *job, "Only snapshots of this job").env("GPUCKPT_JOB");
  auto tree = std::make_shared<bool>(false);
  verb.flag("--tree", *tree,
            "Which snapshot follows which, by job; branches are of runs that had lost their job to "
            "another run");
  add_json(verb, context);
  verb.footer(exit_codes({kExitOk, kExitError, kExitUsage, kExitAbsent, kExitIncompatible,
                          kExitCorrupt, kExitRefused}));
  verb.callback([path, job, tree, context] {
    context->run([&] { return list(*path, *job, *tree, context); });
  });
}

}  // namespace gpuckpt::cli
