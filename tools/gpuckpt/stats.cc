// gpuckpt stats: prints the figures that a running process has about itself and its snapshots.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "process/process.h"
#include "store/io/json_text.h"
#include "stores/mirror_status.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

void show(const nlohmann::json& j, const std::string& prefix) {
  for (const auto& [key, value] : j.items()) {
    if (value.is_object()) {
      show(value, prefix + key + ".");
    } else {
      print("{:<28} {}\n", prefix + key,
            store::printable(value.is_string() ? value.get<std::string>() : value.dump()));
    }
  }
}

struct Options {
  int pid = 0;
  std::string window;
};

// Compares the duration of the last snapshot with the time between a notice and the end: the next
// one takes about as long, and must be durable by then.
void judge(const nlohmann::json& j, const Options& options, Context* context) {
  uint64_t window_ms = 0;
  if (options.window.empty() || !parse_duration(options.window, &window_ms)) return;
  if (!j.contains("time_to_durable_us")) {
    complain("warning: no snapshot has been taken yet, so nothing is known of the time it takes");
    context->exit_code = kExitWarnings;
    return;
  }
  uint64_t us = j["time_to_durable_us"].get<uint64_t>();
  if (us <= window_ms * 1000) return;
  complain(
      fmt::format("warning: a snapshot of this process is durable after about {}, later than the "
                  "{} of its notice: take them "
                  "more often (--every), so that less is new, or use a faster store",
                  show_duration_us(us), show_duration_us(window_ms * 1000)));
  context->exit_code = kExitWarnings;
}

// The mirror of the store that the process writes to; null also when it cannot be read.
std::unique_ptr<MirrorStatus> mirror_of(const nlohmann::json& j) {
  std::unique_ptr<store::Store> store;
  auto path = j.find("store");
  if (path == j.end() || !path->is_string()) return nullptr;
  Status status = store::Store::open(path->get<std::string>(), {.any_owner = any_owner()}, &store);
  return status.ok() ? mirror_status(*store) : nullptr;
}

Status stats(const Options& options, Context* context) {
  int pid = options.pid;
  wire::CtlReply reply;
  if (Status status = ask(pid, make_request(wire::kCtlStats), &reply, 20'000); !status.ok())
    return status;
  auto j = store::parse_json(store::replace_invalid_utf8(reply.text));
  if (!j.is_object())
    return Status::Error(
        "the process answered with text that is not JSON: does it run another version of gpuckpt?");
  const std::unique_ptr<MirrorStatus> mirror = mirror_of(j);
  if (context->json) {
    if (mirror) j["mirror"] = to_json(*mirror);
    print_json(j);
  } else {
    show(j, "");
    if (mirror) print("{:<28} {}\n", "mirror", describe(*mirror));
  }
  judge(j, options, context);
  return Status::Ok();
}

}  // namespace

void define_stats(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  Verb verb = line.verb("stats", "Figures of a running process and its snapshots");
  verb.option("PID", options->pid, "The process").required().process();
  verb.option("--window", options->window,
              "Warn when a snapshot is expected to take longer until it is durable: the time "
              "between notice and end (AWS spot 120s, GCP and Kubernetes 30s)")
      .env("GPUCKPT_WINDOW")
      .duration();
  add_json(verb, context);
  verb.footer(exit_codes({kExitOk, kExitError, kExitUsage, kExitWarnings, kExitAbsent, kExitLocked,
                          kExitRefused, kExitTimeout}));
  verb.callback([options, context] { context->run([&] { return stats(*options, context); }); });
}

}  // namespace gpuckpt::cli
