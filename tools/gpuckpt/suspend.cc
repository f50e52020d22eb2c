// gpuckpt suspend: makes a running process release its device memory and wait.

#include <nlohmann/json.hpp>

#include "process/process.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

struct Options {
  int pid = 0;
  std::string timeout;
  bool release = false;
};

Status suspend(const Options& options, const Context& context) {
  wire::CtlRequest request = make_request(wire::kCtlSuspend);
  if (options.release) request.flags |= wire::kCtlRelease;
  if (!options.timeout.empty()) parse_duration(options.timeout, &request.timeout_ms);
  wire::CtlReply reply;
  if (Status status = ask_when_free(options.pid, request, &reply); !status.ok()) return status;
  if (context.json)
    print_json(nlohmann::json(
        {{"pid", options.pid}, {"bytes", reply.logical_bytes}, {"contexts", options.release}}));
  else
    print("{} bytes of device memory{} given back; `gpuckpt resume {}` continues\n",
          reply.logical_bytes, options.release ? " and the contexts" : "", options.pid);
  return Status::Ok();
}

}  // namespace

void define_suspend(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  Verb verb = line.verb(
      "suspend", "A running process gives its device memory back and waits until it is resumed");
  verb.option("PID", options->pid, "The process").required().process();
  verb.option("--timeout", options->timeout, "Give up when the device is not idle by then")
      .duration();
  verb.flag("--release", options->release, "Give its contexts back, too (drivers from 570 on)");
  add_json(verb, context);
  verb.footer(exit_codes(
      {kExitOk, kExitError, kExitUsage, kExitAbsent, kExitLocked, kExitRefused, kExitTimeout}));
  verb.callback([options, context] { context->run([&] { return suspend(*options, *context); }); });
}

}  // namespace gpuckpt::cli
