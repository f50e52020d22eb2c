// gpuckpt repair: makes again what can be derived, and drops what is lost.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "process/store_owner.h"
#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

Status repair(const std::string& path, bool dry_run, Context* context) {
  store::RepairReport report;
  Status status = become_owner_of(path);
  if (!status.ok()) return status;
  status = store::Store::repair(path, {.any_owner = any_owner()}, dry_run, &report);
  if (!status.ok()) return status;
  if (context->json) {
    nlohmann::json lost = nlohmann::json::array();
    for (const auto& [id, why] : report.lost) lost.push_back({{"id", id}, {"why", why}});
    print_json(nlohmann::json({{"whole", report.whole},
                               {"lost", lost},
                               {"rebuilt", report.rebuilt},
                               {"renamed", report.renamed},
                               {"format_rewritten", report.format_rewritten},
                               {"packs_removed", report.packs_removed},
                               {"packs_rewritten", report.packs_rewritten},
                               {"dry_run", dry_run}}));
  } else {
    for (const std::string& id : report.whole) print("{}  whole\n", id);
    for (const auto& [id, why] : report.lost)
      print("{}  {}: {}\n", id, dry_run ? "would be dropped" : "dropped", why);
  }
  if (report.format_rewritten)
    complain(fmt::format("{}/format was damaged: {}", path,
                         dry_run ? "would be written anew" : "written anew"));
  for (const std::string& pack : report.rebuilt) {
    complain(fmt::format("{}: its table {} made again from its frames", pack,
                         dry_run ? "would be" : "was"));
  }
  for (const std::string& pack : report.renamed)
    complain(fmt::format("{} {} found under another name", pack, dry_run ? "would be" : "was"));
  if (!report.lost.empty()) context->exit_code = kExitWarnings;
  return Status::Ok();
}

}  // namespace

void define_repair(CommandLine& line, Context* context) {
  auto path = std::make_shared<std::string>();
  auto dry_run = std::make_shared<bool>(false);
  Verb verb = line.verb(
      "repair", "Make a damaged store usable: rebuild what can be derived, drop what is lost");
  add_store(verb, path.get());
  verb.flag("--dry-run", *dry_run, "Only say what would be done");
  add_json(verb, context);
  verb.footer(
      "Every snapshot that is whole stays. 3: snapshots had to be dropped (named on stdout).\n" +
      exit_codes({kExitOk, kExitError, kExitUsage, kExitWarnings, kExitAbsent, kExitLocked,
                  kExitIncompatible, kExitCorrupt, kExitRefused}));
  verb.callback(
      [path, dry_run, context] { context->run([&] { return repair(*path, *dry_run, context); }); });
}

}  // namespace gpuckpt::cli
