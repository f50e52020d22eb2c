// Talking to a running process that has libgpuckpt.so in it (wire.h, "Command line -> library").
#pragma once

#include <string>
#include <vector>

#include "gpuckpt/wire.h"
#include "store/status.h"

namespace gpuckpt::cli {

class Connection {
 public:
  ~Connection();
  // Checks that `pid` can be reached, wakes its coordinator and sends the request.
  store::Status open(int pid, const wire::CtlRequest& request);
  // The next reply; `timeout_ms` 0 waits for ever. kExitTimeout: none came.
  store::Status receive(uint64_t timeout_ms, wire::CtlReply* out);

 private:
  static constexpr int kMostAgain = 3;
  store::Status connect_and_ask();
  bool may_ask_again();           // the other end was closed without a word
  store::Status hung_up() const;  // what it means that the other end is closed

  int process_ = -1;       // pidfd
  bool answered_ = false;  // something came back
  int pid_ = 0;
  int socket_ = -1;
  int asked_again_ = 0;
  wire::CtlRequest request_{};
};

// One request and its last reply; each reply is awaited for `timeout_ms` at most (0: for ever).
// Fails as the process says it did.
store::Status ask(int pid, const wire::CtlRequest& request, wire::CtlReply* reply,
                  uint64_t timeout_ms = 0);

// The same; while the process is busy with a snapshot, or with another command, it is asked again,
// for a minute, or as long as the request says.
store::Status ask_when_free(int pid, const wire::CtlRequest& request, wire::CtlReply* reply);

wire::CtlRequest make_request(wire::CtlVerb verb);

// The process that is called `inner` in the pid namespace of `pid`, as it is called here; 0: none.
int process_beside(int pid, int inner);

// Text of /proc/PID/FILE; empty when it cannot be read.
std::string proc_file(int pid, const char* file);
// Value of "Name:" in /proc/PID/status.
std::string status_field(int pid, const char* name);

}  // namespace gpuckpt::cli
