// Sends the host's pages to the writer: from a copy-on-write child, from a copy of the pages, or
// while the program is stopped.
//
// The child is cloned by the I/O thread, so that it has the I/O thread's descriptors and none of
// the application's.
//
// Owner: the attempt. Threads: the I/O thread. Errors: a negative error number, or false with
// `text`.
#pragma once

#include "snapshot/control/snapshot.h"
#include "snapshot/process/capture.h"

namespace gpuckpt {

// What is sent, and where the reason stands when it cannot be sent.
struct HostSource {
  Capture* capture;
  Records* records;
  bool device;          // there is a driver with state
  uint32_t ring_slots;  // that it may use
  char text[256] = "";
};

// Producer::Post for what goes over the socket of the copied child. ON THE I/O THREAD, or in the
// child.
bool child_post(void*, uint32_t type, uint32_t slot, const char* text);

// ON THE I/O THREAD. The pid of the child, or a negative error number.
long clone_and_send(HostSource*);
// ON THE I/O THREAD. False: `text` says why.
bool send_while_stopped(HostSource*);
// Where pages are copied, a clone without the large mappings, whose page tables are what a clone
// costs, is asked whether a lock of libc is held (libc_probe.h). PARKED, ON THE I/O THREAD; the
// answer is awaited by send_copied_pages. False: only a whole clone can tell.
bool ask_libc_in_small_clone(HostSource*);
// ON THE I/O THREAD. After an attempt that failed: ends the clone if no answer was awaited. Else
// the program would have it as a child that has ended, and the next attempt would find it.
void end_question_to_libc();
bool send_copied_pages(HostSource*);

// ON THE I/O THREAD. Whether the child has done its work, or there is none.
bool copied_process_has_ended();
// ON THE I/O THREAD. Whether the child has more memory to itself than GPUCKPT_COPY_LIMIT allows, or
// than is free.
bool copied_process_is_too_large();

}  // namespace gpuckpt
