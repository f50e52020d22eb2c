// The courier: a second bare thread with a descriptor table of its own.
//
// Everything the library opens (sockets to the writer, the ring's memfd, /proc files, the command
// line's socket) lives in that table, so that the application never sees a descriptor of ours, and
// cannot close or reuse one, not even while a snapshot is under way. The copy-on-write child is
// cloned by the courier and therefore holds none of the application's descriptors. The courier uses
// raw system calls only; its thread pointer is not a glibc thread.
#pragma once

#include <atomic>

#include "common/heap.h"
#include "gpuckpt/wire.h"

namespace gpuckpt {

class Courier {
 public:
  // Starts the thread (on the coordinator). False: error in `text`.
  bool start(char* text, size_t room);
  void stop();
  int tid() const { return tid_; }
  // In a forked child: what the parent's is doing is not ours.
  void forget();

  // Runs `work(argument)` on the courier's thread and waits for it.
  long run(long (*work)(Courier*, void*), void* argument);

  // --- From any thread: a message on the parent's socket. False: the writer is gone.
  bool post(uint32_t type, uint32_t slot, const char* text);

  // --- Through run(): a job with a writer.
  struct Open {
    const char* hello;    // JSON
    const char* store;    // absolute
    uint64_t timeout_ms;  // for kMsgReady
    int code = 0;         // ExitCode
    char parent[64];      // out: the snapshot that kRunSame may refer to; empty: none
    char text[512];
  };
  static long open_job(Courier*, void* open);  // 0, or -1 with code and text set
  // The same for a member of a job, with the writer of the process that leads (team.h).
  static long open_as_member(Courier*, void* open);
  // What was posted is on its way to the writer, whatever becomes of this process.
  static long send_posted(Courier*, void*);
  // Waits for kMsgDurable or kMsgFailed; 1 = arrived in `message`, 0 = not within `timeout_ms`, -1
  // = writer gone.
  struct Await {
    wire::Msg message;
    uint64_t timeout_ms;
  };
  static long await_message(Courier*, void* await);
  static long close_job(Courier*, void*);

  // --- Through run(): the command line.
  struct Listen {
    wire::CtlRequest request;
    uint64_t timeout_ms;
  };
  static long listen(Courier*, void* listen);  // 1 = request arrived, 0 = nobody came
  static long reply(Courier*, void* ctl_reply);
  static long hang_up(Courier*, void*);
  // Somebody else knocks while a snapshot is under way: says so and hangs up. Waits at most 200 ms.
  static long turn_away(Courier*, void*);

  Region ring;            // mapped while a job is open
  int child_socket = -1;  // for the copied child, in the courier's table
  wire::Msg last{};       // kMsgFailed or kMsgDurable that came unasked
  std::atomic<bool> writer_gone{false};
  int child_pid = 0;

  bool send(int socket, uint32_t type, uint32_t slot, const char* text);

 private:
  friend void courier_main(void*);
  friend class Team;
  void loop();
  bool send_posts();
  long receive(wire::Msg*, int timeout_ms);
  long accept_request(int listener, uint64_t timeout_ms, wire::CtlRequest*, int* socket);
  int make_listener(char* path, size_t room);
  // The ring, and the writer's ends of it and of both sockets.
  struct Channel {
    int ring, parent, child;
  };
  const char* make_channel(Channel* writers, long* error);  // null: made
  long greet(Open*);

  struct Post {
    uint32_t type, slot;
    char text[2048];
  };
  static constexpr uint32_t kPosts = 16;
  Post posts_[kPosts]{};
  std::atomic<uint32_t> posted_{0}, sent_{0};
  std::atomic<uint32_t> post_lock_{0};
  std::atomic<uint32_t> doorbell_{0};
  std::atomic<uint32_t> busy_{0};
  std::atomic<bool> quit_{false};
  long (*work_)(Courier*, void*) = nullptr;
  void* argument_ = nullptr;
  long result_ = 0;
  int tid_ = 0;
  int socket_ = -1;   // parent's
  int command_ = -1;  // accepted connection of the command line
};
extern Courier courier;

}  // namespace gpuckpt
