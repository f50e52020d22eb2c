// gpuckpt checkpoint: asks a running process for a snapshot and waits until it is durable.

#include <signal.h>
#include <string.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/procfs/namespaces.h"
#include "children.h"
#include "process/process.h"
#include "progress.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

struct Options {
  int pid = 0;
  bool stop = false, no_wait = false, wait = false, self_contained = false;
  std::string timeout, tag, store, children;
  int stop_status = 0;
};

nlohmann::json describe(const wire::CtlReply& reply) {
  return {{"id", reply.id},
          {"stall_us", reply.stall_us},
          {"gate_us", reply.gate_us},
          {"total_us", reply.total_us},
          {"logical_bytes", reply.logical_bytes},
          {"new_bytes", reply.new_bytes},
          {"stored_bytes", reply.stored_bytes},
          {"zero_bytes", reply.zero_bytes},
          {"processes", reply.processes},
          {"warnings", reply.code == kExitWarnings ? reply.text : ""}};
}

void summarise(const wire::CtlReply& reply) {
  uint64_t data = reply.logical_bytes - std::min(reply.zero_bytes, reply.logical_bytes);
  double dirty =
      data ? 100.0 * static_cast<double>(reply.new_bytes) / static_cast<double>(data) : 0;
  if (reply.processes > 1) print(stderr, "{} processes\n", reply.processes);
  print(stderr, "stall {} (driver calls waited {}), durable after {}\n",
        show_duration_us(reply.stall_us), show_duration_us(reply.gate_us),
        show_duration_us(reply.total_us));
  print(stderr, "captured {}, {} of it zero; {:.1f} % of the rest was new ({}), stored as {}\n",
        store::show_size(reply.logical_bytes), store::show_size(reply.zero_bytes), dirty,
        store::show_size(reply.new_bytes), store::show_size(reply.stored_bytes));
}

// Sends one request to one process and waits for its last reply.
Status ask(int pid, const wire::CtlRequest& request, wire::CtlReply* reply) {
  Connection connection;
  if (Status status = connection.open(pid, request); !status.ok()) return status;
  Progress progress;
  do {
    // The library limits the time in which the program is disturbed; writing takes as long as the
    // disk needs, so there is no deadline here.
    if (Status status = connection.receive(0, reply); !status.ok()) return status;
    if (!reply->final) {
      progress.show(fmt::format("{}: {} of {} stored", reply->phase,
                                store::show_size(reply->stored_bytes),
                                store::show_size(reply->logical_bytes)));
    }
  } while (!reply->final);
  progress.clear();
  return Status::Ok();
}

Status checkpoint(const Options& options, Context* context) {
  wire::CtlRequest request = make_request(wire::kCtlCheckpoint);
  if (options.stop) request.flags |= wire::kCtlStop;
  if (options.self_contained) request.flags |= wire::kCtlSelfContained;
  if (options.no_wait) request.flags |= wire::kCtlNoWait;
  if (options.children == "all") request.flags |= wire::kCtlChildrenAll;
  if (options.children == "able") request.flags |= wire::kCtlChildrenAble;
  if (options.children == "ignore") request.flags |= wire::kCtlChildrenIgnore;
  request.stop_status = options.stop_status;
  request.asker = namespaces_of("self");
  request.asker_user = geteuid() + 1;
  if (!options.timeout.empty()) parse_duration(options.timeout, &request.timeout_ms);
  auto copy = [](const std::string& text, char* to, size_t room) {
    if (text.size() >= room) return false;
    memcpy(to, text.c_str(), text.size() + 1);
    return true;
  };
  if (!copy(options.tag, request.tag, sizeof(request.tag)))
    return Status(kExitUsage, fmt::format("the tag has {} bytes; a tag has at most {}",
                                          options.tag.size(), sizeof(request.tag) - 1));
  std::string store = options.store.empty()
                          ? ""
                          : std::filesystem::absolute(options.store).lexically_normal().string();
  if (!copy(store, request.store, sizeof(request.store)))
    return Status(kExitUsage,
                  "the path of the store is too long for a request; name one with a shorter path");

  wire::CtlReply reply;
  if (Status status = ask(options.pid, request, &reply); !status.ok()) return status;
  if (reply.root) {
    const int first = process_beside(options.pid, reply.root);
    if (!first)
      return Status::NotFound(
          fmt::format("the first process of the job of process {} has ended", options.pid));
    print(stderr, "process {} belongs to the job of process {}: all of it is taken\n", options.pid,
          first);
    if (Status status = ask(first, request, &reply); !status.ok()) return status;
  }
  if (reply.code != kExitOk && reply.code != kExitWarnings) {
    return Status(static_cast<ExitCode>(reply.code),
                  reply.text[0] ? reply.text
                                : fmt::format("process {} gives no reason for the snapshot that "
                                              "failed (code {}): start it with GPUCKPT_LOG=debug "
                                              "and see what its log says",
                                              options.pid, reply.code));
  }
  if (context->json) {
    print_json(describe(reply));
  } else if (reply.id[0]) {
    print("{}\n", reply.id);
  }
  if (!context->json && reply.id[0]) summarise(reply);
  if (reply.code != kExitWarnings) {
    if (reply.text[0]) print(stderr, "{}\n", reply.text);
    return Status::Ok();
  }
  std::istringstream lines(reply.text);
  for (std::string line; std::getline(lines, line);) complain("warning: " + line);
  context->exit_code = kExitWarnings;
  return Status::Ok();
}

}  // namespace

void define_checkpoint(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  Verb verb = line.verb("checkpoint",
                        "Snapshot a running process; prints the snapshot's id when it is durable");
  verb.option("PID", options->pid, "The process, or any process of a job of several")
      .required()
      .process();
  verb.flag("--stop", options->stop, "End the process once the snapshot is durable");
  verb.option("--stop-status", options->stop_status, "With --stop: the status it ends with")
      .env("GPUCKPT_STOP_STATUS")
      .range(0, 255);
  verb.flag("--wait", options->wait, "Wait until the snapshot is durable (the default)");
  verb.flag("--no-wait", options->no_wait, "Return as soon as the process runs again")
      .excludes("--wait");
  verb.option("--timeout", options->timeout,
              "Give up when the process cannot be stopped within this (default 60s)")
      .env("GPUCKPT_TIMEOUT")
      .duration();
  verb.flag("--self-contained", options->self_contained,
            "Store the files that the process maps as well: a restore does not need them");
  add_children(verb, &options->children);
  verb.option("--tag", options->tag, "A name for the snapshot: STORE@TAG");
  verb.option("--store", options->store, "Another store than the process was started with");
  add_json(verb, context);
  verb.footer(exit_codes({kExitOk, kExitError, kExitUsage, kExitWarnings, kExitAbsent, kExitLocked,
                          kExitIncompatible, kExitRefused, kExitTimeout, kExitInterrupted,
                          kExitTerminated}));
  verb.callback([options, context] {
    // The process makes the snapshot, so a signal to the command does not interrupt it.
    for (int number : {SIGINT, SIGTERM}) {
      signal(number, [](int n) { _exit(n == SIGINT ? kExitInterrupted : kExitTerminated); });
    }
    context->run([&] { return checkpoint(*options, context); });
  });
}

}  // namespace gpuckpt::cli
