// One attempt at a snapshot: from opening the writer to the durable snapshot, or to the reason why
// there is none. All of its state is here, made new for each attempt in memory that no snapshot
// contains.
//
// Owner: the coordinator. Threads: the coordinator; work that opens files or needs the I/O thread's
// descriptors runs on the I/O thread. Errors: the Snapshot's code and text.
#pragma once

#include "snapshot/control/copied_process.h"
#include "snapshot/control/device_work.h"
#include "snapshot/control/memory_budget.h"
#include "snapshot/control/snapshot.h"
#include "snapshot/io/io_thread.h"
#include "snapshot/process/capture.h"

namespace gpuckpt {

enum class Outcome { kDone, kFailed, kRetry };

class Attempt {
 public:
  // *deadline_us: the deadline of all attempts; it moves by the time that copying before the stop
  // takes.
  Attempt(Snapshot* s, uint64_t* deadline_us) : s_(s), deadline_us_(deadline_us) {}
  Outcome run();

 private:
  // The phases, in this order.
  bool may_be_restored();
  bool has_memory();
  bool open_writer();
  Outcome capture();
  bool call_members();
  bool may_be_stopped_now();
  bool may_precopy() const;
  bool look_at_memory();
  bool precopy_memory(Producer* out);
  bool make_ready();
  bool freeze_device();
  Outcome stop_and_capture();
  bool park();
  bool describe();
  bool take_pages_out();
  bool await_files();
  Outcome wake(bool captured);
  void let_others_wake() const;
  void finish_capture();
  Outcome drain_and_publish();
  Outcome close(Outcome);

  void look_at_threads();
  bool park_once();
  bool meet(wire::JobStep);
  void call_off();
  bool child_was_born();
  void say_end();
  bool publish();
  bool await_durable();
  void wait_for_copied_process();
  bool memory_ran_out(bool writer_ended);
  void note_pages();
  void warn_of_namespaces();
  void warn_of_owner();
  bool job_failed();
  bool writer_failed(const wire::Msg&);
  bool writer_failed(const char* otherwise);
  Outcome given_up() const;
  Outcome device_gave_up();

  Snapshot* s_;
  uint64_t* deadline_us_;
  MemoryBudget memory_;
  char hello_[4000] = "";
  IoThread::Open writer_{{}, hello_, s_->store, 30000};
  wire::Msg message_{};  // the writer's last one
  Capture capture_{};
  Producer* producer_ = nullptr;
  DeviceWork device_{};
  HostSource host_{};
  uint64_t stopped_since_us_ = 0;
  bool said_end_ = false;  // to the writer
};

// Tries once. The attempt's state comes and goes with the call.
Outcome attempt(Snapshot*, uint64_t* deadline_us);

}  // namespace gpuckpt
