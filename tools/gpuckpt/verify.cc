// gpuckpt verify: checks that a store is complete, and that every byte is unchanged.

#include <initializer_list>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "process/install.h"
#include "progress.h"
#include "replay.h"
#include "restore/preflight/preflight.h"
#include "store/format/member.h"
#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

// Checks that the snapshot, which is whole, can be restored on this machine, now.
Status check_here(store::Store& store, const std::string& id, Context* context) {
  std::unique_ptr<store::SnapshotReader> reader;
  if (Status status = store.open_snapshot(id, &reader); !status.ok()) return status;
  if (store::members_of(*reader).empty()) return Status::Ok();  // (no program has made it)
  restore::Options options;
  options.launcher = installation().launcher;
  restore::Preflight found;
  if (Status status = restore::preflight(*reader, options, &found); !status.ok()) return status;
  for (const auto* list : {&found.never, &found.here})
    for (const std::string& text : *list)
      complain(fmt::format("warning: {} cannot be restored here: {}", id, text));
  for (const std::string& text : found.differs) complain(fmt::format("warning: {}: {}", id, text));
  if (!found.ok()) context->exit_code = kExitWarnings;
  if (found.ok()) print(stderr, "{} can be restored on this machine, as it is now\n", id);
  return Status::Ok();
}

Status verify(const std::string& reference, bool quick, Context* context) {
  std::string path, name;
  store::split_reference(reference, &path, &name);
  std::unique_ptr<store::Store> store;
  if (Status status = store::Store::open(path, {.any_owner = any_owner()}, &store); !status.ok())
    return status;
  store::VerifyOptions options;
  options.full = !quick;
  if (!name.empty()) {
    if (Status status = store->resolve(name, &options.id); !status.ok()) return status;
  }
  Progress progress;
  options.progress = [&](uint64_t done, uint64_t total) { progress.bar("verify", done, total); };
  store::VerifyReport report;
  if (Status status = store->verify(options, &report); !status.ok()) return status;
  progress.clear();
  if (context->json) {
    nlohmann::json damaged = nlohmann::json::array();
    for (const auto& [id, why] : report.damaged) damaged.push_back({{"id", id}, {"why", why}});
    print_json(nlohmann::json({{"ok", report.ok()},
                               {"full", !quick},
                               {"whole", report.whole},
                               {"damaged", damaged},
                               {"findings", report.findings},
                               {"packs", report.packs},
                               {"pack_bytes", report.pack_bytes},
                               {"checked_bytes", report.checked_bytes}}));
  } else {
    for (const std::string& id : report.whole) print("{}  whole\n", id);
    for (const auto& [id, why] : report.damaged) print("{}  DAMAGED: {}\n", id, why);
  }
  for (const std::string& finding : report.findings) complain(finding);
  print(stderr, "{} snapshot{} whole, {} damaged; {} packs, {}{}\n", report.whole.size(),
        report.whole.size() == 1 ? "" : "s", report.damaged.size(), report.packs,
        store::show_size(report.pack_bytes),
        quick ? " (structure only: without --quick every byte is read)" : ", every byte read");
  if (!report.ok())
    context->exit_code = kExitCorrupt;
  else if (!options.id.empty())
    return check_here(*store, options.id, context);
  else if (!report.whole.empty())
    print(stderr,
          "Not checked: whether they can be restored on this machine, which `gpuckpt verify "
          "{}@latest` (or @ID) asks of one snapshot\n",
          path);
  return Status::Ok();
}

}  // namespace

void define_verify(CommandLine& line, Context* context) {
  auto reference = std::make_shared<std::string>("gpuckpt.store");
  auto quick = std::make_shared<bool>(false);
  Verb verb = line.verb("verify", "Check a store, or one snapshot of it");
  verb.option("STORE[@ID]", *reference, "The store, or one snapshot (id, tag or latest)")
      .env("GPUCKPT_STORE")
      .show_default();
  verb.flag("--quick", *quick, "Structure only: manifests, tables and lengths");
  auto replay = std::make_shared<bool>(false);
  auto seconds = std::make_shared<std::string>("2s");
  auto timeout = std::make_shared<std::string>("60s");
  verb.flag("--replay", *replay,
            "Restore the snapshot twice, let both make the same number of driver calls, and "
            "compare what is on the devices. The program really runs: what it sends, and "
            "files it makes, happen twice")
      .excludes("--quick");
  verb.option("--seconds", *seconds, "With --replay: how long the first of the two runs")
      .needs("--replay")
      .duration();
  verb.option("--timeout", *timeout, "With --replay: for the second to get as far")
      .needs("--replay")
      .duration();
  add_json(verb, context);
  verb.footer(exit_codes({kExitOk, kExitError, kExitUsage, kExitWarnings, kExitAbsent,
                          kExitIncompatible, kExitCorrupt, kExitRefused, kExitTimeout}));
  verb.callback([=] {
    context->run([&] {
      if (!*replay) return verify(*reference, *quick, context);
      ReplayOptions options{.reference = *reference};
      parse_duration(*seconds, &options.run_ms);
      parse_duration(*timeout, &options.timeout_ms);
      return verify_replay(options, context);
    });
  });
}

}  // namespace gpuckpt::cli
