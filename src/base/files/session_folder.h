// Where the command line meets a process: one of a few folders, in this order.
//
//   $GPUCKPT_SESSION_DIR             alone, where it is set
//   $XDG_RUNTIME_DIR/gpuckpt         where that folder is the user's own (su and sudo keep
//                                    another user's)
//   /tmp/gpuckpt-UID                 any user can make a folder of that name first
//
// The library listens in the first that is safe; the command line looks in all of them.
//
// Owner: none. Threads: any; pure functions but for a stat of the folder. Errors: false, or the end
// of a sentence.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

struct SessionSettings {
  const char* session_dir;  // GPUCKPT_SESSION_DIR; null or empty: not set
  const char* runtime_dir;  // XDG_RUNTIME_DIR
};

// Writes candidate `number` (from 0) for a process of user `uid`. False: there are no more.
bool session_folder(const SessionSettings& settings, uint32_t uid, unsigned number, char* to,
                    size_t room);

// What is wrong with the folder, for a process of that user, as the end of a sentence that begins
// with its name; empty: nothing, or it does not exist.
void session_folder_fault(const char* folder, uint32_t uid, char* to, size_t room);

}  // namespace gpuckpt
