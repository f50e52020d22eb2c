// gpuckpt resume: a suspended process gets its device memory again and goes on. (What `run
// --resume` does is in resume.cc.)

#include "process.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

Status wake(int pid) {
  Connection connection;
  if (Status status = connection.open(pid, make_request(wire::kCtlResume)); !status.ok())
    return status;
  wire::CtlReply reply;
  do {
    if (Status status = connection.receive(0, &reply); !status.ok()) return status;
  } while (!reply.final);
  if (reply.code != kExitOk) return Status(static_cast<ExitCode>(reply.code), reply.text);
  return Status::Ok();
}

}  // namespace

void define_resume(CLI::App& app, Context* context) {
  auto pid = std::make_shared<int>(0);
  CLI::App* verb = app.add_subcommand("resume", "A suspended process goes on");
  verb->add_option("PID", *pid, "The process")->required()->check(CLI::PositiveNumber);
  verb->footer(
      exit_codes({kExitOk, kExitError, kExitUsage, kExitAbsent, kExitLocked, kExitRefused}));
  verb->callback([pid, context] { context->run([&] { return wake(*pid); }); });
}

}  // namespace gpuckpt::cli
