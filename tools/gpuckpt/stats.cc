// gpuckpt stats: what a running process says about itself and its snapshots.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "process.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

void show(const nlohmann::json& j, const std::string& prefix) {
  for (const auto& [key, value] : j.items()) {
    if (value.is_object()) {
      show(value, prefix + key + ".");
    } else {
      fmt::print("{:<28} {}\n", prefix + key,
                 value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

Status stats(int pid, const Context& context) {
  Connection connection;
  if (Status status = connection.open(pid, make_request(wire::kCtlStats)); !status.ok())
    return status;
  wire::CtlReply reply;
  do {
    if (Status status = connection.receive(20'000, &reply); !status.ok()) return status;
  } while (!reply.final);
  if (reply.code != kExitOk) return Status(static_cast<ExitCode>(reply.code), reply.text);
  auto j = nlohmann::json::parse(std::string(reply.text), nullptr, false);
  if (context.json || !j.is_object()) {
    print_json(reply.text);
  } else {
    show(j, "");
  }
  return Status::Ok();
}

}  // namespace

void define_stats(CLI::App& app, Context* context) {
  auto pid = std::make_shared<int>(0);
  CLI::App* verb = app.add_subcommand("stats", "Figures of a running process and its snapshots");
  verb->add_option("PID", *pid, "The process")->required()->check(CLI::PositiveNumber);
  add_json(verb, context);
  verb->footer(exit_codes(
      {kExitOk, kExitError, kExitUsage, kExitAbsent, kExitLocked, kExitRefused, kExitTimeout}));
  verb->callback([pid, context] { context->run([&] { return stats(*pid, *context); }); });
}

}  // namespace gpuckpt::cli
