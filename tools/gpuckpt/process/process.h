// Requests to a running process that has libgpuckpt.so in it (wire.h, "Command line -> library").
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
  // Waits for the next reply; `timeout_ms` 0: for ever. kExitTimeout: none came.
  store::Status receive(uint64_t timeout_ms, wire::CtlReply* out);

 private:
  static constexpr int kMostAgain = 3;
  store::Status connect_and_ask();
  bool may_ask_again();           // the other end was closed without a reply
  store::Status hung_up() const;  // the meaning of a closed connection

  int process_ = -1;       // pidfd
  bool answered_ = false;  // a reply was received
  int pid_ = 0;
  int socket_ = -1;
  int asked_again_ = 0;
  wire::CtlRequest request_{};
};

// Sends one request and returns its last reply; waits at most `timeout_ms` for each reply (0: for
// ever). Fails with the failure that the process reports.
store::Status ask(int pid, const wire::CtlRequest& request, wire::CtlReply* reply,
                  uint64_t timeout_ms = 0);

// The same; while the process is busy with a snapshot or another command it is asked again, for a
// minute, or as long as the request allows.
store::Status ask_when_free(int pid, const wire::CtlRequest& request, wire::CtlReply* reply);

wire::CtlRequest make_request(wire::CtlVerb verb);

// The id, in this namespace, of the process that is called `inner` in the pid namespace of `pid`;
// 0: there is none.
int process_beside(int pid, int inner);

// What is wrong with the session folders of a process with these settings
// (base/files/session_folder.h), as the first one's name and the end of a sentence; empty: it can
// listen in one of them.
std::string fault_of_session_folders(const std::string& session, const std::string& runtime,
                                     uint32_t user);

// Text of /proc/PID/FILE; empty when it cannot be read.
std::string proc_file(int pid, const char* file);
// The value of "Name:" in /proc/PID/status.
std::string status_field(int pid, const char* name);

}  // namespace gpuckpt::cli
