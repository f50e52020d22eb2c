// gpuckpt resume: makes a suspended process take its device memory back and continue. (`run
// --resume` is in process/resume_job.cc.)

#include "process/process.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

struct Options {
  int pid = 0;
  std::string gpu_map;
};

Status wake(const Options& options) {
  wire::CtlRequest request = make_request(wire::kCtlResume);
  if (options.gpu_map.size() >= sizeof request.store)
    return Status(kExitUsage, "the --gpu-map is too long");
  options.gpu_map.copy(request.store, sizeof request.store - 1);
  wire::CtlReply reply;
  return ask_when_free(options.pid, request, &reply);
}

}  // namespace

void define_resume(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  Verb verb = line.verb("resume", "Continue a suspended process");
  verb.option("PID", options->pid, "The process").required().process();
  verb.option("--gpu-map", options->gpu_map,
              "After suspend --release: A=B[,C=D...], its device A becomes device B; each by "
              "its number in the process or its UUID, others keep theirs")
      .device_map();
  verb.footer(exit_codes({kExitOk, kExitError, kExitUsage, kExitAbsent, kExitLocked,
                          kExitIncompatible, kExitRefused}));
  verb.callback([options, context] { context->run([&] { return wake(*options); }); });
}

}  // namespace gpuckpt::cli
