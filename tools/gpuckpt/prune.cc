// gpuckpt prune: removes old snapshots and frees their space.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "process/store_owner.h"
#include "store/format/sizes.h"
#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

struct Options {
  std::string store;
  int keep = -1;
  std::vector<std::string> remove, keep_tags;
  std::string older_than, tag;
  bool dry_run = false;
};

Status prune(const Options& options, Context* context) {
  std::unique_ptr<store::Store> store;
  if (Status status = become_owner_of(options.store); !status.ok()) return status;
  if (Status status = store::Store::open(options.store, {.any_owner = any_owner()}, &store);
      !status.ok())
    return status;
  store::PruneOptions what;
  what.keep = options.keep;
  what.dry_run = options.dry_run;
  what.tag = options.tag;
  what.keep_tags = options.keep_tags;
  if (!options.older_than.empty()) {
    uint64_t ms = 0;
    if (!parse_duration(options.older_than, &ms) || ms == 0)
      return Status(kExitUsage, "--older-than wants a duration, as 36h");
    what.older_than_ns = static_cast<int64_t>(std::min<uint64_t>(ms, 1ull << 40) * 1'000'000);
  }
  for (const std::string& name : options.remove) {
    std::string id;
    if (Status status = store->resolve(name, &id); !status.ok()) return status;
    what.remove.push_back(id);
  }
  store::PruneReport report;
  Status status = store->prune(what, &report);
  if (!status.ok() && report.removed.empty()) return status;
  if (context->json) {
    print_json(nlohmann::json({{"removed", report.removed},
                               {"kept", report.kept},
                               {"packs_removed", report.packs_removed},
                               {"packs_rewritten", report.packs_rewritten},
                               {"bytes_freed", report.bytes_freed},
                               {"dry_run", options.dry_run},
                               {"postponed", report.postponed}}));
  } else {
    for (const std::string& id : report.removed) print("{}\n", id);
  }
  print(stderr, "{} {} snapshots, {} kept; {} {}\n", options.dry_run ? "would remove" : "removed",
        report.removed.size(), report.kept.size(), store::show_size(report.bytes_freed),
        options.dry_run ? "or more would be free" : "freed");
  if (!report.postponed.empty()) {
    complain("space is given back later: " + report.postponed);
    context->exit_code = kExitWarnings;
  }
  return status;
}

// Refuses an empty name, which an unset variable of a script gives: as a name "" is the newest
// snapshot, as a tag all.
std::string named(const std::string& value) { return value.empty() ? "it is empty" : ""; }

}  // namespace

void define_prune(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  Verb verb = line.verb("prune", "Remove old snapshots and unused data; prints the removed ids");
  add_store(verb, &options->store);
  verb.option("--keep", options->keep, "Keep the newest N snapshots of each job")
      .env("GPUCKPT_KEEP")
      .positive();
  verb.option("--older-than", options->older_than,
              "Remove snapshots older than this (as 36h), never the newest of a job; with "
              "--keep: only those that are older and not among the newest N")
      .duration();
  verb.option("--tag", options->tag, "Count and remove only snapshots with this tag")
      .check("NAME", named);
  verb.option("--keep-tag", options->keep_tags, "Never remove snapshots with this tag")
      .check("NAME", named);
  verb.option("--remove", options->remove, "Remove this snapshot (id or tag)").check("NAME", named);
  verb.flag("--dry-run", options->dry_run, "Only say what would be removed");
  add_json(verb, context);
  verb.footer(
      "Without --keep, --older-than and --remove only stale files and unused data are removed.\n" +
      exit_codes({kExitOk, kExitError, kExitUsage, kExitWarnings, kExitAbsent, kExitLocked,
                  kExitIncompatible, kExitCorrupt, kExitRefused}));
  verb.callback([options, context] { context->run([&] { return prune(*options, context); }); });
}

}  // namespace gpuckpt::cli
