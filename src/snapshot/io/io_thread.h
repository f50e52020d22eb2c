// The I/O thread: a second bare thread with a descriptor table of its own.
//
// Everything the library opens (sockets to the writer, the ring's memfd, /proc files, the command
// line's socket) lives in that table, so that the application never sees a descriptor of ours, and
// cannot close or reuse one, not even while a snapshot is under way. The copy-on-write child is
// cloned by the I/O thread and therefore holds none of the application's descriptors. The I/O
// thread uses raw system calls only; its thread pointer is not a glibc thread.
//
// Owner: one per process, started and stopped by the coordinator for each request. Threads:
// start(), stop() and run() from one thread at a time; the others as said there. Errors: false with
// code and text.
#pragma once

#include <atomic>

#include "base/hash/chunk_hash.h"
#include "base/heap.h"
#include "base/mutex.h"
#include "base/text/failure.h"
#include "gpuckpt/wire.h"

namespace gpuckpt {

class IoThread {
 public:
  // Starts the thread (on the coordinator). False: error in `text`.
  bool start(char* text, size_t room);
  void stop();
  int tid() const { return tid_; }
  // In a forked child: forgets what the parent's I/O thread was doing.
  void forget();

  // Runs `work()` on the I/O thread and waits for what it returns. From one thread at a time.
  template <typename Work>
  long run(Work work) {
    return run_there([](void* w) -> long { return (*static_cast<Work*>(w))(); }, &work);
  }

  // --- From any thread: a message on the parent's socket. False: the writer is gone.
  bool post(uint32_t type, uint32_t slot, const char* text);

  // --- Through run(): a writer.
  struct Open : Failure {
    const char* hello;        // JSON
    const char* store;        // absolute
    uint64_t timeout_ms = 0;  // for kMsgReady
    uint64_t memory = ~0ull;  // that the snapshot may take; ~0: as much as it likes
    char parent[64] = "";     // out: the snapshot that kRunSame may refer to; empty: none
    HashKey names{};          // out, when keyed: how the store names chunks
    bool keyed = false;
  };
  bool open_writer(Open*);  // false: the Failure says why not
  // The same for a member of a job, with the writer of the process that leads (barrier.h).
  bool open_as_member(Open*);
  // Makes sure that posted messages reach the writer whatever becomes of this process.
  void send_posted();
  // Waits for kMsgDurable or kMsgFailed; 1 = arrived in `message`, 0 = not within `timeout_ms`, -1
  // = writer gone.
  long await_message(wire::Msg* message, uint64_t timeout_ms);
  void close_writer();
  // Says why the writer ended, when it ended without a message.
  void describe_writer_end(char* text, size_t room);

  // --- Through run(): the command line.
  bool listen(wire::CtlRequest*, uint64_t timeout_ms);  // false: no request came
  void reply(const wire::CtlReply&);
  void hang_up();
  // Another command line knocks while a snapshot is under way: says so and hangs up. Waits at most
  // 200 ms.
  void turn_away();

  Region ring;            // mapped while a writer is open
  int ring_file = -1;     // what it is mapped of, in this thread's table
  int child_socket = -1;  // for the copied child, in the I/O thread's table
  wire::Msg last{};       // kMsgFailed or kMsgDurable that came unasked
  std::atomic<bool> writer_gone{false};
  int child_pid = 0;
  int asked_pid = 0;  // the clone that is asked for the locks of libc (copied_process.h); 0: none
  bool child_killed = false;  // the copied child was ended by SIGKILL, not by us

  bool send(int socket, uint32_t type, uint32_t slot, const char* text);

 private:
  friend void io_thread_main(void*);
  friend class JobBarrier;
  void loop();
  long receive(wire::Msg*, int timeout_ms);
  bool accept_request(int listener, uint64_t timeout_ms, wire::CtlRequest*, int* socket);
  int make_listener(char* path, size_t room);
  // The ring, and the writer's ends of it and of both sockets.
  struct Channel {
    int ring, parent, child;
  };
  bool make_ring(Channel* writers, char* why, size_t room);
  void keep_ring(int file);
  bool make_channel(Channel* writers, char* why, size_t room);  // false: why not
  bool greet(Open*);
  bool fail_to_open(Open*, int code, const char* what, long error = 0);
  bool fail_for_writer(Open*, const char* what);
  long run_there(long (*work)(void*), void* argument);

  struct Post {
    uint32_t type, slot;
    char text[2048];
  };
  static constexpr uint32_t kPosts = 16;
  Post posts_[kPosts]{};
  std::atomic<uint32_t> posted_{0}, sent_{0};
  Mutex post_mutex_;
  std::atomic<uint32_t> doorbell_{0};
  std::atomic<uint32_t> busy_{0};
  std::atomic<bool> quit_{false};
  long (*work_)(void*) = nullptr;
  void* argument_ = nullptr;
  long result_ = 0;
  int tid_ = 0;
  int socket_ = -1;   // parent's
  int writer_ = -1;   // pidfd; not of a member
  int command_ = -1;  // accepted connection of the command line
};
extern IoThread io_thread;

}  // namespace gpuckpt
